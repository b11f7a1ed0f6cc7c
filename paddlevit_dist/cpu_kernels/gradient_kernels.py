"""Compiled loops over the memory of all gradients in one call, for ``gradients``; importing them loads numba.

Tensors are given by address: ``rows`` (tensors, 1) int64 are addresses of contiguous float32 values, and ``sizes``
(tensors,) int64 their number of values. Arguments are not checked.
"""

import numba
import numpy as np

from ..runtime.compiled import compiled
from .intrinsics import floats_at

_LANES = 16  # partial sums, so that the order of a sum is equal on all processors


@numba.njit(nogil=True)
def _add_squares(sums, values):
    whole = len(values) // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            value = np.float64(values[start + lane])
            sums[lane] += value * value
    for i in range(whole, len(values)):
        value = np.float64(values[i])
        sums[0] += value * value


@compiled()
def sum_of_squares(rows, sizes):
    """Sum the squares of all values, in float64; column: the values."""
    sums = np.zeros(_LANES)
    for row in range(len(sizes)):
        _add_squares(sums, numba.carray(floats_at(rows[row, 0]), sizes[row]))
    return sums.sum()


@numba.njit(nogil=True)
def _multiply(values, factor):
    for i in range(len(values)):
        values[i] *= factor


@compiled()
def scale(rows, sizes, factor):
    """Multiply all values by ``factor``, float32; column: the values."""
    for row in range(len(sizes)):
        _multiply(numba.carray(floats_at(rows[row, 0]), sizes[row]), factor)
