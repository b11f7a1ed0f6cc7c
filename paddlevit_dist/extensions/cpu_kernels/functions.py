"""Differentiable functions on float32 tensors in host memory, with hand-written gradients.

Each computes what the plain layer of the same name computes, up to rounding. Inputs are not checked: call them only if
``accelerate.can_use_fast_path`` allows it. Values for the backward pass are saved through Paddle, for hooks on saved
tensors. Gradients are computed only for inputs that need them.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from ...core.runtime.paddle_versions import has_lists_in_functions
from . import exponential_kernels, row_kernels
from .memory import PLAIN, TRANSPOSED, as_contiguous, empty, require_product


def count_rows(x: paddle.Tensor) -> int:
    """Count the vectors along the last axis."""
    *outer, width = x.shape
    return math.prod(outer) if width else 0  # ``x.size`` takes ten times as long


def address(tensor: paddle.Tensor | None) -> int:
    """Return the address of a contiguous tensor's first number; 0 for None. The caller keeps the tensor alive."""
    return 0 if tensor is None else tensor.data_ptr()


def multiply(left, right, out, sizes, transposed=(PLAIN, PLAIN), beta=0.0) -> None:
    """Multiply tensors with ``MklSgemm``; see its ``__call__``."""
    require_product()(left.data_ptr(), right.data_ptr(), out.data_ptr(), sizes, transposed, beta)


def needs_gradients(*tensors: paddle.Tensor | None) -> list[bool]:
    """Return which of the tensors need a gradient."""
    return [tensor is not None and not tensor.stop_gradient for tensor in tensors]


def select_gradients(needs_gradient: Sequence[bool], *gradients: paddle.Tensor) -> Any:
    """Return the gradients, with None for inputs that need none, which Paddle requires."""
    return tuple(gradient if is_needed else None for is_needed, gradient in zip(needs_gradient, gradients))


def differentiable(kind: type[PyLayer], *arguments: object) -> paddle.Tensor:
    """Apply a function such that ``paddle.grad`` can request the gradients of some of its tensors.

    Paddle rejects unrequested gradients of separate tensors, without saying which they are, but not of one list.
    """
    if not has_lists_in_functions():
        return kind.apply(*arguments)
    tensors = [argument for argument in arguments if isinstance(argument, paddle.Tensor)]
    order = sorted(range(len(tensors)), key=lambda k: tensors[k].stop_gradient)  # Paddle checks only the first tensor
    return _ListFunction.apply([tensors[k] for k in order], kind, order, lambda ctx: kind.forward(ctx, *arguments))


class _ListFunction(PyLayer):
    @staticmethod
    def forward(ctx, tensors, kind, order, compute):
        ctx.kind, ctx.order = kind, order
        return compute(ctx)

    @staticmethod
    def backward(ctx, gradient):
        gradients = ctx.kind.backward(ctx, gradient)
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        return [gradients[k] for k in ctx.order]


def with_graph(graph_backward: Callable | None = None) -> Callable:
    """Decorate a backward pass: if its graph is requested (``create_graph``), call ``graph_backward`` instead.

    ``graph_backward`` computes the gradients with Paddle's operations; without it, NotImplementedError is raised.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def chosen_backward(ctx, gradient):
            if not paddle.is_grad_enabled():
                return backward(ctx, gradient)
            if graph_backward is None:
                raise NotImplementedError(
                    "a fast CPU layer does not support the gradient of its gradient (create_graph): set "
                    "PADDLEVIT_DIST_PLAIN_LAYERS=1 (or CPU_TUNING false)"
                )
            return graph_backward(ctx, gradient)

        return chosen_backward

    return decorate


def _flat(x: paddle.Tensor) -> paddle.Tensor:
    return x.reshape([-1, x.shape[-1]])


def linear_forward(x, weight, bias, base=None) -> paddle.Tensor:
    """Compute base + x @ weight + bias; ``base`` and ``bias`` may be None."""
    rows, (width_in, width_out) = count_rows(x), weight.shape
    out = empty(*x.shape[:-1], width_out)
    if bias is not None:
        row_kernels.add_bias(address(base), address(bias), address(out), rows, width_out)
    multiply(x, weight, out, (rows, width_out, width_in), beta=0.0 if bias is None else 1.0)
    return out


def compute_input_gradient(gradient, weight, shape) -> paddle.Tensor:
    """Compute gradient @ weight^T, as a tensor of ``shape``."""
    out = empty(*shape)
    width_in, width_out = weight.shape
    multiply(gradient, weight, out, (count_rows(gradient), width_in, width_out), (PLAIN, TRANSPOSED))
    return out


def compute_weight_gradient(x, gradient, weight) -> paddle.Tensor:
    """Compute x^T @ gradient, like ``weight``."""
    out = empty(*weight.shape)
    width_in, width_out = weight.shape
    multiply(x, gradient, out, (width_in, width_out, count_rows(gradient)), (TRANSPOSED, PLAIN))
    return out


def column_sums(x) -> paddle.Tensor:
    """Sum over all axes but the last."""
    out = empty(x.shape[-1])
    row_kernels.multiply_and_sum(address(x), 0, address(out), count_rows(x), x.shape[-1])
    return out


def _linear_graph(ctx, gradient):
    x, weight = ctx.saved_tensor()
    needs_x, needs_weight, needs_bias = ctx.needs_gradient
    gradients = (
        paddle.matmul(gradient, weight, transpose_y=True) if needs_x else None,
        paddle.matmul(_flat(x), _flat(gradient), transpose_x=True) if needs_weight else None,
        _flat(gradient).sum(0) if needs_bias else None,
    )
    return gradients[: 2 + ctx.has_bias]


class _LinearFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.needs_gradient, ctx.has_bias = needs_gradients(x, weight, bias), bias is not None
        ctx.save_for_backward(x, weight)
        return linear_forward(x, weight, bias)

    @staticmethod
    @with_graph(_linear_graph)
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensor()
        gradient = as_contiguous(gradient)
        needs_x, needs_weight, needs_bias = ctx.needs_gradient
        gradients = (
            compute_input_gradient(gradient, weight, x.shape) if needs_x else None,
            compute_weight_gradient(x, gradient, weight) if needs_weight else None,
            column_sums(gradient) if needs_bias else None,
        )
        return gradients[: 2 + ctx.has_bias]


def linear(x, weight, bias) -> paddle.Tensor:
    """Compute x (..., in) @ weight (in, out) + bias (out); the bias may be None."""
    x = as_contiguous(x)
    return (
        differentiable(_LinearFunction, x, weight, bias)
        if paddle.is_grad_enabled()
        else linear_forward(x, weight, bias)
    )


def layer_norm_forward(x, weight, bias, epsilon, needs_statistics: bool):
    """Normalize rows; if ``needs_statistics``, also return mean and 1 / deviation (rows, 2)."""
    rows, width = count_rows(x), x.shape[-1]
    out, statistics = empty(*x.shape), empty(rows, 2) if needs_statistics else None
    addresses = address(x), address(weight), address(bias)
    row_kernels.layer_norm(*addresses, epsilon, address(out), address(statistics), rows, width)
    return out, statistics


def layer_norm_backward(gradient, x, statistics, weight, added=None):
    """Compute the gradient by ``x`` plus ``added``, and the gradients by weight and bias, (2, width)."""
    rows, width = count_rows(x), x.shape[-1]
    out, sums = empty(*x.shape), empty(2, width)
    addresses = [address(tensor) for tensor in (gradient, x, statistics, weight, added, out, sums)]
    row_kernels.layer_norm_gradient(*addresses, rows, width)
    return out, sums


def _layer_norm_graph(ctx, gradient):
    x, _, weight = ctx.saved_tensor()
    centered = x - x.mean(-1, keepdim=True)
    inverse = paddle.rsqrt((centered**2).mean(-1, keepdim=True) + ctx.epsilon)
    normal, inner = centered * inverse, gradient * weight
    rest = inner - inner.mean(-1, keepdim=True) - normal * (inner * normal).mean(-1, keepdim=True)
    return select_gradients(ctx.needs_gradient, rest * inverse, _flat(gradient * normal).sum(0), _flat(gradient).sum(0))


class _LayerNormFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, epsilon):
        out, statistics = layer_norm_forward(x, weight, bias, epsilon, needs_statistics=True)
        ctx.needs_gradient, ctx.epsilon = needs_gradients(x, weight, bias), epsilon
        ctx.save_for_backward(x, statistics, weight)
        return out

    @staticmethod
    @with_graph(_layer_norm_graph)
    def backward(ctx, gradient):
        x, statistics, weight = ctx.saved_tensor()
        out, sums = layer_norm_backward(as_contiguous(gradient), x, statistics, weight)
        return select_gradients(ctx.needs_gradient, out, sums[0], sums[1])


def layer_norm(x, weight, bias, epsilon: float) -> paddle.Tensor:
    """Normalize x along its last axis, multiply by weight and add bias."""
    x = as_contiguous(x)
    if paddle.is_grad_enabled():
        return differentiable(_LayerNormFunction, x, weight, bias, epsilon)
    return layer_norm_forward(x, weight, bias, epsilon, needs_statistics=False)[0]


class _NormalizedFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, norms):
        (count, width), rows = weight.shape, count_rows(x)
        own, product = empty(count), empty(*x.shape[:-1], count)
        row_kernels.norms(address(weight), address(own), count, width)
        multiply(x, weight, product, (rows, count, width), (PLAIN, TRANSPOSED))
        ctx.needs_gradient = needs_gradients(x, weight, norms)
        ctx.save_for_backward(x, weight, norms, own, product)
        return product * (norms / own)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        x, weight, norms, own, product = ctx.saved_tensor()
        (count, width), rows = weight.shape, count_rows(x)
        by_product, by_norm = gradient * (norms / own), _flat(gradient * product).sum(0) / own  # by_norm: (count,)
        by_x, by_weight = empty(*x.shape), None
        multiply(by_product, weight, by_x, (rows, width, count))
        if ctx.needs_gradient[1]:
            by_weight = weight * (-by_norm * norms / own.square()).unsqueeze(1)  # (count, width)
            multiply(by_product, x, by_weight, (count, width, rows), (TRANSPOSED, PLAIN), beta=1.0)
        return select_gradients(ctx.needs_gradient, by_x, by_weight, by_norm)


def normalized_linear(x, weight, norms) -> paddle.Tensor:
    """Multiply x (..., in) by rows (out, in) of the weight's directions and of ``norms``, (out,): (..., out)."""
    return differentiable(_NormalizedFunction, as_contiguous(x), weight, norms)


def _compute_gelu(x: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
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
        return as_contiguous(gradient) * ctx.saved_tensor()[0]


def gelu(x) -> paddle.Tensor:
    """Compute the exact GELU: x times the normal distribution's share below x."""
    x = as_contiguous(x)
    if paddle.is_grad_enabled():
        return differentiable(_GeluFunction, x)
    out = empty(*x.shape)
    exponential_kernels.gelu(address(x), 0, address(out), 0, count_rows(x), x.shape[-1])
    return out


def hidden_forward(x, weight, bias, needs_slope: bool):
    """Compute GELU(x @ weight + bias) and, if ``needs_slope``, the GELU's derivative."""
    rows, (width_in, width_out) = count_rows(x), weight.shape
    hidden, slope = empty(*x.shape[:-1], width_out), empty(rows, width_out) if needs_slope else None
    multiply(x, weight, hidden, (rows, width_out, width_in))
    exponential_kernels.gelu(address(hidden), address(bias), address(hidden), address(slope), rows, width_out)
    return hidden, slope


def hidden_backward(gradient, weight2, slope, hidden):
    """Compute the gradient by the first layer's result, from the gradient by the second's, and its column sums."""
    out, sums = compute_input_gradient(gradient, weight2, hidden.shape), empty(hidden.shape[-1])
    row_kernels.multiply_and_sum(address(out), address(slope), address(sums), count_rows(out), out.shape[-1])
    return out, sums


def _mlp_graph(ctx, gradient):
    (x, weight1, weight2, _, _), bias1, needs = ctx.saved_tensor(), ctx.bias, ctx.needs_gradient
    hidden, slope = _compute_gelu(paddle.matmul(x, weight1) + bias1)
    inner = paddle.matmul(gradient, weight2, transpose_y=True) * slope
    return select_gradients(
        needs,
        paddle.matmul(inner, weight1, transpose_y=True),
        paddle.matmul(_flat(x), _flat(inner), transpose_x=True),
        _flat(inner).sum(0),
        paddle.matmul(_flat(hidden), _flat(gradient), transpose_x=True),
        _flat(gradient).sum(0),
    )


class _MlpFunction(PyLayer):
    @staticmethod
    def forward(ctx, x, weight1, bias1, weight2, bias2):
        hidden, slope = hidden_forward(x, weight1, bias1, needs_slope=True)
        ctx.needs_gradient, ctx.bias = needs_gradients(x, weight1, bias1, weight2, bias2), bias1
        ctx.save_for_backward(x, weight1, weight2, hidden, slope)
        return linear_forward(hidden, weight2, bias2)

    @staticmethod
    @with_graph(_mlp_graph)
    def backward(ctx, gradient):
        x, weight1, weight2, hidden, slope = ctx.saved_tensor()
        gradient, needs = as_contiguous(gradient), ctx.needs_gradient
        inner, sums = hidden_backward(gradient, weight2, slope, hidden)
        return (
            compute_input_gradient(inner, weight1, x.shape) if needs[0] else None,
            compute_weight_gradient(x, inner, weight1) if needs[1] else None,
            sums if needs[2] else None,
            compute_weight_gradient(hidden, gradient, weight2) if needs[3] else None,
            column_sums(gradient) if needs[4] else None,
        )


def mlp(x, weight1, bias1, weight2, bias2) -> paddle.Tensor:
    """Compute GELU(x @ weight1 + bias1) @ weight2 + bias2."""
    x = as_contiguous(x)
    if paddle.is_grad_enabled():
        return differentiable(_MlpFunction, x, weight1, bias1, weight2, bias2)
    return linear_forward(hidden_forward(x, weight1, bias1, needs_slope=False)[0], weight2, bias2)


def _copy_patches(images, patches, side: int, to_images: bool = False) -> None:
    batch, channels, height, width = images.shape
    sizes = batch, channels, height // side, width // side, side
    row_kernels.patches(address(images), address(patches), *sizes, to_images)


def _embed(images, weight, bias):
    """Extract the patches as rows (batch, patches, in), and compute their convolution (batch, patches, out)."""
    batch, _, height, width = images.shape
    width_out, side = weight.shape[0], weight.shape[-1]
    patches = empty(batch, height // side * (width // side), weight.size // width_out)
    _copy_patches(images, patches, side)
    rows, width_in = count_rows(patches), patches.shape[-1]
    out = empty(*patches.shape[:-1], width_out)
    row_kernels.add_bias(0, address(bias), address(out), rows, width_out)
    multiply(patches, weight, out, (rows, width_out, width_in), (PLAIN, TRANSPOSED), 1.0)
    return patches, out


def windows_graph(x, weight, gradient, stride: int, padding: int, needs: Sequence[bool]) -> Any:
    """Compute the gradients of an image convolution in Paddle's operations.

    ``x`` is (batch, in, height, width), ``weight`` (out, in, side, side), and ``gradient``, by the result, (batch,
    positions, out); ``needs`` says whether x, weight and bias need one.
    """
    (width_out, *_, side), (_, _, *size) = weight.shape, x.shape
    windows, matrix = paddle.nn.functional.unfold(x, side, stride, padding), weight.reshape([width_out, -1])
    # (batch, in * side**2, positions)
    window_gradients = paddle.matmul(matrix, gradient, transpose_x=True, transpose_y=True)
    return select_gradients(
        needs,
        paddle.nn.functional.fold(window_gradients, size, side, stride, padding) if needs[0] else None,
        paddle.matmul(gradient, windows, transpose_x=True, transpose_y=True).sum(0).reshape(weight.shape),
        _flat(gradient).sum(0),
    )


def _patches_graph(ctx, gradient):
    _, weight, images = ctx.saved_tensor()
    return windows_graph(images, weight, gradient, weight.shape[-1], 0, ctx.needs_gradient)


class _PatchesFunction(PyLayer):
    @staticmethod
    def forward(ctx, images, weight, bias):
        patches, out = _embed(images, weight, bias)
        ctx.needs_gradient, ctx.shape = needs_gradients(images, weight, bias), images.shape
        ctx.save_for_backward(patches, weight, images)
        return out

    @staticmethod
    @with_graph(_patches_graph)
    def backward(ctx, gradient):
        patches, weight, _ = ctx.saved_tensor()
        gradient = as_contiguous(gradient)
        rows, width_in, width_out = count_rows(gradient), patches.shape[-1], weight.shape[0]
        image_gradient = weight_gradient = None
        if ctx.needs_gradient[0]:
            image_gradient, patch_gradient = empty(*ctx.shape), empty(*patches.shape)
            multiply(gradient, weight, patch_gradient, (rows, width_in, width_out))
            _copy_patches(image_gradient, patch_gradient, weight.shape[-1], to_images=True)
        if ctx.needs_gradient[1]:
            weight_gradient = empty(*weight.shape)
            multiply(gradient, patches, weight_gradient, (width_out, width_in, rows), (TRANSPOSED, PLAIN))
        return select_gradients(
            ctx.needs_gradient,
            image_gradient,
            weight_gradient,
            column_sums(gradient) if ctx.needs_gradient[2] else None,
        )


def patches(images, weight, bias) -> paddle.Tensor:
    """Compute a convolution of adjacent square patches: (batch, in, height, width) to (batch, rows * columns, out).

    Height and width are multiples of ``side``; ``weight`` is (out, in, side, side), ``bias`` (out).
    """
    images = as_contiguous(images)
    return (
        differentiable(_PatchesFunction, images, weight, bias)
        if paddle.is_grad_enabled()
        else _embed(images, weight, bias)[1]
    )
