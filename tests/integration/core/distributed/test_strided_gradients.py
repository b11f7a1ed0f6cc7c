"""Ranks average gradients that are views, as Paddle 3 makes them by default."""

import numpy as np
import paddle
from support.processes import run_workers, succeeded

from paddlevit_dist.core.distributed import data_parallel, rank


class Transposed(paddle.nn.Layer):
    """A product with a transposed weight, whose gradient is a view of (inputs, outputs)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = self.create_parameter([5, 3], default_initializer=paddle.nn.initializer.Constant(0.5))

    def forward(self, x):
        return paddle.matmul(x, self.weight.transpose([1, 0]))  # (batch, 5)


def make_gradient(network, numbers) -> np.ndarray:
    (network(paddle.to_tensor(numbers)) ** 2).sum().backward()
    return network.weight.grad.numpy()


def make_rows(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=(4, 3)).astype("float32")


def average(views: bool) -> tuple[bool, np.ndarray]:
    """Whether a gradient alone is a view, and the gradient after the backward pass of both ranks."""
    paddle.set_flags({"FLAGS_use_stride_kernel": views})
    alone = Transposed()
    make_gradient(alone, make_rows(0))
    network = Transposed()
    wrapped = data_parallel(network)
    (wrapped(paddle.to_tensor(make_rows(rank()))) ** 2).sum().backward()
    return not alone.weight.grad.is_contiguous(), network.weight.grad.numpy()


def test_a_gradient_that_is_a_view_is_averaged():
    expected = (make_gradient(Transposed(), make_rows(0)) + make_gradient(Transposed(), make_rows(1))) / 2
    for views in (False, True):
        results = succeeded(run_workers("integration.core.distributed.test_strided_gradients:average", views)).results
        if not paddle.__version__.startswith("2."):
            assert [is_view for is_view, _ in results] == [views, views]
        for _, averaged in results:
            np.testing.assert_allclose(averaged, expected, rtol=1e-6)
