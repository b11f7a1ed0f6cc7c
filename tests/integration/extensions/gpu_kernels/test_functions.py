"""Fused kernels as functions of Paddle: which gradients they have, in which precision, of which tensors."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F
from support.half_on_cpu import products_in

from paddlevit_dist.extensions.gpu_kernels.functions import add_and_normalize, add_bias_and_gelu, normalize

EPSILON = 1e-6


def draw(seed: int, *shape: int, is_trained: bool = True) -> paddle.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    return paddle.to_tensor(array, stop_gradient=not is_trained)


def plain_sum(x, branch, weight, shift, bias):
    total = x + (branch + bias)
    # Not with weight and shift in Paddle's operation: beside a frozen weight, a CPU gives it a wrong gradient.
    return total, shift + weight * F.layer_norm(total, [x.shape[-1]], epsilon=EPSILON)


def fused_sum(x, branch, weight, shift, bias):
    return add_and_normalize(x, branch, weight, shift, EPSILON, bias)


def gradients(function, trained: tuple[bool, ...]) -> list[np.ndarray | None]:
    """Of a function of tensors with rows that are views, by parameters of which some are frozen."""
    wide = draw(0, 2, 3, 12)
    inputs = [wide[:, :, :6], wide[:, :, 6:], *(draw(seed, 6) for seed in (2, 3, 4))]
    inputs = [one.detach() for one in inputs]
    for one, is_trained in zip(inputs, trained):
        one.stop_gradient = not is_trained
    total, normal = function(*inputs)
    (total.transpose([1, 0, 2]) * draw(5, 3, 2, 6) + normal.transpose([1, 0, 2]) * draw(6, 3, 2, 6)).sum().backward()
    return [None if one.grad is None else one.grad.numpy() for one in inputs]


@pytest.mark.parametrize("trained", [(True,) * 5, (False, True, False, True, False), (True, False, True, False, True)])
def test_frozen_inputs_get_no_gradient_and_views_the_right_one(trained):
    found, expected = gradients(fused_sum, trained), gradients(plain_sum, trained)
    assert [one is None for one in found] == [not is_trained for is_trained in trained]
    for one, other in zip(found, expected):
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_norm_has_the_dtype_of_products_and_the_sum_the_wider_one(dtype):
    x, branch, weight, shift = draw(0, 2, 3, 8), draw(1, 2, 3, 8), draw(2, 8), draw(3, 8)
    half = branch.astype(dtype)
    with products_in(dtype):
        total, normal = add_and_normalize(x, half, weight, shift, EPSILON)
        alone = normalize(total.detach(), weight, shift, EPSILON)
        gelu = add_bias_and_gelu(half, shift)
        both_half, _ = add_and_normalize(half, half, weight, shift, EPSILON)
    found = [str(one.dtype).rpartition(".")[2] for one in (total, normal, alone, gelu, both_half)]
    assert found == ["float32", dtype, dtype, dtype, dtype]
    np.testing.assert_array_equal(normal.astype("float32").numpy(), alone.astype("float32").numpy())
    expected = F.layer_norm(total, [8], weight, shift, EPSILON)
    np.testing.assert_allclose(normal.astype("float32").numpy(), expected.numpy(), rtol=2.0**-7, atol=1e-6)
    (normal.astype("float32").sum() + total.sum() + gelu.astype("float32").sum()).backward()
    assert all(one.grad.dtype == paddle.float32 for one in (x, branch, weight, shift))


def test_without_gradients_the_values_are_the_same():
    x, branch, weight, shift, bias = draw(0, 2, 3, 8), draw(1, 2, 3, 8), draw(2, 8), draw(3, 8), draw(4, 8)
    expected = [*fused_sum(x, branch, weight, shift, bias), add_bias_and_gelu(x, bias)]
    with paddle.no_grad():
        found = [*fused_sum(x, branch, weight, shift, bias), add_bias_and_gelu(x, bias)]
    for one, other in zip(found, expected):
        assert one.stop_gradient and not other.stop_gradient
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_a_gradient_of_a_gradient_is_refused():
    x, bias = draw(0, 2, 8), draw(1, 8)
    with pytest.raises(Exception, match="GPU_KERNELS"):
        paddle.grad(add_bias_and_gelu(x, bias).sum(), [x], create_graph=True)
