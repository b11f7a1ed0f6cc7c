"""Normalization on the device against the formula in float64."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.runtime.autocast import product_dtype
from paddlevit_dist.images.transforms import on_device


@pytest.mark.parametrize(
    "channels, mean, deviation", [(3, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), (1, [0.1], [0.3])]
)
def test_pixels_become_their_distance_from_the_mean_in_deviations(channels, mean, deviation):
    keys = ["DATA.IMAGE_CHANNELS", str(channels), "DATA.IMAGENET_MEAN", str(mean), "DATA.IMAGENET_STD", str(deviation)]
    values = settings.load(keys).values
    task = resolve("task", values.TASK)(values)
    pixels = np.arange(256 * channels * 2, dtype=np.int64).reshape(2, channels, 16, 16).astype(np.uint8)
    result = task.normalize(paddle.to_tensor(pixels))
    shape = (1, channels, 1, 1)
    expected = (pixels / 255.0 - np.reshape(mean, shape)) / np.reshape(deviation, shape)
    assert result.dtype == paddle.float32 and result.stop_gradient
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision_ends_before_pixels_are_normalized(monkeypatch, other_paddle, level):
    """A GPU's kernel refuses pixels that autocast has made half precision, with statistics in float32 and no scale."""
    plain = on_device.F.batch_norm

    def batch_norm(pixels, mean, variance, **options):
        assert product_dtype() is None and {pixels.dtype, mean.dtype, variance.dtype} == {paddle.float32}
        return plain(pixels, mean, variance, **options)

    other_paddle({"nn.functional.batch_norm": batch_norm})
    tracer = paddle.base.framework._dygraph_tracer()
    for name, value in {"_amp_level": getattr(paddle.base.core.AmpLevel, level), "_amp_dtype": "bfloat16"}.items():
        monkeypatch.setattr(tracer, name, value)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 1, 4, 4)).astype(np.uint8)
    found = on_device.PixelNormalizer([0.5], [0.25])(paddle.to_tensor(pixels))
    assert product_dtype() is not None and found.dtype == paddle.float32
    np.testing.assert_allclose(found.numpy(), (pixels / 255.0 - 0.5) / 0.25, atol=1e-5)
