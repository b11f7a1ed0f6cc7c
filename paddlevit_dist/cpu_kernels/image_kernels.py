"""Compiled loops over images (batch, height, width, channels); arguments as in ``row_kernels.py``."""

import numba
import numpy as np

from ..runtime.compiled import compiled
from .intrinsics import FAST, floats_at

_GROUP = 64  # rows whose sum is formed before it is added to the whole


@compiled(**FAST)
def add_scaled(x, branch, scale, keep, out, batch, rows, width):
    """out = x + branch * scale * keep of (batch, rows, width), scale (width), keep (batch) or 0 for 1.

    ``out`` may be ``branch``.
    """
    whole = batch * rows
    source, added = numba.carray(floats_at(x), (whole, width)), numba.carray(floats_at(branch), (whole, width))
    target, factors = numba.carray(floats_at(out), (whole, width)), numba.carray(floats_at(scale), width)
    kept = numba.carray(floats_at(keep), batch)
    own = np.empty(width, dtype=np.float32)
    for item in range(batch):
        for j in range(width):
            own[j] = factors[j] * kept[item] if keep != 0 else factors[j]
        for row in range(item * rows, (item + 1) * rows):
            for j in range(width):
                target[row, j] = source[row, j] + added[row, j] * own[j]


@compiled(**FAST)
def scaled_gradient(gradient, branch, scale, keep, of_branch, of_scale, batch, rows, width):
    """of_branch = gradient * scale * keep, and of_scale (width) the gradient by the scale; arguments as above."""
    whole = batch * rows
    g, added = numba.carray(floats_at(gradient), (whole, width)), numba.carray(floats_at(branch), (whole, width))
    target, factors = numba.carray(floats_at(of_branch), (whole, width)), numba.carray(floats_at(scale), width)
    kept, total = numba.carray(floats_at(keep), batch), numba.carray(floats_at(of_scale), width)
    own, group = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    total[:] = np.float32(0.0)
    for item in range(batch):
        share = kept[item] if keep != 0 else np.float32(1.0)
        for j in range(width):
            own[j] = factors[j] * share
        for first in range(item * rows, (item + 1) * rows, _GROUP):
            group[:] = np.float32(0.0)
            for row in range(first, min(first + _GROUP, (item + 1) * rows)):
                for j in range(width):
                    group[j] += g[row, j] * added[row, j]
                for j in range(width):
                    target[row, j] = g[row, j] * own[j]
            for j in range(width):
                total[j] += group[j] * share


@compiled(**FAST)
def windows(images, out, batch, height, width, channels, side, stride, padding, is_back):
    """out (batch, rows, columns, side, side, channels) = the windows of ``images`` (batch, height, width, channels).

    A window lies every ``stride`` pixels, the first ``padding`` pixels outside, where the numbers are 0. With
    ``is_back`` each pixel of ``images`` receives the sum of what the windows have for it.
    """
    rows, columns = (height + 2 * padding - side) // stride + 1, (width + 2 * padding - side) // stride + 1
    line_length, run = width * channels, side * channels
    source = numba.carray(floats_at(images), (batch, height, line_length))
    cut = numba.carray(floats_at(out), (batch, rows, columns, side, run))
    if is_back:
        source[:] = np.float32(0.0)
    for item in range(batch):
        for row in range(rows):
            for column in range(columns):
                first = (column * stride - padding) * channels
                begin, end = max(0, -first), min(run, line_length - first)
                for line in range(side):
                    place = row * stride - padding + line
                    is_inside = 0 <= place < height
                    if is_back:
                        if is_inside:
                            for j in range(begin, end):
                                source[item, place, first + j] += cut[item, row, column, line, j]
                        continue
                    for j in range(0, begin if is_inside else run):
                        cut[item, row, column, line, j] = np.float32(0.0)
                    if is_inside:
                        for j in range(begin, end):
                            cut[item, row, column, line, j] = source[item, place, first + j]
                        for j in range(end, run):
                            cut[item, row, column, line, j] = np.float32(0.0)


@compiled(**FAST)
def turn(matrices, out, batch, rows, columns):
    """out (batch, columns, rows) = the transposed ``matrices`` (batch, rows, columns)."""
    source = numba.carray(floats_at(matrices), (batch, rows, columns))
    target = numba.carray(floats_at(out), (batch, columns, rows))
    for item in range(batch):
        for column in range(columns):
            for row in range(rows):
                target[item, column, row] = source[item, row, column]
