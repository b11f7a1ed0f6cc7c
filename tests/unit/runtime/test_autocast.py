"""What is computed in which precision under ``-amp``."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.runtime import autocast


def test_outside_of_mixed_precision_nothing_is_cast():
    tensor = paddle.ones([2])
    assert autocast.product_dtype() is None
    assert autocast.like_products(tensor) is tensor and autocast.like_products(None) is None
    assert autocast.as_dtype(tensor, paddle.float32) is tensor
    assert autocast.as_dtype(tensor, paddle.float64).dtype == paddle.float64


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_linear_layer_adds_its_bias_in_the_precision_of_its_product(monkeypatch, has_bias):
    """With another precision than the parameters', as a CPU has no kernels for half."""
    generator = np.random.default_rng(0)
    x, weight, bias = (generator.standard_normal(shape) for shape in ([3, 2, 4], [4, 5], [5]))
    monkeypatch.setattr(autocast, "product_dtype", lambda: paddle.float64)
    given = paddle.to_tensor(bias.astype("f4")) if has_bias else None
    result = autocast.linear(paddle.to_tensor(x), paddle.to_tensor(weight), given)
    assert result.dtype == paddle.float64
    expected = x @ weight + (bias.astype("f4") if has_bias else 0.0)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)
