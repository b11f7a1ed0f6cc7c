"""A differentiable convolution of volumes (batch, channels, depth, height, width), float32 in the host's memory.

Like the functions of ``functions.py``: ``accelerate.can_use_fast_path`` says when it may be called, and nothing is
checked here.
"""

from collections.abc import Sequence

import numba
import numpy as np
import paddle
from numba.extending import register_jitable
from paddle.autograd import PyLayer

from ..launch.tuning import one_thread_here
from ..runtime.compiled import compiled
from .functions import address, choose, differentiable, find_wanted, with_graph
from .intrinsics import floats_at, multiply
from .memory import PLAIN, TURNED, empty, in_order, product

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


def _pad(size: Sequence[int], margins: Sequence[int]) -> tuple[int, ...]:
    return tuple(length + 2 * margin for length, margin in zip(size, margins))


def _correlate(x, weights, kernel, margins) -> paddle.Tensor:
    """The convolution with ``weights`` (places of the kernel, out, in)."""
    (batch, inputs, *size), outputs = x.shape, weights.shape[1]
    padded, weights = _pad(size, margins), in_order(weights)
    depth, height, width = (length - side + 1 for length, side in zip(padded, kernel))
    out = empty(batch, outputs, depth, *padded[1:])
    places = product().pointer, address(x), address(weights), address(out)
    with one_thread_here():  # more make products of this size slower
        correlate(*places, batch, inputs, outputs, tuple(size), kernel, margins, padded)
    return in_order(out[:, :, :, :height, :width])


def _forward(x, weight, bias, padding) -> paddle.Tensor:
    out = _correlate(x, weight.flatten(2).transpose([2, 0, 1]), tuple(weight.shape[2:]), padding)
    return out if bias is None else out + bias.reshape([1, -1, 1, 1, 1])


def _graph(ctx, gradient):
    (x, weight), conv3d = ctx.saved_tensor(), paddle.nn.functional.conv3d
    turned = [1, 0, 2, 3, 4]  # channels in the place of the batch
    margins = [side - 1 - margin for side, margin in zip(weight.shape[2:], ctx.padding)]
    of_x = conv3d(gradient, weight.flip([2, 3, 4]).transpose(turned), padding=margins) if ctx.wanted[0] else None
    of_weight = conv3d(x.transpose(turned), gradient.transpose(turned), padding=list(ctx.padding)).transpose(turned)
    return choose(ctx.wanted, of_x, of_weight, gradient.sum([0, 2, 3, 4]))[: 2 + ctx.has_bias]


class _VolumeConvolutionFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.wanted, ctx.has_bias, ctx.padding = find_wanted(x, weight, bias), bias is not None, padding
        ctx.save_for_backward(x, weight)
        return _forward(x, weight, bias, padding)

    @staticmethod
    @with_graph(_graph)
    def backward(ctx, gradient):
        (x, weight), gradient, padding = ctx.saved_tensor(), in_order(gradient), ctx.padding
        (batch, inputs, *size), (outputs, _, *kernel) = x.shape, weight.shape
        of_x = of_weight = None
        if ctx.wanted[0]:
            margins = tuple(side - 1 - margin for side, margin in zip(kernel, padding))
            of_x = _correlate(gradient, weight.flatten(2).flip(2).transpose([2, 1, 0]), tuple(kernel), margins)
        if ctx.wanted[1]:
            sums = paddle.zeros([kernel[0] * kernel[1] * kernel[2], outputs, inputs])
            places = product().pointer, address(x), address(gradient), address(sums)
            sizes = tuple(size), tuple(kernel), padding, _pad(size, padding)
            with one_thread_here():
                weight_gradient(*places, batch, inputs, outputs, *sizes)
            # In a row: Paddle averages gradients over ranks by their memory, whatever their strides.
            of_weight = in_order(sums.transpose([1, 2, 0]).reshape(weight.shape))
        of_bias = gradient.sum([0, 2, 3, 4]) if ctx.wanted[2] else None
        return (of_x, of_weight, of_bias)[: 2 + ctx.has_bias]


@paddle.jit.not_to_static  # Paddle 2.6 rewrites what an exported layer calls when it computes again
def convolution(x, weight, bias, padding: Sequence[int]) -> paddle.Tensor:
    """A convolution with stride 1 and zeros around.

    Args:
        x: (batch, in, depth, height, width), with its padding no smaller than the kernel.
        weight: (out, in, *kernel), each side larger than its padding.
        bias: (out), or None.
        padding: of depth, height and width, on both sides.
    """
    x, padding = in_order(x), tuple(padding)
    if paddle.is_grad_enabled():
        return differentiable(_VolumeConvolutionFunction, x, weight, bias, padding)
    return _forward(x, weight, bias, padding)
