"""Compiled loops of multi-scale deformable sampling: weighted sums of what lies at a few points of several maps.

Arguments are addresses of contiguous arrays and their sizes, as in ``row_kernels.py``; only ``deformable.py`` calls
these loops. Each runs on one thread, and equal arguments give equal bits.

``levels`` is int64 (levels, 4): rows and columns of a map, the number of its first cell and of its points.
"""

import math

import numba
import numpy as np

from ..runtime.compiled import compiled
from .intrinsics import FAST, floats_at, whole_numbers_at

f32 = np.float32


@numba.njit(**FAST)
def _add(one, two, three, four, shares, out, channels):
    """out += shares[0] * one + ... + shares[3] * four."""
    a, b = numba.carray(floats_at(one), channels), numba.carray(floats_at(two), channels)
    c, d = numba.carray(floats_at(three), channels), numba.carray(floats_at(four), channels)
    target, (p, q, r, s) = numba.carray(floats_at(out), channels), shares
    for i in range(channels):
        target[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])


@numba.njit(**FAST)
def _scatter(values, gradient, share, out, channels):
    """out += share * gradient; returns gradient . values."""
    source, slope = numba.carray(floats_at(values), channels), numba.carray(floats_at(gradient), channels)
    target, total = numba.carray(floats_at(out), channels), f32(0.0)
    for i in range(channels):
        target[i] += share * slope[i]
        total += slope[i] * source[i]
    return total


@numba.njit(**FAST)
def _near(x, y, rows, columns):
    """Whether one of the four cells around a point, x and y as shares of the sides, is in the map; their columns, their
    rows, where those beyond the map are moved into it, and the shares of both columns and rows, 0 beyond the map. What
    is not a number stays so."""
    across, down = x * f32(columns) - f32(0.5), y * f32(rows) - f32(0.5)
    is_far = across <= f32(-1.0) or across >= f32(columns) or down <= f32(-1.0) or down >= f32(rows)
    left, top = math.floor(across), math.floor(down)
    return not is_far, _along(np.int64(left), f32(across - left), columns), _along(np.int64(top), f32(down - top), rows)


@numba.njit(**FAST)
def _along(first, share, side):
    """Of the cells ``first`` and ``first + 1`` along a side: where they are, their shares, and their shares' slopes."""
    has_low, has_high = f32(first >= 0 and first < side), f32(first >= -1 and first < side - 1)
    low, high = min(max(first, 0), side - 1), min(max(first + 1, 0), side - 1)
    return low, high, (f32(1.0) - share) * has_low, share * has_high, -has_low * f32(side), has_high * f32(side)


@compiled(**FAST)
def sample(values, levels, locations, weights, out, sizes):
    """out (N, Q, heads, channels) = for each query and head the sum over all points of weight times value.

    Args:
        values: (N, cells, heads, channels).
        locations: (N, Q, heads, points, 2), x and y as shares of a map's sides.
        weights: (N, Q, heads, points).
        sizes: N, cells, Q, heads, channels, points, number of levels.
    """
    batch, cells, queries, heads, channels, points, count = sizes
    maps = numba.carray(whole_numbers_at(levels), (count, 4))
    places = numba.carray(floats_at(locations), (batch, queries, heads, points, 2))
    shares = numba.carray(floats_at(weights), (batch, queries, heads, points))
    numba.carray(floats_at(out), batch * queries * heads * channels)[:] = f32(0.0)
    step = 4 * heads * channels  # bytes from a cell to the next
    for item in range(batch):
        for query in range(queries):
            for head in range(heads):
                target, first = out + 4 * channels * ((item * queries + query) * heads + head), 0
                for level in range(count):
                    rows, columns, start, number = maps[level]
                    base = values + step * (item * cells + start) + 4 * channels * head
                    for point in range(first, first + number):
                        place, share = places[item, query, head, point], shares[item, query, head, point]
                        is_near, (x0, x1, a0, a1, _, _), (y0, y1, b0, b1, _, _) = _near(
                            place[0], place[1], rows, columns
                        )
                        if is_near:
                            above, below = base + step * y0 * columns, base + step * y1 * columns
                            b0, b1 = share * b0, share * b1
                            factors = b0 * a0, b0 * a1, b1 * a0, b1 * a1
                            left, right = step * x0, step * x1
                            _add(above + left, above + right, below + left, below + right, factors, target, channels)
                    first += number


@compiled(**FAST)
def sample_gradient(gradient, values, levels, locations, weights, by_values, by_locations, by_weights, sizes):
    """The gradients by the first arguments of ``sample``, of their shapes, from that by its result."""
    batch, cells, queries, heads, channels, points, count = sizes
    maps = numba.carray(whole_numbers_at(levels), (count, 4))
    places = numba.carray(floats_at(locations), (batch, queries, heads, points, 2))
    shares = numba.carray(floats_at(weights), (batch, queries, heads, points))
    of_places = numba.carray(floats_at(by_locations), (batch, queries, heads, points, 2))
    of_shares = numba.carray(floats_at(by_weights), (batch, queries, heads, points))
    numba.carray(floats_at(by_values), batch * cells * heads * channels)[:] = f32(0.0)
    step = 4 * heads * channels
    for item in range(batch):
        for query in range(queries):
            for head in range(heads):
                slope, first = gradient + 4 * channels * ((item * queries + query) * heads + head), 0
                for level in range(count):
                    rows, columns, start, number = maps[level]
                    offset = step * (item * cells + start) + 4 * channels * head
                    source, target = values + offset, by_values + offset
                    for point in range(first, first + number):
                        place, share = places[item, query, head, point], shares[item, query, head, point]
                        is_near, (x0, x1, a0, a1, da0, da1), (y0, y1, b0, b1, db0, db1) = _near(
                            place[0], place[1], rows, columns
                        )
                        x, y, total = f32(0.0), f32(0.0), f32(0.0)
                        if is_near:
                            above, below = step * y0 * columns, step * y1 * columns
                            one, two, three, four = (
                                above + step * x0,
                                above + step * x1,
                                below + step * x0,
                                below + step * x1,
                            )
                            p = _scatter(source + one, slope, share * b0 * a0, target + one, channels)
                            q = _scatter(source + two, slope, share * b0 * a1, target + two, channels)
                            r = _scatter(source + three, slope, share * b1 * a0, target + three, channels)
                            s = _scatter(source + four, slope, share * b1 * a1, target + four, channels)
                            total = b0 * (a0 * p + a1 * q) + b1 * (a0 * r + a1 * s)
                            x = b0 * (da0 * p + da1 * q) + b1 * (da0 * r + da1 * s)
                            y = db0 * (a0 * p + a1 * q) + db1 * (a0 * r + a1 * s)
                        of_places[item, query, head, point, 0] = share * x
                        of_places[item, query, head, point, 1] = share * y
                        of_shares[item, query, head, point] = total
                    first += number
