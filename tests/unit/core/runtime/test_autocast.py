"""What is computed in which precision under ``-amp``."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.half_on_cpu import products_in

from paddlevit_dist.core.runtime import autocast


def test_outside_of_mixed_precision_nothing_is_cast():
    tensor = paddle.ones([2])
    assert autocast.product_dtype() is None
    assert autocast.like_products(tensor) is tensor and autocast.like_products(None) is None
    assert autocast.as_dtype(tensor, paddle.float32) is tensor
    assert autocast.as_dtype(tensor, paddle.float64).dtype == paddle.float64


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_layer_adds_its_bias_in_the_precision_of_its_product(has_bias):
    """With another precision than the parameters', as a CPU has no kernels for half."""
    generator = np.random.default_rng(0)
    x, weight, bias = (generator.standard_normal(shape) for shape in ([3, 2, 4], [4, 5], [5]))
    given = paddle.to_tensor(bias.astype("f4")) if has_bias else None
    with products_in("float64"):
        result = autocast.linear(paddle.to_tensor(x), paddle.to_tensor(weight), given)
    assert result.dtype == paddle.float64
    expected = x @ weight + (bias.astype("f4") if has_bias else 0.0)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_paddles_lists_are_completed_by_level(dtype):
    common = {"dtype": dtype, "custom_white_list": {"conv3d", "depthwise_conv2d", "conv2d_transpose"}}
    assert autocast.options(dtype, "O1") == {**common, "level": "O1"}
    black = set(paddle.amp.amp_lists.black_list()[dtype]["O1"])
    found = autocast.options(dtype, "O2")
    kept = found.pop("custom_black_list")
    assert found == {**common, "level": "O2", "use_promote": True}
    assert black - kept == {"softmax", "layer_norm", "group_norm"} & black and kept < black and "exp" in kept


def test_inside_mixed_precision_products_have_its_type(other_paddle):
    """The tracer of a device that has it; on a CPU Paddle leaves it off."""
    level = paddle.base.core.AmpLevel
    tensor, tracers = paddle.ones([2]), [SimpleNamespace(_amp_level=level.O1, _amp_dtype="bfloat16")]
    other_paddle({"base.framework._dygraph_tracer": lambda: tracers[-1]})
    assert autocast.product_dtype() == paddle.bfloat16
    assert autocast.like_products(tensor).dtype == paddle.bfloat16 and autocast.like_products(None) is None
    for other in (SimpleNamespace(_amp_level=level.O0, _amp_dtype="float16"), None):
        tracers.append(other)
        assert autocast.product_dtype() is None and autocast.like_products(tensor) is tensor


def test_an_epilogue_adds_the_bias_where_the_device_has_one():
    x, weight, bias = paddle.ones([3, 4], "float64"), paddle.ones([4, 5], "float64"), paddle.arange(5, dtype="float64")
    with products_in("float64", fused_linear=lambda *words: words):
        fused = autocast.linear(x, weight, bias)
    assert [one is other for one, other in zip(fused, (x, weight, bias))] == [True] * 3
    with products_in("float64"):
        assert autocast.linear(x, weight, bias).tolist() == [[4, 5, 6, 7, 8]] * 3


def test_only_float32_on_a_cpu_is_widened():
    large = paddle.zeros([3])
    assert autocast.widen_for_sum(large, 2049).dtype == paddle.float64
    assert autocast.widen_for_sum(large.astype("float64"), 2049).dtype == paddle.float64
    assert autocast.widen_for_sum(large, 2048) is large
    half = large.astype("bfloat16")
    assert autocast.widen_for_sum(half, 2049) is half
    elsewhere = SimpleNamespace(place=SimpleNamespace(is_cpu_place=lambda: False), dtype=paddle.float32)
    assert autocast.widen_for_sum(elsewhere, 2049) is elsewhere
