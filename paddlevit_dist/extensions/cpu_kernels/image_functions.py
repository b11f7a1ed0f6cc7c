"""Differentiable functions on images (batch, height, width, channels), float32 in host memory.

Inputs are not checked: call these functions only if ``accelerate.can_use_fast_path`` allows it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import paddle
from paddle.autograd import PyLayer

from . import depthwise_kernels, image_kernels, row_kernels
from .functions import (
    address,
    column_sums,
    differentiable,
    multiply,
    needs_gradients,
    select_gradients,
    windows_graph,
    with_graph,
)
from .memory import PLAIN, TRANSPOSED, as_contiguous, empty


def fits_depthwise(shape: Sequence[int], weight_shape: Sequence[int]) -> bool:
    """Return whether ``depthwise`` accepts an input and a weight of these shapes."""
    return shape[-1] == weight_shape[0] and shape[-1] % depthwise_kernels.LANES == 0


def depthwise_forward(x, weight, bias) -> paddle.Tensor:
    """Compute ``depthwise`` without its gradient."""
    out, kernel = empty(*x.shape), weight.shape[-1]
    addresses = address(x), address(weight), address(bias)
    depthwise_kernels.correlate(*addresses, False, (0,) * kernel, address(out), *x.shape)
    return out


def _depthwise_graph(ctx, gradient):
    (x, weight), (batch, height, width, channels) = ctx.saved_tensor(), gradient.shape
    side, g = weight.shape[-1], gradient.transpose([0, 3, 1, 2])
    windows = paddle.nn.functional.unfold(x.transpose([0, 3, 1, 2]), side, 1, side // 2)
    products = windows.reshape([batch, channels, -1, height * width]) * g.reshape([batch, channels, 1, -1])
    x_gradient = paddle.nn.functional.conv2d(g, weight.flip([2, 3]), padding=side // 2, groups=channels)
    gradients = x_gradient.transpose([0, 2, 3, 1]), products.sum([0, 3]).reshape(weight.shape), g.sum([0, 2, 3])
    return select_gradients(ctx.needs_gradient, *gradients)[: 2 + ctx.has_bias]


class _DepthwiseFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.needs_gradient, ctx.has_bias, x = needs_gradients(x, weight, bias), bias is not None, as_contiguous(x)
        ctx.save_for_backward(x, weight)
        return depthwise_forward(x, weight, bias)

    @staticmethod
    @with_graph(_depthwise_graph)
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        gradient, taps = as_contiguous(gradient), (0,) * weight.shape[-1]
        x_gradient = weight_gradient = bias_gradient = None
        if ctx.needs_gradient[0]:
            x_gradient = empty(*x.shape)
            addresses = address(gradient), address(weight), 0
            depthwise_kernels.correlate(*addresses, True, taps, address(x_gradient), *x.shape)
        if any(ctx.needs_gradient[1:]):
            weight_gradient, bias_gradient = empty(*weight.shape), empty(x.shape[-1])
            addresses = address(x), address(gradient), taps, address(weight_gradient), address(bias_gradient)
            depthwise_kernels.weight_gradient(*addresses, *x.shape)
        gradients = (
            x_gradient,
            weight_gradient if ctx.needs_gradient[1] else None,
            bias_gradient if ctx.needs_gradient[2] else None,
        )
        return gradients[: 2 + ctx.has_bias]


def depthwise(x, weight, bias) -> paddle.Tensor:
    """Convolve each channel of (batch, height, width, channels) with its kernel, stride 1 and zero padding.

    Channels are a multiple of ``depthwise_kernels.LANES``; ``weight`` is (channels, 1, K, K), K odd.
    """
    return (
        differentiable(_DepthwiseFunction, x, weight, bias)
        if paddle.is_grad_enabled()
        else depthwise_forward(as_contiguous(x), weight, bias)
    )


class ConvolutionWindows(NamedTuple):
    """Geometry of the windows of a convolution on (batch, height, width, channels)."""

    shape: Sequence[int]
    side: int
    stride: int
    padding: int

    def cut(self, x) -> paddle.Tensor:
        """Extract the windows of ``x``: (batch, rows, columns, side * side * channels)."""
        rows, columns = ((size + 2 * self.padding - self.side) // self.stride + 1 for size in self.shape[1:3])
        windows = empty(self.shape[0], rows, columns, self.side * self.side * self.shape[3])
        image_kernels.windows(address(x), address(windows), *self.shape, *self[1:], False)
        return windows

    def join(self, windows) -> paddle.Tensor:
        """Add windows at their positions in an image."""
        x = empty(*self.shape)
        image_kernels.windows(address(x), address(windows), *self.shape, *self[1:], True)
        return x


def window_matrix(weight) -> paddle.Tensor:
    """Reorder a weight (out, channels, side, side) to (out, side * side * channels)."""
    out, channels, side, _ = weight.shape
    matrix = empty(out, side * side * channels)
    image_kernels.transpose_matrices(address(weight), address(matrix), out, channels, side * side)
    return matrix


def windows_forward(cut, weight, bias) -> paddle.Tensor:
    """Compute cut @ window_matrix(weight)^T + bias."""
    batch, rows, columns, length = cut.shape
    count, width = batch * rows * columns, weight.shape[0]
    out = empty(batch, rows, columns, width)
    if bias is not None:
        row_kernels.add_bias(0, address(bias), address(out), count, width)
    beta = 0.0 if bias is None else 1.0
    multiply(cut, window_matrix(weight), out, (count, width, length), (PLAIN, TRANSPOSED), beta)
    return out


def _convolution_graph(ctx, gradient):
    _, weight, x = ctx.saved_tensor()
    rows, x = gradient.reshape([gradient.shape[0], -1, gradient.shape[-1]]), x.transpose([0, 3, 1, 2])
    x_gradient, *others = windows_graph(x, weight, rows, ctx.windows.stride, ctx.windows.padding, ctx.needs_gradient)
    return (x_gradient if x_gradient is None else x_gradient.transpose([0, 2, 3, 1]), *others)[: 2 + ctx.has_bias]


class _ConvolutionFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, windows):
        ctx.needs_gradient, ctx.has_bias, ctx.windows = needs_gradients(x, weight, bias), bias is not None, windows
        cut = windows.cut(x)
        ctx.save_for_backward(cut, weight, x)
        return windows_forward(cut, weight, bias)

    @staticmethod
    @with_graph(_convolution_graph)
    def backward(ctx, gradient):
        (cut, weight, _), gradient = ctx.saved_tensor(), as_contiguous(gradient)
        (out, channels, side, _), count, length = weight.shape, cut.size // cut.shape[-1], cut.shape[-1]
        x_gradient = weight_gradient = None
        if ctx.needs_gradient[0]:
            window_gradients = empty(*cut.shape)
            multiply(gradient, window_matrix(weight), window_gradients, (count, length, out))
            x_gradient = ctx.windows.join(window_gradients)
        if ctx.needs_gradient[1]:
            matrix_gradient, weight_gradient = empty(out, length), empty(*weight.shape)
            multiply(gradient, cut, matrix_gradient, (out, length, count), (TRANSPOSED, PLAIN))
            image_kernels.transpose_matrices(
                address(matrix_gradient), address(weight_gradient), out, side * side, channels
            )
        bias_gradient = column_sums(gradient) if ctx.needs_gradient[2] else None
        return (x_gradient, weight_gradient, bias_gradient)[: 2 + ctx.has_bias]


def convolution(x, weight, bias, stride: int, padding: int) -> paddle.Tensor:
    """Compute a convolution as one matrix product: (batch, rows, columns, out).

    ``x`` is (batch, height, width, channels), with its padding no smaller than the weight, (out, channels, side, side),
    whose side is larger than ``padding``.
    """
    x = as_contiguous(x)
    windows = ConvolutionWindows(x.shape, weight.shape[-1], stride, padding)
    if paddle.is_grad_enabled():
        return differentiable(_ConvolutionFunction, x, weight, bias, windows)
    return windows_forward(windows.cut(x), weight, bias)


def _sizes(x):
    return x.shape[0], x.size // (x.shape[0] * x.shape[-1]), x.shape[-1]


def _add_scaled_graph(ctx, gradient):
    branch, scale = ctx.saved_tensor()
    scaled = gradient if ctx.keep is None else gradient * ctx.keep
    gradients = gradient, scaled * scale, (scaled * branch).sum(list(range(branch.ndim - 1))), None
    return tuple(value if is_needed else None for value, is_needed in zip(gradients, ctx.needs_gradient))


class _AddScaled(PyLayer):
    @staticmethod
    def forward(ctx, x, branch, scale, keep):
        ctx.keep, out = keep, empty(*x.shape)
        ctx.needs_gradient = needs_gradients(x, branch, scale) + [False] * (keep is not None)
        x, branch = as_contiguous(x), as_contiguous(branch)  # named variables keep the memory alive
        ctx.save_for_backward(branch, scale)
        addresses = [address(tensor) for tensor in (x, branch, scale, keep, out)]
        image_kernels.add_scaled(*addresses, *_sizes(x))
        return out

    @staticmethod
    @with_graph(_add_scaled_graph)
    def backward(ctx, gradient):
        (branch, scale), gradient = ctx.saved_tensor(), as_contiguous(gradient)
        branch_gradient, scale_gradient = empty(*branch.shape), empty(*scale.shape)
        addresses = [address(tensor) for tensor in (gradient, branch, scale, ctx.keep, branch_gradient, scale_gradient)]
        image_kernels.scaled_gradient(*addresses, *_sizes(branch))
        gradients = (gradient, branch_gradient, scale_gradient, None)
        return tuple(value if is_needed else None for value, is_needed in zip(gradients, ctx.needs_gradient))


def add_scaled(x, branch, scale, keep: paddle.Tensor | None) -> paddle.Tensor:
    """Compute x + branch * scale * keep, of (batch, ..., channels) and (channels).

    ``keep``: factor of each item, (batch, 1, ...), without gradient; None for 1.
    """
    if paddle.is_grad_enabled():
        return differentiable(_AddScaled, x, branch, scale, keep)
    x, branch, out = as_contiguous(x), as_contiguous(branch), empty(*x.shape)
    addresses = [address(tensor) for tensor in (x, branch, scale, keep, out)]
    image_kernels.add_scaled(*addresses, *_sizes(x))
    return out
