"""Layers of networks of images."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.models.layers import LayerNorm


@pytest.mark.parametrize("frozen", [(), ("weight",), ("weight", "bias"), ("bias",)])
def test_a_layer_norm_has_the_right_gradient_whatever_is_frozen(frozen):
    generator = np.random.default_rng(0)
    values, weight, bias, above = (generator.normal(size=size).astype(np.float32) for size in ((3, 5), 5, 5, (3, 5)))
    norm, x = LayerNorm(5), paddle.to_tensor(values, stop_gradient=False)
    norm.weight.set_value(weight)
    norm.bias.set_value(bias)
    for name in frozen:
        getattr(norm, name).stop_gradient = True
    (norm(x) * paddle.to_tensor(above)).sum().backward()
    deviation = np.sqrt(values.var(1, keepdims=True) + 1e-5)
    plain = (values - values.mean(1, keepdims=True)) / deviation
    inner = above * weight
    expected = (inner - inner.mean(1, keepdims=True) - plain * (inner * plain).mean(1, keepdims=True)) / deviation
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm(x).numpy(), plain * weight + bias, rtol=1e-4, atol=1e-5)
