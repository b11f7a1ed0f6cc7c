"""The authors' losses of RT-DETR, RT-DETRv2 and D-FINE of tests/golden/rtdetr.json, with and without denoising, and
their gradients, through the whole network."""

import functools
from unittest import mock

import numpy as np
import paddle

from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.denoising import ContrastiveNoise, DenoisingQueries
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.rtdetr import fine_criterion
from paddlevit_dist.images.detection.rtdetr.criterion import VarifocalCriterion
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.detection.rtdetr.fine_criterion import FineCriterion
from paddlevit_dist.images.detection.rtdetr.network import RtDetr
from support.networks.cheap_weights import learn_only
from support.networks.golden_networks import sample
from support.networks.golden_rtdetr import EXACT, FILE, MODELS, is_fine, make_images, shared_network, stored

THEIRS = {"class": "vfl", "box": "bbox", "giou": "giou", "fine": "fgl", "distill": "ddf"}


def make_targets(model: str, case: str) -> DetectionTargets:
    """The objects of each image, as the criterion has them: in pixels, padded with label -1."""
    about, sizes = MODELS[model]["cases"][case], np.array(MODELS[model]["batches"][0]["pictures"])[:, 1:]
    boxes, labels = FILE.pad_objects(f"{model}/{case}", about["boxes"], sizes)
    targets = DetectionTargets(paddle.to_tensor(boxes), paddle.to_tensor(labels), paddle.to_tensor(sizes))
    return targets._replace(denoising=_make_denoising(model, case)) if "denoising" in about else targets


def _make_denoising(model: str, case: str) -> DenoisingQueries:
    """What transformers drew: all images have the groups that the one with most objects has."""
    about = MODELS[model]["cases"][case]
    numbers, groups = about["boxes"], about["denoising"]["groups"]
    classes, boxes = (stored()[f"{model}/{case}/dn_{name}"] for name in ("classes", "boxes_unact"))
    objects = np.full(classes.shape, max(numbers), np.int64)
    for image, number in enumerate(numbers):
        positive = stored()[f"{model}/{case}/dn_positive{image}"].astype(np.int64)
        objects[image, positive] = np.arange(len(positive)) % max(number, 1)
    of_group = np.arange(classes.shape[1]) // (2 * max(numbers))
    groups_of = np.broadcast_to(of_group, classes.shape).copy()
    drawn = (classes.astype(np.int64), boxes, groups_of, objects, np.full(classes.shape, 1 / groups))
    return DenoisingQueries(*map(paddle.to_tensor, drawn))


def make_criterion(model: str, case: str, normalizer: str = "global") -> VarifocalCriterion:
    config, has_noise = MODELS[model]["config"], "denoising" in MODELS[model]["cases"][case]
    sizes = (config["num_labels"], config["num_queries"], config["decoder_layers"], normalizer)
    options = {
        "class_weight": config["weight_loss_vfl"],
        "box_weight": config["weight_loss_bbox"],
        "giou_weight": config["weight_loss_giou"],
        "cost_class": config["matcher_class_cost"],
        "cost_box": config["matcher_bbox_cost"],
        "cost_giou": config["matcher_giou_cost"],
        "alpha": config["focal_loss_alpha"],
        "noise": ContrastiveNoise(config["num_labels"], config["num_denoising"]) if has_noise else None,
    }
    if not is_fine(model):
        return VarifocalCriterion(*sizes, **options)
    weights = {"fine_weight": config["weight_loss_fgl"], "distill_weight": config["weight_loss_ddf"]}
    bins = DistanceBins(config["max_num_bins"], config["up"], config["reg_scale"])
    return FineCriterion(*sizes, **weights, **options, bins=bins)


@functools.cache
def _network(model: str) -> RtDetr:
    network = shared_network(model, "float64")
    learn_only(network, _gradient_names(model, network))
    return network


def _gradient_names(model: str, network: RtDetr) -> list[str]:
    """Our names of the parameters whose gradients the file has, in its order."""
    renamed = network.key_maps["Hugging Face"]
    return [next(iter(renamed({key: np.zeros(1)}))) for key in MODELS[model]["gradient_names"]]


@functools.cache
def _outputs(model: str, with_noise: str | None) -> dict[str, paddle.Tensor]:
    """That can be differentiated; without denoising queries, whatever the targets."""
    targets = make_targets(model, with_noise) if with_noise else None
    return _network(model)(make_images(model, "float64"), None, targets)


def _of_case(model: str, case: str) -> tuple[dict[str, paddle.Tensor], DetectionTargets]:
    has_noise = "denoising" in MODELS[model]["cases"][case]
    return _outputs(model, case if has_noise else None), make_targets(model, case)


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


def make_suffixes(model, name, number):
    """Of their losses, in the order of our heads."""
    layers = MODELS[model]["config"]["decoder_layers"]
    if "denoising" in name:
        return [f"_dn_{layer}" for layer in range(layers)][:number] + (["_dn_pre"] if number > layers else [])
    others = ["_pre", "_enc_0"] if is_fine(model) else [f"_aux_{layers - 1}"]
    ordinary = [f"_aux_{layer}" for layer in range(layers - 1)]
    return ordinary if number < layers else [*ordinary, "", *others][:number]


def require_assignment_and_losses(model: str, case: str) -> None:
    about, criterion = MODELS[model]["cases"][case], make_criterion(model, case)
    outputs, targets = _of_case(model, case)
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
        for suffix, value in zip(make_suffixes(model, name, len(found)), found, strict=True):
            expected = about["losses"][f"loss_{THEIRS[kind]}{suffix}"]
            assert abs(value - expected) <= EXACT * max(1, abs(expected)), (name, suffix)
            seen.add(f"loss_{THEIRS[kind]}{suffix}")
    not_seen = {name for name in set(about["losses"]) - seen - {"total"} if about["losses"][name] != 0}
    assert not not_seen


def require_total_and_gradients(model: str, case: str) -> None:
    """Of the originals' losses, where transformers' are others."""
    about = MODELS[model]["cases"][case]
    outputs, targets = _of_case(model, case)
    union_of, losses = fine_criterion.unite_matchings, []
    if about.get("union_ties"):  # torch's choice among equal numbers
        union = stored_objects(model, case, targets, "union")[0]
        union_of = lambda *_: union  # noqa: E731
    for normalizer in ("global", "reference"):
        criterion = make_criterion(model, case, normalizer)
        counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
        counts = {name: max(count, 1) for name, count in counts.items()}
        with mock.patch.object(fine_criterion, "unite_matchings", union_of):
            terms = criterion.terms(outputs, targets)
        losses.append(compute_loss(terms, counts, accumulation_steps=1, processes=1))
        assert abs(losses[-1].item() - about["losses"]["total"]) <= EXACT * about["losses"]["total"]
    norms = about.get("gradient_norms_original", about["gradient_norms"])
    kind = "gradient_samples_original" if "gradient_norms_original" in about else "gradient_samples"
    _require_gradients(model, _network(model), losses[0], norms, stored()[f"{model}/{case}/{kind}"])


def _require_gradients(model, network, loss, norms, expected_samples):
    keys = _gradient_names(model, network)
    parameters = dict(network.named_parameters())
    network.clear_gradients()
    loss.backward(retain_graph=True)  # other targets have the same outputs
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
        assert np.abs(sample(array, len(expected)) - expected).max() <= 1e-8 * largest, name
