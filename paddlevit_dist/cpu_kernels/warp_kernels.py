"""Pillow's bicubic affine transform in compiled loops, equal to it in every bit.

Pillow (``VolumeGeometry.c``) maps the center of each target pixel to the source, takes the sixteen pixels around that
point, repeated at the edges, and interpolates along the four rows, then between them, in double precision; the result
is cut off to a whole level, not rounded. The arithmetic here is the same, operation by operation; the pixels that a row
of the target needs are first fetched side by side. A shear or a shift moves along one axis only, where the
interpolation along the other leaves the levels as they are, and four pixels are enough.

Importing this module loads numba.
"""

import numba
import numpy as np

from ..runtime.compiled import compiled

_EDGE = 2  # pixels that are repeated around the image


@numba.njit(nogil=True)
def _pack(planes):
    """Up to three channels in one word, so that a pixel is fetched at once: uint32 (pixels,), edges repeated."""
    channels, height, width = planes.shape
    stride = width + 2 * _EDGE
    words = np.empty((height + 2 * _EDGE) * stride, dtype=np.uint32)
    for row in range(height + 2 * _EDGE):
        source_row = min(max(row - _EDGE, 0), height - 1)
        line = words[row * stride : (row + 1) * stride]
        inner = line[_EDGE : _EDGE + width]
        for channel in range(channels):
            source, bits = planes[channel, source_row], np.uint32(8 * channel)
            for column in range(width):
                level = np.uint32(source[column]) << bits
                inner[column] = level if channel == 0 else inner[column] | level
        line[:_EDGE] = inner[0]
        line[_EDGE + width :] = inner[width - 1]
    return words


@numba.njit(nogil=True)
def _inside(xs, ys, width, height):
    """The first and the end of the source points inside an image; a straight line passes it once."""
    begin, end = 0, len(xs)
    while begin < end and not (0.0 <= xs[begin] < width and 0.0 <= ys[begin] < height):
        begin += 1
    while begin < end and not (0.0 <= xs[end - 1] < width and 0.0 <= ys[end - 1] < height):
        end -= 1
    return begin, end


@numba.njit(nogil=True)
def _divide(xs, ys, starts, stride):
    """Source points become their fractions, and ``starts`` the first of the pixels around each; returns the largest
    fractions."""
    x_largest, y_largest = 0.0, 0.0
    for column in range(len(starts)):
        x, y = xs[column] - 0.5, ys[column] - 0.5
        left, top = np.floor(x), np.floor(y)
        starts[column] = np.uint64((int(top) - 1 + _EDGE) * stride + int(left) - 1 + _EDGE)
        xs[column], ys[column] = x - left, y - top
        x_largest, y_largest = max(x_largest, x - left), max(y_largest, y - top)
    return x_largest, y_largest


@numba.njit(nogil=True)
def _fetch(words, starts, first, step, fetched):
    """Four neighbors of each pixel, ``step`` words apart: ``fetched`` (4, pixels or more)."""
    one, two, three, four = fetched[0], fetched[1], fetched[2], fetched[3]
    for column in range(len(starts)):
        at = starts[column] + np.uint64(first)
        one[column] = words[at]
        two[column] = words[at + np.uint64(step)]
        three[column] = words[at + np.uint64(2 * step)]
        four[column] = words[at + np.uint64(3 * step)]


@numba.njit(nogil=True)
def _between(e, f, g, h, share):
    # Of numbers that are not whole, the order of the sums matters.
    return f + share * ((-e + g) + share * ((2.0 * (e - f) + g - h) + share * (-e + f - g + h)))


@numba.njit(nogil=True)
def _along(fetched, bits, shares, out):
    """Interpolates a channel between its four fetched neighbors."""
    lowest = np.uint32(255)
    one, two, three, four = fetched[0], fetched[1], fetched[2], fetched[3]
    for column in range(len(shares)):
        a = np.float64(np.int32((one[column] >> bits) & lowest))
        b = np.float64(np.int32((two[column] >> bits) & lowest))
        c = np.float64(np.int32((three[column] >> bits) & lowest))
        d = np.float64(np.int32((four[column] >> bits) & lowest))
        out[column] = _between(a, b, c, d, shares[column])


@compiled
def warp(planes: np.ndarray, rows: tuple[float, ...], fill: tuple[int, int, int]) -> np.ndarray:
    """The image under an affine map, as ``image.transform(size, AFFINE, rows, BICUBIC, fillcolor=fill)`` has it.

    Args:
        planes: uint8 (channels, height, width), C-contiguous, up to three channels.
        rows: the first two rows of the map from target to source coordinates.
        fill: level of each channel where the source point is outside the image.
    Returns:
        uint8 (channels, height, width).
    """
    channels, height, width = planes.shape
    stride, words = width + 2 * _EDGE, _pack(planes)
    xs, ys = np.empty(width, dtype=np.float64), np.empty(width, dtype=np.float64)
    starts = np.empty(width, dtype=np.uint64)  # unsigned: an index that may be negative is slower
    fetched = np.empty((4, 4, width), dtype=np.uint32)  # the neighbors of each target pixel of a row
    lines = np.empty((4, width), dtype=np.float64)  # a channel between them along the rows
    between = np.empty(width, dtype=np.float64)
    result = np.empty_like(planes)
    for row in range(height):
        for column in range(width):
            xs[column] = rows[0] * (column + 0.5) + rows[1] * (row + 0.5) + rows[2]
            ys[column] = rows[3] * (column + 0.5) + rows[4] * (row + 0.5) + rows[5]
        begin, end = _inside(xs, ys, width, height)
        # Slices from here on: an index that may be negative is not computed side by side.
        x_shares, y_shares, places = xs[begin:end], ys[begin:end], starts[begin:end]
        x_largest, y_largest = _divide(x_shares, y_shares, places, stride)
        moves_both_ways = x_largest > 0.0 and y_largest > 0.0
        if moves_both_ways:
            for number in range(4):
                _fetch(words, places, number * stride, 1, fetched[number])
        elif x_largest > 0.0:  # along the axis without fractions the second of the four neighbors is taken as it is
            _fetch(words, places, stride, 1, fetched[0])
        else:
            _fetch(words, places, 1, stride, fetched[0])
        for channel in range(channels):
            bits, levels = np.uint32(8 * channel), between[: end - begin]
            if moves_both_ways:
                for number in range(4):
                    _along(fetched[number], bits, x_shares, lines[number])
                one, two, three, four = lines[0], lines[1], lines[2], lines[3]
                for column in range(end - begin):
                    levels[column] = _between(one[column], two[column], three[column], four[column], y_shares[column])
            else:
                _along(fetched[0], bits, x_shares if x_largest > 0.0 else y_shares, levels)
            result[channel, row] = fill[channel]
            target = result[channel, row, begin:end]
            for column in range(end - begin):
                level = levels[column] if levels[column] > 0.0 else 0.0
                target[column] = np.int32(level if level < 255.0 else 255.0)
    return result
