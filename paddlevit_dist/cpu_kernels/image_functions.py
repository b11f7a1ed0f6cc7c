"""Differentiable functions on images (batch, height, width, channels), float32 in the host's memory.

Like those of ``functions.py``: ``accelerate.can_use_fast_path`` says when they may be called, and nothing is checked
here.
"""

from collections.abc import Sequence
from typing import NamedTuple

import paddle
from paddle.autograd import PyLayer

from . import depthwise_kernels, image_kernels, row_kernels
from .functions import address, choose, column_sums, differentiable, find_wanted, multiply, windows_graph, with_graph
from .memory import PLAIN, TURNED, empty, in_order

# ---- depth-wise convolution ----------------------------------------------------------------------------------


def fits_depthwise(shape: Sequence[int], weight_shape: Sequence[int]) -> bool:
    """Whether ``depthwise`` takes an input and a weight of these shapes."""
    return shape[-1] == weight_shape[0] and shape[-1] % depthwise_kernels.LANES == 0


def depthwise_forward(x, weight, bias) -> paddle.Tensor:
    """``depthwise`` without its gradient."""
    out, kernel = empty(*x.shape), weight.shape[-1]
    places = address(x), address(weight), address(bias)
    depthwise_kernels.correlate(*places, False, (0,) * kernel, address(out), *x.shape)
    return out


def _depthwise_graph(ctx, gradient):
    (x, weight), (batch, height, width, channels) = ctx.saved_tensor(), gradient.shape
    side, g = weight.shape[-1], gradient.transpose([0, 3, 1, 2])
    windows = paddle.nn.functional.unfold(x.transpose([0, 3, 1, 2]), side, 1, side // 2)
    products = windows.reshape([batch, channels, -1, height * width]) * g.reshape([batch, channels, 1, -1])
    of_x = paddle.nn.functional.conv2d(g, weight.flip([2, 3]), padding=side // 2, groups=channels)
    found = of_x.transpose([0, 2, 3, 1]), products.sum([0, 3]).reshape(weight.shape), g.sum([0, 2, 3])
    return choose(ctx.wanted, *found)[: 2 + ctx.has_bias]


class _DepthwiseFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.wanted, ctx.has_bias, x = find_wanted(x, weight, bias), bias is not None, in_order(x)
        ctx.save_for_backward(x, weight)
        return depthwise_forward(x, weight, bias)

    @staticmethod
    @with_graph(_depthwise_graph)
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        gradient, taps = in_order(gradient), (0,) * weight.shape[-1]
        of_x = of_weight = of_bias = None
        if ctx.wanted[0]:
            of_x = empty(*x.shape)
            places = address(gradient), address(weight), 0
            depthwise_kernels.correlate(*places, True, taps, address(of_x), *x.shape)
        if any(ctx.wanted[1:]):
            of_weight, of_bias = empty(*weight.shape), empty(x.shape[-1])
            places = address(x), address(gradient), taps, address(of_weight), address(of_bias)
            depthwise_kernels.weight_gradient(*places, *x.shape)
        found = (of_x, of_weight if ctx.wanted[1] else None, of_bias if ctx.wanted[2] else None)
        return found[: 2 + ctx.has_bias]


def depthwise(x, weight, bias) -> paddle.Tensor:
    """Convolution of each channel with its own kernel, stride 1, zeros around: as large as ``x``.

    Args:
        x: (batch, height, width, channels); channels are a multiple of ``depthwise_kernels.LANES``.
        weight: (channels, 1, K, K), K odd.
        bias: (channels), or None.
    """
    return (
        differentiable(_DepthwiseFunction, x, weight, bias)
        if paddle.is_grad_enabled()
        else depthwise_forward(in_order(x), weight, bias)
    )


# ---- convolution of windows ----------------------------------------------------------------------------------


class ConvolutionWindows(NamedTuple):
    """The windows of a convolution on (batch, height, width, channels)."""

    shape: Sequence[int]
    side: int
    stride: int
    padding: int

    def cut(self, x) -> paddle.Tensor:
        """(batch, rows, columns, side * side * channels) of ``x``."""
        rows, columns = ((size + 2 * self.padding - self.side) // self.stride + 1 for size in self.shape[1:3])
        cut = empty(self.shape[0], rows, columns, self.side * self.side * self.shape[3])
        image_kernels.windows(address(x), address(cut), *self.shape, *self[1:], False)
        return cut

    def join(self, cut) -> paddle.Tensor:
        """The sum of the windows ``cut``, each at its place in an image."""
        x = empty(*self.shape)
        image_kernels.windows(address(x), address(cut), *self.shape, *self[1:], True)
        return x


def window_matrix(weight) -> paddle.Tensor:
    """(out, side * side * channels) of a weight (out, channels, side, side)."""
    out, channels, side, _ = weight.shape
    matrix = empty(out, side * side * channels)
    image_kernels.turn(address(weight), address(matrix), out, channels, side * side)
    return matrix


def windows_forward(cut, weight, bias) -> paddle.Tensor:
    """cut @ window_matrix(weight)^T + bias."""
    batch, rows, columns, length = cut.shape
    count, width = batch * rows * columns, weight.shape[0]
    out = empty(batch, rows, columns, width)
    if bias is not None:
        row_kernels.add_bias(0, address(bias), address(out), count, width)
    beta = 0.0 if bias is None else 1.0
    multiply(cut, window_matrix(weight), out, (count, width, length), (PLAIN, TURNED), beta)
    return out


def _convolution_graph(ctx, gradient):
    _, weight, x = ctx.saved_tensor()
    rows, x = gradient.reshape([gradient.shape[0], -1, gradient.shape[-1]]), x.transpose([0, 3, 1, 2])
    of_x, *others = windows_graph(x, weight, rows, ctx.windows.stride, ctx.windows.padding, ctx.wanted)
    return (of_x if of_x is None else of_x.transpose([0, 2, 3, 1]), *others)[: 2 + ctx.has_bias]


class _ConvolutionFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, windows):
        ctx.wanted, ctx.has_bias, ctx.windows = find_wanted(x, weight, bias), bias is not None, windows
        cut = windows.cut(x)
        ctx.save_for_backward(cut, weight, x)
        return windows_forward(cut, weight, bias)

    @staticmethod
    @with_graph(_convolution_graph)
    def backward(ctx, gradient):
        (cut, weight, _), gradient = ctx.saved_tensor(), in_order(gradient)
        (out, channels, side, _), count, length = weight.shape, cut.size // cut.shape[-1], cut.shape[-1]
        of_x = of_weight = None
        if ctx.wanted[0]:
            of_cut = empty(*cut.shape)
            multiply(gradient, window_matrix(weight), of_cut, (count, length, out))
            of_x = ctx.windows.join(of_cut)
        if ctx.wanted[1]:
            of_matrix, of_weight = empty(out, length), empty(*weight.shape)
            multiply(gradient, cut, of_matrix, (out, length, count), (TURNED, PLAIN))
            image_kernels.turn(address(of_matrix), address(of_weight), out, side * side, channels)
        of_bias = column_sums(gradient) if ctx.wanted[2] else None
        return (of_x, of_weight, of_bias)[: 2 + ctx.has_bias]


def convolution(x, weight, bias, stride: int, padding: int) -> paddle.Tensor:
    """A convolution as one matrix product.

    Args:
        x: (batch, height, width, channels), with its padding no smaller than the weight.
        weight: (out, channels, side, side), the side larger than ``padding``.
        bias: (out), or None.

    Returns:
        (batch, rows, columns, out).
    """
    x = in_order(x)
    windows = ConvolutionWindows(x.shape, weight.shape[-1], stride, padding)
    if paddle.is_grad_enabled():
        return differentiable(_ConvolutionFunction, x, weight, bias, windows)
    return windows_forward(windows.cut(x), weight, bias)


# ---- residual branch -----------------------------------------------------------------------------------------


def _sizes(x):
    """batch, rows of an image, channels."""
    return x.shape[0], x.size // (x.shape[0] * x.shape[-1]), x.shape[-1]


def _add_scaled_graph(ctx, gradient):
    branch, scale = ctx.saved_tensor()
    kept = gradient if ctx.keep is None else gradient * ctx.keep
    found = gradient, kept * scale, (kept * branch).sum(list(range(branch.ndim - 1))), None
    return tuple(one if is_wanted else None for one, is_wanted in zip(found, ctx.wanted))


class _AddScaled(PyLayer):
    @staticmethod
    def forward(ctx, x, branch, scale, keep):
        ctx.keep, out = keep, empty(*x.shape)
        ctx.wanted = find_wanted(x, branch, scale) + [False] * (keep is not None)
        x, branch = in_order(x), in_order(branch)  # by names: their memory is used until the end
        ctx.save_for_backward(branch, scale)
        places = [address(tensor) for tensor in (x, branch, scale, keep, out)]
        image_kernels.add_scaled(*places, *_sizes(x))
        return out

    @staticmethod
    @with_graph(_add_scaled_graph)
    def backward(ctx, gradient):
        (branch, scale), gradient = ctx.saved_tensor(), in_order(gradient)
        of_branch, of_scale = empty(*branch.shape), empty(*scale.shape)
        places = [address(tensor) for tensor in (gradient, branch, scale, ctx.keep, of_branch, of_scale)]
        image_kernels.scaled_gradient(*places, *_sizes(branch))
        found = (gradient, of_branch, of_scale, None)
        return tuple(one if is_wanted else None for one, is_wanted in zip(found, ctx.wanted))


def add_scaled(x, branch, scale, keep: paddle.Tensor | None) -> paddle.Tensor:
    """x + branch * scale * keep.

    Args:
        x, branch: (batch, ..., channels).
        scale: (channels).
        keep: a factor for each item, (batch, 1, ...), without a gradient; None for 1.
    """
    if paddle.is_grad_enabled():
        return differentiable(_AddScaled, x, branch, scale, keep)
    x, branch, out = in_order(x), in_order(branch), empty(*x.shape)
    places = [address(tensor) for tensor in (x, branch, scale, keep, out)]
    image_kernels.add_scaled(*places, *_sizes(x))
    return out
