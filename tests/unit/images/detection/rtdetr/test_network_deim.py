"""DEIM's networks and losses on D-FINE and RT-DETRv2, computed by its authors' code from weights under their names."""

import functools

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import learn_only, weights_of_zero
from support.networks.golden import arrays, description, recipe

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.engine import compute_loss
from paddlevit_dist.images.detection.detector import DetectionTargets
from paddlevit_dist.images.detection.rtdetr.network import RtDetr
from paddlevit_dist.images.detection.rtdetr.variants import RTDETR

GOLDEN, STORED = description("deim"), arrays("deim")
MODELS = {"deim_dfine": "deim_dfine_s", "deim_rtdetrv2": "deim_rtdetrv2_r18vd"}  # and the variant of ours
SMALL = {"encoder_dim": 32, "encoder_heads": 4, "encoder_feedforward": 64, "blocks": 1, "expansion": 0.5}
SMALL.update(embed_dim=32, num_heads=4, feedforward=64, decoder_layers=2, num_queries=GOLDEN["queries"], denoising=0)
COMPARED = {  # gradients, by the authors' names and ours
    "decoder.decoder.layers.0.linear1.weight": "decoder.layers.0.mlp.fc1.weight",
    "encoder.input_proj.0.conv.weight": "encoder_input_proj.0.0.weight",
    "decoder.enc_score_head.bias": "enc_score_head.bias",
}


@functools.cache
def _weights(kind):
    weights, make = {}, recipe().golden_weight
    for key, shape in GOLDEN["models"][kind]["shapes"].items():
        if key.endswith(("num_batches_tracked", "num_points_scale", "decoder.up", "decoder.reg_scale")):
            continue
        gain = next((gain for ending, gain in GOLDEN["gain"].items() if key.endswith(ending)), 1)
        weights[key] = make(GOLDEN["seed"], key, tuple(shape)) * np.float32(gain) + np.float32(
            key.endswith("lab.scale")
        )
    return weights


@functools.cache
def _network(kind, dtype):
    paddle.set_default_dtype(dtype)
    try:
        with weights_of_zero():
            network = RtDetr(GOLDEN["classes"], **{**RTDETR[MODELS[kind]], **SMALL})
        report = load_weights(network, _weights(kind), strict=True)
    finally:
        paddle.set_default_dtype("float32")
    assert report.unexpected == []
    network.eval()
    learn_only(network, COMPARED.values())
    return network


def _outputs(kind, dtype):
    images = recipe().golden_image(GOLDEN["seed"], len(GOLDEN["objects"]), GOLDEN["side"])
    return _network(kind, dtype)(paddle.to_tensor(images.astype(dtype)))


def _require_outputs(outputs, kind, allowed):
    for name in ("logits", "boxes"):
        np.testing.assert_allclose(outputs[name].numpy(), STORED[f"{kind}/{name}"], rtol=0, atol=allowed)


@pytest.mark.parametrize("kind", MODELS)
def test_logits_and_boxes_are_the_authors_in_float32(kind):
    _require_outputs(_outputs(kind, "float32"), kind, 1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_outputs_losses_and_gradients_are_the_authors_in_float64(kind):
    side, most = GOLDEN["side"], max(GOLDEN["objects"])
    boxes, labels = np.zeros((len(GOLDEN["objects"]), most, 4)), np.full((len(GOLDEN["objects"]), most), -1)
    for image, number in enumerate(GOLDEN["objects"]):
        theirs = STORED[f"{kind}/boxes{image}"]
        ends = np.concatenate([theirs[:, :2] - theirs[:, 2:] / 2, theirs[:, :2] + theirs[:, 2:] / 2], axis=1)
        boxes[image, :number], labels[image, :number] = ends * side, STORED[f"{kind}/labels{image}"]
    sizes = np.full((len(labels), 2), side)
    targets = DetectionTargets(*map(paddle.to_tensor, (boxes, labels, sizes)))
    criterion = RtDetr.criterion(MODELS[kind], GOLDEN["classes"], {"normalizer": "reference"}, **SMALL)
    outputs = _outputs(kind, "float64")
    _require_outputs(outputs, kind, 1e-8)  # theirs has positions in float32
    terms = criterion.terms(outputs, targets)
    counts = criterion.loss_normalizers({"labels": labels})
    loss = compute_loss(terms, counts, accumulation_steps=1, processes=1)
    expected = GOLDEN["models"][kind]["total"]
    assert abs(loss.item() - expected) <= 1e-9 * expected
    loss.backward()
    parameters = dict(_network(kind, "float64").named_parameters())
    for name, ours in COMPARED.items():
        gradient = parameters[ours].grad.numpy()
        gradient = (gradient.T if "linear" in name else gradient).ravel()
        expected = STORED[f"{kind}/gradient/{name}"]
        found = gradient[:: max(1, len(gradient) // 64)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * np.abs(expected).max() + 1e-9)
