"""Pillow's bicubic resize of a crop in compiled loops, equal to it in every bit.

The way Pillow does it in 8 bits (``Resample.c``): coefficients of the antialiased filter in double precision,
normalized to sum 1 and rounded to 22 binary places; one pass along the rows and one along the columns, each rounded to
8 bits. The filter is that of R. Keys, "Cubic convolution interpolation for digital image processing", 1981, with
a = -1/2. Sums are of integers, so their order does not matter, and here neighbors are summed side by side. Cutting out
the crop and the change to the model's layout happen on the way.

Importing this module loads numba.
"""

import numba
import numpy as np

from ..runtime.compiled import compiled

_BITS = 22  # of a coefficient behind the point: 32 less 8 of a level and 2 to spare
_TAPS = 4  # that are summed at once; coefficients are padded with zeros


@compiled
def coefficients(side: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute of what each of ``size`` pixels is made, from ``side`` pixels.

    Returns:
        int64 (size, 2), the first source pixel and the number of coefficients, a multiple of ``_TAPS``; int32
        (size, at least that number), in units of 2 ** -22, zeros behind.
    """
    scale = side / size
    filter_scale = max(1.0, scale)
    support = 2.0 * filter_scale
    inverse = 1.0 / filter_scale
    longest = int(np.ceil(support)) * 2 + 1
    places = np.zeros((size, 2), dtype=np.int64)
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
        places[target, 0] = first
        places[target, 1] = (count + _TAPS - 1) // _TAPS * _TAPS
    return places, weights


@numba.njit(nogil=True)
def _exchange(one, other, by, low):
    """Both words, the high parts of those that ``low`` masks in ``one`` exchanged with the low parts in ``other``."""
    swap = ((one >> by) ^ other) & low
    return one ^ (swap << by), other ^ swap


@compiled
def transpose(planes: np.ndarray, first_row: int, rows: int, first_column: int, columns: int) -> np.ndarray:
    """A part of each plane with rows and columns exchanged, eight by eight bytes at once in eight 64-bit words.

    Args:
        planes: uint8 (planes, height, width), C-contiguous.
        first_row, rows, first_column, columns: the part.
    Returns:
        uint8 (planes, columns, rows), both rounded up to whole eights; what is there beyond means nothing.

    Source: H. Warren, "Hacker's Delight", 2nd edition, section 7-3.
    """
    down, across = (rows + 7) // 8, (columns + 7) // 8
    low_32, low_16, low_8 = np.uint64(0xFFFFFFFF), np.uint64(0x0000FFFF0000FFFF), np.uint64(0x00FF00FF00FF00FF)
    by_32, by_16, by_8 = np.uint64(32), np.uint64(16), np.uint64(8)
    lines = np.zeros((8, across * 8), dtype=np.uint8)  # aligned, for reading it in words
    words = lines.view(np.uint64)  # (8, across)
    result = np.empty((len(planes), across * 8, down * 8), dtype=np.uint8)
    turned = result.view(np.uint64)  # (planes, across * 8, down)
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
                a, e = _exchange(a, e, by_32, low_32)
                b, f = _exchange(b, f, by_32, low_32)
                c, g = _exchange(c, g, by_32, low_32)
                d, h = _exchange(d, h, by_32, low_32)
                a, c = _exchange(a, c, by_16, low_16)
                b, d = _exchange(b, d, by_16, low_16)
                e, g = _exchange(e, g, by_16, low_16)
                f, h = _exchange(f, h, by_16, low_16)
                a, b = _exchange(a, b, by_8, low_8)
                c, d = _exchange(c, d, by_8, low_8)
                e, f = _exchange(e, f, by_8, low_8)
                g, h = _exchange(g, h, by_8, low_8)
                at = word * 8
                turned[plane, at, group] = a
                turned[plane, at + 1, group] = b
                turned[plane, at + 2, group] = c
                turned[plane, at + 3, group] = d
                turned[plane, at + 4, group] = e
                turned[plane, at + 5, group] = f
                turned[plane, at + 6, group] = g
                turned[plane, at + 7, group] = h
    return result


@compiled
def along_rows(columns: np.ndarray, channels: int, places: np.ndarray, weights: np.ndarray, last: int) -> np.ndarray:
    """Transposed rows of pixels scaled to another width, and taken apart by channel.

    Args:
        columns: uint8 (width * channels or more, height), C-contiguous: the first channel of the first column, and so
            on.
        places, weights: ``coefficients`` of the width.
        last: index of the last column.
    Returns:
        uint8 (channels, new width, height).
    """
    size, height = len(places), columns.shape[1]
    shift, half = np.int32(_BITS), np.int32(1 << (_BITS - 1))
    zero, full = np.int32(0), np.int32(255)
    sums = np.empty(height, dtype=np.int32)
    result = np.empty((channels, size, height), dtype=np.uint8)
    for target in range(size):
        for channel in range(channels):
            sums[:] = half
            for tap in range(0, places[target, 1], _TAPS):
                a, b = weights[target, tap], weights[target, tap + 1]
                c, d = weights[target, tap + 2], weights[target, tap + 3]
                at = places[target, 0] + tap
                one = columns[at * channels + channel]
                two = columns[min(at + 1, last) * channels + channel]  # where it ends, weights are 0
                three = columns[min(at + 2, last) * channels + channel]
                four = columns[min(at + 3, last) * channels + channel]
                for row in range(height):
                    sums[row] += (
                        a * np.int32(one[row])
                        + b * np.int32(two[row])
                        + c * np.int32(three[row])
                        + d * np.int32(four[row])
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
    places: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Some columns of each plane scaled to another height.

    Args:
        planes: uint8 (planes, height, width), C-contiguous.
        first_row, rows, first_column, columns: the part that is scaled.
        places, weights: ``coefficients`` of ``rows``.
    Returns:
        uint8 (planes, new height, columns).
    """
    size = len(places)
    shift, half = np.int32(_BITS), np.int32(1 << (_BITS - 1))
    zero, full = np.int32(0), np.int32(255)
    sums = np.empty(columns, dtype=np.int32)
    result = np.empty((len(planes), size, columns), dtype=np.uint8)
    last, end = rows - 1, first_column + columns
    for plane in range(len(planes)):
        for target in range(size):
            sums[:] = half
            for tap in range(0, places[target, 1], _TAPS):
                a, b = weights[target, tap], weights[target, tap + 1]
                c, d = weights[target, tap + 2], weights[target, tap + 3]
                row = places[target, 0] + tap
                one = planes[plane, first_row + row, first_column:end]
                two = planes[plane, first_row + min(row + 1, last), first_column:end]  # where it ends, weights are 0
                three = planes[plane, first_row + min(row + 2, last), first_column:end]
                four = planes[plane, first_row + min(row + 3, last), first_column:end]
                for column in range(columns):
                    sums[column] += (
                        a * np.int32(one[column])
                        + b * np.int32(two[column])
                        + c * np.int32(three[column])
                        + d * np.int32(four[column])
                    )
            for column in range(columns):
                result[plane, target, column] = min(max(sums[column] >> shift, zero), full)
    return result


def resize_crop(pixels: np.ndarray, box: tuple[int, int, int, int], size: int, columns_first: bool) -> np.ndarray:
    """A crop scaled to a square, as ``image.crop(...).resize((size, size), BICUBIC)`` does it.

    Args:
        pixels: uint8 (rows, columns, channels), C-contiguous.
        box: left, top, width and height of the crop, inside the image, at least 1 wide and high.
        columns_first: scale along the columns first; which of both Pillow does depends on its version and the sizes.
    Returns:
        uint8 (channels, size, size).
    """
    left, top, width, height = box
    channels = pixels.shape[2]
    across, down = coefficients(width, size), coefficients(height, size)
    lines = pixels.reshape(1, len(pixels), -1)  # (1, rows, columns * channels)
    begin, length = left * channels, width * channels
    if columns_first:
        low = along_columns(lines, top, height, begin, length, *down)  # (1, size, length)
        scaled = along_rows(transpose(low, 0, size, 0, length)[0], channels, *across, width - 1)
        return transpose(scaled, 0, size, 0, size)[:, :size, :size]
    columns = transpose(lines, top, height, begin, length)[0]  # (length, height), or more
    narrow = along_rows(columns, channels, *across, width - 1)  # (channels, size, height)
    upright = transpose(narrow, 0, size, 0, height)  # (channels, height, size)
    return along_columns(upright, 0, height, 0, size, *down)
