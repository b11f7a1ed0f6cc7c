"""How the moments of a batch are computed: both ways, their precision, and what a device's kernel divides by."""

import contextlib

import numpy as np
import paddle
import pytest
from support.forced_device import forced_device

from paddlevit_dist.core.distributed import batch_moments, running_statistics, unbias_running_variance


def rows(shape) -> np.ndarray:
    return 2.0 * np.random.default_rng(0).standard_normal(shape) + 1.0


@pytest.mark.parametrize("shape", [(7, 3), (4, 3, 5)])
def test_both_ways_to_moments_agree(shape):
    x = paddle.to_tensor(rows(shape) + 100.0)
    axes = (0,) if len(shape) == 2 else (0, 2)
    squares = rows(shape).var(axis=axes) * np.prod(shape) / 3
    for moments in (batch_moments.moments_by_kernel, batch_moments.moments_by_sums):
        mean, sum_of_squares = moments(x)
        np.testing.assert_allclose(mean.numpy(), (rows(shape) + 100.0).mean(axis=axes), rtol=1e-12)
        np.testing.assert_allclose(sum_of_squares.numpy(), squares, rtol=1e-9)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("ndim, count", [(2, 2), (2, 3), (2, 20_000), (3, 5)])
def test_the_device_at_hand_is_asked_whether_it_divides_by_rows(on_gpu, ndim, count):
    """A CPU's kernel does from two rows on, so it does where it stands in for a GPU's, too."""
    x = paddle.to_tensor(rows((count, 1, 1)[:ndim]), "float32")
    layer = unbias_running_variance(paddle.nn.BatchNorm1D(1))
    with forced_device() if on_gpu else contextlib.nullcontext():
        layer(x)
        assert batch_moments.kernel_divides_by_rows(x)
    expected = 0.9 + 0.1 * x.numpy().astype("f8").var(ddof=1)
    np.testing.assert_allclose(running_statistics(layer)[1].numpy(), [expected], rtol=1e-5)


def test_paddles_kernels_for_images_are_cudnns_on_a_gpu():
    with forced_device():
        assert not batch_moments.kernel_divides_by_rows(paddle.zeros([131_070, 1, 1, 1]))


@pytest.mark.parametrize("first", [2, 3, 10_240, 131_070, 880_801, 1 << 20])
def test_the_rows_from_which_a_kernel_divides_by_them_are_found(first):
    asked = []

    def divides(rows, axes, dtype):
        assert (axes, dtype) == (3, "float64")
        asked.append(rows)
        return rows >= first

    assert batch_moments.find_first_rows(3, divides) == batch_moments.find_first_rows(3, divides) == first
    assert len(asked) <= 20 and min(asked) >= 2 and max(asked) < 1 << 20
