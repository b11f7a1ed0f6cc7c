"""The logarithm of the softmax: against its definition in float64, also far below where Paddle's operation ends."""

import numpy as np
import paddle
from support.forced_device import forced_device

from paddlevit_dist.core.losses import log_softmax


def test_values_far_apart_and_their_gradient_are_those_of_the_definition():
    generator = np.random.default_rng(0)
    numbers, factors = generator.normal(0, 60, (4, 3, 50)), generator.normal(size=(4, 3, 50))
    expected = numbers - np.logaddexp.reduce(numbers, axis=-1, keepdims=True)
    assert expected.min() < -200
    x = paddle.to_tensor(numbers.astype("float32"), stop_gradient=False)
    found = log_softmax(x)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=2e-5)
    (found * paddle.to_tensor(factors.astype("float32"))).sum().backward()
    slope = factors - np.exp(expected) * factors.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(x.grad.numpy(), slope, atol=1e-4)


def test_numbers_whose_powers_overflow_are_taken():
    found = log_softmax(paddle.to_tensor([[1e4, 1e4 - 1.0], [-1e4, -1e4]])).numpy()
    np.testing.assert_allclose(found, [[-np.log1p(np.exp(-1)), -1 - np.log1p(np.exp(-1))], [-np.log(2)] * 2], rtol=1e-6)


def test_a_gpu_computes_it_along_the_same_axis():
    x = paddle.to_tensor(np.random.default_rng(0).normal(0, 3, (4, 3, 5)))
    with forced_device("gpu"):
        found = log_softmax(x)
    np.testing.assert_allclose(found.numpy(), log_softmax(x).numpy(), rtol=1e-12)
