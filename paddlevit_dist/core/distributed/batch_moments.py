"""Statistics of the rows that a batch normalization averages, on one rank and over all, and what adds rows exactly.

Tensors are (rows, channels) or (batch, channels, positions); *rows* are batch x positions, see ``batch_norm``.
"""

import bisect
import functools
import math
from collections.abc import Callable

import numpy as np
import paddle
import paddle.nn.functional as F

from ..runtime.transfers import is_on_gpu
from .collectives import gather_float64

# CPU kernels add in float32, rows one after the other and positions of an image in several lanes. If most values are
# equal, all roundings have one direction: 131,072 positions cost 3e-5 of the mean and 3e-4 of the variance, as many
# rows ten times that. Beyond these numbers, statistics are computed in float64, as in PyTorch. Points are seldom equal,
# and float64 would make a step of a sparse network a fifth slower.
MOST_ROWS, MOST_POINTS, MOST_POSITIONS = 2048, 65_536, 16_384


class RankStatistics:
    """Mean and variance of the rows of all ranks, float64 (channels,), and the row count, float64 (1,).

    Each rank sends its row count, mean and sum of squared deviations from that mean, to be combined as in Chan, Golub
    and LeVeque (1979, "Updating formulae and a pairwise algorithm for computing sample variances", equation 1.5), so
    that a mean far from 0 costs no precision. Every rank adds in the same order and gets bitwise equal results.
    ``local``: this rank's three, see ``compute_local_moments``; ``exchanges``: whether the statistics cover all ranks.
    """

    def __init__(self, local: paddle.Tensor, exchanges: bool) -> None:
        table = paddle.stack(gather_float64(local) if exchanges else [local])  # (ranks, 1 + 2 channels)
        channels = (local.shape[0] - 1) // 2
        rows, means, squares = table[:, :1], table[:, 1 : 1 + channels], table[:, 1 + channels :]
        self.rows = rows.sum(axis=0)
        divisor = paddle.clip(self.rows, min=1.0)
        self.mean = (rows * means).sum(axis=0) / divisor
        self.variance = (squares + rows * (means - self.mean) ** 2).sum(axis=0) / divisor


def compute_local_moments(x: paddle.Tensor) -> paddle.Tensor:
    """Compute this rank's row count, means and sums of squared deviations by channel, float64 (1 + 2 channels,)."""
    channels = x.shape[1]
    size = count_values(x)
    if not size:
        return paddle.zeros([1 + 2 * channels], dtype="float64")
    rows = size // channels
    compute_moments = moments_by_kernel if x.place.is_cpu_place() and rows > 1 else moments_by_sums
    mean, squares = compute_moments(x)
    row_count = paddle.full([1], float(rows), dtype="float64")
    return paddle.concat([row_count, mean.astype("float64"), squares.astype("float64")])


def moments_by_kernel(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute mean and sum of squared deviations per channel with the CPU's batch norm kernel, for two or more rows.

    With momentum 0, it returns the batch's statistics, ten times faster than reductions. Many rows are added in
    float64.
    """
    x = widen(x)
    mean, variance = (paddle.zeros([x.shape[1]], dtype=x.dtype) for _ in range(2))
    F.batch_norm(x, mean, variance, training=True, momentum=0.0)
    return mean, variance.astype("float64") * (count_values(x) // x.shape[1])


def moments_by_sums(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute mean and sum of squared deviations per channel by reductions, on any device."""
    axes = [0] if x.ndim == 2 else [0, 2]
    mean = x.mean(axis=axes, keepdim=True)
    return mean.reshape([-1]), ((x - mean) ** 2).sum(axis=axes)


def kernel_divides_by_rows(x: paddle.Tensor) -> bool:
    """Return whether ``F.batch_norm`` stores the biased variance, divided by rows, for ``x``.

    CPU kernels do. On GPUs, cuDNN divides by rows - 1, but Paddle's own kernels divide by rows; these replace cuDNN's
    from 10,240, 131,070 or 880,801 rows on, by version, with two or three axes. Each device is asked once.
    """
    if not is_on_gpu():
        is_on_cpu = x.place.is_cpu_place() if paddle.in_dynamic_mode() else paddle.get_device() == "cpu"
        return is_on_cpu or _ask_divisor(2, 2, "float32")
    return x.ndim <= 3 and x.shape[0] >= find_first_rows(x.ndim)


@functools.cache
def _ask_divisor(rows: int, axes: int, dtype: str) -> bool:
    """Return whether this device's kernel divides by this number of rows, 2 or more, in an input of ``axes`` axes."""
    values = (np.arange(rows) % 2).astype(dtype)
    mean, variance = (paddle.zeros([1], dtype) for _ in range(2))
    with paddle.amp.auto_cast(enable=False):
        x = paddle.to_tensor(values.reshape([rows] + [1] * (axes - 1)))
        F.batch_norm(x, mean, variance, training=True, momentum=0.0)
    return variance.item() < values.var() * (rows - 0.5) / (rows - 1)


@functools.cache
def find_first_rows(axes: int, divides_by_rows: Callable[[int, int, str], bool] = _ask_divisor) -> int:
    """Return from how many rows on a kernel divides by rows in an input of ``axes`` axes; no more than 2^20."""
    return bisect.bisect_left(range(1 << 20), True, lo=2, key=lambda rows: divides_by_rows(rows, axes, "float64"))


def scale_and_shift(x: paddle.Tensor, scale: paddle.Tensor, shift: paddle.Tensor | None = None) -> paddle.Tensor:
    """Compute ``scale * x + shift`` per channel with the inference kernel, in a fifth of the time of broadcasting."""
    zero = paddle.zeros_like(scale)
    shift = zero if shift is None else shift
    return F.batch_norm(x, zero, paddle.ones_like(scale), scale, shift, training=False, epsilon=0.0)


def channel_sum(x: paddle.Tensor) -> paddle.Tensor:
    """Sum over all axes except the channels of (rows, channels) or (batch, channels, positions)."""
    if not x.place.is_cpu_place():
        return x.sum(axis=0 if x.ndim == 2 else [0, 2])
    x = widen(x)
    # Multiplying by ones takes a tenth of the time of a CPU sum. (A GPU could round the factors to TF32.)
    if x.ndim == 3:
        ones = paddle.ones([x.shape[2], 1], dtype=x.dtype)
        x = paddle.matmul(x.reshape([-1, x.shape[2]]), ones).reshape([x.shape[0], x.shape[1]])
    return paddle.matmul(paddle.ones([1, x.shape[0]], dtype=x.dtype), x).reshape([x.shape[1]])


def widen(x: paddle.Tensor) -> paddle.Tensor:
    """Return (rows, channels) or (batch, channels, positions) in float64 if a CPU would add too many in float32."""
    is_large = x.shape[0] > MOST_POINTS if x.ndim == 2 else x.shape[2] > MOST_POSITIONS
    return x.astype("float64") if is_large else x


def count_values(x: paddle.Tensor) -> int:
    """Return the number of values of ``x``, also while a program is traced, where ``x.size`` is a variable."""
    return math.prod(x.shape)
