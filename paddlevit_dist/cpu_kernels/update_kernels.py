"""Compiled loops over the memory of many tensors in one call; each value is read and written once.

Tensors are given by address: ``rows`` (tensors, columns) int64 are addresses of contiguous float32 values, and
``sizes`` (tensors,) int64 their number of values. Each function names its columns. Arguments are not checked; only
``updates`` calls these loops.

Importing this module loads numba.
"""

from typing import Any

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from ..runtime.compiled import compiled
from .intrinsics import floats_at

BLOCK = 512  # values: four tensors' values stay in a core's L1 cache from one inner loop to the next
_LANES = 16  # partial sums, so that the order of a sum is equal on all processors


@intrinsic
def _multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a * b + c, rounded once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


# Each inner loop has few arrays; otherwise the compiler does not compute eight or sixteen values at once. "_once" loops
# round a * b + c once, as Paddle's kernels for AVX-512 do; the others twice, in the order of its portable kernels.


@numba.njit(nogil=True)
def _mean_once(mean, gradient, beta, rest):
    for i in range(len(mean)):
        mean[i] = _multiply_add(beta, mean[i], rest * gradient[i])


@numba.njit(nogil=True)
def _mean_twice(mean, gradient, beta, rest):
    for i in range(len(mean)):
        mean[i] = beta * mean[i] + rest * gradient[i]


@numba.njit(nogil=True)
def _square_once(square, gradient, beta, rest):
    for i in range(len(square)):
        square[i] = _multiply_add(beta, square[i], rest * (gradient[i] * gradient[i]))


@numba.njit(nogil=True)
def _square_twice(square, gradient, beta, rest):
    for i in range(len(square)):
        square[i] = beta * square[i] + rest * gradient[i] * gradient[i]


@numba.njit(nogil=True, error_model="numpy")
def _move_once(weight, mean, square, epsilon, rate, shrink):
    for i in range(len(weight)):
        shrunk = _multiply_add(-shrink, weight[i], weight[i])
        weight[i] = _multiply_add(mean[i] / (np.sqrt(square[i]) + epsilon), rate, shrunk)


@numba.njit(nogil=True, error_model="numpy")
def _move_twice(weight, mean, square, epsilon, rate, shrink):
    for i in range(len(weight)):
        shrunk = weight[i] - shrink * weight[i]
        weight[i] = shrunk + rate * (mean[i] / (np.sqrt(square[i]) + epsilon))


@numba.njit(nogil=True)
def _add_decay(total, gradient, weight, decay):
    for i in range(len(gradient)):
        total[i] = gradient[i] + weight[i] * decay


@numba.njit(nogil=True)
def _roll(velocity, gradient, momentum):
    for i in range(len(velocity)):
        velocity[i] = velocity[i] * momentum + gradient[i]


@numba.njit(nogil=True)
def _move_along(weight, velocity, rate):
    for i in range(len(weight)):
        weight[i] = weight[i] - rate * velocity[i]


@compiled(error_model="numpy")
def adam(rows, sizes, rates, decays, betas, epsilon, is_decoupled, rounds_once):
    """Run one step of Adam or AdamW on all tensors.

    Columns: weight, gradient, mean, square, and the powers of both betas, (1,) each.

    Args:
        rows: (tensors, 6) addresses.
        sizes: (tensors,) values of each tensor.
        rates: (tensors,) float32, learning rates.
        decays: (tensors,) float32, weight decays.
        betas: (2,) float32.
        epsilon: float32.
        is_decoupled: whether weight decay is AdamW's (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2); else an L2
            term.
        rounds_once: whether a * b + c is rounded once.
    """
    one = np.float32(1)
    decayed = np.empty(BLOCK, np.float32)
    for row in range(len(sizes)):
        powers = numba.carray(floats_at(rows[row, 4]), 1), numba.carray(floats_at(rows[row, 5]), 1)
        root = np.sqrt(one - powers[1][0])
        rate = -(rates[row] * (root / (one - powers[0][0])))
        scaled_epsilon = epsilon * root
        powers[0][0] *= betas[0]
        powers[1][0] *= betas[1]
        shrink = rates[row] * decays[row] if is_decoupled else np.float32(0)
        for start in range(0, sizes[row], BLOCK):
            count = min(BLOCK, sizes[row] - start)
            weight = numba.carray(floats_at(rows[row, 0] + 4 * start), count)
            gradient = numba.carray(floats_at(rows[row, 1] + 4 * start), count)
            mean = numba.carray(floats_at(rows[row, 2] + 4 * start), count)
            square = numba.carray(floats_at(rows[row, 3] + 4 * start), count)
            if not is_decoupled:
                _add_decay(decayed, gradient, weight, decays[row])
                gradient = decayed[:count]
            if rounds_once:
                _mean_once(mean, gradient, betas[0], one - betas[0])
                _square_once(square, gradient, betas[1], one - betas[1])
                _move_once(weight, mean, square, scaled_epsilon, rate, shrink)
            else:
                _mean_twice(mean, gradient, betas[0], one - betas[0])
                _square_twice(square, gradient, betas[1], one - betas[1])
                _move_twice(weight, mean, square, scaled_epsilon, rate, shrink)


@compiled()
def momentum(rows, sizes, rates, decays, decay):
    """Run one step of SGD with momentum ``decay``, float32, and L2 terms; columns: weight, gradient, velocity."""
    decayed = np.empty(BLOCK, np.float32)
    for row in range(len(sizes)):
        for start in range(0, sizes[row], BLOCK):
            count = min(BLOCK, sizes[row] - start)
            weight = numba.carray(floats_at(rows[row, 0] + 4 * start), count)
            gradient = numba.carray(floats_at(rows[row, 1] + 4 * start), count)
            velocity = numba.carray(floats_at(rows[row, 2] + 4 * start), count)
            _add_decay(decayed, gradient, weight, decays[row])
            _roll(velocity, decayed, decay)
            _move_along(weight, velocity, rates[row])


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


@numba.njit(nogil=True)
def _approach(average, value, share):
    for i in range(len(average)):
        average[i] -= (average[i] - value[i]) * share


@compiled()
def approach(rows, sizes, share):
    """Move averages toward values by ``share`` of their distance, float32; columns: average, value."""
    for row in range(len(sizes)):
        average, value = floats_at(rows[row, 0]), floats_at(rows[row, 1])
        _approach(numba.carray(average, sizes[row]), numba.carray(value, sizes[row]), share)
