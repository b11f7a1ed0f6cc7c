"""Compiled loops over the rows of float32 arrays: bias, layer norm, products with column sums, patches of images.

Arguments are addresses of contiguous row-major float32 arrays and their sizes, which are not checked. Only
``functions.py`` and ``branches.py`` call these loops. Each runs on one thread, and equal arguments give equal bits.
Sums over many rows are computed in groups of ``_GROUP`` rows, to limit the rounding error.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .intrinsics import FAST, floats_at

_GROUP = 64
f32 = np.float32


@compiled(**FAST)
def add_bias(x, bias, out, rows, width):
    """Compute out = x + bias for each row; if ``x`` is 0, out = bias."""
    target, b = numba.carray(floats_at(out), (rows, width)), numba.carray(floats_at(bias), width)
    if x == 0:
        for row in range(rows):
            target[row, :] = b
        return
    source = numba.carray(floats_at(x), (rows, width))
    for row in range(rows):
        for j in range(width):
            target[row, j] = source[row, j] + b[j]


@compiled(**FAST)
def layer_norm(x, weight, bias, epsilon, out, statistics, rows, width):
    """Normalize each row; ``statistics`` (rows, 2) receives mean and 1 / deviation, unless it is 0."""
    source, target = numba.carray(floats_at(x), (rows, width)), numba.carray(floats_at(out), (rows, width))
    w, b = numba.carray(floats_at(weight), width), numba.carray(floats_at(bias), width)
    moments = numba.carray(floats_at(statistics), (rows, 2))
    part = f32(1.0) / f32(width)
    for row in range(rows):
        total = f32(0.0)
        for j in range(width):
            total += source[row, j]
        mean = total * part
        squares = f32(0.0)
        for j in range(width):
            difference = source[row, j] - mean
            squares += difference * difference
        scale = f32(1.0) / np.sqrt(squares * part + f32(epsilon))
        for j in range(width):
            target[row, j] = (source[row, j] - mean) * scale * w[j] + b[j]
        if statistics != 0:
            moments[row, 0] = mean
            moments[row, 1] = scale


@compiled(**FAST)
def layer_norm_gradient(gradient, x, statistics, weight, added, out, sums, rows, width):
    """Compute the gradient by the rows ``x``, plus the rows ``added`` unless 0, into the separate memory ``out``.

    ``sums`` (2, width) receives the gradients by weight and bias.
    """
    g, source = numba.carray(floats_at(gradient), (rows, width)), numba.carray(floats_at(x), (rows, width))
    target, other = numba.carray(floats_at(out), (rows, width)), numba.carray(floats_at(added), (rows, width))
    w, moments = numba.carray(floats_at(weight), width), numba.carray(floats_at(statistics), (rows, 2))
    total = numba.carray(floats_at(sums), (2, width))
    part = f32(1.0) / f32(width)
    group = np.zeros((2, width), dtype=np.float32)
    total[:] = f32(0.0)
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            mean, scale = moments[row, 0], moments[row, 1]
            plain = f32(0.0)
            turned = f32(0.0)
            for j in range(width):
                normal = (source[row, j] - mean) * scale
                by_normal = g[row, j] * w[j]
                plain += by_normal
                turned += by_normal * normal
                group[0, j] += g[row, j] * normal
                group[1, j] += g[row, j]
            plain *= part
            turned *= part
            for j in range(width):
                normal = (source[row, j] - mean) * scale
                target[row, j] = (g[row, j] * w[j] - plain - normal * turned) * scale
            if added != 0:
                for j in range(width):
                    target[row, j] += other[row, j]
        for kind in range(2):
            for j in range(width):
                total[kind, j] += group[kind, j]


@compiled(**FAST)
def add_scaled(x, out, factors, items, size):
    """Compute out = x + factor * out for each item's ``size`` numbers."""
    source, target = numba.carray(floats_at(x), (items, size)), numba.carray(floats_at(out), (items, size))
    factor = numba.carray(floats_at(factors), items)
    for item in range(items):
        for j in range(size):
            target[item, j] = source[item, j] + factor[item] * target[item, j]


@compiled(**FAST)
def scale(x, factors, items, size):
    """Multiply each item's ``size`` numbers by its factor."""
    values, factor = numba.carray(floats_at(x), (items, size)), numba.carray(floats_at(factors), items)
    for item in range(items):
        for j in range(size):
            values[item, j] *= factor[item]


@compiled(**FAST)
def norms(x, out, rows, width):
    """Compute the Euclidean norm of each row, (rows)."""
    values, target = numba.carray(floats_at(x), (rows, width)), numba.carray(floats_at(out), rows)
    for row in range(rows):
        total = f32(0.0)
        for j in range(width):
            total += values[row, j] * values[row, j]
        target[row] = np.sqrt(total)


@compiled(**FAST)
def move_toward(x, goal, share, size):
    """Move x, ``size`` numbers, by ``share`` toward ``goal``."""
    values, goals, part = numba.carray(floats_at(x), size), numba.carray(floats_at(goal), size), f32(share)
    for j in range(size):
        values[j] += part * (goals[j] - values[j])


@compiled(**FAST)
def multiply_and_sum(x, factor, sums, rows, width):
    """Multiply x by ``factor`` and store its column sums in ``sums`` (width); with ``factor`` 0 only sum."""
    values, factors = numba.carray(floats_at(x), (rows, width)), numba.carray(floats_at(factor), (rows, width))
    total = numba.carray(floats_at(sums), width)
    group = np.zeros(width, dtype=np.float32)
    total[:] = f32(0.0)
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            if factor != 0:
                for j in range(width):
                    value = values[row, j] * factors[row, j]
                    values[row, j] = value
                    group[j] += value
            else:
                for j in range(width):
                    group[j] += values[row, j]
        for j in range(width):
            total[j] += group[j]


@compiled(**FAST)
def patches(images, out, batch, channels, rows, columns, side, is_back):
    """Copy square patches of ``images`` to (batch, rows * columns, channels * side ** 2), or back if ``is_back``."""
    width = channels * side * side
    pixels = numba.carray(floats_at(images), (batch, channels, rows, side, columns, side))
    cut = numba.carray(floats_at(out), (batch, rows, columns, width))
    for item in range(batch):
        for row in range(rows):
            for channel in range(channels):
                for line in range(side):
                    offset = (channel * side + line) * side
                    for column in range(columns):
                        for j in range(side):
                            if is_back:
                                pixels[item, channel, row, line, column, j] = cut[item, row, column, offset + j]
                            else:
                                cut[item, row, column, offset + j] = pixels[item, channel, row, line, column, j]
