"""Norm and clipping of all gradients, by compiled passes and by operations that take lists, against float64."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.cpu_kernels import gradients as fast_gradients
from paddlevit_dist.engine.multi_tensor import GradientList, clipping_factor, collect_gradients

WAYS = pytest.mark.parametrize("worthwhile", [0, 10**9], ids=["compiled", "by lists"])


@pytest.fixture(autouse=True)
def compiled_for_any_size(monkeypatch):
    monkeypatch.setattr(fast_gradients, "WORTHWHILE", 0)


def with_gradients(*values):
    parameters = [paddle.create_parameter([len(value)], "float32") for value in values]
    for parameter, value in zip(parameters, values):
        parameter.grad = paddle.to_tensor(value.astype("float32"))
    return parameters


@WAYS
@pytest.mark.parametrize("largest, scale", [(None, 1.0), (1.5, 1.0), (1e6, 1.0), (1.5, 65536.0), (None, 65536.0)])
def test_the_norm_and_what_is_clipped_follow_the_formula(worthwhile, largest, scale, monkeypatch):
    """As an update does it, with gradients that a loss scaler has multiplied."""
    monkeypatch.setattr(fast_gradients, "WORTHWHILE", worthwhile)
    generator = np.random.default_rng(7)
    values = [generator.standard_normal(size).astype("float32") for size in (1, 16, 1037)]
    parameters = with_gradients(*(value * np.float32(scale) for value in values))
    gradients = collect_gradients([*parameters, paddle.create_parameter([4], "float32")])  # the last has no gradient
    assert (type(gradients) is GradientList) == (worthwhile > 0)
    norm = gradients.norm() / np.float32(scale)
    expected = np.sqrt(sum((value.astype(np.float64) ** 2).sum() for value in values))
    assert norm.dtype == np.float32 and norm == pytest.approx(expected, rel=1e-6)
    clipping = clipping_factor(norm, largest)
    factor = 1.0 if largest is None else min(1.0, largest / (expected + 1e-6))
    assert (clipping < 1) == (largest == 1.5)
    gradients.scale(clipping / np.float32(scale))
    for parameter, value in zip(parameters, values):
        np.testing.assert_allclose(parameter.grad.numpy(), value * factor, rtol=2e-6)


def test_gradients_of_other_types_and_orders_count_and_are_scaled():
    parameters = with_gradients(np.array([3.0, 4.0]))
    other = paddle.create_parameter([2, 3], "float64")
    other.grad = paddle.to_tensor(np.arange(6.0).reshape(3, 2)).t()
    gradients = collect_gradients([*parameters, other])
    assert gradients.norm() == pytest.approx(np.sqrt(25 + 55), rel=1e-6)
    gradients.scale(np.float32(0.5))
    np.testing.assert_array_equal(parameters[0].grad.numpy(), [1.5, 2.0])
    np.testing.assert_array_equal(other.grad.numpy(), np.arange(6.0).reshape(3, 2).T / 2)


@WAYS
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e20])
def test_a_norm_that_float32_cannot_hold_is_not_finite(worthwhile, bad, monkeypatch):
    monkeypatch.setattr(fast_gradients, "WORTHWHILE", worthwhile)
    assert not np.isfinite(collect_gradients(with_gradients(np.array([1.0, bad, 2.0]))).norm())


def test_without_gradients_the_norm_is_0():
    gradients = collect_gradients([paddle.create_parameter([4], "float32")])
    assert gradients.norm() == 0
    gradients.scale(np.float32(0.5))
