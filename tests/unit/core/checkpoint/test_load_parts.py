"""Weights for other channels, and weights that lack a part of the model."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError, create_model
from paddlevit_dist.core.checkpoint.load import load_weights
from paddlevit_dist.core.checkpoint.load_report import LoadReport, require_trained
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model import Model

TINY = {"num_classes": 3, "image_size": 32}
OPTIONS = {
    "vit": {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2},
    "deit_tiny_distilled_patch16_224": {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2},
    "cait_xxs24_224": {"patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2},
    "mixer_s16_224": {"patch_size": 8, "embed_dim": 16, "depth": 1},
    "swin_tiny_patch4_window7_224": {"embed_dim": 8, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4},
    "convnext_tiny": {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)},
    "resnet18": {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)},
    "resnet18d": {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)},
}


@pytest.mark.parametrize("channels", [1, 6])
@pytest.mark.parametrize("name", OPTIONS)
def test_color_weights_give_equal_channels_the_same_output_in_a_network_of_other_channels(name, channels):
    paddle.seed(0)
    color = create_model(name, **TINY, **OPTIONS[name])
    other = create_model(name, **TINY, **OPTIONS[name], in_channels=channels)
    color.eval(), other.eval()  # Paddle 2.6 returns None
    report = load_weights(other, dict(color.state_dict()), strict=True)
    assert len(report.resized) == 1 and not report.missing
    gray = paddle.randn([2, 1, 32, 32])
    expected, found = (model(gray.tile([1, model.in_channels, 1, 1])).numpy() for model in (color, other))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-5)


def test_four_channels_get_the_colors_in_turn_times_three_quarters():
    color, other = (paddle.nn.Conv2D(n, 2, 3) for n in (3, 4))
    values = np.arange(54, dtype=np.float16).reshape(2, 3, 3, 3)
    model = create_model("resnet18", **TINY, **OPTIONS["resnet18"], in_channels=4)
    model.conv1 = other
    load_weights(model, {"conv1.weight": values, "conv1.bias": color.bias}, minimum_loaded=0.0)
    expected = np.stack([values[:, 0], values[:, 1], values[:, 2], values[:, 0]], axis=1) * np.float32(0.75)
    np.testing.assert_array_equal(other.weight.numpy(), expected)


def test_colors_in_half_precision_are_added_in_single_precision():
    model = create_model("resnet18", **TINY, **OPTIONS["resnet18"], in_channels=1)
    model.conv1 = paddle.nn.Conv2D(1, 2, 3)
    values = np.ones((2, 3, 3, 3), np.float16)
    values[:, 0], values[:, 2] = 2048, 2  # half precision has neither 2049 nor 2051
    load_weights(model, {"conv1.weight": values, "conv1.bias": model.conv1.bias}, minimum_loaded=0.0)
    np.testing.assert_array_equal(model.conv1.weight.numpy(), np.full((2, 1, 3, 3), 2051, np.float32))


def test_weights_of_gray_images_do_not_fit_colors():
    gray, color = (create_model("vit", **TINY, **OPTIONS["vit"], in_channels=n) for n in (1, 3))
    report = load_weights(color, dict(gray.state_dict()), minimum_loaded=0.5)
    assert report.missing == ["patch_embed.proj.weight"]


@pytest.fixture(scope="module")
def other_stem():
    """The report on a ResNet-D's weights in a ResNet, which lack its stem and its shortcuts."""
    wide = {"depths": (2, 2, 2, 2), "dims": (8, 16, 32, 256)}  # the last stage has nearly all parameters
    source, model = (create_model(name, 3, **wide) for name in ("resnet18d", "resnet18"))
    report = load_weights(model, dict(source.state_dict()))
    theirs = {name: value.shape for name, value in source.state_dict().items()}
    return report, [name for name, value in model.state_dict().items() if theirs.get(name) != value.shape]


def test_random_tensors_are_counted_and_named(other_stem):
    report, missing = other_stem
    assert report.missing == missing and len(missing) == 16
    assert report.loaded_fraction > 0.9
    assert "loaded 86 of 102" in report.summary()
    assert "16 missing, which stay random: conv1.weight (8, 3, 7, 7)" in report.summary()


def test_random_tensors_stop_a_training(other_stem):
    with pytest.raises(
        UserError, match=r"lacks 16 of this model's 102 tensors.* random: conv1.weight .*13 more.*-allow_ch"
    ):
        require_trained(other_stem[0])


def test_nearly_all_is_not_all():
    report = LoadReport("x", "", loaded=["a"], missing=["b"], shapes={"b": (None, (1,))}, loaded_fraction=0.99996)
    assert report.summary() == "loaded 1 of 2 (99.9 % of parameters), 1 missing, which stay random: b (1,)"
    with pytest.raises(UserError, match="b "):
        require_trained(report, own_parts=["a"])
    require_trained(report, own_parts=["b"])


def test_the_shortcut_that_a_detector_adds_is_its_own():
    options = {"depths": (1, 1), "dims": (8, 8), "is_vd": True}
    source, backbone = (create_model("resnet18", 0, **options, first_shortcut=is_added) for is_added in (False, True))
    report = load_weights(backbone, dict(source.state_dict()), minimum_loaded=0.0)
    assert report.missing
    require_trained(report, backbone.own_parts)
    assert source.own_parts == ()


class OwnNetwork(Model):
    """A user's network, which does not name its classifier."""

    def __init__(self, num_classes, width=8):
        super().__init__()
        self.stem, self.norm = paddle.nn.Conv2D(3, width, 3), paddle.nn.BatchNorm2D(width)
        self.final = paddle.nn.Conv2D(width, num_classes, 1)


@pytest.fixture
def own_network(monkeypatch):
    monkeypatch.setitem(REGISTRY.models, "own_network", OwnNetwork)
    return lambda *numbers: create_model("own_network", **dict(zip(("num_classes", "width"), numbers)))


def test_a_layer_with_as_many_outputs_as_classes_is_the_classifier(own_network):
    source, model = own_network(13), own_network(20)
    report = load_weights(model, dict(source.state_dict()))
    require_trained(report)
    assert report.reinitialized == ["final.weight", "final.bias"] and not report.missing
    assert report.loaded_fraction == 1
    np.testing.assert_array_equal(model.stem.weight.numpy(), source.stem.weight.numpy())


def test_a_layer_of_another_width_is_no_classifier(own_network):
    source, model = own_network(20, 8), own_network(20, 16)
    report = load_weights(model, dict(source.state_dict()), minimum_loaded=0.0)
    assert not report.reinitialized
    with pytest.raises(UserError, match=r"stem.weight \(\(8, 3, 3, 3\) in the source, \(16, 3, 3, 3\) in the model"):
        require_trained(report)


def test_evaluating_needs_the_classifier_of_an_own_network(own_network):
    with pytest.raises(UserError, match="it has 13 classes and the model 20: use data of at most 13 classes"):
        load_weights(own_network(20), dict(own_network(13).state_dict()), strict=True)
