"""Ranks exchange the gradients of weights that were cast together as those of weights that were cast one by one."""

import numpy as np
import paddle
from support.half_on_cpu import products_in
from support.networks.plain_layers import plain_layers
from support.processes import run_workers, succeeded

from paddlevit_dist import rank
from paddlevit_dist.core.runtime.half_weights import HalfWeights, list_parameters
from paddlevit_dist.images.models.layers import Mlp


def compute_gradients(groups: int) -> list[np.ndarray]:
    """Return the gradients of a network after two micro-batches; without ``groups`` its weights are cast one by one."""
    paddle.seed(0)
    inner = Mlp(128, 256)
    network = paddle.DataParallel(inner)
    halves = HalfWeights(list_parameters(inner) if groups else [], paddle.float64, max(groups, 1))
    generator = np.random.default_rng(rank())
    for _ in range(2):
        x = paddle.to_tensor(generator.standard_normal((3, 128)).astype("float32"))
        with halves.in_use():
            loss = network(x).square().sum()
        loss.backward()
    return [parameter.grad.numpy() for parameter in inner.parameters()]


def fused_linear(x, weight, bias):
    x, weight, bias = (each if each.dtype == paddle.float64 else each.astype("float64") for each in (x, weight, bias))
    return (paddle.matmul(x, weight) + bias).astype("float32")


def compare() -> dict[int, list[np.ndarray]]:
    """Float64 stands for half precision, which no CPU multiplies in."""
    with plain_layers(), products_in("float64", fused_linear):
        return {groups: compute_gradients(groups) for groups in (0, 1, 3)}


def test_gradients_of_two_ranks_are_averaged_over_both():
    one, other = succeeded(run_workers("integration.core.distributed.test_half_weights:compare")).results
    for groups in (1, 3):
        for values, expected, of_other in zip(one[groups], one[0], other[groups], strict=True):
            np.testing.assert_array_equal(values, of_other)
            np.testing.assert_array_equal(values, expected)
            assert np.abs(values).max() > 0
