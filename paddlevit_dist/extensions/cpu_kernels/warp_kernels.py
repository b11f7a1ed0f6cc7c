"""Bicubic affine transform in compiled loops, bit-identical to Pillow's. Importing this module loads numba.

Pillow (``Geometry.c``) maps the center of each target pixel to the source and takes the sixteen pixels around that
point, repeated at the edges. It interpolates along the four rows, then between them, in double precision, and truncates
the result. The arithmetic here is identical, operation by operation, but the pixels for a row of the target are fetched
together first. A shear or a shift moves along one axis only, so four pixels are enough.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled

_EDGE = 2  # pixels repeated around the image


@numba.njit(nogil=True)
def _pack(planes):
    """Pack up to three channels into one word, so that a pixel is fetched at once: uint32 (pixels,), edges repeated."""
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
def _find_inside(xs, ys, width, height):
    """Return the first and the end of the source points inside an image, which a straight line passes once."""
    begin, end = 0, len(xs)
    while begin < end and not (0.0 <= xs[begin] < width and 0.0 <= ys[begin] < height):
        begin += 1
    while begin < end and not (0.0 <= xs[end - 1] < width and 0.0 <= ys[end - 1] < height):
        end -= 1
    return begin, end


@numba.njit(nogil=True)
def _split_points(xs, ys, starts, stride):
    """Replace source points by their fractions; fill ``starts`` with the first pixels; return the largest fractions."""
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
    """Fetch four neighbors of each pixel, ``step`` words apart, to ``fetched`` (4, pixels or more)."""
    first_line, second_line, third_line, fourth_line = fetched[0], fetched[1], fetched[2], fetched[3]
    for column in range(len(starts)):
        start = starts[column] + np.uint64(first)
        first_line[column] = words[start]
        second_line[column] = words[start + np.uint64(step)]
        third_line[column] = words[start + np.uint64(2 * step)]
        fourth_line[column] = words[start + np.uint64(3 * step)]


@numba.njit(nogil=True)
def _interpolate(e, f, g, h, share):
    # The result depends on the order of the sums.
    return f + share * ((-e + g) + share * ((2.0 * (e - f) + g - h) + share * (-e + f - g + h)))


@numba.njit(nogil=True)
def _interpolate_channel(fetched, bits, shares, out):
    """Interpolate a channel between its four fetched neighbors."""
    lowest = np.uint32(255)
    first, second, third, fourth = fetched[0], fetched[1], fetched[2], fetched[3]
    for column in range(len(shares)):
        a = np.float64(np.int32((first[column] >> bits) & lowest))
        b = np.float64(np.int32((second[column] >> bits) & lowest))
        c = np.float64(np.int32((third[column] >> bits) & lowest))
        d = np.float64(np.int32((fourth[column] >> bits) & lowest))
        out[column] = _interpolate(a, b, c, d, shares[column])


@compiled
def warp(planes: np.ndarray, rows: tuple[float, ...], fill: tuple[int, int, int]) -> np.ndarray:
    """Transform like ``image.transform(size, AFFINE, rows, BICUBIC, fillcolor=fill)``: uint8 (channels, height, width).

    ``planes``: uint8 (channels, height, width), C-contiguous, up to three channels; ``fill``: level of each channel
    where the source point, mapped by ``rows`` from the target, is outside the image.
    """
    channels, height, width = planes.shape
    stride, words = width + 2 * _EDGE, _pack(planes)
    xs, ys = np.empty(width, dtype=np.float64), np.empty(width, dtype=np.float64)
    starts = np.empty(width, dtype=np.uint64)  # unsigned: signed indices are slower
    fetched = np.empty((4, 4, width), dtype=np.uint32)  # neighbors of each target pixel of a row
    lines = np.empty((4, width), dtype=np.float64)  # a channel interpolated along the rows
    interpolated = np.empty(width, dtype=np.float64)
    result = np.empty_like(planes)
    for row in range(height):
        for column in range(width):
            xs[column] = rows[0] * (column + 0.5) + rows[1] * (row + 0.5) + rows[2]
            ys[column] = rows[3] * (column + 0.5) + rows[4] * (row + 0.5) + rows[5]
        begin, end = _find_inside(xs, ys, width, height)
        # Slices from here on: loops with signed indices are not vectorized.
        x_shares, y_shares, pixel_starts = xs[begin:end], ys[begin:end], starts[begin:end]
        x_largest, y_largest = _split_points(x_shares, y_shares, pixel_starts, stride)
        moves_both_ways = x_largest > 0.0 and y_largest > 0.0
        if moves_both_ways:
            for number in range(4):
                _fetch(words, pixel_starts, number * stride, 1, fetched[number])
        elif x_largest > 0.0:  # along the axis without fractions, the second of four neighbors is the result
            _fetch(words, pixel_starts, stride, 1, fetched[0])
        else:
            _fetch(words, pixel_starts, 1, stride, fetched[0])
        for channel in range(channels):
            bits, levels = np.uint32(8 * channel), interpolated[: end - begin]
            if moves_both_ways:
                for number in range(4):
                    _interpolate_channel(fetched[number], bits, x_shares, lines[number])
                first, second, third, fourth = lines[0], lines[1], lines[2], lines[3]
                for column in range(end - begin):
                    levels[column] = _interpolate(
                        first[column], second[column], third[column], fourth[column], y_shares[column]
                    )
            else:
                _interpolate_channel(fetched[0], bits, x_shares if x_largest > 0.0 else y_shares, levels)
            result[channel, row] = fill[channel]
            target = result[channel, row, begin:end]
            for column in range(end - begin):
                level = levels[column] if levels[column] > 0.0 else 0.0
                target[column] = np.int32(level if level < 255.0 else 255.0)
    return result
