"""Differentiable functions on float32 tensors in the host's memory, with hand-written gradients.

Each computes what the plain layers of the same name compute, up to rounding. ``accelerate.can_use_fast_path`` says when
they may be called; nothing is checked here. What the backward pass needs is saved through Paddle, so that hooks on
saved tensors see it. Gradients by inputs that need none are not computed.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from ..runtime.paddle_versions import has_lists_in_functions
from . import exponential_kernels, row_kernels
from .memory import PLAIN, TURNED, empty, in_order, product


def count_rows(x: paddle.Tensor) -> int:
    """Number of vectors along the last axis."""
    return x.size // max(x.shape[-1], 1)


def address(tensor: paddle.Tensor | None) -> int:
    """Where a contiguous tensor's numbers begin; 0 for None. The caller keeps the tensor alive."""
    return 0 if tensor is None else tensor.data_ptr()


def multiply(left, right, out, sizes, turned=(PLAIN, PLAIN), beta=0.0) -> None:
    """``MklSgemm.__call__`` on tensors."""
    product()(left.data_ptr(), right.data_ptr(), out.data_ptr(), sizes, turned, beta)


def find_wanted(*tensors: paddle.Tensor | None) -> list[bool]:
    """Which of the tensors need a gradient."""
    return [tensor is not None and not tensor.stop_gradient for tensor in tensors]


def choose(is_wanted: Sequence[bool], *gradients: paddle.Tensor) -> Any:
    """The gradients, with None for inputs that need none: Paddle refuses anything else."""
    return tuple(gradient if wants else None for wants, gradient in zip(is_wanted, gradients))


def differentiable(kind: type[PyLayer], *arguments: Any) -> paddle.Tensor:
    """``kind.apply``, of whose tensors ``paddle.grad`` may ask for the gradients of some. Paddle insists on None for
    all others, without saying which ones these are; where they are one argument, a list, it does not."""
    if not has_lists_in_functions():
        return kind.apply(*arguments)
    tensors = [one for one in arguments if isinstance(one, paddle.Tensor)]
    order = sorted(range(len(tensors)), key=lambda k: tensors[k].stop_gradient)  # Paddle looks at the first one alone
    return _OfList.apply([tensors[k] for k in order], kind, order, lambda ctx: kind.forward(ctx, *arguments))


class _OfList(PyLayer):
    @staticmethod
    def forward(ctx, tensors, kind, order, compute):
        ctx.kind, ctx.order = kind, order
        return compute(ctx)

    @staticmethod
    def backward(ctx, gradient):
        found = ctx.kind.backward(ctx, gradient)
        found = found if isinstance(found, tuple) else (found,)
        return [found[k] for k in ctx.order]


def with_graph(of_operations: Callable | None = None) -> Callable:
    """Decorates a backward: where its graph is wanted (``create_graph``), ``of_operations`` is called in its place, the
    same in Paddle's own operations; without one it is refused."""

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def chosen_backward(ctx, gradient):
            if not paddle.is_grad_enabled():
                return backward(ctx, gradient)
            if of_operations is None:
                raise NotImplementedError(
                    "a gradient of the gradient (create_graph) goes through a fast layer of CPUs that has none: set "
                    "PADDLEVIT_DIST_PLAIN_LAYERS=1 (or CPU_TUNING false)"
                )
            return of_operations(ctx, gradient)

        return chosen_backward

    return decorate


def _flat(x: paddle.Tensor) -> paddle.Tensor:
    return x.reshape([-1, x.shape[-1]])


# ---- linear --------------------------------------------------------------------------------------------------


def linear_forward(x, weight, bias, base=None) -> paddle.Tensor:
    """base + x @ weight + bias; ``base`` and ``bias`` may be None."""
    rows, (width_in, width_out) = count_rows(x), weight.shape
    out = empty(*x.shape[:-1], width_out)
    if bias is not None:
        row_kernels.add_bias(address(base), address(bias), address(out), rows, width_out)
    multiply(x, weight, out, (rows, width_out, width_in), beta=0.0 if bias is None else 1.0)
    return out


def by_input(gradient, weight, shape) -> paddle.Tensor:
    """gradient @ weight^T, as a tensor of ``shape``."""
    out = empty(*shape)
    width_in, width_out = weight.shape
    multiply(gradient, weight, out, (count_rows(gradient), width_in, width_out), (PLAIN, TURNED))
    return out


def by_weight(x, gradient, weight) -> paddle.Tensor:
    """x^T @ gradient, like ``weight``."""
    out = empty(*weight.shape)
    width_in, width_out = weight.shape
    multiply(x, gradient, out, (width_in, width_out, count_rows(gradient)), (TURNED, PLAIN))
    return out


def column_sums(x) -> paddle.Tensor:
    """The sum over all axes but the last."""
    out = empty(x.shape[-1])
    row_kernels.times(address(x), 0, address(out), count_rows(x), x.shape[-1])
    return out


def _linear_graph(ctx, gradient):
    x, weight = ctx.saved_tensor()
    of_x, of_weight, of_bias = ctx.wanted
    gradients = (
        paddle.matmul(gradient, weight, transpose_y=True) if of_x else None,
        paddle.matmul(_flat(x), _flat(gradient), transpose_x=True) if of_weight else None,
        _flat(gradient).sum(0) if of_bias else None,
    )
    return gradients[: 2 + ctx.has_bias]


class _LinearFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.wanted, ctx.has_bias = find_wanted(x, weight, bias), bias is not None
        ctx.save_for_backward(x, weight)
        return linear_forward(x, weight, bias)

    @staticmethod
    @with_graph(_linear_graph)
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        gradient = in_order(gradient)
        of_x, of_weight, of_bias = ctx.wanted
        gradients = (
            by_input(gradient, weight, x.shape) if of_x else None,
            by_weight(x, gradient, weight) if of_weight else None,
            column_sums(gradient) if of_bias else None,
        )
        return gradients[: 2 + ctx.has_bias]


def linear(x, weight, bias) -> paddle.Tensor:
    """x (..., in) @ weight (in, out) + bias (out) or None."""
    x = in_order(x)
    return (
        differentiable(_LinearFunction, x, weight, bias)
        if paddle.is_grad_enabled()
        else linear_forward(x, weight, bias)
    )


# ---- layer norm ----------------------------------------------------------------------------------------------


def layer_norm_forward(x, weight, bias, epsilon, keeps: bool):
    """The normalized rows and, if ``keeps``, mean and 1 / deviation (rows, 2)."""
    rows, width = count_rows(x), x.shape[-1]
    out, statistics = empty(*x.shape), empty(rows, 2) if keeps else None
    places = address(x), address(weight), address(bias)
    row_kernels.layer_norm(*places, epsilon, address(out), address(statistics), rows, width)
    return out, statistics


def layer_norm_backward(gradient, x, statistics, weight, added=None):
    """The gradient by ``x`` plus ``added``, and (2, width): gradients by weight and bias."""
    rows, width = count_rows(x), x.shape[-1]
    out, sums = empty(*x.shape), empty(2, width)
    places = [address(tensor) for tensor in (gradient, x, statistics, weight, added, out, sums)]
    row_kernels.layer_norm_gradient(*places, rows, width)
    return out, sums


def _layer_norm_graph(ctx, gradient):
    x, _, weight = ctx.saved_tensor()
    centered = x - x.mean(-1, keepdim=True)
    inverse = paddle.rsqrt((centered**2).mean(-1, keepdim=True) + ctx.epsilon)
    normal, inner = centered * inverse, gradient * weight
    rest = inner - inner.mean(-1, keepdim=True) - normal * (inner * normal).mean(-1, keepdim=True)
    return choose(ctx.wanted, rest * inverse, _flat(gradient * normal).sum(0), _flat(gradient).sum(0))


class _LayerNormFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, epsilon):
        out, statistics = layer_norm_forward(x, weight, bias, epsilon, keeps=True)
        ctx.wanted, ctx.epsilon = find_wanted(x, weight, bias), epsilon
        ctx.save_for_backward(x, statistics, weight)
        return out

    @staticmethod
    @with_graph(_layer_norm_graph)
    def backward(ctx, gradient):
        x, statistics, weight = ctx.saved_tensor()
        out, sums = layer_norm_backward(in_order(gradient), x, statistics, weight)
        return choose(ctx.wanted, out, sums[0], sums[1])


def layer_norm(x, weight, bias, epsilon: float) -> paddle.Tensor:
    """x normalized along its last axis, times weight plus bias."""
    x = in_order(x)
    if paddle.is_grad_enabled():
        return differentiable(_LayerNormFunction, x, weight, bias, epsilon)
    return layer_norm_forward(x, weight, bias, epsilon, keeps=False)[0]


# ---- GELU ----------------------------------------------------------------------------------------------------


def _compute_gelu(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The GELU and its slope."""
    share = 0.5 * (1.0 + paddle.erf(x * math.sqrt(0.5)))
    return x * share, share + x * paddle.exp(-0.5 * x * x) * (1.0 / math.sqrt(2.0 * math.pi))


class _GeluFunction(PyLayer):
    @staticmethod
    def forward(ctx, x):
        out, slope = empty(*x.shape), empty(*x.shape)
        exponential_kernels.gelu(address(x), 0, address(out), address(slope), count_rows(x), x.shape[-1])
        ctx.save_for_backward(slope, x)
        return out

    @staticmethod
    @with_graph(lambda ctx, gradient: gradient * _compute_gelu(ctx.saved_tensor()[1])[1])
    def backward(ctx, gradient):
        return in_order(gradient) * ctx.saved_tensor()[0]


def gelu(x) -> paddle.Tensor:
    """The exact GELU, x times the normal distribution's share below x."""
    x = in_order(x)
    if paddle.is_grad_enabled():
        return differentiable(_GeluFunction, x)
    out = empty(*x.shape)
    exponential_kernels.gelu(address(x), 0, address(out), 0, count_rows(x), x.shape[-1])
    return out


# ---- MLP -----------------------------------------------------------------------------------------------------


def hidden_forward(x, weight, bias, keeps: bool):
    """GELU(x @ weight + bias) and, if ``keeps``, the GELU's slope."""
    rows, (width_in, width_out) = count_rows(x), weight.shape
    hidden, slope = empty(*x.shape[:-1], width_out), empty(rows, width_out) if keeps else None
    multiply(x, weight, hidden, (rows, width_out, width_in))
    exponential_kernels.gelu(address(hidden), address(bias), address(hidden), address(slope), rows, width_out)
    return hidden, slope


def hidden_backward(gradient, weight2, slope, hidden):
    """The gradient by the first layer's result, from the gradient by the second's, and its column sums."""
    out, sums = by_input(gradient, weight2, hidden.shape), empty(hidden.shape[-1])
    row_kernels.times(address(out), address(slope), address(sums), count_rows(out), out.shape[-1])
    return out, sums


def _mlp_graph(ctx, gradient):
    (x, weight1, weight2, _, _), bias1, want = ctx.saved_tensor(), ctx.bias, ctx.wanted
    hidden, slope = _compute_gelu(paddle.matmul(x, weight1) + bias1)
    inner = paddle.matmul(gradient, weight2, transpose_y=True) * slope
    return choose(
        want,
        paddle.matmul(inner, weight1, transpose_y=True),
        paddle.matmul(_flat(x), _flat(inner), transpose_x=True),
        _flat(inner).sum(0),
        paddle.matmul(_flat(hidden), _flat(gradient), transpose_x=True),
        _flat(gradient).sum(0),
    )


class _MlpFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight1, bias1, weight2, bias2):
        hidden, slope = hidden_forward(x, weight1, bias1, keeps=True)
        ctx.wanted, ctx.bias = find_wanted(x, weight1, bias1, weight2, bias2), bias1
        ctx.save_for_backward(x, weight1, weight2, hidden, slope)
        return linear_forward(hidden, weight2, bias2)

    @staticmethod
    @with_graph(_mlp_graph)
    def backward(ctx, gradient):
        x, weight1, weight2, hidden, slope = ctx.saved_tensor()
        gradient, want = in_order(gradient), ctx.wanted
        inner, sums = hidden_backward(gradient, weight2, slope, hidden)
        return (
            by_input(inner, weight1, x.shape) if want[0] else None,
            by_weight(x, inner, weight1) if want[1] else None,
            sums if want[2] else None,
            by_weight(hidden, gradient, weight2) if want[3] else None,
            column_sums(gradient) if want[4] else None,
        )


def mlp(x, weight1, bias1, weight2, bias2) -> paddle.Tensor:
    """GELU(x @ weight1 + bias1) @ weight2 + bias2."""
    x = in_order(x)
    if paddle.is_grad_enabled():
        return differentiable(_MlpFunction, x, weight1, bias1, weight2, bias2)
    return linear_forward(hidden_forward(x, weight1, bias1, keeps=False)[0], weight2, bias2)


# ---- patches -------------------------------------------------------------------------------------------------


def _cut(images, patches, side: int, is_back: bool = False) -> None:
    batch, channels, height, width = images.shape
    sizes = batch, channels, height // side, width // side, side
    row_kernels.patches(address(images), address(patches), *sizes, is_back)


def _embed(images, weight, bias):
    """The patches as rows (batch, patches, in), and what the convolution makes of them (batch, patches, out)."""
    batch, _, height, width = images.shape
    width_out, side = weight.shape[0], weight.shape[-1]
    patches = empty(batch, height // side * (width // side), weight.size // width_out)
    _cut(images, patches, side)
    rows, width_in = count_rows(patches), patches.shape[-1]
    out = empty(*patches.shape[:-1], width_out)
    row_kernels.add_bias(0, address(bias), address(out), rows, width_out)
    multiply(patches, weight, out, (rows, width_out, width_in), (PLAIN, TURNED), 1.0)
    return patches, out


def windows_graph(x, weight, gradient, stride: int, padding: int, want: Sequence[bool]) -> Any:
    """Gradients of a convolution of images (batch, in, height, width) from that of its result, (batch, places, out),
    in Paddle's operations."""
    (width_out, *_, side), (_, _, *size) = weight.shape, x.shape
    windows, matrix = paddle.nn.functional.unfold(x, side, stride, padding), weight.reshape([width_out, -1])
    of_windows = paddle.matmul(matrix, gradient, transpose_x=True, transpose_y=True)  # (batch, in * side**2, places)
    return choose(
        want,
        paddle.nn.functional.fold(of_windows, size, side, stride, padding) if want[0] else None,
        paddle.matmul(gradient, windows, transpose_x=True, transpose_y=True).sum(0).reshape(weight.shape),
        _flat(gradient).sum(0),
    )


def _patches_graph(ctx, gradient):
    _, weight, images = ctx.saved_tensor()
    return windows_graph(images, weight, gradient, weight.shape[-1], 0, ctx.wanted)


class _PatchesFunction(PyLayer):
    @staticmethod
    def forward(ctx, images, weight, bias):
        patches, out = _embed(images, weight, bias)
        ctx.wanted, ctx.shape = find_wanted(images, weight, bias), images.shape
        ctx.save_for_backward(patches, weight, images)
        return out

    @staticmethod
    @with_graph(_patches_graph)
    def backward(ctx, gradient):
        patches, weight, _ = ctx.saved_tensor()
        gradient = in_order(gradient)
        rows, width_in, width_out = count_rows(gradient), patches.shape[-1], weight.shape[0]
        of_images = of_weight = None
        if ctx.wanted[0]:
            of_images, of_patches = empty(*ctx.shape), empty(*patches.shape)
            multiply(gradient, weight, of_patches, (rows, width_in, width_out))
            _cut(of_images, of_patches, weight.shape[-1], is_back=True)
        if ctx.wanted[1]:
            of_weight = empty(*weight.shape)
            multiply(gradient, patches, of_weight, (width_out, width_in, rows), (TURNED, PLAIN))
        return choose(ctx.wanted, of_images, of_weight, column_sums(gradient) if ctx.wanted[2] else None)


def patches(images, weight, bias) -> paddle.Tensor:
    """A convolution of square patches that touch: (batch, rows * columns, out) of (batch, in, height, width).

    Args:
        weight: (out, in, side, side); the sides of the images are multiples of ``side``.
    """
    images = in_order(images)
    return (
        differentiable(_PatchesFunction, images, weight, bias)
        if paddle.is_grad_enabled()
        else _embed(images, weight, bias)[1]
    )
