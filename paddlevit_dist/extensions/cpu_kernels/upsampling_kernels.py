"""Compiled loops of bilinear upsampling: sums of maps, and cross-entropy of logits at the size of their labels.

Arguments are as in ``row_kernels.py``; only ``upsampling.py`` calls these loops. ``lower``, ``upper`` (int64) and
``shares`` (float32) contain, for each row of the large image and then for each of its columns, the two neighbors in the
small image and the share of the second.
"""

import math

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .exponential_kernels import exponential
from .intrinsics import FAST, floats_at, integers_at

LANES = 16  # classes are padded to a multiple, so that loops over them have no remainder
_NEVER = np.float32(-1e30)  # logit of a padding class
f32 = np.float32


@numba.njit(**FAST)
def _channels_last(logits, out, classes, padded, pixels):
    """Transpose logits (classes, pixels) to out (pixels, padded); the class loop reads whole cache lines."""
    source, target = numba.carray(floats_at(logits), (classes, pixels)), numba.carray(floats_at(out), (pixels, padded))
    for label in range(classes):
        for pixel in range(pixels):
            target[pixel, label] = source[label, pixel]
    for pixel in range(pixels):
        target[pixel, classes:] = _NEVER


@numba.njit(**FAST)
def _classes_first(maps, out, classes, padded, pixels):
    source, target = numba.carray(floats_at(maps), (pixels, padded)), numba.carray(floats_at(out), (classes, pixels))
    for label in range(classes):
        for pixel in range(pixels):
            target[label, pixel] = source[pixel, label]


@numba.njit(**FAST)
def _load_neighbors(lower, upper, shares, count):
    first, second = numba.carray(integers_at(lower), count), numba.carray(integers_at(upper), count)
    return first, second, numba.carray(floats_at(shares), count)


@numba.njit(**FAST)
def _blend(first, second, share, out, count):
    """Compute out = (1 - share) * first + share * second."""
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    target, rest = numba.carray(floats_at(out), count), f32(1.0) - share
    for i in range(count):
        target[i] = rest * a[i] + share * b[i]


@numba.njit(**FAST)
def _add_blend(first, second, share, out, count):
    """Compute out += (1 - share) * first + share * second."""
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    target, rest = numba.carray(floats_at(out), count), f32(1.0) - share
    for i in range(count):
        target[i] += rest * a[i] + share * b[i]


@numba.njit(**FAST)
def _add_shares(values, share, first, second, count):
    """Compute first += (1 - share) * values and second += share * values; both may be the same array."""
    source, rest = numba.carray(floats_at(values), count), f32(1.0) - share
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    for i in range(count):
        a[i] += rest * source[i]
    for i in range(count):
        b[i] += share * source[i]


@numba.njit(**FAST)
def _exponentials(address, count):
    """Replace numbers by exp(number - largest); return the largest number and the sum."""
    values = numba.carray(floats_at(address), count)
    largest = values[0]
    for i in range(1, count):
        largest = values[i] if values[i] > largest else largest
    for i in range(count):
        values[i] = exponential(values[i] - largest)
    total = f32(0.0)
    for i in range(count):
        total += values[i]
    return largest, total


@compiled(**FAST)
def enlarge(maps, lower, upper, shares, out, batch, channels, size, large):
    """Add maps (batch, *size, channels), upsampled, to out (batch, *large, channels)."""
    (rows, columns), (height, width) = size, large
    line, bytes_ = columns * channels, 4 * channels
    first, second, share = _load_neighbors(lower, upper, shares, height + width)
    row_buffer = np.empty(line, np.float32)
    for item in range(batch):
        source, target = maps + 4 * item * rows * line, out + item * height * width * bytes_
        for y in range(height):
            _blend(source + 4 * first[y] * line, source + 4 * second[y] * line, share[y], row_buffer.ctypes.data, line)
            for x in range(width):
                left, right = first[height + x] * bytes_, second[height + x] * bytes_
                pixel = target + (y * width + x) * bytes_
                _add_blend(
                    row_buffer.ctypes.data + left, row_buffer.ctypes.data + right, share[height + x], pixel, channels
                )


@compiled(**FAST)
def enlarge_gradient(gradient, lower, upper, shares, out, batch, channels, size, large):
    """Compute the gradient by the maps of ``enlarge``, out (batch, *size, channels), from that by its result."""
    (rows, columns), (height, width) = size, large
    line, bytes_ = columns * channels, 4 * channels
    first, second, share = _load_neighbors(lower, upper, shares, height + width)
    row_buffer = np.empty(line, np.float32)
    numba.carray(floats_at(out), batch * rows * line)[:] = f32(0.0)
    for item in range(batch):
        target, source = out + 4 * item * rows * line, gradient + item * height * width * bytes_
        for y in range(height):
            row_buffer[:] = f32(0.0)
            for x in range(width):
                left, right = first[height + x] * bytes_, second[height + x] * bytes_
                pixel = source + (y * width + x) * bytes_
                _add_shares(
                    pixel, share[height + x], row_buffer.ctypes.data + left, row_buffer.ctypes.data + right, channels
                )
            _add_shares(
                row_buffer.ctypes.data, share[y], target + 4 * first[y] * line, target + 4 * second[y] * line, line
            )


@compiled(**FAST)
def cross_entropy(logits, ignored, labels, weights, lower, upper, shares, out, batch, classes, size, large):
    """Compute the summed cross-entropy of bilinearly upsampled logits, float64, and its gradient by the logits.

    Returns the sum; NaN if a label has no class.

    Args:
        logits: (batch, classes, rows, columns).
        ignored: label of pixels that are not counted.
        labels: int64 (batch, *large).
        weights: (classes), factor for the pixels of each class.
        out: like ``logits``, receives the gradient; 0 for none.
        size: rows and columns of the logits; ``large``: of the labels.
    """
    (rows, columns), (height, width) = size, large
    padded = (classes + LANES - 1) // LANES * LANES
    line, pixels, sum_ = columns * padded, rows * columns, 0.0
    truth = numba.carray(integers_at(labels), (batch, height, width))
    factor = numba.carray(floats_at(weights), classes)
    first, second, share = _load_neighbors(lower, upper, shares, height + width)
    maps, slopes = np.empty(pixels * padded, np.float32), np.empty(pixels * padded, np.float32)
    row_buffer, row_slopes, values = (
        np.empty(line, np.float32),
        np.empty(line, np.float32),
        np.empty(padded, np.float32),
    )
    for item in range(batch):
        _channels_last(logits + 4 * item * classes * pixels, maps.ctypes.data, classes, padded, pixels)
        slopes[:] = f32(0.0)
        for y in range(height):
            top, bottom = 4 * first[y] * line, 4 * second[y] * line
            _blend(maps.ctypes.data + top, maps.ctypes.data + bottom, share[y], row_buffer.ctypes.data, line)
            row_slopes[:] = f32(0.0)
            for x in range(width):
                label = truth[item, y, x]
                if label == ignored:
                    continue
                if label < 0 or label >= classes:
                    return math.nan
                left, right, part = 4 * padded * first[height + x], 4 * padded * second[height + x], share[height + x]
                _blend(row_buffer.ctypes.data + left, row_buffer.ctypes.data + right, part, values.ctypes.data, padded)
                logit = values[label]
                largest, total = _exponentials(values.ctypes.data, padded)
                sum_ += factor[label] * (math.log(total) + largest - logit)
                if out != 0:
                    scale = factor[label] / total
                    for i in range(padded):
                        values[i] *= scale
                    values[label] -= factor[label]
                    base = row_slopes.ctypes.data
                    _add_shares(values.ctypes.data, part, base + left, base + right, padded)
            if out != 0:
                base = slopes.ctypes.data
                _add_shares(row_slopes.ctypes.data, share[y], base + top, base + bottom, line)
        if out != 0:
            _classes_first(slopes.ctypes.data, out + 4 * item * classes * pixels, classes, padded, pixels)
    return sum_
