"""Networks of convolutions compute with channels as the last axis what they compute with them in front."""

from typing import Any

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device
from support.networks.every_classifier import CLASSES, images, small_model
from support.networks.plain_layers import plain_layers

from paddlevit_dist.core.engine import training_state
from paddlevit_dist.core.tasks.model_factory import create_model


def compute(name: str, is_last: bool, **options: Any) -> dict[str, np.ndarray]:
    """Logits, gradients, statistics and feature maps after a pass of training, in float64."""
    paddle.set_default_dtype("float64")
    try:
        model = small_model(name, **options)
    finally:
        paddle.set_default_dtype("float32")
    pixels = images(name).astype("float64")
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert not is_last or model.use_channels_last()
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == shapes
    model.train()
    logits = model(pixels)
    paddle.nn.functional.cross_entropy(logits, paddle.arange(len(logits)) % CLASSES).backward()
    found = {"logits": logits.numpy(), **{key: value.numpy() for key, value in model.state_dict().items()}}
    for key, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"gradient of {key}"] = parameter.grad.numpy()
    model.eval()
    maps = model.feature_maps(pixels)
    return found | {f"map {number}": one.numpy() for number, one in enumerate(maps)}


@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet50", {}), ("resnet18d", {"frozen_stages": 2}), ("hgnetv2_b0", {}), ("convnext_tiny", {})],
)
def test_results_gradients_and_statistics_are_the_same(name, options):
    with plain_layers():
        expected, found = (compute(name, is_last, **options) for is_last in (False, True))
    assert expected.keys() == found.keys() and any(key.startswith("gradient") for key in found)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-8, atol=1e-11, err_msg=key)


def test_other_networks_say_that_they_have_one_layout():
    masked = create_model("resnet18", num_classes=0, mask_padding=True, depths=(1, 1, 1, 1), dims=(4, 8, 8, 8))
    vit = create_model("vit_tiny_patch16_224", num_classes=2, image_size=32, depth=1, embed_dim=12, num_heads=3)
    with forced_device():
        for model in (masked, vit):
            said = training_state._put_channels_last(model)
            assert said == "TRAIN.CHANNELS_LAST has no effect: the layers of this network have one layout"


def test_a_gpu_computes_so():
    model = small_model("resnet18d")
    with forced_device():
        assert training_state._put_channels_last(model) == "convolutions: channels last (TRAIN.CHANNELS_LAST)"
    assert model.conv1[0]._data_format == "NHWC"


def test_a_cpu_keeps_its_layout():
    assert "has no effect" in training_state._put_channels_last(small_model("resnet18d"))
