"""A differentiable convolution of volumes (batch, channels, depth, height, width), float32 in the host's memory.

Like the functions of ``functions.py``: ``accelerate.applies`` says when it may be called, and nothing is checked here.
"""

from collections.abc import Sequence

import paddle
from paddle.autograd import PyLayer

from ..parallel.tuning import one_thread_here
from . import volume_loops
from .functions import address, chosen, differentiable, wanted, with_graph
from .memory import empty, in_order, product


def _padded(size: Sequence[int], margins: Sequence[int]) -> tuple[int, ...]:
    return tuple(length + 2 * margin for length, margin in zip(size, margins))


def _correlate(x, weights, kernel, margins) -> paddle.Tensor:
    """The convolution with ``weights`` (places of the kernel, out, in)."""
    (batch, inputs, *size), outputs = x.shape, weights.shape[1]
    padded, weights = _padded(size, margins), in_order(weights)
    depth, height, width = (length - side + 1 for length, side in zip(padded, kernel))
    out = empty(batch, outputs, depth, *padded[1:])
    places = product().pointer, address(x), address(weights), address(out)
    with one_thread_here():  # more make products of this size slower
        volume_loops.correlate(*places, batch, inputs, outputs, tuple(size), kernel, margins, padded)
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
    return chosen(ctx.wanted, of_x, of_weight, gradient.sum([0, 2, 3, 4]))[: 2 + ctx.has_bias]


class _Convolution(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, padding):
        ctx.wanted, ctx.has_bias, ctx.padding = wanted(x, weight, bias), bias is not None, padding
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
            sizes = tuple(size), tuple(kernel), padding, _padded(size, padding)
            with one_thread_here():
                volume_loops.weight_gradient(*places, batch, inputs, outputs, *sizes)
            of_weight = sums.transpose([1, 2, 0]).reshape(weight.shape)
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
        return differentiable(_Convolution, x, weight, bias, padding)
    return _forward(x, weight, bias, padding)
