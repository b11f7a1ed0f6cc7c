"""Compiled loops of a transposed convolution of 4 x 4 with stride 2 and padding 1, channels last, as products of tiles.

Each of the four results of a pixel (even or odd row and column) is a convolution of 2 x 2. Two neighboring results of a
line, y0 = d0 g0 + d1 g1 and y1 = d1 g0 + d2 g1, take three products instead of four: (d0 - d1) g0 and d1 (g0 + g1) for
y0, that one and -(d1 - d2) g1 for y1 (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast
Algorithms for Convolutional Neural Networks, CVPR 2016, section 4). So a tile of 2 x 2 pixels, which see 4 x 4, takes
36 products of vectors instead of 64.

The four pixels d of a line give five values: d0 - d1, d1, d1 - d2, d2, d2 - d3. Even results use the first three, odd
ones the last three; the middle one is used by both. *Planes* are the 5 x 5 pairs of these values. A plane's matrix has
the tiles as rows; ``_count`` of the 36 kernels, whose results use it, are side by side in its other factor.
For the arguments see ``row_kernels.py``.
"""

import numba
import numpy as np

from ...core.runtime.compiled import compiled
from .intrinsics import FAST, floats_at, multiply

VALUES = 5  # of a line of a tile
PLANES, KERNELS = VALUES * VALUES, 36
FORWARD, BY_PLANES, BY_KERNELS = 0, 1, 2  # what ``multiply_planes`` computes: the products, or a gradient
_PLAIN, _TRANSPOSED = 111, 112
f32 = np.float32


@numba.njit(**FAST)
def _count(value):
    """Return how many kernels of a line use one of its five values."""
    return 2 if value == 2 else 1


@numba.njit(**FAST)
def _row(kernel_down, kernel_across, row, rows):
    """Return the place of a row of the product of two kernels of a line (0 to 5) in all planes' matrices."""
    odd_down, odd_across = kernel_down // 3, kernel_across // 3
    p, q = kernel_down - odd_down, kernel_across - odd_across
    wide = _count(q)
    # In front are all planes of the lines before, whose values have 6 kernels together, and some of this line.
    before = (p + (p > 2)) * 6 + _count(p) * (q + (q > 2))
    slot = (odd_down if p == 2 else 0) * wide + (odd_across if q == 2 else 0)
    return before * rows + row * _count(p) * wide + slot


@numba.njit(**FAST)
def _copy(out, k, source, a, width):
    for j in range(width):
        out[k, j] = source[a, j]


@numba.njit(**FAST)
def _add(out, k, source, a, b, width):
    for j in range(width):
        out[k, j] = source[a, j] + source[b, j]


@numba.njit(**FAST)
def _subtract(out, k, source, a, b, width):
    for j in range(width):
        out[k, j] = source[a, j] - source[b, j]


@numba.njit(**FAST)
def _negate(out, k, source, a, width):
    for j in range(width):
        out[k, j] = -source[a, j]


@numba.njit(**FAST)
def _join(out, k, source, a, b, c, width):
    for j in range(width):
        out[k, j] = source[a, j] + source[b, j] - source[c, j]


@numba.njit(**FAST)
def _difference_planes(out, k, step, source, a, b, c, d, width):
    """Write the five values of the four rows a to d of ``source`` to every ``step``-th row of ``out`` from k on."""
    _subtract(out, k, source, a, b, width)
    _copy(out, k + step, source, b, width)
    _subtract(out, k + 2 * step, source, b, c, width)
    _copy(out, k + 3 * step, source, c, width)
    _subtract(out, k + 4 * step, source, c, d, width)


@compiled(**FAST)
def cut_tiles(images, planes, batch, height, width, channels):
    """Compute the planes (25, tiles, channels) of ``images``, (batch, height, width, channels)."""
    down, across = (height + 1) // 2, (width + 1) // 2
    tiles = batch * down * across
    source = numba.carray(floats_at(images), (batch * height * width, channels))
    target = numba.carray(floats_at(planes), (PLANES * tiles, channels))
    pixels = np.zeros((17, channels), np.float32)
    lines = np.empty((4 * VALUES, channels), np.float32)
    for item in range(batch):
        for tile_row in range(down):
            for tile_column in range(across):
                for place in range(16):
                    row, column = 2 * tile_row - 1 + place // 4, 2 * tile_column - 1 + place % 4
                    if 0 <= row < height and 0 <= column < width:
                        _copy(pixels, place, source, (item * height + row) * width + column, channels)
                    else:
                        _copy(pixels, place, pixels, 16, channels)
                for line in range(4):
                    k = 4 * line
                    _difference_planes(lines, line * VALUES, 1, pixels, k, k + 1, k + 2, k + 3, channels)
                tile = (item * down + tile_row) * across + tile_column
                for q in range(VALUES):
                    rows = q, q + VALUES, q + 2 * VALUES, q + 3 * VALUES
                    _difference_planes(target, q * tiles + tile, VALUES * tiles, lines, *rows, channels)


@compiled(**FAST)
def join_tiles(planes, images, batch, height, width, channels):
    """Compute the gradient by ``images`` from that by the planes of ``cut_tiles``."""
    down, across = (height + 1) // 2, (width + 1) // 2
    tiles = batch * down * across
    source = numba.carray(floats_at(planes), (PLANES * tiles, channels))
    target = numba.carray(floats_at(images), (batch * height * width, channels))
    target[:] = f32(0.0)
    lines, pixels = np.empty((4 * VALUES, channels), np.float32), np.empty((4, channels), np.float32)
    for item in range(batch):
        for tile_row in range(down):
            for tile_column in range(across):
                tile = (item * down + tile_row) * across + tile_column
                step = VALUES * tiles
                for q in range(VALUES):
                    k = q * tiles + tile
                    _copy(lines, q, source, k, channels)
                    _join(lines, VALUES + q, source, k + step, k + 2 * step, k, channels)
                    _join(lines, 2 * VALUES + q, source, k + 3 * step, k + 4 * step, k + 2 * step, channels)
                    _negate(lines, 3 * VALUES + q, source, k + 4 * step, channels)
                for line in range(4):
                    k, row = line * VALUES, 2 * tile_row - 1 + line
                    if not 0 <= row < height:
                        continue
                    _copy(pixels, 0, lines, k, channels)
                    _join(pixels, 1, lines, k + 1, k + 2, k, channels)
                    _join(pixels, 2, lines, k + 3, k + 4, k + 2, channels)
                    _negate(pixels, 3, lines, k + 4, channels)
                    for place in range(4):
                        column = 2 * tile_column - 1 + place
                        if 0 <= column < width:
                            at = (item * height + row) * width + column
                            for j in range(channels):
                                target[at, j] += pixels[place, j]


@compiled(**FAST)
def turn_weight(weight, kernels, channels, out):
    """Compute the kernels of all planes from ``weight``, (channels, out, 4, 4)."""
    source = numba.carray(floats_at(weight), (channels, out, 16))
    target = numba.carray(floats_at(kernels), (KERNELS * channels, out))
    taps, lines = np.empty((16, out), np.float32), np.empty((24, out), np.float32)
    for channel in range(channels):
        for place in range(16):
            for j in range(out):
                taps[place, j] = source[channel, j, place]
        for k in range(4):
            _turn_line(lines, k, 4, taps, k, 4, out)
        for kernel_down in range(6):
            k = 4 * kernel_down
            first = _row(kernel_down, 0, channel, channels)
            _copy(target, first, lines, k + 3, out)
            _add(target, _row(kernel_down, 1, channel, channels), lines, k + 3, k + 1, out)
            _negate(target, _row(kernel_down, 2, channel, channels), lines, k + 1, out)
            _copy(target, _row(kernel_down, 3, channel, channels), lines, k + 2, out)
            _add(target, _row(kernel_down, 4, channel, channels), lines, k + 2, k, out)
            _negate(target, _row(kernel_down, 5, channel, channels), lines, k, out)


@numba.njit(**FAST)
def _turn_line(out, k, step, source, a, stride, width):
    """Compute the six kernels of a line from its four taps: even results have the taps 3 and 1, odd ones 2 and 0."""
    _copy(out, k, source, a + 3 * stride, width)
    _add(out, k + step, source, a + 3 * stride, a + stride, width)
    _negate(out, k + 2 * step, source, a + stride, width)
    _copy(out, k + 3 * step, source, a + 2 * stride, width)
    _add(out, k + 4 * step, source, a + 2 * stride, a, width)
    _negate(out, k + 5 * step, source, a, width)


@compiled(**FAST)
def turn_back(kernels, weight, channels, out):
    """Compute the gradient by ``weight`` from that by the kernels of ``turn_weight``."""
    source = numba.carray(floats_at(kernels), (KERNELS * channels, out))
    target = numba.carray(floats_at(weight), (channels, out, 16))
    taps, lines = np.empty((16, out), np.float32), np.empty((24, out), np.float32)
    for channel in range(channels):
        for kernel_down in range(6):
            k = 4 * kernel_down
            rows = _row(kernel_down, 0, channel, channels), _row(kernel_down, 1, channel, channels)
            _add(lines, k + 3, source, *rows, out)
            _subtract(lines, k + 1, source, rows[1], _row(kernel_down, 2, channel, channels), out)
            rows = _row(kernel_down, 3, channel, channels), _row(kernel_down, 4, channel, channels)
            _add(lines, k + 2, source, *rows, out)
            _subtract(lines, k, source, rows[1], _row(kernel_down, 5, channel, channels), out)
        for k in range(4):
            _add(taps, 12 + k, lines, k, k + 4, out)
            _subtract(taps, 4 + k, lines, k + 4, k + 8, out)
            _add(taps, 8 + k, lines, k + 12, k + 16, out)
            _subtract(taps, k, lines, k + 16, k + 20, out)
        for place in range(16):
            for j in range(out):
                target[channel, j, place] = taps[place, j]


@compiled(**FAST)
def join_results(products, images, batch, height, width, channels):
    """Compute the results, (batch, 2 height, 2 width, channels), from the products of all tiles."""
    down, across = (height + 1) // 2, (width + 1) // 2
    tiles = batch * down * across
    source = numba.carray(floats_at(products), (KERNELS * tiles, channels))
    target = numba.carray(floats_at(images), (batch * 4 * height * width, channels))
    for item in range(batch):
        for tile_row in range(down):
            for row in range(4):  # of the results: even, odd, even, odd
                first_down = row % 2 * 3 + row // 2
                for tile_column in range(across):
                    tile = (item * down + tile_row) * across + tile_column
                    for column in range(4):
                        y, x = 4 * tile_row + row, 4 * tile_column + column
                        if y >= 2 * height or x >= 2 * width:
                            continue
                        first = column % 2 * 3 + column // 2
                        a, b = _row(first_down, first, tile, tiles), _row(first_down, first + 1, tile, tiles)
                        c, d = _row(first_down + 1, first, tile, tiles), _row(first_down + 1, first + 1, tile, tiles)
                        at = (item * 2 * height + y) * 2 * width + x
                        for j in range(channels):
                            target[at, j] = (source[a, j] + source[b, j]) + (source[c, j] + source[d, j])


@compiled(**FAST)
def cut_results(images, products, batch, height, width, channels):
    """Compute the gradient by the products of all tiles from that by the results, see ``join_results``."""
    down, across = (height + 1) // 2, (width + 1) // 2
    tiles = batch * down * across
    source = numba.carray(floats_at(images), (batch * 4 * height * width, channels))
    target = numba.carray(floats_at(products), (KERNELS * tiles, channels))
    pixels, sums = np.zeros((5, channels), np.float32), np.empty((6, channels), np.float32)
    for item in range(batch):
        for tile_row in range(down):
            for tile_column in range(across):
                tile = (item * down + tile_row) * across + tile_column
                for parity in range(4):
                    odd_down, odd_across = parity // 2, parity % 2
                    for place in range(4):
                        y, x = 4 * tile_row + odd_down + place // 2 * 2, 4 * tile_column + odd_across + place % 2 * 2
                        if y < 2 * height and x < 2 * width:
                            _copy(pixels, place, source, (item * 2 * height + y) * 2 * width + x, channels)
                        else:
                            _copy(pixels, place, pixels, 4, channels)
                    for line in range(2):
                        k = 2 * line
                        _copy(sums, 3 * line, pixels, k, channels)
                        _add(sums, 3 * line + 1, pixels, k, k + 1, channels)
                        _copy(sums, 3 * line + 2, pixels, k + 1, channels)
                    for kernel in range(3):
                        across_ = 3 * odd_across + kernel
                        _copy(target, _row(3 * odd_down, across_, tile, tiles), sums, kernel, channels)
                        _add(target, _row(3 * odd_down + 1, across_, tile, tiles), sums, kernel, kernel + 3, channels)
                        _copy(target, _row(3 * odd_down + 2, across_, tile, tiles), sums, kernel + 3, channels)


@compiled(**FAST)
def multiply_planes(function, kind, planes, kernels, products, tiles, channels, out):
    """Multiply the matrices of all planes with ``function``, the address of a matrix product.

    ``kind`` FORWARD: products = planes kernels; BY_PLANES: planes = products kernels^T; BY_KERNELS: kernels = planes^T
    products.
    """
    size, before = 4, 0  # bytes of a number; kernels in front
    for p in range(VALUES):
        for q in range(VALUES):
            count = _count(p) * _count(q)
            left = planes + (p * VALUES + q) * tiles * channels * size
            right, result = kernels + before * channels * out * size, products + before * tiles * out * size
            wide = count * out
            one, zero = f32(1.0), f32(0.0)
            if kind == FORWARD:
                args = (tiles, wide, channels)
                multiply(function, _PLAIN, _PLAIN, *args, one, left, channels, right, wide, zero, result, wide)
            elif kind == BY_PLANES:
                args = (tiles, channels, wide)
                multiply(function, _PLAIN, _TRANSPOSED, *args, one, result, wide, right, wide, zero, left, channels)
            else:
                args = (channels, wide, tiles)
                multiply(function, _TRANSPOSED, _PLAIN, *args, one, left, channels, result, wide, zero, right, wide)
            before += count
