"""Compiled loops over images (batch, height, width, channels); see ``row_kernels.py`` for the arguments."""

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .intrinsics import FAST, floats_at

_GROUP = 64  # rows that are summed before they are added to the total


@compiled(**FAST)
def add_scaled(x, branch, scale, keep, out, batch, rows, width):
    """Compute out = x + branch * scale * keep of (batch, rows, width), scale (width), keep (batch) or 0 for 1.

    ``out`` may be ``branch``.
    """
    all_rows = batch * rows
    source, branches = numba.carray(floats_at(x), (all_rows, width)), numba.carray(floats_at(branch), (all_rows, width))
    target, factors = numba.carray(floats_at(out), (all_rows, width)), numba.carray(floats_at(scale), width)
    keep_factors = numba.carray(floats_at(keep), batch)
    item_factors = np.empty(width, dtype=np.float32)
    for item in range(batch):
        for j in range(width):
            item_factors[j] = factors[j] * keep_factors[item] if keep != 0 else factors[j]
        for row in range(item * rows, (item + 1) * rows):
            for j in range(width):
                target[row, j] = source[row, j] + branches[row, j] * item_factors[j]


@compiled(**FAST)
def scaled_gradient(gradient, branch, scale, keep, branch_out, scale_out, batch, rows, width):
    """Compute branch_out = gradient * scale * keep, and scale_out (width), the gradient by the scale.

    See ``add_scaled`` for the other arguments.
    """
    all_rows = batch * rows
    g, branches = (
        numba.carray(floats_at(gradient), (all_rows, width)),
        numba.carray(floats_at(branch), (all_rows, width)),
    )
    target, factors = numba.carray(floats_at(branch_out), (all_rows, width)), numba.carray(floats_at(scale), width)
    keep_factors, total = numba.carray(floats_at(keep), batch), numba.carray(floats_at(scale_out), width)
    item_factors, group = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    total[:] = np.float32(0.0)
    for item in range(batch):
        share = keep_factors[item] if keep != 0 else np.float32(1.0)
        for j in range(width):
            item_factors[j] = factors[j] * share
        for first in range(item * rows, (item + 1) * rows, _GROUP):
            group[:] = np.float32(0.0)
            for row in range(first, min(first + _GROUP, (item + 1) * rows)):
                for j in range(width):
                    group[j] += g[row, j] * branches[row, j]
                for j in range(width):
                    target[row, j] = g[row, j] * item_factors[j]
            for j in range(width):
                total[j] += group[j] * share


@compiled(**FAST)
def windows(images, out, batch, height, width, channels, side, stride, padding, is_back):
    """Copy windows of ``images``, (batch, height, width, channels), to (batch, rows, columns, side, side, channels).

    There is a window every ``stride`` pixels; the first begins ``padding`` pixels outside, where values are 0. With
    ``is_back``, each pixel of ``images`` receives the sum of its values in all windows.
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
                    source_row = row * stride - padding + line
                    is_inside = 0 <= source_row < height
                    if is_back:
                        for j in range(begin, end if is_inside else begin):
                            source[item, source_row, first + j] += cut[item, row, column, line, j]
                    else:
                        for j in range(0, begin if is_inside else run):
                            cut[item, row, column, line, j] = np.float32(0.0)
                        if is_inside:
                            for j in range(begin, end):
                                cut[item, row, column, line, j] = source[item, source_row, first + j]
                            for j in range(end, run):
                                cut[item, row, column, line, j] = np.float32(0.0)


@compiled(**FAST)
def transpose_matrices(matrices, out, batch, rows, columns):
    """Transpose ``matrices`` (batch, rows, columns) to ``out`` (batch, columns, rows)."""
    source = numba.carray(floats_at(matrices), (batch, rows, columns))
    target = numba.carray(floats_at(out), (batch, columns, rows))
    for item in range(batch):
        for column in range(columns):
            for row in range(rows):
                target[item, column, row] = source[item, row, column]
