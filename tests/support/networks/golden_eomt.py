"""EoMT of tests/golden/eomt.json, transformers' and the authors', with every dimension from the file."""

import functools
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.images.mask_queries import criterion as criteria
from paddlevit_dist.images.mask_queries.criterion import MaskQueryCriterion, QueryTargets
from paddlevit_dist.images.mask_queries.matching import list_query_pairs
from paddlevit_dist.images.mask_queries.network import Eomt
from paddlevit_dist.images.mask_queries.points import MaskStack
from support.networks.golden import recipe
from support.networks.golden_networks import GoldenNetworks, building, find_by_ending, sample

FILE = GoldenNetworks("eomt", large=1e7)
GOLDEN, MODELS, stored = FILE.about, FILE.models, FILE.stored
runs, cases = (functools.partial(FILE.list_parts, kind) for kind in ("runs", "cases"))
ALLOWED = 10  # times the float32 error of PyTorch
EXACT = 1e-10  # in float64


def random(key: str) -> np.random.Generator:
    return recipe()._rng(GOLDEN["seed"], key)


def options(model: str) -> dict[str, Any]:
    """The arguments of the network."""
    config = MODELS[model]["config"]
    backbone = {
        "embed_dim": config["hidden_size"],
        "depth": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "patch_size": config["patch_size"],
        "registers": config["num_register_tokens"],
        "norm_epsilon": config["layer_norm_eps"],
    }
    if config["kind"] == "eomt_dinov3":
        name = "vit_small_patch16_dinov3_qkvb"
        backbone["mlp_ratio"] = config["intermediate_size"] / config["hidden_size"]
    elif config.get("use_swiglu_ffn"):
        name = "vit_giant_patch14_reg4_dinov2"
        hidden = (int(config["mlp_ratio"] * config["hidden_size"] * 2 / 3) + 7) // 8 * 8
        backbone["mlp_ratio"] = (hidden + 0.5) / config["hidden_size"]
    else:
        name, backbone["mlp_ratio"] = "vit_small_patch14_reg4_dinov2", config["mlp_ratio"]
    return {
        "image_size": config["image_size"],
        "backbone": name,
        "backbone_options": backbone,
        "num_queries": config["num_queries"],
        "num_blocks": config["num_blocks"],
    }


def make_weights(model: str) -> dict[str, np.ndarray]:
    """The state under transformers' names, float32."""
    about, state = MODELS[model], {}
    for key, shape in about["state"].items():
        if key in ("attn_mask_probs", "criterion.empty_weight"):
            continue
        gain, offset = find_by_ending(about["gain"], key, 1), find_by_ending(about["offset"], key, 0)
        state[key] = FILE.draw(key, tuple(shape)) * gain + offset
    return state


def make_network(model: str, dtype: str, state: dict[str, np.ndarray] | None = None) -> Eomt:
    """The network with these weights, in evaluation mode."""
    with building(dtype):
        network = Eomt(MODELS[model]["config"]["num_labels"], **options(model))
        report = load_weights(network, make_weights(model) if state is None else state, strict=True)
    assert report.unexpected == []
    network.eval()
    return network


def make_images(model: str, dtype: str) -> paddle.Tensor:
    about = MODELS[model]
    images = recipe().golden_image(GOLDEN["seed"], about["pictures"], about["config"]["image_size"])
    return paddle.to_tensor(images.astype(dtype))


def give_draws(network: Eomt, model: str, run: str, shapes: list[list[int]]) -> Iterator[paddle.Tensor]:
    """Let a network draw the file's numbers; what it does not draw is of the losses."""
    drawn = (
        (shape, random(f"{model}/{run}/rand{number}").random(tuple(shape), dtype=np.float32))
        for number, shape in enumerate(shapes)
    )

    def draw(shape):
        expected, numbers = next(drawn)
        assert list(shape) == list(expected), (shape, expected)
        return paddle.to_tensor(numbers)

    network.draw = draw
    return drawn


def require_outputs(model: str, run: str, dtype: str) -> None:
    """Compare classes, masks, tokens and what queries see with the file's."""
    about, network = MODELS[model]["runs"][run], make_network(model, dtype)
    errors = about["float32_error"]
    bounds = {name: EXACT if dtype == "float64" else ALLOWED * errors[name] for name in errors}
    if about["training_mode"]:
        network.train()
    rest = give_draws(network, model, run, about["draws"])
    tokens, seen = _watch(network)
    with paddle.no_grad():
        images = make_images(model, dtype)
        all_of_it = run != "off"
        predictions = network.predict_all(images, about["attn_mask_probs"]) if all_of_it else [network.predict(images)]
    assert next(rest, None) is None and len(predictions) == about["predictions"]
    classes = np.stack([each.classes.numpy() for each in predictions])
    expected = stored()[f"{model}/{run}/classes"]
    if expected.shape[1:] != classes.shape[1:]:
        classes = np.stack([sample(each, expected.shape[1]) for each in classes])
    np.testing.assert_allclose(classes, expected, rtol=0, atol=bounds["classes"])
    masks = [each.masks.numpy() for each in predictions]
    assert list(masks[0].shape) == about["mask_shape"]
    expected = stored()[f"{model}/{run}/masks"]
    np.testing.assert_allclose(
        [sample(each, expected.shape[1]) for each in masks], expected, rtol=0, atol=bounds["masks"]
    )
    expected = stored()[f"{model}/{run}/tokens"]
    found = [sample(each, expected.shape[1]) for each in tokens]
    np.testing.assert_allclose(found, expected, rtol=0, atol=EXACT if dtype == "float64" else 1e-4)
    _require_bits(model, run, seen, dtype)


def _require_bits(model: str, run: str, seen: list[np.ndarray], dtype: str) -> None:
    if f"{model}/{run}/attention" not in stored():
        return
    shape = MODELS[model]["runs"][run]["attention_shape"]
    bits = np.unpackbits(stored()[f"{model}/{run}/attention"], count=int(np.prod(shape))).reshape(shape)
    differ = int((np.stack(seen).reshape(shape) != bits).sum())
    assert differ <= (sum(MODELS[model]["runs"][run]["float32_attention_differs"]) if dtype == "float32" else 0)


def _watch(network: Eomt) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Keep the tokens that enter and leave blocks, and what queries see."""
    tokens: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    blocks = network.backbone.blocks
    blocks[0].register_forward_pre_hook(lambda layer, inputs: tokens.append(inputs[0].numpy()))
    for block in blocks:
        block.register_forward_post_hook(lambda layer, inputs, output: tokens.append(output.numpy()))
    choose = network.choose_patches

    def watch(*arguments):
        shown = choose(*arguments)
        seen.append(shown.numpy())
        return shown

    network.choose_patches = watch
    return tokens, seen


def name_like_authors(model: str) -> dict[str, np.ndarray]:
    """The state under the authors' names, with what else their files have."""
    kind, state = MODELS[model]["config"]["kind"], make_weights(model)
    if kind == "eomt":
        for query in [name for name in state if ".attention.q_proj." in name]:
            parts = [state.pop(query.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            state[query.replace(".attention.q_proj.", ".attn.qkv.")] = np.concatenate(parts)
        for gate in [name for name in state if ".gate_proj." in name]:
            parts = [state.pop(gate), state.pop(gate.replace("gate_proj", "up_proj"))]
            state[gate.replace("gate_proj", "fc1")] = np.concatenate(parts)
            state[gate.replace("gate_proj", "fc2")] = state.pop(gate.replace("gate_proj", "down_proj"))
        state["embeddings.position_embeddings.weight"] = state["embeddings.position_embeddings.weight"][None]
    rules = [*GOLDEN["original_names"]["both"], *GOLDEN["original_names"][kind]]
    theirs = {f"network.encoder.{name}": np.zeros((1, 3, 1, 1), np.float32) for name in ("pixel_mean", "pixel_std")}
    theirs["network.attn_mask_probs"], theirs["criterion.empty_weight"] = np.zeros(3), np.ones(3)
    for name, value in state.items():
        renamed = next((re.sub(*rule, name) for rule in rules if re.search(rule[0], name)), name)
        theirs[f"network.{renamed}"] = value
    return theirs


def make_targets(model: str, case: str) -> QueryTargets:
    """The objects of a case."""
    counts, side = MODELS[model]["cases"][case]["objects"], MODELS[model]["config"]["image_size"]
    most = max(1, *counts)
    labels, masks = np.full((len(counts), most), -1), np.zeros((len(counts), most, side, side), np.uint8)
    for image, objects in enumerate(counts):
        labels[image, :objects] = stored()[f"{model}/{case}/labels{image}"]
        shape = (objects, side, side)
        bits = np.unpackbits(stored()[f"{model}/{case}/masks{image}"], count=int(np.prod(shape)))
        masks[image, :objects] = bits.reshape(shape)
    return QueryTargets(MaskStack(paddle.to_tensor(masks)), paddle.to_tensor(labels), np.array(counts))


def _give_points(criterion: MaskQueryCriterion, model: str, case: str) -> None:
    """Let a criterion draw the file's points: it matches all predictions first, and then computes losses."""
    about = MODELS[model]["cases"][case]
    images, first = len(about["objects"]), about["draws_before_losses"]
    numbers = []
    for number, shape in enumerate(about["draws"]):
        numbers.append(random(f"{model}/{case}/rand{number}").random(tuple(shape), dtype=np.float32))
    each = images + 2
    heads = [numbers[first + each * head : first + each * (head + 1)] for head in range(criterion.predictions)]
    drawn = [np.concatenate(head[:images]) for head in heads]
    drawn += [part for head in heads for part in head[images:] if len(part)]
    left = iter(drawn)

    def draw(masks, number):
        points = next(left)
        assert points.shape == (masks, number, 2)
        return paddle.to_tensor(points)

    criterion.draw = draw


def compute_losses(model: str, case: str, dtype: str) -> tuple[Eomt, Any, Any]:
    """The network after its forward pass, the loss terms, and the matches."""
    about, config = MODELS[model]["cases"][case], MODELS[model]["config"]
    network = make_network(model, dtype)
    network.train()
    give_draws(network, model, case, about["draws"])
    predictions = network.predict_all(make_images(model, dtype), about["attn_mask_probs"])
    outputs = {}
    for number, prediction in enumerate(predictions):
        outputs.update({f"classes_{number}": prediction.classes, f"masks_{number}": prediction.masks})
    weights = {name: config[name] for name in ("class_weight", "mask_weight", "dice_weight", "no_object_weight")}
    sizes = config["num_labels"], config["num_queries"], len(predictions)
    criterion = MaskQueryCriterion(*sizes, points=config["train_num_points"], **weights)
    _give_points(criterion, model, case)
    matches: list[Any] = []
    match = criterion.match
    criterion.match = lambda *given: matches.append(match(*given)) or matches[-1]
    with mock.patch.object(criteria, "read", lambda *tensors: matches.append(tensors[0].numpy()) or [matches[0]]):
        terms = criterion.terms(outputs, make_targets(model, case))
    return network, terms, matches


def require_losses(model: str, case: str, dtype: str) -> None:
    """Compare assignments, costs, losses and gradients (in float64) with the file's."""
    about = MODELS[model]["cases"][case]
    network, terms, (costs, matches) = compute_losses(model, case, dtype)
    exact = {"float64": EXACT, "float32": 1e-4 if MODELS[model]["parameters"] > FILE.large else 1e-5}[dtype]
    pairs = list_query_pairs(matches, 1, MODELS[model]["config"]["num_queries"])
    for image, objects in enumerate(about["objects"]):
        if not objects:
            assert not any((head.images == image).any() for head in pairs)
            continue
        expected = stored()[f"{model}/{case}/assignment{image}"]
        for head, assigned in zip(pairs, expected):
            chosen = head.images == image
            np.testing.assert_array_equal(head.queries[chosen] % network.num_queries, assigned[0])
            np.testing.assert_array_equal(head.objects[chosen] % max(1, *about["objects"]), assigned[1])
        cost = stored().get(f"{model}/{case}/cost{image}")  # not of the largest network
        if cost is not None:
            np.testing.assert_allclose(costs[0, image, :, :objects], cost, rtol=0, atol=max(1e-9, 10 * exact))
    means = {name: float(term.sum) / max(1, term.count) for name, term in terms.items()}
    for name, theirs in (("class", "loss_cross_entropy"), ("mask", "loss_mask"), ("dice", "loss_dice")):
        values = [each[theirs] for each in about["losses"]]
        np.testing.assert_allclose(means[name], values[-1], rtol=exact, atol=1e-12)
        np.testing.assert_allclose(means[f"{name}_auxiliary"], sum(values[:-1]), rtol=exact, atol=1e-12)
    total = sum(term.sum / max(1, term.count) * term.weight for term in terms.values())
    np.testing.assert_allclose(float(total), about["total"], rtol=exact)
    if dtype == "float64":
        total.backward()
        _require_gradients(network, model, case)


def _require_gradients(network: Eomt, model: str, case: str) -> None:
    """Compare the norm of each parameter's gradient; ours are read under transformers' names."""
    gradients = {name: value.grad.numpy() for name, value in network.named_parameters()}
    total = MODELS[model]["cases"][case]["gradient_norm"]
    norm = np.sqrt(sum(float((value**2).sum()) for value in gradients.values()))
    np.testing.assert_allclose(norm, total, rtol=1e-9)
    names = MODELS[model]["parameter_names"]
    # Where each of their parameters is among ours: its number, read as its weight.
    numbers = {name: np.full(MODELS[model]["state"][name], place + 1, np.float32) for place, name in enumerate(names)}
    squares = np.zeros(len(names))
    for name, value in make_network(model, "float32", numbers).named_parameters():
        places = value.numpy().astype(int) - 1
        np.add.at(squares, places.ravel(), gradients[name].ravel() ** 2)
    expected = stored()[f"{model}/{case}/gradient_norms"]
    np.testing.assert_allclose(np.sqrt(squares), expected, rtol=1e-8, atol=1e-11 * total)


def split_differences(model: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The authors' file of a network on DINOv3, whose backbone is a difference, and what it differs from."""
    generator, base, differences = np.random.default_rng(0), {}, {}
    for name, value in name_like_authors(model).items():
        differences[name] = value
        _, is_backbone, inside = name.partition(".encoder.backbone.")
        if is_backbone:
            differences[name] = generator.standard_normal(value.shape).astype(np.float32) / 100
            inside = re.sub(r"^patch_embed\.", "embeddings.", re.sub(r"^blocks\.", "layer.", inside))
            base[inside] = value - differences[name]
    return differences, {**base, "embeddings.mask_token": np.zeros((1, 1, 2), np.float32)}
