"""The sampling of deformable attention in a compiled loop: a point reads the values of all channels of its head where
they lie, and no map is turned or copied."""

import numba
import numpy as np
import paddle
from paddle.autograd import PyLayer

from ..images.detection.rtdetr import deformable
from ..runtime.compiled import compiled
from .accelerate import can_use_fast_path
from .functions import address, choose, differentiable, find_wanted, with_graph
from .intrinsics import FAST, floats_at
from .memory import empty, in_order

f32 = np.float32


class FastPointSampling(deformable.PointSampling):
    """Fast in float32."""

    def forward(self, values, sizes: deformable.Sizes, places, weights):
        if not (can_use_fast_path(values) and can_use_fast_path(places) and can_use_fast_path(weights)):
            return deformable.PointSampling.forward(self, values, sizes, places, weights)
        return _sample(values, places, weights, tuple(map(tuple, sizes)), self.numbers, self.is_discrete)


@paddle.jit.not_to_static
def _sample(values, places, weights, *how) -> paddle.Tensor:
    values, places, weights = map(in_order, (values, places, weights))
    if paddle.is_grad_enabled() and any(find_wanted(values, places, weights)):
        return differentiable(_SamplingFunction, values, places, weights, *how)
    return _forward(values, places, weights, *how)


def _levels(sizes, numbers) -> np.ndarray:
    """int64 (points, 3): height, width and first cell of the map of each point."""
    first = np.cumsum([0, *(height * width for height, width in sizes)])[:-1]
    return np.repeat(np.column_stack([np.array(sizes), first]), numbers, axis=0).astype(np.int64)


def _forward(values, places, weights, sizes, numbers, is_discrete) -> paddle.Tensor:
    (batch, cells, heads, dim), queries = values.shape, places.shape[1]
    out = empty(batch, queries, heads * dim)
    lengths = batch, cells, heads, dim, queries
    sampled(*map(address, (values, places, weights, out)), _levels(sizes, numbers), is_discrete, *lengths)
    return out


class _SamplingFunction(PyLayer):
    @staticmethod
    def forward(ctx, values, places, weights, *how):
        ctx.wanted, ctx.how = find_wanted(values, places, weights), how
        ctx.save_for_backward(values, places, weights)
        return _forward(values, places, weights, *how)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        (values, places, weights), gradient, (sizes, numbers, is_discrete) = (
            ctx.saved_tensor(), in_order(gradient), ctx.how
        )  # fmt: skip
        (batch, cells, heads, dim), queries = values.shape, places.shape[1]
        of_values = paddle.zeros_like(values) if ctx.wanted[0] else None
        found = of_values, empty(*places.shape), empty(*weights.shape)
        addresses = map(address, (values, places, weights, gradient, *found))
        lengths = batch, cells, heads, dim, queries
        sampled_gradient(*addresses, _levels(sizes, numbers), is_discrete, *lengths)
        return choose(ctx.wanted, *found)


@numba.njit(**FAST)
def _corners(across, down, level, is_discrete, cells, shares):
    """Fill cells and shares of the four cells around a point; one outside of the map has the cell -1. Return the shares
    of the right ones and the lower ones."""
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
    if x != x or y != y:  # what is not a number stays so, and reads no cell by it
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
            of_x = right if corner % 2 else f32(1.0) - right
            shares[corner] = of_x * (lower if corner // 2 else f32(1.0) - lower)
    return right, lower


@numba.njit(**FAST)
def _add(values, factor, out, dim):
    """out += factor * values."""
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
def sampled(values, places, weights, out, levels, is_discrete, batch, cells, heads, dim, queries):
    """``deformable.PointSampling`` of addresses of float32.

    Args:
        levels: of each point, see ``_levels``.
        out: (batch, queries, heads, dim).
    """
    points = len(levels)
    spots = numba.carray(floats_at(places), (batch * queries * heads, points, 2))
    factors = numba.carray(floats_at(weights), (batch * queries * heads, points))
    numba.carray(floats_at(out), batch * queries * heads * dim)[:] = f32(0.0)
    around, shares = np.empty(4, np.int64), np.empty(4, np.float32)
    for item in range(batch * queries * heads):
        target = out + 4 * item * dim
        base = item // (queries * heads) * cells * heads + item % heads  # of the first cell, in vectors
        for point in range(points):
            _corners(spots[item, point, 0], spots[item, point, 1], levels[point], is_discrete, around, shares)
            for corner in range(4):
                if around[corner] >= 0:
                    source = values + 4 * (base + around[corner] * heads) * dim
                    _add(source, factors[item, point] * shares[corner], target, dim)


@compiled(**FAST)
def sampled_gradient(
    values, places, weights, gradient, of_values, of_places, of_weights, levels, is_discrete,
    batch, cells, heads, dim, queries,
):  # fmt: skip
    """The gradients of ``sampled``; that by the values is added to ``of_values``, unless this is 0."""
    points, all_ = len(levels), batch * queries * heads
    spots = numba.carray(floats_at(places), (all_, points, 2))
    factors = numba.carray(floats_at(weights), (all_, points))
    by_place = numba.carray(floats_at(of_places), (all_, points, 2))
    by_weight = numba.carray(floats_at(of_weights), (all_, points))
    around, shares, agreed = np.empty(4, np.int64), np.empty(4, np.float32), np.empty(4, np.float32)
    for item in range(all_):
        source = gradient + 4 * item * dim
        base = item // (queries * heads) * cells * heads + item % heads
        for point in range(points):
            level, factor = levels[point], factors[item, point]
            right, lower = _corners(spots[item, point, 0], spots[item, point, 1], level, is_discrete, around, shares)
            total = f32(0.0)
            for corner in range(4):
                agreed[corner] = f32(0.0)
                if around[corner] >= 0:
                    place = 4 * (base + around[corner] * heads) * dim
                    agreed[corner] = _product(values + place, source, dim)
                    total += shares[corner] * agreed[corner]
                    if of_values != 0:
                        _add(source, factor * shares[corner], of_values + place, dim)
            across = (f32(1.0) - lower) * (agreed[1] - agreed[0]) + lower * (agreed[3] - agreed[2])
            down = (f32(1.0) - right) * (agreed[2] - agreed[0]) + right * (agreed[3] - agreed[1])
            moves = f32(0.0) if is_discrete else factor
            by_weight[item, point] = total
            by_place[item, point, 0] = moves * across * f32(level[1])
            by_place[item, point, 1] = moves * down * f32(level[0])


# In tables of layers and in messages it has the name of the plain one.
FastPointSampling.__name__ = "PointSampling"
