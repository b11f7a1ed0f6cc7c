"""Compiled loops of a batch norm with a ReLU over the rows of float32 arrays; see ``row_kernels.py`` for the arguments.

Sums are float64, of groups of ``_GROUP`` rows in float32.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .intrinsics import FAST, doubles_at, floats_at

_GROUP = 64
f32 = np.float32


@compiled(**FAST)
def moments(x, out, rows, width):
    """Write the number of rows, the means, and the sums of squared deviations: float64 (1 + 2 width,)."""
    values, target = numba.carray(floats_at(x), (rows, width)), numba.carray(doubles_at(out), 1 + 2 * width)
    group, means = np.empty(width, dtype=np.float32), np.zeros(width, dtype=np.float32)
    target[:] = 0.0
    target[0] = rows
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            for j in range(width):
                group[j] += values[row, j]
        for j in range(width):
            target[1 + j] += group[j]
    for j in range(width):
        target[1 + j] /= rows
        means[j] = f32(target[1 + j])
    for first in range(0, rows, _GROUP):
        group[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            for j in range(width):
                difference = values[row, j] - means[j]
                group[j] += difference * difference
        for j in range(width):
            target[1 + width + j] += group[j]


@compiled(**FAST)
def scale_and_cut(x, scale, shift, out, rows, width):
    """Compute out = max(x * scale + shift, 0)."""
    values, target = numba.carray(floats_at(x), (rows, width)), numba.carray(floats_at(out), (rows, width))
    factors, terms = numba.carray(floats_at(scale), width), numba.carray(floats_at(shift), width)
    for row in range(rows):
        for j in range(width):
            value = values[row, j] * factors[j] + terms[j]
            target[row, j] = value if not value < f32(0.0) else f32(0.0)  # a value that is not a number stays one


@compiled(**FAST)
def gradient_sums(gradient, x, out, mean, inverse, sums, rows, width):
    """Sum the gradient where ``out`` is above 0, and its product with the normalized x, to float64 (2 * width,)."""
    g, values = numba.carray(floats_at(gradient), (rows, width)), numba.carray(floats_at(x), (rows, width))
    outs, total = numba.carray(floats_at(out), (rows, width)), numba.carray(doubles_at(sums), (2, width))
    means, inverses = numba.carray(floats_at(mean), width), numba.carray(floats_at(inverse), width)
    plain, turned = np.empty(width, dtype=np.float32), np.empty(width, dtype=np.float32)
    total[:] = 0.0
    for first in range(0, rows, _GROUP):
        plain[:] = f32(0.0)
        turned[:] = f32(0.0)
        for row in range(first, min(rows, first + _GROUP)):
            for j in range(width):
                passed = f32(0.0) if outs[row, j] == f32(0.0) else g[row, j]
                plain[j] += passed
                turned[j] += passed * ((values[row, j] - means[j]) * inverses[j])
        for j in range(width):
            total[0, j] += plain[j]
            total[1, j] += turned[j]


@compiled(**FAST)
def input_gradient(gradient, x, out, mean, inverse, factor, plain, turned, target, rows, width):  # noqa: PLR0913
    """Compute target = factor * (g - plain - n * turned) with g the gradient where ``out`` is above 0, n normalized x.

    ``plain`` and ``turned`` (width) are the means of g and of g * n.
    """
    g, values = numba.carray(floats_at(gradient), (rows, width)), numba.carray(floats_at(x), (rows, width))
    outs, result = numba.carray(floats_at(out), (rows, width)), numba.carray(floats_at(target), (rows, width))
    means, inverses = numba.carray(floats_at(mean), width), numba.carray(floats_at(inverse), width)
    factors = numba.carray(floats_at(factor), width)
    first, second = numba.carray(floats_at(plain), width), numba.carray(floats_at(turned), width)
    for row in range(rows):
        for j in range(width):
            passed = f32(0.0) if outs[row, j] == f32(0.0) else g[row, j]
            normal = (values[row, j] - means[j]) * inverses[j]
            result[row, j] = factors[j] * (passed - first[j] - normal * second[j])
