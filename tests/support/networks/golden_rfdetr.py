"""RF-DETR and RF-DETR Seg of tests/golden/rfdetr_seg.json, the authors', with every dimension from the file, and what
they compute."""

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.core.runtime.transfers import read
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.detr import criterion as criteria
from paddlevit_dist.images.detection.rfdetr.key_names import RFDETR
from paddlevit_dist.images.detection.rfdetr.masks import MaskVectors
from paddlevit_dist.images.detection.rfdetr.network import RfDetr
from paddlevit_dist.images.detection.rfdetr.seg_network import RfDetrSeg
from paddlevit_dist.images.mask_queries.mask_logits import resize
from paddlevit_dist.images.run_lengths import decode
from support.networks.cheap_weights import learn_only
from support.networks.golden import recipe
from support.networks.golden_networks import GoldenNetworks, building, find_by_ending, sample

FILE = GoldenNetworks("rfdetr_seg", large=2e7)
GOLDEN, MODELS, stored = FILE.about, FILE.models, FILE.stored
batches, cases = (functools.partial(FILE.list_parts, kind) for kind in ("batches", "cases"))
ALLOWED = 10  # times the float32 error of PyTorch
EXACT = 1e-10  # in float64, relative to the largest value
GRADIENTS = 1e-10  # relative to the norm, in float64
LOSSES = {"float64": EXACT, "float32": 1e-5}  # relative
TERMS = {"class": "loss_ce", "box": "loss_bbox", "giou": "loss_giou", "mask": "loss_mask_ce", "dice": "loss_mask_dice"}
_ROOM = 2e7  # for the elements of a gradient, which are numbered
_LEVELS = {"P3": 3, "P4": 4, "P5": 5}


def has_masks(model: str) -> bool:
    return MODELS[model]["config"]["segmentation_head"]


def options(model: str) -> dict[str, Any]:
    """The arguments of the network."""
    config = MODELS[model]["config"]
    return {
        "backbone_options": {
            "embed_dim": config["encoder_width"],
            "depth": config["encoder_depth"],
            "num_heads": config["encoder_heads"],
            "mlp_ratio": config["encoder_mlp_ratio"],
            "image_size": config["positional_encoding_size"] * config["patch_size"],
            "patch_size": config["patch_size"],
            "windows": config["num_windows"],
            "feature_depths": config["out_feature_indexes"],
        },
        "embed_dim": config["hidden_dim"],
        "num_heads": config["sa_nheads"],
        "sampling_heads": config["ca_nheads"],
        "points": config["dec_n_points"],
        "feedforward": config["dim_feedforward"],
        "decoder_layers": config["dec_layers"],
        "num_queries": config["num_queries"],
        "groups": config["group_detr"],
        "levels": [_LEVELS[scale] for scale in config["projector_scale"]],
    }


def make_weights(model: str) -> Iterator[tuple[str, np.ndarray]]:
    """The state under the authors' names, float32."""
    about = MODELS[model]
    for key, shape in about["state"].items():
        plain = ".".join(part for part in key.replace("enc_out_", "").split(".") if not part.isdecimal())
        empty = np.zeros(shape, np.float32)
        value = FILE.draw(key, tuple(shape)) if empty.size else empty
        yield key, value * find_by_ending(about["gain"], key, 1) + find_by_ending(about["offset"], plain, 0)


@functools.lru_cache(maxsize=2)
def make_network(model: str, dtype: str) -> RfDetr:
    """The network with these weights, in evaluation mode; gradients are of those the file has, and of vectors."""
    with building(dtype):
        family = RfDetrSeg if has_masks(model) else RfDetr
        network = family(MODELS[model]["config"]["class_outputs"], **options(model))
        report = load_weights(network, dict(make_weights(model)), strict=True)
    assert report.unexpected == []
    learn_only(network, {name for name, _ in _find_gradients(model)})
    network.eval()
    return network


def make_images(model: str, batch: int, dtype: str) -> paddle.Tensor:
    about = MODELS[model]["batches"][batch]
    number, _, height, width = about["shape"]
    images = recipe().golden_image(about["image_seed"], number, max(height, width))
    return paddle.to_tensor(images[:, :, :height, :width].astype(dtype))


def make_targets(model: str, case: str) -> DetectionTargets:
    """The objects of the first batch."""
    counts, (height, width) = MODELS[model]["cases"][case]["boxes"], MODELS[model]["batches"][0]["shape"][2:]
    number = len(counts)
    boxes, labels = FILE.pad_objects(f"{model}/{case}", counts, [(height, width)] * number)
    masks = np.zeros((*labels.shape, height, width), np.uint8) if has_masks(model) else None
    for image, objects in enumerate(counts):
        if masks is not None:
            shape = (objects, height, width)
            bits = np.unpackbits(stored()[f"{model}/{case}/masks{image}"], count=int(np.prod(shape)))
            masks[image, :objects] = bits.reshape(shape)
    sizes = paddle.to_tensor(np.full((number, 2), (height, width)))
    return DetectionTargets(
        paddle.to_tensor(boxes),
        paddle.to_tensor(labels),
        sizes,
        np.array(counts),
        None if masks is None else paddle.to_tensor(masks),
    )


def differ(found: Any, expected: np.ndarray) -> float:
    """The largest absolute difference."""
    found = found.numpy() if isinstance(found, paddle.Tensor) else np.asarray(found)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return float(np.abs(found.astype(np.float64) - expected).max()) if found.size else 0.0


def mask_heads(outputs: Any, layers: int, queries: int | None = None) -> np.ndarray:
    """The mask logits of every layer and of the encoder of a pass with targets, of the first queries."""
    heads = []
    for head in range(layers + 1):
        parts = (outputs[f"mask_{name}_{head}"] for name in MaskVectors._fields)
        vectors = MaskVectors(*parts)
        vectors = vectors._replace(queries=vectors.queries[:, :queries], bias=vectors.bias[:, :queries])
        heads.append(vectors.logits().numpy())
    return np.stack(heads)


def _allowed(about: Any, name: str, dtype: str, scale: float) -> float:
    return ALLOWED * about["float32_error"][name] if dtype == "float32" else EXACT * max(1.0, scale)


def require(about: Any, name: str, dtype: str, found: Any, expected: np.ndarray) -> None:
    """Compare within ten times PyTorch's own error in float32, and exactly in float64."""
    error, allowed = differ(found, expected), _allowed(about, name, dtype, float(np.abs(expected).max()))
    assert error <= allowed, f"{name}: {error} > {allowed}"


@contextlib.contextmanager
def note_decoder(network: RfDetr) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Lists that fill with the reference boxes that each decoder layer reads, and with each one's normalized output."""
    references, hidden = [], []
    hooks = [layer.register_forward_pre_hook(lambda _, given: references.append(given[2])) for layer in network.layers]
    hooks.append(network.norm.register_forward_post_hook(lambda _, __, output: hidden.append(output.numpy())))
    yield references, hidden
    for hook in hooks:
        hook.remove()


@paddle.no_grad()
def require_outputs(model: str, batch: int, dtype: str) -> None:
    """Compare maps, selection, and logits, boxes and masks of every layer with the file."""
    network, about, prefix = make_network(model, dtype), MODELS[model]["batches"][batch], f"{model}/batch{batch}"
    images, config, steps = make_images(model, batch, dtype), MODELS[model]["config"], MODELS[model]["steps"]
    layers, queries = config["dec_layers"], config["num_queries"]
    features = network.backbone.feature_maps(images)
    with mock.patch.object(network.backbone, "feature_maps", return_value=features):  # they take most of the time
        with note_decoder(network) as (references, hidden):
            maps, outputs = network.encode(images), network(images)
        learned = (
            network(images, targets=make_targets(model, next(iter(MODELS[model]["cases"])))) if has_masks(model) else {}
        )
    shapes = [list(x.shape) for x in features], [list(x.shape) for x in maps]
    assert shapes == (about["feature_shapes"], about["projector_shapes"])
    for name, key, parts in (("features", "features", features), ("projector", "projector", maps)):
        for number, part in enumerate(parts):
            expected = stored()[f"{prefix}/{key}{number}"]
            require(about, name, dtype, sample(part, len(expected)), expected)
    if dtype == "float32" and not about["float32_selects_the_same"]:
        return
    if dtype == "float64":
        expected = stored()[f"{prefix}/hidden"]
        assert list(np.shape(hidden)) == about["hidden_shape"]
        require(about, "hidden", dtype, sample(hidden, len(expected)), expected)
        for each in references:  # the same in every layer
            require(about, "references", dtype, each[:, :: steps["boxes"]], stored()[f"{prefix}/references"])
    for name in ("logits", "boxes"):
        require(about, name, dtype, outputs[name][:, :: steps[name]], stored()[f"{prefix}/{name}"])
        for number, expected in enumerate(stored()[f"{prefix}/aux_{name}"]):
            require(about, name, dtype, sample(outputs[f"layer_{name}"][number], len(expected)), expected)
        step = steps[name]
        require(
            about, f"encoder_{name}", dtype, outputs[f"encoder_{name}"][:, ::step], stored()[f"{prefix}/encoder_{name}"]
        )
    if has_masks(model):
        assert outputs["masks"].shape == about["mask_shape"]
        heads = mask_heads(learned, layers, queries)
        stored_heads = stored()[f"{prefix}/masks"]
        for found, expected in zip([*heads, outputs["masks"]], [*stored_heads, stored_heads[layers - 1]]):
            require(about, "masks", dtype, sample(found, len(expected)), expected)


def _find_gradients(model: str) -> list[tuple[str, np.ndarray]]:
    """Our names of the parameters whose gradients the file has, and where in the authors' each number is, their layout.

    Numbers of the parameter ``i`` of the file's list are from ``i * _ROOM`` on; others are -1.
    """
    state = {}
    for number, name in enumerate(MODELS[model]["gradient_names"]):
        shape = MODELS[model]["state"][name]
        state[name] = int(number * _ROOM) + np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
        for other in ("query", "key", "value"):
            if ".attention.query." in name:
                state.setdefault(name.replace(".query.", f".{other}."), np.full(shape, -1))
    (to_ours,) = RFDETR.values()
    return list(to_ours(state).items())


def _read_gradients(model: str, network: RfDetr) -> list[np.ndarray]:
    """The gradients of the file's parameters, in their layout."""
    names, parameters = MODELS[model]["gradient_names"], dict(network.named_parameters())
    gradients = [np.full(int(np.prod(MODELS[model]["state"][name])), np.nan) for name in names]
    linear = {f"{name}.weight" for name, layer in network.named_sublayers() if isinstance(layer, paddle.nn.Linear)}
    for name, places in _find_gradients(model):
        gradient = parameters[name].grad.numpy()
        gradient = (gradient.T if name in linear else gradient).reshape(places.shape)
        for number in np.unique(places[places >= 0] // int(_ROOM)).tolist():
            chosen = (places >= 0) & (places // int(_ROOM) == number)
            gradients[number][places[chosen] - int(number * _ROOM)] = gradient[chosen]
    return gradients


def make_criterion(model: str, case: str) -> Any:
    """The criterion with the file's random points, which are drawn for the last layer first."""
    config, weights = MODELS[model]["config"], MODELS[model]["weight_dict"]
    family = RfDetrSeg if has_masks(model) else RfDetr
    losses = {"normalizer": "reference", "class_weight": weights["loss_ce"], "cost_class": config["set_cost_class"]}
    losses.update(box_weight=weights["loss_bbox"], giou_weight=weights["loss_giou"])
    losses.update(cost_box=config["set_cost_bbox"], cost_giou=config["set_cost_giou"])
    if has_masks(model):
        losses.update(mask_weight=weights["loss_mask_ce"], dice_weight=weights["loss_mask_dice"])
        losses.update(cost_mask=config["mask_ce_loss_coef"], cost_dice=config["mask_dice_loss_coef"])
    criterion = family.criterion("rfdetr", config["class_outputs"], losses, **options(model))
    heads, draws = [config["dec_layers"] - 1, *range(config["dec_layers"] - 1), config["dec_layers"]], []
    order = [heads.index(head) for head in range(len(heads))]
    order += [len(heads) + 2 * heads.index(head) + part for head in range(len(heads)) for part in range(2)]
    shapes = MODELS[model]["cases"][case]["draws"]
    draws = iter([number for number in order if number < len(shapes)])

    def draw(masks: int, number: int) -> paddle.Tensor:
        i = next(draws)
        assert shapes[i] == [masks, number, 2]
        random = recipe()._rng(GOLDEN["seed"], f"{model}/{case}/rand{i}")
        return paddle.to_tensor(random.random((masks, number, 2), dtype=np.float32))

    criterion.draw = draw
    return criterion


class Trained(NamedTuple):
    """A pass with targets and what the criterion makes of it."""

    outputs: Any
    matches: Any
    sums: dict[str, np.ndarray]  # of each layer and the encoder
    costs: np.ndarray  # of the last layer's first group, (N, queries, M)
    loss: paddle.Tensor


def train(model: str, case: str, dtype: str) -> Trained:
    network, targets = make_network(model, dtype), make_targets(model, case)
    criterion, seen = make_criterion(model, case), {}
    kind = type(criterion)
    last = (MODELS[model]["config"]["dec_layers"] - 1) * criterion.groups

    def note(name: str, method: Any) -> Any:
        def call(*given: Any) -> Any:
            seen[name] = method(criterion, *given)
            return seen[name]

        return call

    def keep_costs(self: Any, costs: paddle.Tensor, *others: Any) -> Any:
        seen["costs"] = costs[last].numpy()
        return read(costs, *others)

    outputs = network(make_images(model, 0, dtype), None, targets)
    with mock.patch.object(criteria, "read", lambda *tensors: keep_costs(criterion, *tensors)):
        criterion.matches, criterion.layer_sums = note("matches", kind.matches), note("sums", kind.layer_sums)
        terms = criterion.terms(outputs, targets)
    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    loss = compute_loss(terms, {name: max(count, 1) for name, count in counts.items()}, 1, 1)
    sums = {name: value.numpy() for name, value in seen["sums"].items()}
    return Trained(outputs, seen["matches"], sums, seen["costs"], loss)


def require_losses(model: str, case: str, dtype: str) -> None:
    """Compare costs, assignments, and losses of every layer with the file; in float64 outputs and gradients too."""
    about, config = MODELS[model]["cases"][case], MODELS[model]["config"]
    layers, groups, trained = config["dec_layers"], config["group_detr"], train(model, case, dtype)
    if dtype == "float32" and not (about["float32"]["same_selection"] and about["float32"]["same_assignment"]):
        return
    order = [layers - 1, *range(layers - 1), layers]
    for image, number in enumerate(about["boxes"]):
        if not any(about["boxes"]):
            break
        expected = stored()[f"{model}/{case}/assignment{image}"]
        for i, (head, group) in enumerate(itertools.product(order, range(groups))):
            row = head * groups + group
            objects = np.flatnonzero(trained.matches.weight_of[row, image])
            queries = trained.matches.query_of[row, image, objects]
            places = np.argsort(queries)
            pairs = np.stack([queries[places], objects[places]])
            np.testing.assert_array_equal(pairs, expected[i // groups, i % groups])
        if f"{model}/{case}/cost{image}" in stored():
            expected = stored()[f"{model}/{case}/cost{image}"]
            scale = max(1.0, np.abs(expected).max(initial=0))
            error = differ(trained.costs[image, :, :number], expected)
            assert error <= (EXACT if dtype == "float64" else 1e-5) * scale, f"cost{image}: {error}"
    count = max(1, groups * sum(about["boxes"]))
    for ours, theirs in TERMS.items():
        for head in range(layers + 1) if ours in trained.sums else ():
            suffix = "" if head == layers - 1 else "_enc" if head == layers else f"_{head}"
            expected = about["losses"][theirs + suffix]
            error = abs(trained.sums[ours][head] / count - expected)
            assert error <= LOSSES[dtype] * max(1, abs(expected)), f"{theirs}{suffix}: {error}"
    error = abs(trained.loss.item() - about["total"])
    assert error <= LOSSES[dtype] * max(1, about["total"]), f"total: {error}"
    if dtype == "float64":
        require_training(model, case, trained)


def require_training(model: str, case: str, trained: Trained) -> None:
    """Compare outputs of all groups and gradients with the file."""
    layers, prefix, network = MODELS[model]["config"]["dec_layers"], f"{model}/train", make_network(model, "float64")
    for name in ("logits", "boxes"):
        parts = [*trained.outputs[f"layer_{name}"].numpy(), trained.outputs[f"encoder_{name}"].numpy()]
        for found, expected in zip(parts, stored()[f"{prefix}/{name}"]):
            require({}, name, "float64", sample(found, len(expected)), expected)
    if has_masks(model):
        for found, expected in zip(mask_heads(trained.outputs, layers), stored()[f"{prefix}/masks"]):
            require({}, "masks", "float64", sample(found, len(expected)), expected)
    network.clear_gradients()
    trained.loss.backward()
    norms, samples = (stored()[f"{model}/{case}/gradient_{kind}"] for kind in ("norms", "samples"))
    scale = norms.max()
    for gradient, name, norm, some in zip(
        _read_gradients(model, network), MODELS[model]["gradient_names"], norms, samples
    ):
        error = abs(np.linalg.norm(gradient) - norm) / max(norm, 1e-9 * scale)
        assert error <= GRADIENTS, f"{name}: {error}"
        error = np.abs(sample(gradient, len(some)) - some).max() / max(norm, 1e-9 * scale)
        assert error <= GRADIENTS, f"{name}: {error}"
    network.clear_gradients()


@paddle.no_grad()
def require_detections(model: str, batch: int) -> None:
    """Compare scores, labels, boxes in pixels and masks of the pictures with the file, in float64."""
    network, about, prefix = make_network(model, "float64"), MODELS[model]["batches"][batch], f"{model}/batch{batch}"
    outputs = network(make_images(model, batch, "float64"))
    best, sizes = network.best(outputs), np.array(about["target_sizes"])
    require({}, "scores", "float64", best.scores, stored()[f"{prefix}/post_scores"])
    np.testing.assert_array_equal(best.labels.numpy(), stored()[f"{prefix}/post_labels"])
    pixels = best.boxes.numpy() * sizes[:, [1, 0, 1, 0]][:, None]
    require({}, "boxes", "float64", pixels, stored()[f"{prefix}/post_boxes"])
    if not has_masks(model):
        return
    found = network.decode(outputs, sizes, sizes)
    for image, (size, areas) in enumerate(zip(about["target_sizes"], about["post_mask_areas"])):
        masks = [decode(mask, *size) for mask in found[image].masks]
        assert [int(mask.sum()) for mask in masks] == areas
        if f"{prefix}/post_masks{image}" in stored():
            shape = about["post_masks_shape"][image]
            expected = np.unpackbits(stored()[f"{prefix}/post_masks{image}"], count=int(np.prod(shape)))
            np.testing.assert_array_equal(masks[: shape[0]], expected.reshape(shape))
            resized = resize(outputs["masks"][image, about["best_query"][image]], size)
            expected = stored()[f"{prefix}/resized{image}"]
            require({}, "masks", "float64", sample(resized, len(expected)), expected)
