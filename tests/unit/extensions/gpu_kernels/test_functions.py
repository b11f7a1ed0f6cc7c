"""Fused kernels as functions of Paddle: which gradients they have, in which precision, of which tensors."""

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F
from support.half_on_cpu import products_in

from paddlevit_dist.extensions.gpu_kernels.functions import add_bias_and_gelu, draw_seeds, normalize

EPSILON = 1e-6


def draw(seed: int, *shape: int, is_trained: bool = True) -> paddle.Tensor:
    array = np.random.default_rng(seed).standard_normal(shape).astype("f4")
    return paddle.to_tensor(array, stop_gradient=not is_trained)


def compute(is_fused: bool, x, weight, shift, bias) -> tuple[paddle.Tensor, paddle.Tensor]:
    if is_fused:
        return normalize(x, weight, shift, EPSILON), add_bias_and_gelu(x, bias)
    # Not with weight and shift in Paddle's operation: beside a frozen weight, a CPU gives it a wrong gradient.
    return shift + weight * F.layer_norm(x, [x.shape[-1]], epsilon=EPSILON), F.gelu(x + bias)


def gradients(is_fused: bool, trained: tuple[bool, ...]) -> list[np.ndarray | None]:
    """Of functions of rows that are a view, by inputs of which some are frozen."""
    inputs = [draw(0, 2, 3, 12)[:, :, :6].detach(), *(draw(seed, 6) for seed in (2, 3, 4))]
    for one, is_trained in zip(inputs, trained):
        one.stop_gradient = not is_trained
    normal, gelu = compute(is_fused, *inputs)
    (normal.transpose([1, 0, 2]) * draw(5, 3, 2, 6) + gelu.transpose([1, 0, 2]) * draw(6, 3, 2, 6)).sum().backward()
    return [None if one.grad is None else one.grad.numpy() for one in inputs]


@pytest.mark.parametrize("trained", [(True,) * 4, (False, False, True, True), (True, True, False, False)])
def test_frozen_inputs_get_no_gradient_and_views_the_right_one(trained):
    found, expected = gradients(True, trained), gradients(False, trained)
    assert [one is None for one in found] == [not is_trained for is_trained in trained]
    for one, other in zip(found, expected):
        if other is not None:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_norm_has_the_dtype_of_products_and_the_gelu_that_of_its_input(dtype):
    x, weight, shift = draw(0, 2, 3, 8), draw(2, 8), draw(3, 8)
    with products_in(dtype):
        normal = normalize(x, weight, shift, EPSILON)
        gelu = add_bias_and_gelu(x.astype(dtype), shift)
    assert [str(one.dtype).rpartition(".")[2] for one in (normal, gelu)] == [dtype, dtype]
    expected = F.layer_norm(x, [8], weight, shift, EPSILON)
    np.testing.assert_allclose(normal.astype("float32").numpy(), expected.numpy(), rtol=2.0**-7, atol=1e-6)
    (normal.astype("float32").sum() + gelu.astype("float32").sum()).backward()
    assert all(one.grad.dtype == paddle.float32 for one in (x, weight, shift))


def test_without_gradients_the_values_are_the_same():
    inputs = draw(0, 2, 3, 8), draw(2, 8), draw(3, 8), draw(4, 8)
    expected = compute(True, *inputs)
    with paddle.no_grad():
        found = compute(True, *inputs)
    for one, other in zip(found, expected):
        assert one.stop_gradient and not other.stop_gradient
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_dropout_of_a_gelu_has_the_gradient_of_what_is_kept():
    x, bias, rate = draw(0, 64, 32), draw(1, 32), 0.25
    paddle.seed(5)
    found = add_bias_and_gelu(x, bias, rate)
    plain = F.gelu(x + bias)
    factor = np.where(found.numpy() == 0, 0.0, 1 / (1 - rate)).astype("f4")
    np.testing.assert_allclose(found.numpy(), plain.numpy() * factor, rtol=1e-5, atol=1e-6)
    assert abs((factor == 0).mean() - rate) < 0.05
    gradient = draw(2, 64, 32, is_trained=False)
    expected = paddle.grad(plain, [x, bias], gradient * paddle.to_tensor(factor))
    for one, other in zip(paddle.grad(found, [x, bias], gradient), expected):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)
    paddle.seed(5)
    np.testing.assert_array_equal(add_bias_and_gelu(x, bias, rate).numpy(), found.numpy())
    assert (add_bias_and_gelu(x, bias, rate).numpy() != found.numpy()).any()


@pytest.mark.parametrize("number", [0, 1])
def test_a_gradient_of_a_gradient_is_refused(number):
    inputs = draw(0, 2, 8), draw(1, 8), draw(2, 8), draw(3, 8)
    with pytest.raises(Exception, match="GPU_KERNELS"):
        paddle.grad(compute(True, *inputs)[number].sum(), [inputs[0]], create_graph=True)


@pytest.mark.parametrize(("dtype", "of_weights"), [("float16", "float32"), ("float32", "bfloat16")])
def test_inputs_and_parameters_may_have_other_dtypes(dtype, of_weights):
    x, parameters = (
        draw(0, 4, 8).astype(dtype).detach(),
        [draw(seed, 8).astype(of_weights).detach() for seed in (2, 3, 4)],
    )
    for one in (x, *parameters):
        one.stop_gradient = False
    found = compute(True, x, *parameters)
    (found[0].astype("float32").sum() + found[1].astype("float32").sum()).backward()
    assert all(one.grad.dtype == one.dtype for one in (x, *parameters))
    wide = [one.astype("float32").detach() for one in (x, *parameters)]
    for one, other in zip(found, compute(False, *wide)):
        assert one.dtype == x.dtype
        np.testing.assert_allclose(one.astype("float32").numpy(), other.numpy(), rtol=2.0**-7, atol=2.0**-8)


def test_seeds_are_two_for_each_of_five_sites_and_follow_the_generator():
    drawn = []
    for seed in (5, 5, 6):
        paddle.seed(seed)
        drawn += [draw_seeds().numpy() for _ in range(2)]
    assert all(one.shape == (10,) and one.dtype == np.int32 and (one >= 0).all() for one in drawn)
    assert (drawn[:2] == np.array(drawn[2:4])).all()
    assert len({tuple(one) for one in drawn}) == 4 and max(map(max, drawn)) > 2**30  # of 31 bits
