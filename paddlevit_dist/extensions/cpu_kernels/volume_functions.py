"""Differentiable convolution of volumes (batch, channels, depth, height, width), float32 in host memory.

Inputs are not checked: call it only if ``accelerate.can_use_fast_path`` allows it.
"""

from collections.abc import Sequence

import numba
import numpy as np
import paddle
from numba.extending import register_jitable
from paddle.autograd import PyLayer

from ...core.launch.tuning import one_thread_here
from ...core.runtime.compiled import compiled
from .functions import address, differentiable, needs_gradients, select_gradients, with_graph
from .intrinsics import floats_at, multiply
from .memory import PLAIN, TRANSPOSED, as_contiguous, empty, require_product

_PART = 1024  # numbers of a line at a time


@register_jitable
def _copy(source, size, lines, padded, margins):
    """Copy (channels, *size) at an address into ``lines`` (channels, numbers of a volume of the size ``padded``)."""
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
    """Return the distance in bytes from the first position of a kernel to another."""
    row = tap // (kernel[1] * kernel[2]) * padded[1] + tap // kernel[2] % kernel[1]
    return 4 * (row * padded[2] + tap % kernel[2])


@register_jitable
def _length(kernel, padded):
    """Return the number of first positions of a kernel in a line, from the first to the last."""
    return padded[0] * padded[1] * padded[2] - _distance(kernel[0] * kernel[1] * kernel[2] - 1, kernel, padded) // 4


@compiled
def correlate(product, volumes, weights, out, batch, inputs, outputs, size, kernel, margins, padded):
    """Compute the convolution; with flipped weights and other margins, the gradient by its input.

    ``volumes`` are (batch, inputs, *size), ``weights`` (kernel positions, outputs, inputs), and ``out`` (batch,
    outputs, padded depth - kernel's + 1, padded height, padded width); the last kernel - 1 numbers of each row and rows
    of each plane are undefined. ``product``: address of ``cblas_sgemm``.
    """
    line, length = padded[0] * padded[1] * padded[2], _length(kernel, padded)
    out_line = (padded[0] - kernel[0] + 1) * padded[1] * padded[2]
    lines = np.zeros((inputs, line), np.float32)
    for item in range(batch):
        _copy(volumes + 4 * item * inputs * size[0] * size[1] * size[2], size, lines, padded, margins)
        for start in range(0, length, _PART):
            count, target = min(_PART, length - start), out + 4 * (item * outputs * out_line + start)
            for tap in range(kernel[0] * kernel[1] * kernel[2]):
                tap_weights, source = weights + 4 * tap * outputs * inputs, lines.ctypes.data + 4 * start
                source, beta = source + _distance(tap, kernel, padded), 0.0 if tap == 0 else 1.0
                factors = tap_weights, inputs, source, line
                multiply(product, PLAIN, PLAIN, outputs, count, inputs, 1.0, *factors, beta, target, out_line)
    lines[0, 0] = 0.0  # keeps the array alive until here; numba frees arrays after their last use


@compiled
def weight_gradient(product, volumes, gradient, sums, batch, inputs, outputs, size, kernel, margins, padded):
    """Add the gradient by the weights, in their order (kernel positions, outputs, inputs), to ``sums``.

    ``gradient``: by the convolution's result, (batch, outputs, *(padded - kernel + 1)); see ``correlate``.
    """
    line, length = padded[0] * padded[1] * padded[2], _length(kernel, padded)
    out_size = padded[0] - kernel[0] + 1, padded[1] - kernel[1] + 1, padded[2] - kernel[2] + 1
    lines, gradients = np.zeros((inputs, line), np.float32), np.zeros((outputs, length), np.float32)
    for item in range(batch):
        _copy(volumes + 4 * item * inputs * size[0] * size[1] * size[2], size, lines, padded, margins)
        item_gradient = gradient + 4 * item * outputs * out_size[0] * out_size[1] * out_size[2]
        _copy(item_gradient, out_size, gradients, padded, (0, 0, 0))
        for start in range(0, length, _PART):
            count, left = min(_PART, length - start), gradients.ctypes.data + 4 * start
            for tap in range(kernel[0] * kernel[1] * kernel[2]):
                source = lines.ctypes.data + 4 * start + _distance(tap, kernel, padded)
                target, factors = sums + 4 * tap * outputs * inputs, (left, length, source, line)
                multiply(product, PLAIN, TRANSPOSED, outputs, inputs, count, 1.0, *factors, 1.0, target, inputs)
    # Keeps the arrays alive until here; numba frees arrays after their last use
    lines[0, 0], gradients[0, 0] = 0.0, 0.0


def _pad(size: Sequence[int], margins: Sequence[int]) -> tuple[int, ...]:
    return tuple(length + 2 * margin for length, margin in zip(size, margins))


def _correlate(x, weights, kernel, margins) -> paddle.Tensor:
    """Compute the convolution with ``weights`` (kernel positions, out, in)."""
    (batch, inputs, *size), outputs = x.shape, weights.shape[1]
    padded, weights = _pad(size, margins), as_contiguous(weights)
    depth, height, width = (length - side + 1 for length, side in zip(padded, kernel))
    out = empty(batch, outputs, depth, *padded[1:])
    addresses = require_product().pointer, address(x), address(weights), address(out)
    with one_thread_here():  # more threads make products of this size slower
        correlate(*addresses, batch, inputs, outputs, tuple(size), kernel, margins, padded)
    return as_contiguous(out[:, :, :, :height, :width])


def _forward(x, weight, bias, padding) -> paddle.Tensor:
    out = _correlate(x, weight.flatten(2).transpose([2, 0, 1]), tuple(weight.shape[2:]), padding)
    return out if bias is None else out + bias.reshape([1, -1, 1, 1, 1])


def _graph(ctx, gradient):
    (x, weight), conv3d = ctx.saved_tensor(), paddle.nn.functional.conv3d
    swapped = [1, 0, 2, 3, 4]  # exchanges channels and batch
    margins = [side - 1 - margin for side, margin in zip(weight.shape[2:], ctx.padding)]
    x_gradient = (
        conv3d(gradient, weight.flip([2, 3, 4]).transpose(swapped), padding=margins) if ctx.needs_gradient[0] else None
    )
    w_gradient = conv3d(x.transpose(swapped), gradient.transpose(swapped), padding=list(ctx.padding)).transpose(swapped)
    return select_gradients(ctx.needs_gradient, x_gradient, w_gradient, gradient.sum([0, 2, 3, 4]))[: 2 + ctx.has_bias]


class _VolumeConvolutionFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.needs_gradient, ctx.has_bias, ctx.padding = needs_gradients(x, weight, bias), bias is not None, padding
        ctx.save_for_backward(x, weight)
        return _forward(x, weight, bias, padding)

    @staticmethod
    @with_graph(_graph)
    def backward(ctx, gradient):
        (x, weight), gradient, padding = ctx.saved_tensor(), as_contiguous(gradient), ctx.padding
        (batch, inputs, *size), (outputs, _, *kernel) = x.shape, weight.shape
        x_gradient = w_gradient = None
        if ctx.needs_gradient[0]:
            margins = tuple(side - 1 - margin for side, margin in zip(kernel, padding))
            x_gradient = _correlate(gradient, weight.flatten(2).flip(2).transpose([2, 1, 0]), tuple(kernel), margins)
        if ctx.needs_gradient[1]:
            sums = paddle.zeros([kernel[0] * kernel[1] * kernel[2], outputs, inputs])
            addresses = require_product().pointer, address(x), address(gradient), address(sums)
            sizes = tuple(size), tuple(kernel), padding, _pad(size, padding)
            with one_thread_here():
                weight_gradient(*addresses, batch, inputs, outputs, *sizes)
            # Contiguous: Paddle averages gradients over ranks by their memory and ignores strides.
            w_gradient = as_contiguous(sums.transpose([1, 2, 0]).reshape(weight.shape))
        bias_gradient = gradient.sum([0, 2, 3, 4]) if ctx.needs_gradient[2] else None
        return (x_gradient, w_gradient, bias_gradient)[: 2 + ctx.has_bias]


@paddle.jit.not_to_static  # Paddle 2.6 rewrites functions called by an exported layer when it runs again
def convolution(x, weight, bias, padding: Sequence[int]) -> paddle.Tensor:
    """Compute a convolution of (batch, in, depth, height, width) with stride 1 and zero padding on both sides.

    ``weight`` is (out, in, *kernel), each side larger than its padding, and no larger than the padded volume.
    """
    x, padding = as_contiguous(x), tuple(padding)
    if paddle.is_grad_enabled():
        return differentiable(_VolumeConvolutionFunction, x, weight, bias, padding)
    return _forward(x, weight, bias, padding)
