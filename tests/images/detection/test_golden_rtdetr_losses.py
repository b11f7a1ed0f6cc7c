"""The authors' losses of RT-DETR, RT-DETRv2 and D-FINE, with and without denoising, and their gradients, reproduced
through the whole network."""

import functools

import numpy as np
import paddle
import pytest

from paddlevit_dist.engine.steps import loss_of
from paddlevit_dist.images.detection.detector import Targets
from paddlevit_dist.images.detection.rtdetr import fine_criterion
from paddlevit_dist.images.detection.rtdetr.criterion import VarifocalCriterion
from paddlevit_dist.images.detection.rtdetr.denoising import ContrastiveNoise, DenoisingQueries
from paddlevit_dist.images.detection.rtdetr.distributions import Bins
from paddlevit_dist.images.detection.rtdetr.fine_criterion import FineCriterion

from .test_golden_rtdetr import GOLDEN, batch_of, network_of, stored

MODELS = {name: about for name, about in GOLDEN["models"].items() if "cases" in about}
EXACT = 1e-9  # in float64
THEIRS = {"class": "vfl", "box": "bbox", "giou": "giou", "fine": "fgl", "distill": "ddf"}
EACH_CASE = [
    pytest.param(model, case, marks=pytest.mark.long if about["parameters"] > 2e7 else ())
    for model, about in MODELS.items()
    for case in about["cases"]
]


def is_fine(model):
    return MODELS[model]["family"] == "d_fine"


def sizes_of(model):
    pictures = np.array(MODELS[model]["batches"][0]["pictures"])
    return pictures[:, 1:]


def targets_of(model, case):
    """The objects of each image, as the criterion has them: in pixels, padded with label -1."""
    about, sizes = MODELS[model]["cases"][case], sizes_of(model)
    numbers = about["boxes"]
    boxes = np.zeros((len(numbers), max(1, *numbers) if len(numbers) > 1 else max(1, numbers[0]), 4))
    labels = np.full(boxes.shape[:2], -1, dtype=np.int64)
    for image, number in enumerate(numbers):
        own = stored()[f"{model}/{case}/boxes{image}"]
        ends = np.concatenate([own[:, :2] - own[:, 2:] / 2, own[:, :2] + own[:, 2:] / 2], 1)
        boxes[image, :number] = ends * np.tile(sizes[image][::-1], 2)
        labels[image, :number] = stored()[f"{model}/{case}/labels{image}"]
    targets = Targets(paddle.to_tensor(boxes), paddle.to_tensor(labels), paddle.to_tensor(sizes))
    return targets._replace(denoising=denoising_of(model, case)) if "denoising" in about else targets


def denoising_of(model, case):
    """What transformers drew: all images have the groups that the one with most objects has."""
    about = MODELS[model]["cases"][case]
    numbers, groups = about["boxes"], about["denoising"]["groups"]
    classes, boxes = (stored()[f"{model}/{case}/dn_{name}"] for name in ("classes", "boxes_unact"))
    objects = np.full(classes.shape, max(numbers), np.int64)
    for image, number in enumerate(numbers):
        positive = stored()[f"{model}/{case}/dn_positive{image}"].astype(np.int64)
        objects[image, positive] = np.arange(len(positive)) % max(number, 1)
    of_group = np.arange(classes.shape[1]) // (2 * max(numbers))
    arrays = (
        classes.astype(np.int64),
        boxes,
        np.broadcast_to(of_group, classes.shape).copy(),
        objects,
        np.full(classes.shape, 1 / groups),
    )
    return DenoisingQueries(*map(paddle.to_tensor, arrays))


def criterion_of(model, case, normaliser="global"):
    config, has_noise = MODELS[model]["config"], "denoising" in MODELS[model]["cases"][case]
    noise = ContrastiveNoise(config["num_labels"], config["num_denoising"]) if has_noise else None
    sizes = (config["num_labels"], config["num_queries"], config["decoder_layers"], normaliser)
    options = {
        "class_weight": config["weight_loss_vfl"],
        "box_weight": config["weight_loss_bbox"],
        "giou_weight": config["weight_loss_giou"],
        "cost_class": config["matcher_class_cost"],
        "cost_box": config["matcher_bbox_cost"],
        "cost_giou": config["matcher_giou_cost"],
        "alpha": config["focal_loss_alpha"],
        "noise": noise,
    }
    if not is_fine(model):
        return VarifocalCriterion(*sizes, **options)
    weights = {"fine_weight": config["weight_loss_fgl"], "distill_weight": config["weight_loss_ddf"]}
    return FineCriterion(
        *sizes, **weights, **options, bins=Bins(config["max_num_bins"], config["up"], config["reg_scale"])
    )


@functools.cache
def in_float64(model):
    network = network_of(model, "float64")
    return network, batch_of(model, "float64")


def outputs_of(model, targets):
    network, images = in_float64(model)
    return network, network(images, None, targets)


def stored_objects(model, case, targets, name="assignment"):
    """The objects of each query: of a query without one their largest number."""
    queries, (images, most) = MODELS[model]["config"]["num_queries"], targets.labels.shape
    first = stored()[f"{model}/{case}/{name}0"]
    layers = first.shape[0] if first.ndim == 3 else 1
    objects = np.full((layers, images, queries), most)
    for image in range(images):
        for layer, (rows, columns) in enumerate(stored()[f"{model}/{case}/{name}{image}"].reshape(layers, 2, -1)):
            objects[layer, image, rows] = columns
    return objects


def in_their_order(model, ours):
    """Heads as the golden file has them: D-FINE's first box head before the layers."""
    last = len(ours) - 2
    return np.concatenate([ours[last : last + 1], ours[:last], ours[last + 1 :]]) if is_fine(model) else ours


def suffixes_of(model, name, number):
    """Of their losses, in the order of our heads."""
    layers = MODELS[model]["config"]["decoder_layers"]
    if "denoising" in name:
        return [f"_dn_{layer}" for layer in range(layers)][:number] + (["_dn_pre"] if number > layers else [])
    others = ["_pre", "_enc_0"] if is_fine(model) else [f"_aux_{layers - 1}"]
    ordinary = [f"_aux_{layer}" for layer in range(layers - 1)]
    return ordinary if number < layers else [*ordinary, "", *others][:number]


@pytest.mark.parametrize(("model", "case"), EACH_CASE)
def test_golden_assignment_and_every_loss(model, case):
    about, targets, criterion = MODELS[model]["cases"][case], targets_of(model, case), criterion_of(model, case)
    _, outputs = outputs_of(model, targets)
    heads = criterion.heads(outputs)
    matches = criterion.matches(heads, targets)
    np.testing.assert_array_equal(in_their_order(model, matches.object_of), stored_objects(model, case, targets))
    more, pairs = {}, max(1, sum(about["boxes"]))
    objects = pairs
    if is_fine(model):
        more["union"] = stored_objects(model, case, targets, "union")[0]
        pairs = max(1, (more["union"] < targets.labels.shape[1]).sum())
    sums = criterion.layer_sums(outputs, heads, targets, matches, **more)
    seen = set()
    for name, values in sums.items():
        kind = name.replace("_denoising", "")
        if kind not in THEIRS:
            continue
        divided_by = 1 if kind == "distill" else objects if kind == "class" or kind != name else pairs
        found = values.numpy() * criterion.weights[kind] / divided_by
        for suffix, value in zip(suffixes_of(model, name, len(found)), found, strict=True):
            expected = about["losses"][f"loss_{THEIRS[kind]}{suffix}"]
            assert abs(value - expected) <= EXACT * max(1, abs(expected)), (name, suffix)
            seen.add(f"loss_{THEIRS[kind]}{suffix}")
    not_seen = {name for name in set(about["losses"]) - seen - {"total"} if about["losses"][name] != 0}
    assert not not_seen


@pytest.mark.parametrize(("model", "case"), EACH_CASE)
def test_golden_total_and_gradients_of_the_original(model, case, monkeypatch):
    about, targets = MODELS[model]["cases"][case], targets_of(model, case)
    network, outputs = outputs_of(model, targets)
    if about.get("union_ties"):  # torch's choice among equal numbers
        union = stored_objects(model, case, targets, "union")[0]
        monkeypatch.setattr(fine_criterion, "union_of", lambda *_: union)
    losses = []
    for normaliser in ("global", "reference"):
        criterion = criterion_of(model, case, normaliser)
        counts = criterion.counts({"labels": targets.labels.numpy()})
        counts = {name: max(count, 1) for name, count in counts.items()}
        losses.append(loss_of(criterion.terms(outputs, targets), counts, accumulation_steps=1, processes=1))
        assert abs(losses[-1].item() - about["losses"]["total"]) <= EXACT * about["losses"]["total"]
    norms = about.get("gradient_norms_original", about["gradient_norms"])
    kind = "gradient_samples_original" if "gradient_norms_original" in about else "gradient_samples"
    assert_gradients(model, network, losses[0], norms, stored()[f"{model}/{case}/{kind}"])


def assert_gradients(model, network, loss, norms, expected_samples):
    keys = [next(iter(network.key_maps["Hugging Face"]({key: np.zeros(1)}))) for key in MODELS[model]["gradient_names"]]
    parameters = dict(network.named_parameters())
    network.clear_gradients()
    loss.backward()
    largest = max(norms)
    # torch's batch norm in evaluation mode gives the maps of a single image a wrong gradient on CPUs (seen with its
    # 2.x: that of its output times weight / deviation is another), so what the file has before them is wrong too.
    is_alone = len(MODELS[model]["batches"][0]["pictures"]) == 1
    for name, norm, expected in zip(keys, norms, expected_samples, strict=True):
        if is_alone and not name.startswith(("decoder.", "enc_", "denoising_")):
            continue
        gradient = parameters[name].grad
        array = np.zeros(1) if gradient is None else gradient.numpy()
        if array.ndim == 2 and "denoising_class_embed" not in name:  # Linear weights are (in, out)
            array = array.T
        assert abs(np.linalg.norm(array) - norm) <= 1e-8 * largest, name
        samples = array.ravel()[np.arange(len(expected)) * (array.size - 1) // (len(expected) - 1)]
        assert np.abs(samples - expected).max() <= 1e-8 * largest, name
