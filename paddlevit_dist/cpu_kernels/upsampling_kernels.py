"""Compiled loops of bilinear enlarging: sums of maps, and cross-entropy of logits at the size of their labels.

Arguments are addresses of contiguous arrays and their sizes, as in ``row_kernels.py``; only ``upsampling.py`` calls
these loops. Each runs on one thread, and equal arguments give equal bits.

``lower``, ``upper`` (int64) and ``shares`` (float32) say, for each row of the large image and then for each of its
columns, between which two of the small one it lies, and the second's share.
"""

import math

import numba
import numpy as np

from ..runtime.compiled import compiled
from .exponential_kernels import exponential
from .intrinsics import FAST, floats_at, whole_numbers_at

LANES = 16  # classes are padded to a multiple, so that no loop over them has a rest
_NEVER = np.float32(-1e30)  # the logit of a class that is only padding
f32 = np.float32


@numba.njit(**FAST)
def _channels_last(logits, out, classes, padded, pixels):
    """out (pixels, padded) of logits (classes, pixels); an outer loop over classes reads whole lines."""
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
def _between(lower, upper, shares, count):
    first, second = numba.carray(whole_numbers_at(lower), count), numba.carray(whole_numbers_at(upper), count)
    return first, second, numba.carray(floats_at(shares), count)


@numba.njit(**FAST)
def _blend(first, second, share, out, count):
    """out = (1 - share) * first + share * second."""
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    target, rest = numba.carray(floats_at(out), count), f32(1.0) - share
    for i in range(count):
        target[i] = rest * a[i] + share * b[i]


@numba.njit(**FAST)
def _add_blend(first, second, share, out, count):
    """out += (1 - share) * first + share * second."""
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    target, rest = numba.carray(floats_at(out), count), f32(1.0) - share
    for i in range(count):
        target[i] += rest * a[i] + share * b[i]


@numba.njit(**FAST)
def _add_shares(values, share, first, second, count):
    """first += (1 - share) * values, second += share * values; the two may be one."""
    source, rest = numba.carray(floats_at(values), count), f32(1.0) - share
    a, b = numba.carray(floats_at(first), count), numba.carray(floats_at(second), count)
    for i in range(count):
        a[i] += rest * source[i]
    for i in range(count):
        b[i] += share * source[i]


@numba.njit(**FAST)
def _exponentials(address, count):
    """Replace numbers by exp(number - largest): the largest, and the sum."""
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
    """out (batch, *large, channels) += maps (batch, *size, channels), enlarged."""
    (rows, columns), (height, width) = size, large
    line, bytes_ = columns * channels, 4 * channels
    first, second, share = _between(lower, upper, shares, height + width)
    own = np.empty(line, np.float32)
    for item in range(batch):
        source, target = maps + 4 * item * rows * line, out + item * height * width * bytes_
        for y in range(height):
            _blend(source + 4 * first[y] * line, source + 4 * second[y] * line, share[y], own.ctypes.data, line)
            for x in range(width):
                left, right = first[height + x] * bytes_, second[height + x] * bytes_
                place = target + (y * width + x) * bytes_
                _add_blend(own.ctypes.data + left, own.ctypes.data + right, share[height + x], place, channels)


@compiled(**FAST)
def enlarge_gradient(gradient, lower, upper, shares, out, batch, channels, size, large):
    """out (batch, *size, channels) = the gradient by the maps of ``enlarge``, from that by its result."""
    (rows, columns), (height, width) = size, large
    line, bytes_ = columns * channels, 4 * channels
    first, second, share = _between(lower, upper, shares, height + width)
    own = np.empty(line, np.float32)
    numba.carray(floats_at(out), batch * rows * line)[:] = f32(0.0)
    for item in range(batch):
        target, source = out + 4 * item * rows * line, gradient + item * height * width * bytes_
        for y in range(height):
            own[:] = f32(0.0)
            for x in range(width):
                left, right = first[height + x] * bytes_, second[height + x] * bytes_
                place = source + (y * width + x) * bytes_
                _add_shares(place, share[height + x], own.ctypes.data + left, own.ctypes.data + right, channels)
            _add_shares(own.ctypes.data, share[y], target + 4 * first[y] * line, target + 4 * second[y] * line, line)


@compiled(**FAST)
def cross_entropy(logits, ignored, labels, weights, lower, upper, shares, out, batch, classes, size, large):
    """The summed cross-entropy of bilinearly enlarged logits, float64, and its gradient by the logits.

    Args:
        logits: (batch, classes, rows, columns).
        ignored: the label of a pixel that does not count.
        labels: int64 (batch, *large).
        weights: (classes), a factor for the pixels of each class.
        out: like ``logits``, receives the gradient; 0 for none.
        size, large: rows and columns of the logits and of the labels.

    Returns:
        The sum; not a number if there is a label without a class.
    """
    (rows, columns), (height, width) = size, large
    padded = (classes + LANES - 1) // LANES * LANES
    line, pixels, sum_ = columns * padded, rows * columns, 0.0
    truth = numba.carray(whole_numbers_at(labels), (batch, height, width))
    factor = numba.carray(floats_at(weights), classes)
    first, second, share = _between(lower, upper, shares, height + width)
    maps, slopes = np.empty(pixels * padded, np.float32), np.empty(pixels * padded, np.float32)
    own, own_slopes, values = np.empty(line, np.float32), np.empty(line, np.float32), np.empty(padded, np.float32)
    for item in range(batch):
        _channels_last(logits + 4 * item * classes * pixels, maps.ctypes.data, classes, padded, pixels)
        slopes[:] = f32(0.0)
        for y in range(height):
            top, bottom = 4 * first[y] * line, 4 * second[y] * line
            _blend(maps.ctypes.data + top, maps.ctypes.data + bottom, share[y], own.ctypes.data, line)
            own_slopes[:] = f32(0.0)
            for x in range(width):
                label = truth[item, y, x]
                if label == ignored:
                    continue
                if label < 0 or label >= classes:
                    return math.nan
                left, right, part = 4 * padded * first[height + x], 4 * padded * second[height + x], share[height + x]
                _blend(own.ctypes.data + left, own.ctypes.data + right, part, values.ctypes.data, padded)
                logit = values[label]
                largest, total = _exponentials(values.ctypes.data, padded)
                sum_ += factor[label] * (math.log(total) + largest - logit)
                if out != 0:
                    scale = factor[label] / total
                    for i in range(padded):
                        values[i] *= scale
                    values[label] -= factor[label]
                    place = own_slopes.ctypes.data
                    _add_shares(values.ctypes.data, part, place + left, place + right, padded)
            if out != 0:
                place = slopes.ctypes.data
                _add_shares(own_slopes.ctypes.data, share[y], place + top, place + bottom, line)
        if out != 0:
            _classes_first(slopes.ctypes.data, out + 4 * item * classes * pixels, classes, padded, pixels)
    return sum_
