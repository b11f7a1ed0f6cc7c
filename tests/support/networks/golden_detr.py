"""The authors' DETR of tests/golden/detr.json, with every dimension from the file, and what it computes."""

import functools

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.detr.network import Detr
from paddlevit_dist.images.detection.detr.transformer import sine_embedding
from support.networks.golden import noisy_image
from support.networks.golden_networks import GoldenNetworks, building, find_by_ending, sample

FILE = GoldenNetworks("detr", large=2e7)
GOLDEN, MODELS, stored = FILE.about, FILE.models, FILE.stored
models, cases = FILE.list_models, functools.partial(FILE.list_parts, "cases")
ALLOWED = 10  # times the float32 error of PyTorch
EXACT = 1e-9  # in float64


@functools.cache
def make_weights(model):
    """The state under the names of transformers 5, float32."""
    about = MODELS[model]
    shapes = about["state"].items()
    return {key: FILE.draw(key, tuple(shape)) * find_by_ending(about["gain"], key, 1) for key, shape in shapes}


def make_network(model, dtype):
    """The network with these weights, in evaluation mode."""
    config = MODELS[model]["config"]
    with building(dtype):
        network = Detr(
            num_classes=config["classes"],
            backbone=config["backbone"],
            embed_dim=config["d_model"],
            num_heads=config["heads"],
            feedforward=config["feedforward"],
            encoder_layers=config["encoder_layers"],
            decoder_layers=config["decoder_layers"],
            num_queries=config["queries"],
        )
        network.eval()
        load_weights(network, make_weights(model), strict=True)
    return network


def make_batch(model, dtype):
    """Images, padded, and their sizes."""
    about = MODELS[model]
    images = np.zeros((len(about["pictures"]), 3, *about["padded"]), dtype=np.float32)
    for number, (height, width) in enumerate(about["pictures"]):
        images[number, :, :height, :width] = noisy_image(GOLDEN["seed"], number, height, width)
    return paddle.to_tensor(images.astype(dtype)), paddle.to_tensor(np.array(about["pictures"], dtype=np.int64))


def under_authors_names(model):
    """The same state as the authors' checkpoints have it, with joint projections."""
    about, result = MODELS[model], {}
    for key, value in make_weights(model).items():
        name, part = (
            (about["original"][key], None) if isinstance(about["original"][key], str) else about["original"][key]
        )
        if part is None:
            result[name] = value
        else:
            joint = result.setdefault(name, np.zeros(about["original_shapes"][name], np.float32))
            joint[part * len(value) : (part + 1) * len(value)] = value
    return result


def under_older_names(model, with_timm):
    """The same state as transformers 4 has it, with its own ResNet or with timm's."""
    about, result = MODELS[model], {}
    for key, value in make_weights(model).items():
        name = key.replace("mlp.fc", "fc").replace("o_proj", "out_proj")
        name = name.replace("model.backbone.model.", "model.backbone.conv_encoder.model.")
        if with_timm and "backbone" in name:
            theirs = about["original"][key].replace("backbone.0.body.", "")
            name = f"model.backbone.conv_encoder.model.{theirs}"
        result[name] = value
    return result


def make_targets(model, case):
    """The objects of each image, as the criterion has them: in pixels, padded with label -1."""
    sizes = np.array(MODELS[model]["pictures"])
    boxes, labels = FILE.pad_objects(f"{model}/{case}", MODELS[model]["cases"][case]["boxes"], sizes)
    return DetectionTargets(paddle.to_tensor(boxes), paddle.to_tensor(labels), paddle.to_tensor(sizes))


@functools.cache
def in_float64(model):
    """Network, images, sizes, and outputs that can be differentiated; what the tests of a model share."""
    network = make_network(model, "float64")
    images, sizes = make_batch(model, "float64")
    return network, images, sizes, network(images, sizes)


def require_the_same_under_all_names(model):
    network, *_ = in_float64(model)
    expected = Detr.key_maps["Hugging Face"](make_weights(model))
    assert set(expected) == set(network.state_dict())
    states = {
        "the authors'": [under_authors_names(model)],
        "Hugging Face": [under_older_names(model, with_timm) for with_timm in (False, True)],
    }
    for owner, variants in states.items():
        for state in variants:
            found = Detr.key_maps[owner](state)
            assert set(found) == set(expected), owner
            for name, value in found.items():
                np.testing.assert_array_equal(value, expected[name], err_msg=name)


def make_criterion(model, normalizer):
    config = MODELS[model]["config"]
    options = {"num_queries": config["queries"], "decoder_layers": config["decoder_layers"]}
    return Detr.criterion("detr", config["classes"], {"normalizer": normalizer}, **options)


def total_loss(criterion, outputs, targets):
    """As the engine forms it on one device without accumulation."""
    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    at_least_one = {name: max(count, 1) for name, count in counts.items()}
    return compute_loss(criterion.terms(outputs, targets), at_least_one, accumulation_steps=1, processes=1)


def assert_outputs(model, outputs, logits_within, boxes_within):
    step = MODELS[model]["aux_query_step"]
    for name, within in (("logits", logits_within), ("boxes", boxes_within)):
        assert np.abs(outputs[name].numpy() - stored()[f"{model}/{name}"]).max() <= within
        earlier = outputs[f"layer_{name}"].numpy()[:-1]
        earlier = earlier[:, :, ::step] if name == "logits" else earlier
        assert np.abs(earlier - stored()[f"{model}/aux_{name}"]).max() <= within
        np.testing.assert_array_equal(outputs[f"layer_{name}"][-1].numpy(), outputs[name].numpy())


def require_outputs(model):
    assert_outputs(model, in_float64(model)[3], EXACT, EXACT)


def require_outputs_in_float32(model):
    network, error = make_network(model, "float32"), MODELS[model]["float32_error"]
    with paddle.no_grad():
        outputs = network(*make_batch(model, "float32"))
    assert_outputs(model, outputs, ALLOWED * error["logits"], ALLOWED * error["boxes"])


def require_mask_position_features_and_memory(model):
    network, images, sizes, _ = in_float64(model)
    about = MODELS[model]
    with paddle.no_grad():
        features = network.feature_map(images, sizes)
        cells = network.cells(images, features, sizes)
        position = sine_embedding(cells, network.embed_dim, "float64")
        _, memory = network.encode(images, sizes)

    np.testing.assert_array_equal(cells.padding().numpy(), stored()[f"{model}/feature_mask"])
    grid = about["memory_shape"]
    found = {
        "features": features.numpy(),
        "position": position.transpose([0, 2, 1]).reshape(about["position_shape"]).numpy(),
        "memory": memory.transpose([0, 2, 1]).reshape(grid).numpy(),
    }
    assert list(found["features"].shape) == about["feature_shape"]
    for name, array in found.items():
        expected = stored()[f"{model}/{name}"]
        assert np.abs(sample(array, len(expected)) - expected).max() <= EXACT


def require_detections(model):
    network, _, sizes, outputs = in_float64(model)
    targets = np.array(MODELS[model]["target_sizes"])
    detections = network.decode(outputs, sizes.numpy(), targets)
    for image, found in enumerate(detections):
        scores, labels, boxes = (stored()[f"{model}/post_{name}"][image] for name in ("scores", "labels", "boxes"))
        order = np.argsort(-scores.astype(np.float32), kind="stable")  # ours are sorted
        np.testing.assert_allclose(found.scores, scores[order], rtol=1e-5)
        np.testing.assert_array_equal(found.labels, labels[order])
        np.testing.assert_allclose(found.boxes, boxes[order], atol=1e-6 * targets.max())


def require_assignment_losses_and_gradients(model, case):
    network, _, _, outputs = in_float64(model)
    about, targets, criterion = MODELS[model]["cases"][case], make_targets(model, case), make_criterion(model, "global")
    losses = criterion.layer_losses(outputs["layer_logits"], outputs["layer_boxes"], targets)

    queries = network.query_embed.weight.shape[0]
    for image in range(len(about["boxes"])):
        for layer, (rows, columns) in enumerate(stored()[f"{model}/{case}/assignment{image}"]):
            expected = np.full(queries, targets.labels.shape[1])
            expected[rows] = columns
            np.testing.assert_array_equal(losses.matches.object_of[layer, image], expected)
            np.testing.assert_array_equal(np.flatnonzero(losses.matches.weight_of[layer, image]), np.sort(columns))

    counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
    last = len(losses.label) - 1
    for name, sums in (("class", losses.label), ("box", losses.box), ("giou", losses.giou)):
        theirs = {"class": "loss_ce", "box": "loss_bbox", "giou": "loss_giou"}[name]
        for layer, found in enumerate(sums.numpy() / max(counts[name], 1)):
            expected = about["losses"][theirs if layer == last else f"{theirs}_{layer}"]
            assert abs(found - expected) <= EXACT * max(1, expected)

    loss = total_loss(criterion, outputs, targets)
    for found in (loss, total_loss(make_criterion(model, "reference"), outputs, targets)):
        assert abs(found.item() - about["losses"]["total"]) <= EXACT * about["losses"]["total"]
    assert_gradients(network, loss, about["gradient_norms"], stored()[f"{model}/{case}/gradient_samples"])


def assert_gradients(network, loss, norms, expected_samples):
    keys = Detr.key_maps["Hugging Face"]({key: np.zeros(1) for key in norms})
    parameters = dict(network.named_parameters())
    # All of them, not paddle.grad of some: Paddle's layer norm on CPUs gives its input a wrong gradient where that of
    # its weight is not asked for.
    network.clear_gradients()
    loss.backward(retain_graph=True)
    largest = max(norms.values())
    for name, norm, expected in zip(keys, norms.values(), expected_samples):
        array = parameters[name].grad.numpy()
        array = array.T if array.ndim == 2 and "query_embed" not in name else array  # Linear weights are (in, out)
        assert abs(np.linalg.norm(array) - norm) <= 1e-8 * largest
        assert np.abs(sample(array, len(expected)) - expected).max() <= 1e-8 * largest
    frozen = [name for name, parameter in parameters.items() if parameter.stop_gradient]
    assert {name.split(".")[1] for name in frozen} == {"conv1", "layer1"}  # batch norms have no parameters at all
