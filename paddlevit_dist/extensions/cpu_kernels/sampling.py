"""Sampling of deformable attention in a compiled loop: points read the values of their head without copying maps."""

import numba
import numpy as np
import paddle
from paddle.autograd import PyLayer

from ...core.runtime.compiled import compiled
from ...images.detection.rtdetr import deformable
from .accelerate import can_use_fast_path
from .functions import address, differentiable, needs_gradients, select_gradients, with_graph
from .intrinsics import FAST, floats_at
from .memory import as_contiguous, empty

f32 = np.float32


class FastPointSampling(deformable.PointSampling):
    """Point sampling that is fast in float32."""

    def forward(self, values, sizes: deformable.Sizes, places, weights):
        """Sample the values, by a fast function if it applies."""
        if not (can_use_fast_path(values) and can_use_fast_path(places) and can_use_fast_path(weights)):
            return deformable.PointSampling.forward(self, values, sizes, places, weights)
        return _sample(values, places, weights, tuple(map(tuple, sizes)), self.numbers, self.is_discrete)


@paddle.jit.not_to_static
def _sample(values, points, weights, *options) -> paddle.Tensor:
    values, points, weights = map(as_contiguous, (values, points, weights))
    if paddle.is_grad_enabled() and any(needs_gradients(values, points, weights)):
        return differentiable(_SamplingFunction, values, points, weights, *options)
    return _forward(values, points, weights, *options)


def _levels(sizes, numbers) -> np.ndarray:
    """Return height, width and first cell of the map of each point, int64 (points, 3)."""
    first = np.cumsum([0, *(height * width for height, width in sizes)])[:-1]
    return np.repeat(np.column_stack([np.array(sizes), first]), numbers, axis=0)


def _forward(values, points, weights, sizes, numbers, is_discrete) -> paddle.Tensor:
    (batch, cells, heads, dim), queries = values.shape, points.shape[1]
    out = empty(batch, queries, heads * dim)
    lengths = batch, cells, heads, dim, queries
    sample_points(*map(address, (values, points, weights, out)), _levels(sizes, numbers), is_discrete, *lengths)
    return out


class _SamplingFunction(PyLayer):
    @staticmethod
    def forward(ctx, values, points, weights, *options):
        ctx.needs_gradient, ctx.options = needs_gradients(values, points, weights), options
        ctx.save_for_backward(values, points, weights)
        return _forward(values, points, weights, *options)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (values, points, weights), gradient, (sizes, numbers, is_discrete) = (
            ctx.saved_tensor(), as_contiguous(gradient), ctx.options
        )  # fmt: skip
        (batch, cells, heads, dim), queries = values.shape, points.shape[1]
        value_gradient = paddle.zeros_like(values) if ctx.needs_gradient[0] else None
        gradients = value_gradient, empty(*points.shape), empty(*weights.shape)
        addresses = map(address, (values, points, weights, gradient, *gradients))
        lengths = batch, cells, heads, dim, queries
        sample_points_gradient(*addresses, _levels(sizes, numbers), is_discrete, *lengths)
        return select_gradients(ctx.needs_gradient, *gradients)


@numba.njit(**FAST)
def _corners(across, down, level, is_discrete, cells, shares):
    """Fill cells, -1 outside the map, and shares around a point; return the shares of the right and lower cells."""
    height, width, first = level[0], level[1], level[2]
    x, y = across * f32(width), down * f32(height)
    cells[:] = -1
    shares[:] = f32(0.0)
    if is_discrete:
        column = int(min(max(x + f32(0.5), f32(0.0)), f32(width - 1)))
        row = int(min(max(y + f32(0.5), f32(0.0)), f32(height - 1)))
        cells[0], shares[0] = first + row * width + column, f32(1.0)
        return f32(0.0), f32(0.0)
    x, y = x - f32(0.5), y - f32(0.5)
    if x != x or y != y:  # NaN stays NaN, and is not used as an index
        cells[0], shares[0] = first, x + y
        return x, y
    if x <= f32(-1.0) or y <= f32(-1.0) or x >= f32(width) or y >= f32(height):
        return f32(0.0), f32(0.0)
    left, top = int(np.floor(x)), int(np.floor(y))
    right, lower = x - f32(left), y - f32(top)
    for corner in range(4):
        column, row = left + corner % 2, top + corner // 2
        if 0 <= column < width and 0 <= row < height:
            cells[corner] = first + row * width + column
            x_share = right if corner % 2 else f32(1.0) - right
            shares[corner] = x_share * (lower if corner // 2 else f32(1.0) - lower)
    return right, lower


@numba.njit(**FAST)
def _add(values, factor, out, dim):
    """Compute out += factor * values."""
    source, target = numba.carray(floats_at(values), dim), numba.carray(floats_at(out), dim)
    for i in range(dim):
        target[i] += factor * source[i]


@numba.njit(**FAST)
def _product(left, right, dim):
    a, b = numba.carray(floats_at(left), dim), numba.carray(floats_at(right), dim)
    total = f32(0.0)
    for i in range(dim):
        total += a[i] * b[i]
    return total


@compiled(**FAST)
def sample_points(values, points, weights, out, levels, is_discrete, batch, cells, heads, dim, queries):
    """Compute ``deformable.PointSampling`` from addresses of float32; ``is_discrete``: a point reads one cell only.

    ``values`` are (batch, cells, heads, dim), ``points`` (batch, queries, heads, points, 2), x and y from 0 to 1,
    ``weights`` (batch, queries, heads, points), and ``out`` (batch, queries, heads, dim).
    """
    point_count = len(levels)
    positions = numba.carray(floats_at(points), (batch * queries * heads, point_count, 2))
    factors = numba.carray(floats_at(weights), (batch * queries * heads, point_count))
    numba.carray(floats_at(out), batch * queries * heads * dim)[:] = f32(0.0)
    around, shares = np.empty(4, np.int64), np.empty(4, np.float32)
    for item in range(batch * queries * heads):
        target = out + 4 * item * dim
        base = item // (queries * heads) * cells * heads + item % heads  # index of the first cell, in vectors
        for point in range(point_count):
            _corners(positions[item, point, 0], positions[item, point, 1], levels[point], is_discrete, around, shares)
            for corner in range(4):
                if around[corner] >= 0:
                    source = values + 4 * (base + around[corner] * heads) * dim
                    _add(source, factors[item, point] * shares[corner], target, dim)


@compiled(**FAST)
def sample_points_gradient(
    values, points, weights, gradient, value_out, point_out, weight_out, levels, is_discrete,
    batch, cells, heads, dim, queries,
):  # fmt: skip
    """Compute the gradients of ``sample_points``; the one by the values is added to ``value_out`` unless that is 0."""
    point_count, all_ = len(levels), batch * queries * heads
    positions = numba.carray(floats_at(points), (all_, point_count, 2))
    factors = numba.carray(floats_at(weights), (all_, point_count))
    position_gradients = numba.carray(floats_at(point_out), (all_, point_count, 2))
    weight_gradients = numba.carray(floats_at(weight_out), (all_, point_count))
    around, shares, products = np.empty(4, np.int64), np.empty(4, np.float32), np.empty(4, np.float32)
    for item in range(all_):
        source = gradient + 4 * item * dim
        base = item // (queries * heads) * cells * heads + item % heads
        for point in range(point_count):
            level, factor = levels[point], factors[item, point]
            right, lower = _corners(
                positions[item, point, 0], positions[item, point, 1], level, is_discrete, around, shares
            )
            total = f32(0.0)
            for corner in range(4):
                products[corner] = f32(0.0)
                if around[corner] >= 0:
                    offset = 4 * (base + around[corner] * heads) * dim
                    products[corner] = _product(values + offset, source, dim)
                    total += shares[corner] * products[corner]
                    if value_out != 0:
                        _add(source, factor * shares[corner], value_out + offset, dim)
            across = (f32(1.0) - lower) * (products[1] - products[0]) + lower * (products[3] - products[2])
            down = (f32(1.0) - right) * (products[2] - products[0]) + right * (products[3] - products[1])
            position_factor = f32(0.0) if is_discrete else factor
            weight_gradients[item, point] = total
            position_gradients[item, point, 0] = position_factor * across * f32(level[1])
            position_gradients[item, point, 1] = position_factor * down * f32(level[0])


# Tables of layers and messages show the name of the plain class.
FastPointSampling.__name__ = "PointSampling"
