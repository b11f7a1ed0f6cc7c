"""Pillow's bicubic affine transform as a compiled loop, equal to it in every bit.

Pillow (``Geometry.c``) maps the centre of each target pixel to the source, takes the sixteen pixels around that point,
repeated at the edges, and interpolates along the four rows, then between them, in double precision; the result is cut
off to a whole level, not rounded. The arithmetic here is the same, operation by operation; the pixels that a row of the
target needs are first fetched side by side. A shear or a shift moves along one axis only, where the interpolation along
the other leaves the levels as they are, and four pixels are enough.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

from ...compiled import compiled

_EDGE = 2  # pixels that are repeated around the image


@compiled
def warp(planes: np.ndarray, rows: Tuple[float, ...], fill: Tuple[int, int, int]) -> np.ndarray:
    """The image under an affine map, as ``image.transform(size, AFFINE, rows, BICUBIC, fillcolor=fill)`` has it.

    Args:
        planes: uint8 (channels, height, width), C-contiguous, up to three channels.
        rows: the first two rows of the map from target to source coordinates.
        fill: level of each channel where the source point is outside the image.
    Returns:
        uint8 (channels, height, width).
    """
    channels, height, width = planes.shape
    xx, xy, x_shift, yx, yy, y_shift = rows
    # Up to three channels in one word, so that a pixel is fetched at once.
    stride = width + 2 * _EDGE
    words = np.empty((height + 2 * _EDGE) * stride, dtype=np.uint32)
    for row in range(height + 2 * _EDGE):
        source_row = min(max(row - _EDGE, 0), height - 1)
        for channel in range(channels):
            line = planes[channel, source_row]
            bits = np.uint32(8 * channel)
            inner = words[row * stride + _EDGE : row * stride + _EDGE + width]
            for column in range(width):
                level = np.uint32(line[column]) << bits
                inner[column] = level if channel == 0 else inner[column] | level
        for column in range(_EDGE):
            words[row * stride + column] = words[row * stride + _EDGE]
            words[(row + 1) * stride - 1 - column] = words[(row + 1) * stride - 1 - _EDGE]

    xs, ys = np.empty(width, dtype=np.float64), np.empty(width, dtype=np.float64)
    starts = np.empty(width, dtype=np.uint64)  # unsigned: an index that may be negative is slower
    fetched = np.empty((16, width), dtype=np.uint32)  # the neighbours of each target pixel of a row
    lines = np.empty((4, width), dtype=np.float64)  # a channel between them along the rows
    lowest = np.uint32(255)
    result = np.empty_like(planes)
    for row in range(height):
        y_in = row + 0.5
        for column in range(width):
            x_in = column + 0.5
            xs[column] = xx * x_in + xy * y_in + x_shift
            ys[column] = yx * x_in + yy * y_in + y_shift
        for channel in range(channels):
            line = result[channel, row]
            for column in range(width):
                line[column] = fill[channel]
        begin, end = 0, width  # a straight line passes an image once
        while begin < end and not (0.0 <= xs[begin] < width and 0.0 <= ys[begin] < height):
            begin += 1
        while begin < end and not (0.0 <= xs[end - 1] < width and 0.0 <= ys[end - 1] < height):
            end -= 1
        # Slices from here on: an index that may be negative is not computed side by side.
        count, x_shares, y_shares = end - begin, xs[begin:end], ys[begin:end]
        x_largest, y_largest = 0.0, 0.0
        for column in range(count):
            x, y = x_shares[column] - 0.5, y_shares[column] - 0.5
            left, top = np.floor(x), np.floor(y)
            starts[column] = np.uint64((int(top) - 1 + _EDGE) * stride + int(left) - 1 + _EDGE)
            x_shares[column], y_shares[column] = x - left, y - top
            x_largest, y_largest = max(x_largest, x - left), max(y_largest, y - top)
        if x_largest > 0.0 and y_largest > 0.0:
            for line_number in range(4):
                below = np.uint64(line_number * stride)
                one, two = fetched[4 * line_number], fetched[4 * line_number + 1]
                three, four = fetched[4 * line_number + 2], fetched[4 * line_number + 3]
                for column in range(count):
                    at = starts[column] + below
                    one[column] = words[at]
                    two[column] = words[at + np.uint64(1)]
                    three[column] = words[at + np.uint64(2)]
                    four[column] = words[at + np.uint64(3)]
        else:
            # Along the axis without fractions the second of the four neighbours is taken as it is.
            first, step = (stride, 1) if x_largest > 0.0 else (1, stride)
            one, two, three, four = fetched[0], fetched[1], fetched[2], fetched[3]
            for column in range(count):
                at = starts[column] + np.uint64(first)
                one[column] = words[at]
                two[column] = words[at + np.uint64(step)]
                three[column] = words[at + np.uint64(2 * step)]
                four[column] = words[at + np.uint64(3 * step)]
        for channel in range(channels):
            bits = np.uint32(8 * channel)
            line = result[channel, row, begin:end]
            if x_largest > 0.0 and y_largest > 0.0:
                for line_number in range(4):
                    one, two = fetched[4 * line_number], fetched[4 * line_number + 1]
                    three, four = fetched[4 * line_number + 2], fetched[4 * line_number + 3]
                    between = lines[line_number]
                    for column in range(count):
                        a = np.float64(np.int32((one[column] >> bits) & lowest))
                        b = np.float64(np.int32((two[column] >> bits) & lowest))
                        c = np.float64(np.int32((three[column] >> bits) & lowest))
                        d = np.float64(np.int32((four[column] >> bits) & lowest))
                        x = x_shares[column]
                        between[column] = b + x * ((c - a) + x * (2.0 * (a - b) + c - d + x * (b - a - c + d)))
                one_line, two_line, three_line, four_line = lines[0], lines[1], lines[2], lines[3]
                for column in range(count):
                    # Of numbers that are not whole, the order of the sums matters.
                    e, f, g, h = one_line[column], two_line[column], three_line[column], four_line[column]
                    y = y_shares[column]
                    level = f + y * ((-e + g) + y * ((2.0 * (e - f) + g - h) + y * (-e + f - g + h)))
                    level = level if level > 0.0 else 0.0
                    line[column] = np.int32(level if level < 255.0 else 255.0)
            else:
                shares = x_shares if x_largest > 0.0 else y_shares
                one, two, three, four = fetched[0], fetched[1], fetched[2], fetched[3]
                for column in range(count):
                    a = np.float64(np.int32((one[column] >> bits) & lowest))
                    b = np.float64(np.int32((two[column] >> bits) & lowest))
                    c = np.float64(np.int32((three[column] >> bits) & lowest))
                    d = np.float64(np.int32((four[column] >> bits) & lowest))
                    share = shares[column]
                    level = b + share * ((c - a) + share * (2.0 * (a - b) + c - d + share * (b - a - c + d)))
                    level = level if level > 0.0 else 0.0
                    line[column] = np.int32(level if level < 255.0 else 255.0)
    return result
