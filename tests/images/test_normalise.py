"""Normalisation on the device against the formula in float64."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from paddlevit_dist import config
from paddlevit_dist.registry import resolve


@pytest.mark.parametrize(
    "channels, mean, deviation", [(3, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), (1, [0.1], [0.3])]
)
def test_pixels_become_their_distance_from_the_mean_in_deviations(channels, mean, deviation):
    keys = ["DATA.IMAGE_CHANNELS", str(channels), "DATA.IMAGENET_MEAN", str(mean), "DATA.IMAGENET_STD", str(deviation)]
    values = config.load(keys).values
    task = resolve("task", values.TASK)(values)
    pixels = np.arange(256 * channels * 2, dtype=np.int64).reshape(2, channels, 16, 16).astype(np.uint8)
    result = task.normalise(paddle.to_tensor(pixels))
    shape = (1, channels, 1, 1)
    expected = (pixels / 255.0 - np.reshape(mean, shape)) / np.reshape(deviation, shape)
    assert result.dtype == paddle.float32 and result.stop_gradient
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=2e-6)
