"""Losses of heatmaps whose targets are Gaussians, which are computed in the loop and never stored.

For the arguments of the loops see ``row_kernels.py``.
"""

import math

import numba
import numpy as np
import paddle
from paddle.autograd import PyLayer

from ...core.runtime.compiled import compiled
from .functions import address, differentiable, needs_gradients, with_graph
from .intrinsics import FAST, floats_at
from .memory import as_contiguous, empty

f32 = np.float32


class _GaussianFunction(PyLayer):
    @staticmethod
    def forward(ctx, maps, cells, weights, deviation):
        ctx.deviation = deviation
        ctx.save_for_backward(maps, cells, weights)
        losses = empty(maps.shape[0])
        compute_losses(*map(address, (maps, cells, weights, losses)), deviation, *maps.shape)
        return losses

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        maps, cells, weights = ctx.saved_tensor()
        gradient, out = as_contiguous(gradient), empty(*maps.shape)
        compute_gradient(*map(address, (maps, cells, weights, gradient, out)), ctx.deviation, *maps.shape)
        return out, None, None


def gaussian_losses(maps, cells, weights, deviation: float) -> paddle.Tensor:
    """Compute the mean squared errors of (batch, points, rows, columns), (batch,); see ``targets.gaussian_losses``."""
    maps, cells, weights = map(as_contiguous, (maps, cells, weights))
    if paddle.is_grad_enabled() and any(needs_gradients(maps)):
        return differentiable(_GaussianFunction, maps, cells, weights, float(deviation))
    losses = empty(maps.shape[0])
    compute_losses(*map(address, (maps, cells, weights, losses)), float(deviation), *maps.shape)
    return losses


@numba.njit(**FAST)
def _draw(out, place, deviation):
    """Fill a line with a Gaussian around ``place``."""
    factor = f32(-0.5 / (deviation * deviation))
    for j in range(len(out)):
        distance = f32(j) - place
        out[j] = math.exp(distance * distance * factor)


@compiled(**FAST)
def compute_losses(maps, cells, weights, losses, deviation, batch, points, rows, columns):  # noqa: PLR0913
    """Write the mean squared error of each item; cells (batch, points, 2) are x and y, weights (batch, points)."""
    values, places = (
        numba.carray(floats_at(maps), (batch, points, rows, columns)),
        numba.carray(floats_at(cells), (batch, points, 2)),
    )
    shares, target = numba.carray(floats_at(weights), (batch, points)), numba.carray(floats_at(losses), batch)
    down, across = np.empty(rows, np.float32), np.empty(columns, np.float32)
    for item in range(batch):
        total = 0.0
        for point in range(points):
            _draw(across, places[item, point, 0], deviation)
            _draw(down, places[item, point, 1], deviation)
            squares = 0.0
            for row in range(rows):
                line = f32(0.0)
                for column in range(columns):
                    difference = values[item, point, row, column] - down[row] * across[column]
                    line += difference * difference
                squares += line
            total += squares * shares[item, point]
        target[item] = total / (points * rows * columns)


@compiled(**FAST)
def compute_gradient(maps, cells, weights, gradient, out, deviation, batch, points, rows, columns):  # noqa: PLR0913
    """Write the gradient by ``maps`` from that by the losses, (batch,); see ``compute_losses``."""
    values, places = (
        numba.carray(floats_at(maps), (batch, points, rows, columns)),
        numba.carray(floats_at(cells), (batch, points, 2)),
    )
    shares, by_loss = numba.carray(floats_at(weights), (batch, points)), numba.carray(floats_at(gradient), batch)
    target = numba.carray(floats_at(out), (batch, points, rows, columns))
    down, across = np.empty(rows, np.float32), np.empty(columns, np.float32)
    for item in range(batch):
        for point in range(points):
            _draw(across, places[item, point, 0], deviation)
            _draw(down, places[item, point, 1], deviation)
            factor = f32(2.0 / (points * rows * columns)) * by_loss[item] * shares[item, point]
            for row in range(rows):
                for column in range(columns):
                    difference = values[item, point, row, column] - down[row] * across[column]
                    target[item, point, row, column] = difference * factor
