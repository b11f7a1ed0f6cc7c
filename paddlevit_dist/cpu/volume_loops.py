"""Convolution of volumes (channels, depth, height, width) on a CPU with stride 1, and its gradient by the kernel.

A volume is copied between zeros first. It is then one long line of numbers for each channel, in which each place of a
kernel is a distance: the convolution is the sum of one product for each place, of that place's weights (outputs,
inputs) with the line from there on, and no windows are written out. What the line's margins give is computed, too, and
left out later. Lines are worked through in parts, which stay in the processor's cache for all places.

Arguments are addresses of contiguous float32 arrays and their sizes, as in ``row_loops.py``; only
``volume_functions.py`` calls these loops, with the address of a matrix product. Sizes, kernels and margins are three
integers each, a margin is of both sides; what is called padded is the size with its margins. Equal arguments give equal
bits, where the product has one thread.
"""

import numba
import numpy as np
from numba.extending import register_jitable

from ..runtime.compiled import compiled
from .intrinsics import floats_at, multiply
from .memory import PLAIN, TURNED

_PART = 1024  # numbers


@register_jitable
def _copy(source, size, lines, padded, margins):
    """(channels, *size) at an address into ``lines`` (channels, numbers of a volume of the size ``padded``)."""
    depth, height, width = size
    volumes = numba.carray(floats_at(source), (len(lines), depth, height, width))
    for channel in range(len(lines)):
        for row in range(depth * height):
            z, y = row // height, row % height
            start = ((z + margins[0]) * padded[1] + y + margins[1]) * padded[2] + margins[2]
            for x in range(width):
                lines[channel, start + x] = volumes[channel, z, y, x]


@register_jitable
def _distance(tap, kernel, padded):
    """In bytes, from the first place of a kernel to another."""
    row = tap // (kernel[1] * kernel[2]) * padded[1] + tap // kernel[2] % kernel[1]
    return 4 * (row * padded[2] + tap % kernel[2])


@register_jitable
def _length(kernel, padded):
    """How many numbers of a line are the first place of a kernel, from the first to the last of them."""
    return padded[0] * padded[1] * padded[2] - _distance(kernel[0] * kernel[1] * kernel[2] - 1, kernel, padded) // 4


@compiled
def correlate(product, volumes, weights, out, batch, inputs, outputs, size, kernel, margins, padded):
    """The convolution, and from a gradient by its result, weights that are turned and other margins that by its input.

    Args:
        volumes: (batch, inputs, *size).
        weights: (places of the kernel, outputs, inputs).
        out: (batch, outputs, padded depth - kernel's + 1, padded height, padded width); of each row and plane the last
            kernel - 1 numbers and rows mean nothing.
    """
    line, length = padded[0] * padded[1] * padded[2], _length(kernel, padded)
    out_line = (padded[0] - kernel[0] + 1) * padded[1] * padded[2]
    lines = np.zeros((inputs, line), np.float32)
    for item in range(batch):
        _copy(volumes + 4 * item * inputs * size[0] * size[1] * size[2], size, lines, padded, margins)
        for start in range(0, length, _PART):
            count, to = min(_PART, length - start), out + 4 * (item * outputs * out_line + start)
            for tap in range(kernel[0] * kernel[1] * kernel[2]):
                own, place = weights + 4 * tap * outputs * inputs, lines.ctypes.data + 4 * start
                place, beta = place + _distance(tap, kernel, padded), 0.0 if tap == 0 else 1.0
                factors = own, inputs, place, line
                multiply(product, PLAIN, PLAIN, outputs, count, inputs, 1.0, *factors, beta, to, out_line)
    lines[0, 0] = 0.0  # until here, as numba frees an array once it is used no more


@compiled
def weight_gradient(product, volumes, gradient, sums, batch, inputs, outputs, size, kernel, margins, padded):
    """Add the gradient by the weights, in their order, to ``sums``.

    Args:
        gradient: (batch, outputs, *(padded - kernel + 1)), by the convolution's result.
    """
    line, length = padded[0] * padded[1] * padded[2], _length(kernel, padded)
    out_size = padded[0] - kernel[0] + 1, padded[1] - kernel[1] + 1, padded[2] - kernel[2] + 1
    lines, gradients = np.zeros((inputs, line), np.float32), np.zeros((outputs, length), np.float32)
    for item in range(batch):
        _copy(volumes + 4 * item * inputs * size[0] * size[1] * size[2], size, lines, padded, margins)
        own = gradient + 4 * item * outputs * out_size[0] * out_size[1] * out_size[2]
        _copy(own, out_size, gradients, padded, (0, 0, 0))
        for start in range(0, length, _PART):
            count, left = min(_PART, length - start), gradients.ctypes.data + 4 * start
            for tap in range(kernel[0] * kernel[1] * kernel[2]):
                place = lines.ctypes.data + 4 * start + _distance(tap, kernel, padded)
                to, factors = sums + 4 * tap * outputs * inputs, (left, length, place, line)
                multiply(product, PLAIN, TURNED, outputs, inputs, count, 1.0, *factors, 1.0, to, inputs)
    lines[0, 0], gradients[0, 0] = 0.0, 0.0  # until here, as numba frees an array once it is used no more
