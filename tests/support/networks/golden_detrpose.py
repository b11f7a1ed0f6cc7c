"""DETRPose of tests/golden/detrpose.json, which its authors' code made, with every dimension from the file."""

import functools
import re
from typing import Any

import numpy as np
import paddle

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.detection.rtdetr.distributions import DistanceBins
from paddlevit_dist.images.keypoints.detrpose.criterion import PoseCriterion, PoseTargets
from paddlevit_dist.images.keypoints.detrpose.network import DetrPose
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON
from support.networks.cheap_weights import weights_of_zero
from support.networks.golden import arrays, description, recipe
from support.networks.golden_networks import building

GOLDEN = description("detrpose")
KINDS: dict[str, Any] = GOLDEN["kinds"]
COMPUTED = ("anchors", "valid_mask", "dim_t", "transformer.up", "transformer.reg_scale", "num_batches_tracked")
HALVED = ("pose_embed", "enc_pose_embed", "pre_pose_embed")  # parts of the transformer
EXACT = 1e-9  # in float64
ALLOWED = 10  # times the float32 error of PyTorch
CROWDPOSE = (0.079, 0.079, 0.072, 0.072, 0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089, 0.079, 0.079)
HEADS = 8  # of the attention, in all of the authors' configurations


@functools.cache
def stored() -> dict[str, np.ndarray]:
    return arrays("detrpose")


@functools.cache
def make_weights(kind: str) -> dict[str, np.ndarray]:
    """The state under the authors' names, float32."""
    state = {}
    for name, shape in KINDS[kind]["state"].items():
        if name.endswith(COMPUTED) or "pos_embed" in name:
            continue
        value = recipe().golden_weight(GOLDEN["seed"], name, tuple(shape))
        if name.startswith(tuple(f"transformer.{part}" for part in HALVED)):
            value = value * np.float32(0.5)
        state[name] = value + np.float32(1) if name.endswith(".lab.scale") else value
    return state


def _count(kind: str, pattern: str) -> int:
    """How many different matches of ``pattern`` the names of the state have."""
    return len({match[0] for name in KINDS[kind]["state"] if (match := re.match(pattern, name))})


def options(kind: str) -> dict[str, Any]:
    """What the state and the arrays tell about the configuration of the authors' size ``kind``."""
    state, project = KINDS[kind]["state"], stored()[f"{kind}/project"]
    levels = _count(kind, r"encoder\.input_proj\.\d+\.")
    dim = state["transformer.enc_output.weight"][0]
    sampled = state["transformer.decoder.layers.0.cross_attn.sampling_offsets.weight"][0]
    first = "encoder.fpn_blocks.0.cv2."
    return {
        "keypoints": state["transformer.keypoint_embedding.weight"][0],
        "embed_dim": dim,
        "feature_levels": tuple(range(-levels, 0)),
        "encoder_layers": _count(kind, r"encoder\.encoder\.0\.layers\.\d+\."),
        "encoder_feedforward": state["encoder.encoder.0.layers.0.linear1.weight"][0],
        "blocks": _count(kind, re.escape(first) + r"0\.bottlenecks\.\d+\."),
        "expansion": (2 * state[f"{first}1.conv.weight"][0] + 0.5) / dim,
        "feedforward": state["transformer.decoder.layers.0.linear1.weight"][0],
        "decoder_layers": _count(kind, r"transformer\.decoder\.layers\.\d+\."),
        "num_queries": state["transformer.tgt_embed.weight"][0],
        "points": sampled // (HEADS * levels * 2),
        "bins": len(project) - 1,
        "up": 0.5,
        "reg_scale": float(project[-1]),  # the last distance is 2 up reg_scale
    }


def make_network(kind: str, dtype: str) -> DetrPose:
    """The network with these weights, in evaluation mode."""
    classes = KINDS[kind]["state"]["transformer.enc_out_class_embed.weight"][0]
    with building(dtype):
        network = create_model(f"detrpose_hgnetv2_{kind[0]}", num_classes=classes, **options(kind))
        labels = KINDS[kind]["state"]["transformer.label_enc.weight"]
        network.denoising_class_embed = paddle.nn.Embedding(*labels)  # the authors' has one for 80 classes
        network.eval()
        report = load_weights(network, make_weights(kind), strict=True)
    assert report.unexpected == []
    return network


def make_images(dtype: str) -> paddle.Tensor:
    shape = re.search(r"standard_normal\(\(([\d, ]+)\)\)", GOLDEN["images"])[1]
    sizes = tuple(int(number) for number in shape.split(","))
    images = recipe()._rng(GOLDEN["seed"], "image").standard_normal(sizes).astype(np.float32)
    return paddle.to_tensor(images.astype(dtype))


def make_targets(kind: str) -> PoseTargets:
    """The objects of each image, in pixels of images of 1 x 1, padded with label -1."""
    found = {int(match[1]) for name in stored() if (match := re.match(rf"{kind}/target/(\d+)/keypoints", name))}
    parts = [[stored()[f"{kind}/target/{image}/{name}"] for name in ("keypoints", "area")] for image in sorted(found)]
    most, number = max(1, *(len(area) for _, area in parts)), options(kind)["keypoints"]
    points, areas = np.zeros((len(parts), most, number, 3)), np.zeros((len(parts), most))
    labels = np.full(areas.shape, -1, np.int64)
    for image, (values, area) in enumerate(parts):
        points[image, : len(area), :, :2] = values[:, : 2 * number].reshape(-1, number, 2)
        points[image, : len(area), :, 2] = values[:, 2 * number :]
        areas[image, : len(area)], labels[image, : len(area)] = area, 0
    sizes = np.ones((len(parts), 2), np.int64)
    return PoseTargets(*map(paddle.to_tensor, (points, areas, labels, sizes)))


def make_criterion(kind: str, case: str, normalizer: str = "global") -> PoseCriterion:
    """The losses of a case, such as "vfl+keypoints+local"."""
    made, losses = options(kind), case.split("+")
    tenths = np.round(np.array(COCO_PERSON.sigmas) * 10, 2).astype(np.float32)
    # as in the authors' ``OKSLoss``, which rounds COCO's, and has those of CrowdPose
    sigmas = CROWDPOSE if made["keypoints"] == len(CROWDPOSE) else tuple((tenths / np.float32(10)).tolist())
    classes = KINDS[kind]["state"]["transformer.enc_out_class_embed.weight"][0]
    return PoseCriterion(
        (sigmas,) * classes,
        made["num_queries"],
        made["decoder_layers"],
        normalizer,
        distill_weight=1.0 if "local" in losses else 0.0,
        matchability=2.0 if "mal" in losses else None,
        bins=DistanceBins(made["bins"], made["up"], made["reg_scale"]),
    )


@functools.cache
def _network(kind: str, dtype: str) -> DetrPose:
    return make_network(kind, dtype)


@functools.cache
def _outputs(kind: str) -> dict[str, paddle.Tensor]:
    """That can be differentiated."""
    return _network(kind, "float64")(make_images("float64"))


def require_outputs(kind: str, dtype: str) -> None:
    """Logits and keypoints of an evaluation: relative to the largest in float64, ten times PyTorch's own in float32."""
    with paddle.no_grad():
        outputs = _network(kind, dtype)(make_images(dtype))
    for ours, theirs, error in zip(("logits", "poses"), ("logits", "keypoints"), KINDS[kind]["float32_error"]):
        expected = stored()[f"{kind}/{theirs}"]
        allowed = EXACT * np.abs(expected).max() if dtype == "float64" else ALLOWED * error
        np.testing.assert_allclose(outputs[ours].numpy(), expected, rtol=0, atol=allowed)


def require_losses(kind: str, case: str) -> None:
    """Each loss of each head, after the matching."""
    about, criterion, targets = KINDS[kind]["losses"][case], make_criterion(kind, case), make_targets(kind)
    outputs = _outputs(kind)
    heads = criterion.heads(outputs)
    matches = criterion.matches(heads, targets)
    sums = criterion.layer_sums(outputs, heads, targets, matches)
    divisors = {"class": matches.counts.sum(), "distill": 1.0}
    theirs = {"class": case.split("+")[0], "keypoints": "keypoints", "oks": "oks", "distill": "dfl"}
    layers = [f"_{layer}" for layer in range(options(kind)["decoder_layers"] - 1)]
    found = {}
    for name, value in sums.items():
        if name in theirs:
            losses = value.numpy() * criterion.weights[name] / divisors.get(name, float(sums["pairs"]))
            found.update(
                {f"loss_{theirs[name]}{end}": loss for end, loss in zip([*layers, "", "_pre", "_enc_0"], losses)}
            )
    assert found.keys() == about["losses"].keys()
    for name, expected in about["losses"].items():
        assert abs(found[name] - expected) <= EXACT * abs(expected), name


def require_total_and_gradients(kind: str, case: str) -> None:
    """The loss and the norms of its gradients, however it is normalized on one device."""
    about, targets, network = KINDS[kind]["losses"][case], make_targets(kind), _network(kind, "float64")
    for normalizer in ("global", "reference"):
        criterion = make_criterion(kind, case, normalizer)
        counts = criterion.loss_normalizers({"labels": targets.labels.numpy()})
        loss = compute_loss(criterion.terms(_outputs(kind), targets), counts, accumulation_steps=1, processes=1)
        assert abs(loss.item() - about["total"]) <= EXACT * about["total"]
    network.clear_gradients()
    loss.backward(retain_graph=True)  # other losses have the same outputs
    parameters = dict(network.named_parameters())
    for name, expected in about["gradient_norms"].items():
        (ours,) = network.key_maps["the authors'"]({name: np.zeros((1, 1))})
        assert abs(np.linalg.norm(parameters[ours].grad.numpy()) - expected) <= EXACT * expected, name


def require_person(kind: str) -> None:
    """A network of one class gets the person's output and label."""
    with weights_of_zero():
        network = create_model(f"detrpose_hgnetv2_{kind[0]}", num_classes=1, **options(kind))
    network.eval()
    report = load_weights(network, make_weights(kind), strict=True)
    assert report.unexpected == report.missing == report.reinitialized == []
    state = make_weights(kind)
    for name in ("enc_score_head", "decoder.class_embed.0"):
        theirs = name.replace("enc_score_head", "enc_out_class_embed").replace("decoder.", "")
        bias = dict(network.named_parameters())[f"{name}.bias"]
        np.testing.assert_allclose(bias.numpy(), state[f"transformer.{theirs}.bias"][1:2])
    labels = network.denoising_class_embed.weight.numpy()
    np.testing.assert_allclose(labels[0], state["transformer.label_enc.weight"][1])
