"""Logits and feature maps of timm's and torchvision's ResNets, reproduced from weights under their names."""

import math

import numpy as np
import paddle
import pytest
from support.networks import golden
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.tasks.model_factory import create_model

GOLDEN = golden.description("resnet")
EXACT = 1e-10  # in float64
ALLOWED = 10  # times the error of torch's own float32 run


def drawn_images(shape):
    """What ``golden_image`` makes, for any height and width."""
    number, channels, height, width = shape
    side = max(height, width)
    if height == width:
        return golden.recipe().golden_image(GOLDEN["seed"], number, side)
    drawn = golden.recipe()._rng(GOLDEN["seed"], "image").standard_normal((number, channels, height, width))
    return drawn.astype(np.float32)


def cases(is_long):
    """Every entry in both precisions; larger networks and the second precision take seconds, and are of the night."""
    return [
        (entry, dtype)
        for entry, about in GOLDEN["models"].items()
        for dtype in ("float32", "float64")
        if (about["parameters"] > 3e7 or dtype == "float64") == is_long
    ]


def make_model(entry, dtype="float32"):
    about = GOLDEN["models"][entry]
    model = create_model(
        about["name"], num_classes=about["state"]["fc.weight"][0], image_size=tuple(about["images"][2:])
    )
    model.eval()
    report = load_weights(model, golden.weights(GOLDEN["seed"], about["state"]), strict=True)
    assert report.unexpected == []
    return model.to(dtype=dtype)


@weights_of_zero()
@pytest.mark.parametrize("entry, dtype", cases(is_long=False))
def test_golden_logits_and_stages_are_reproduced(entry, dtype):
    require_logits_and_stages(entry, dtype)


def require_logits_and_stages(entry, dtype):
    about, model = GOLDEN["models"][entry], make_model(entry, dtype)
    images = paddle.to_tensor(drawn_images(about["images"]).astype(dtype))
    with paddle.no_grad():
        maps = [found.numpy() for found in model.feature_maps(images)]
        logits = model.fc(paddle.to_tensor(maps[-1].mean(axis=(2, 3)))).numpy()

    learning = [parameter for parameter in model.parameters() if not parameter.stop_gradient]
    assert sum(math.prod(parameter.shape) for parameter in learning) == about["parameters"]

    def tolerance(error):
        return EXACT if dtype == "float64" else ALLOWED * error

    arrays = golden.arrays("resnet")
    assert np.abs(logits - arrays[f"{entry}/logits"]).max() <= tolerance(about["float32_error"])
    assert len(maps) == len(about["stages"]) == len(model.feature_strides)
    for number, (found, stage) in enumerate(zip(maps, about["stages"])):
        allowed = tolerance(stage["float32_error"])
        places = np.arange(64) * (found.size - 1) // 63
        assert list(found.shape) == stage["shape"] and found.shape[1] == model.feature_channels[number]
        assert np.abs(found.ravel()[places] - arrays[f"{entry}/stage{number + 1}"]).max() <= allowed
        assert abs(found.mean(dtype=np.float64) - stage["mean"]) <= allowed
        assert abs(found.std(dtype=np.float64) - stage["std"]) <= allowed
