"""The first weights of each family of classifiers have the deviations of their authors' code."""

import math

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.tasks.model_factory import create_model


def of_linear_layers(name, shape):
    """What transformers have: patches with the variance 1 / fan-in, all else 0.02."""
    return 1 / math.sqrt(np.prod(shape[1:])) if len(shape) == 4 else 0.02


def of_fan_in(name, shape):
    """What MLP-Mixer has, but for its classifier."""
    inputs = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
    return 0.02 if name == "head.weight" else 1 / math.sqrt(inputs)


def of_fan_out(name, shape):
    """A convolution of PVTv2, depth-wise with one input channel; its linear layers."""
    outputs = 1 if shape[1] == 1 else shape[0]
    return math.sqrt(2 / (outputs * math.prod(shape[2:]))) if len(shape) == 4 else 0.02


FAMILIES = {
    "deit_tiny_distilled_patch16_224": ({"embed_dim": 48, "num_heads": 2, "depth": 1}, of_linear_layers, None),
    "cait_xxs24_224": ({"embed_dim": 48, "num_heads": 2, "depth": 1}, of_linear_layers, 1e-5),
    "swin_tiny_patch4_window7_224": (
        {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4)},
        of_linear_layers,
        None,
    ),
    "mixer_s32_224": ({"embed_dim": 48, "depth": 1}, of_fan_in, None),
    "convnext_tiny": ({"dims": (16, 32), "depths": (1, 1)}, lambda name, shape: 0.02, 1e-6),
    "pvt_v2_b0": ({"embed_dims": (16, 32), "num_heads": (1, 2), "depths": (1, 1)}, of_fan_out, None),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_cut_normal_numbers_and_biases_zero(family):
    options, find_deviation, scale = FAMILIES[family]
    paddle.seed(4)
    looked_at = 0
    for name, value in create_model(family, num_classes=20, **options).named_parameters():
        values, last = value.numpy().astype(np.float64), name.rpartition(".")[2]
        if last == "bias":
            assert not values.any(), name
        elif values.ndim == 1:
            assert (values == (np.float32(scale) if last.startswith("gamma") else 1)).all(), name
        else:
            deviation = 0.02 if last.endswith(("token", "embed", "table")) else find_deviation(name, value.shape)
            assert np.abs(values).max() <= 2.0001 * deviation / 0.8796, name
            if values.size >= 500:
                assert values.std() == pytest.approx(deviation, rel=0.12), name
                looked_at += 1
    assert looked_at > 4
