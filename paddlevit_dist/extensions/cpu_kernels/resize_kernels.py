"""Bicubic resize of a crop in compiled loops, bit-identical to Pillow's. Importing this module loads numba.

The algorithm is Pillow's for 8 bits (``Resample.c``): coefficients of the antialiased filter in double precision,
normalized to sum 1 and rounded to 22 binary places; one pass along the rows and one along the columns, each rounded to
8 bits. The filter is the one of R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with a =
-1/2. Sums of integers do not depend on their order, so several neighbors are summed at once. Cropping and the change to
the model's layout happen in the same passes.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled

_BITS = 22  # binary places of a coefficient: 32 less 8 of a level and 2 to spare
_TAPS = 4  # coefficients summed at once; they are padded with zeros


@compiled
def coefficients(side: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the source pixels and coefficients of ``size`` pixels from ``side`` pixels.

    Returns int64 (size, 2), the first source pixel and the number of coefficients, a multiple of ``_TAPS``; int32
    (size, at least that number), in units of 2 ** -22, padded with zeros.
    """
    scale = side / size
    filter_scale = max(1.0, scale)
    support = 2.0 * filter_scale
    inverse = 1.0 / filter_scale
    longest = int(np.ceil(support)) * 2 + 1
    ranges = np.zeros((size, 2), dtype=np.int64)
    weights = np.zeros((size, longest + _TAPS), dtype=np.int32)
    exact = np.empty(longest, dtype=np.float64)
    for target in range(size):
        center = (target + 0.5) * scale
        first = max(0, int(center - support + 0.5))
        count = min(side, int(center + support + 0.5)) - first
        total = 0.0
        for tap in range(count):
            x = abs((tap + first - center + 0.5) * inverse)
            weight = 0.0
            if x < 1.0:
                weight = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1
            elif x < 2.0:
                weight = (((x - 5) * x + 8) * x - 4) * -0.5
            exact[tap] = weight
            total += weight
        for tap in range(count):
            weight = exact[tap]
            if total != 0.0:
                weight /= total
            weight *= 1 << _BITS
            weights[target, tap] = int(weight - 0.5) if weight < 0 else int(weight + 0.5)
        ranges[target, 0] = first
        ranges[target, 1] = (count + _TAPS - 1) // _TAPS * _TAPS
    return ranges, weights


@numba.njit(nogil=True)
def _swap_bits(left, right, shift, low):
    """Exchange the bits of ``left`` that ``low`` masks after a shift with the masked bits of ``right``."""
    swap = ((left >> shift) ^ right) & low
    return left ^ (swap << shift), right ^ swap


@compiled
def transpose(planes: np.ndarray, first_row: int, rows: int, first_column: int, columns: int) -> np.ndarray:
    """Transpose a part of each plane, uint8 (planes, height, width), 8 x 8 bytes at a time in eight 64-bit words.

    Returns uint8 (planes, columns, rows), both rounded up to multiples of eight; the excess is undefined. Source: H.
    Warren, "Hacker's Delight", 2nd edition, section 7-3.
    """
    down, across = (rows + 7) // 8, (columns + 7) // 8
    low_32, low_16, low_8 = np.uint64(0xFFFFFFFF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0x00FF00FF00FF00FF)
    by_32, by_16, by_8 = np.uint64(32), np.uint64(16), np.uint64(8)
    lines = np.zeros((8, across * 8), dtype=np.uint8)  # aligned, for reading it in words
    words = lines.view(np.uint64)  # (8, across)
    result = np.empty((len(planes), across * 8, down * 8), dtype=np.uint8)
    transposed = result.view(np.uint64)  # (planes, across * 8, down)
    for plane in range(len(planes)):
        for group in range(down):
            for row in range(min(8, rows - group * 8)):
                line = planes[plane, first_row + group * 8 + row, first_column : first_column + columns]
                target = lines[row]
                for column in range(columns):
                    target[column] = line[column]
            for word in range(across):
                a, b, c, d = words[0, word], words[1, word], words[2, word], words[3, word]
                e, f, g, h = words[4, word], words[5, word], words[6, word], words[7, word]
                a, e = _swap_bits(a, e, by_32, low_32)
                b, f = _swap_bits(b, f, by_32, low_32)
                c, g = _swap_bits(c, g, by_32, low_32)
                d, h = _swap_bits(d, h, by_32, low_32)
                a, c = _swap_bits(a, c, by_16, low_16)
                b, d = _swap_bits(b, d, by_16, low_16)
                e, g = _swap_bits(e, g, by_16, low_16)
                f, h = _swap_bits(f, h, by_16, low_16)
                a, b = _swap_bits(a, b, by_8, low_8)
                c, d = _swap_bits(c, d, by_8, low_8)
                e, f = _swap_bits(e, f, by_8, low_8)
                g, h = _swap_bits(g, h, by_8, low_8)
                start = word * 8
                transposed[plane, start, group] = a
                transposed[plane, start + 1, group] = b
                transposed[plane, start + 2, group] = c
                transposed[plane, start + 3, group] = d
                transposed[plane, start + 4, group] = e
                transposed[plane, start + 5, group] = f
                transposed[plane, start + 6, group] = g
                transposed[plane, start + 7, group] = h
    return result


@compiled
def along_rows(columns: np.ndarray, channels: int, ranges: np.ndarray, weights: np.ndarray, last: int) -> np.ndarray:
    """Scale transposed rows of pixels to another width; return them by channel, uint8 (channels, new width, height).

    ``columns``: uint8 (width * channels or more, height), C-contiguous; channels of a column are consecutive rows.
    ``ranges`` and ``weights``: results of ``coefficients`` of the width; ``last``: index of the last column.
    """
    size, height = len(ranges), columns.shape[1]
    shift, half = np.int32(_BITS), np.int32(1 << (_BITS - 1))
    zero, full = np.int32(0), np.int32(255)
    sums = np.empty(height, dtype=np.int32)
    result = np.empty((channels, size, height), dtype=np.uint8)
    for target in range(size):
        for channel in range(channels):
            sums[:] = half
            for tap in range(0, ranges[target, 1], _TAPS):
                a, b = weights[target, tap], weights[target, tap + 1]
                c, d = weights[target, tap + 2], weights[target, tap + 3]
                start = ranges[target, 0] + tap
                first = columns[start * channels + channel]
                second = columns[min(start + 1, last) * channels + channel]  # beyond the end, weights are 0
                third = columns[min(start + 2, last) * channels + channel]
                fourth = columns[min(start + 3, last) * channels + channel]
                for row in range(height):
                    sums[row] += (
                        a * np.int32(first[row])
                        + b * np.int32(second[row])
                        + c * np.int32(third[row])
                        + d * np.int32(fourth[row])
                    )
            line = result[channel, target]
            for row in range(height):
                line[row] = min(max(sums[row] >> shift, zero), full)
    return result


@compiled
def along_columns(
    planes: np.ndarray,
    first_row: int,
    rows: int,
    first_column: int,
    columns: int,
    ranges: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Scale some columns of C-contiguous planes, uint8 (planes, height, width), to another height.

    ``ranges`` and ``weights`` are the results of ``coefficients`` of ``rows``. Returns uint8 (planes, new height,
    columns).
    """
    size = len(ranges)
    shift, half = np.int32(_BITS), np.int32(1 << (_BITS - 1))
    zero, full = np.int32(0), np.int32(255)
    sums = np.empty(columns, dtype=np.int32)
    result = np.empty((len(planes), size, columns), dtype=np.uint8)
    last, end = rows - 1, first_column + columns
    for plane in range(len(planes)):
        for target in range(size):
            sums[:] = half
            for tap in range(0, ranges[target, 1], _TAPS):
                a, b = weights[target, tap], weights[target, tap + 1]
                c, d = weights[target, tap + 2], weights[target, tap + 3]
                row = ranges[target, 0] + tap
                first = planes[plane, first_row + row, first_column:end]
                # Beyond the end, weights are 0.
                second = planes[plane, first_row + min(row + 1, last), first_column:end]
                third = planes[plane, first_row + min(row + 2, last), first_column:end]
                fourth = planes[plane, first_row + min(row + 3, last), first_column:end]
                for column in range(columns):
                    sums[column] += (
                        a * np.int32(first[column])
                        + b * np.int32(second[column])
                        + c * np.int32(third[column])
                        + d * np.int32(fourth[column])
                    )
            for column in range(columns):
                result[plane, target, column] = min(max(sums[column] >> shift, zero), full)
    return result


def resize_crop(
    pixels: np.ndarray, box: tuple[int, int, int, int], size: tuple[int, int], columns_first: bool
) -> np.ndarray:
    """Scale a crop like ``image.crop(...).resize((columns, rows), BICUBIC)``: uint8 (channels, rows, columns).

    Args:
        pixels: uint8 (rows, columns, channels), C-contiguous.
        box: left, top, width and height of the crop, inside the image, at least 1 wide and high.
        size: rows and columns of the result.
        columns_first: whether to scale along the columns first; Pillow's order depends on its version and the sizes.
    """
    (left, top, width, height), (rows, columns) = box, size
    channels = pixels.shape[2]
    across, down = coefficients(width, columns), coefficients(height, rows)
    lines = pixels.reshape(1, len(pixels), -1)  # (1, rows, columns * channels)
    begin, length = left * channels, width * channels
    if columns_first:
        low = along_columns(lines, top, height, begin, length, *down)  # (1, rows, length)
        scaled = along_rows(transpose(low, 0, rows, 0, length)[0], channels, *across, width - 1)
        return transpose(scaled, 0, columns, 0, rows)[:, :rows, :columns]
    lying = transpose(lines, top, height, begin, length)[0]  # (length, height), or more
    narrow = along_rows(lying, channels, *across, width - 1)  # (channels, columns, height)
    upright = transpose(narrow, 0, columns, 0, height)  # (channels, height, columns)
    return along_columns(upright, 0, height, 0, columns, *down)
