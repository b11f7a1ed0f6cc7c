"""A differentiable convolution of volumes (batch, channels, depth, height, width), float32 in the host's memory.

Like the functions of ``functions.py``: ``accelerate.applies`` says when it may be called, and nothing is checked here.
"""

from collections.abc import Sequence

import paddle
from paddle.autograd import PyLayer

from . import volume_loops
from .functions import address, wanted
from .memory import empty, in_order

# With more, the products of Paddle's convolution take longer than its windows, and none is faster than MKL's.
MOST_CHANNELS = 64


def _forward(x, weight, bias, padding) -> paddle.Tensor:
    (batch, inputs, *size), (outputs, _, *kernel) = x.shape, weight.shape
    out_size = [length + 2 * margin - side + 1 for length, side, margin in zip(size, kernel, padding)]
    out = empty(batch, outputs, *out_size)
    places = address(x), address(weight), False, address(bias), address(out)
    volume_loops.correlate(*places, batch, inputs, outputs, tuple(size), tuple(kernel), padding)
    return out


class _Convolution(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.wanted, ctx.has_bias, ctx.padding = wanted(x, weight, bias), bias is not None, padding
        ctx.save_for_backward(x, weight)
        return _forward(x, weight, bias, padding)

    @staticmethod
    def backward(ctx, gradient):
        (x, weight), gradient = ctx.saved_tensor(), in_order(gradient)
        (batch, inputs, *size), (outputs, _, *sides) = x.shape, weight.shape
        kernel, of_x, of_weight = tuple(sides), None, None
        if ctx.wanted[0]:
            of_x, out_size = empty(*x.shape), tuple(gradient.shape[2:])
            margins = tuple(side - 1 - margin for side, margin in zip(kernel, ctx.padding))
            places = address(gradient), address(weight), True, 0, address(of_x)
            volume_loops.correlate(*places, batch, outputs, inputs, out_size, kernel, margins)
        if ctx.wanted[1]:
            of_weight = empty(*weight.shape)
            places = address(x), address(gradient), address(of_weight)
            volume_loops.weight_gradient(*places, batch, inputs, outputs, tuple(size), kernel, ctx.padding)
        of_bias = gradient.sum([0, 2, 3, 4]) if ctx.wanted[2] else None
        return (of_x, of_weight, of_bias)[: 2 + ctx.has_bias]


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
        return _Convolution.apply(x, weight, bias, padding)
    return _forward(x, weight, bias, padding)
