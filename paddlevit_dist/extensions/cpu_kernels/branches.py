"""Residual branches of a transformer block as differentiable functions: x + f(norm(x)).

Between Paddle's matrix products, one pass over the rows does the work of several layers. Queries, keys and values are
read where the projection wrote them. Inputs are not checked: see ``accelerate.can_use_fast_path``.
"""

from typing import NamedTuple

import paddle
from paddle.autograd import PyLayer

from . import exponential_kernels, row_kernels
from .functions import (
    address,
    as_contiguous,
    column_sums,
    compute_input_gradient,
    compute_weight_gradient,
    count_rows,
    differentiable,
    hidden_backward,
    hidden_forward,
    layer_norm_backward,
    layer_norm_forward,
    linear_forward,
    needs_gradients,
    select_gradients,
    with_graph,
)
from .memory import empty, require_product


class HeadLayout(NamedTuple):
    """Layout of heads and windows in an attention."""

    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    dim: int  # of one head
    scale: float
    windows: int = 1  # windows of equal size, inside which an item's tokens attend
    # int64 (windows, tokens): an item's rows in the order of windows; None: unchanged
    index: "UntrackedTensor | None" = None  # type: ignore[assignment]  # hides tuple.index, which is not used
    mask: "UntrackedTensor | None" = None  # float32 (windows, tokens, tokens), added before the softmax


class UntrackedTensor:
    """A tensor that Paddle does not detect among a function's arguments."""

    def __init__(self, tensor: paddle.Tensor) -> None:
        self.tensor = tensor


def _untracked_address(untracked: UntrackedTensor | None) -> int:
    return 0 if untracked is None else untracked.tensor.data_ptr()


def _sizes(x: paddle.Tensor, heads: HeadLayout):
    """Return (items, windows, tokens of a window, heads, channels of a head)."""
    return x.shape[0], heads.windows, count_rows(x) // x.shape[0] // heads.windows, heads.count, heads.dim


def _attend(qkv, bias, heads: HeadLayout, needs_weights: bool):
    """Compute the attention of (items, ..., 3 * channels), and its weights if ``needs_weights``."""
    sizes = _sizes(qkv, heads)
    batch, windows, tokens, count, _ = sizes
    out = empty(*qkv.shape[:-1], qkv.shape[-1] // 3)
    weights = empty(batch * windows * count if needs_weights else 1, tokens, tokens)
    addresses = (
        address(qkv),
        address(weights),
        address(out),
        address(bias),
        _untracked_address(heads.mask),
        _untracked_address(heads.index),
    )
    exponential_kernels.attention(require_product().pointer, *addresses, *sizes, heads.scale, needs_weights)
    return out, weights


def _attend_backward(gradient, qkv, weights, bias_gradient, heads: HeadLayout):
    """Compute the gradient by ``qkv``; ``bias_gradient`` is filled unless it is None."""
    out = empty(*qkv.shape)
    addresses = [address(tensor) for tensor in (gradient, qkv, weights, out, bias_gradient)]
    exponential_kernels.attention_gradient(
        require_product().pointer, *addresses, _untracked_address(heads.index), *_sizes(qkv, heads), heads.scale
    )
    return out


def add_branch(x, compute_branch, keep):
    """Return x + keep * branch; ``compute_branch`` returns the branch plus its argument, x or None."""
    if keep is None:
        return compute_branch(x)
    out = compute_branch(None)
    row_kernels.add_scaled(address(x), address(out), address(keep), x.shape[0], x.size // x.shape[0])
    return out


def branch_gradient(gradient, keep):
    """Compute the part of the gradient that enters the branch."""
    if keep is None:
        return gradient
    out = gradient.clone()
    row_kernels.scale(address(out), address(keep), out.shape[0], out.size // out.shape[0])
    return out


class _MlpBranch(PyLayer):
    @staticmethod
    def forward(ctx, x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, epsilon, keep):
        normal, statistics = layer_norm_forward(x, norm_weight, norm_bias, epsilon, needs_statistics=True)
        hidden, slope = hidden_forward(normal, weight1, bias1, needs_slope=True)
        ctx.needs_gradient = needs_gradients(x, norm_weight, norm_bias, weight1, bias1, weight2, bias2)
        ctx.keep = keep
        ctx.save_for_backward(x, statistics, norm_weight, normal, weight1, hidden, slope, weight2)
        return add_branch(x, lambda base: linear_forward(hidden, weight2, bias2, base), keep and keep.tensor)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        x, statistics, norm_weight, normal, weight1, hidden, slope, weight2 = ctx.saved_tensor()
        needs, gradient = ctx.needs_gradient, as_contiguous(gradient)
        entering = branch_gradient(gradient, ctx.keep and ctx.keep.tensor)
        inner, bias1_gradient = hidden_backward(entering, weight2, slope, hidden)
        norm_gradients = x_gradient = None
        if any(needs[:3]):
            normal_gradient = compute_input_gradient(inner, weight1, x.shape)
            x_gradient, norm_gradients = layer_norm_backward(normal_gradient, x, statistics, norm_weight, gradient)
        return select_gradients(
            needs,
            x_gradient,
            norm_gradients[0] if needs[1] else None,
            norm_gradients[1] if needs[2] else None,
            compute_weight_gradient(normal, inner, weight1) if needs[3] else None,
            bias1_gradient,
            compute_weight_gradient(hidden, entering, weight2) if needs[5] else None,
            column_sums(entering) if needs[6] else None,
        )


def mlp(x, norm, first, second, keep: paddle.Tensor | None = None) -> paddle.Tensor:
    """Compute x + keep * second(GELU(first(norm(x)))) along the last axis of ``x``, (items, ..., channels).

    ``keep``: (items, 1, ...) factor of each item's branch, without gradient; None for 1.
    """
    x = as_contiguous(x)
    parameters = norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias
    if paddle.is_grad_enabled():
        return differentiable(
            _MlpBranch, x, *parameters, norm._epsilon, keep if keep is None else UntrackedTensor(keep)
        )
    normal, _ = layer_norm_forward(x, norm.weight, norm.bias, norm._epsilon, needs_statistics=False)
    hidden, _ = hidden_forward(normal, first.weight, first.bias, needs_slope=False)
    return add_branch(x, lambda base: linear_forward(hidden, second.weight, second.bias, base), keep)


class _AttentionBranch(PyLayer):
    @staticmethod
    def forward(ctx, x, norm_weight, norm_bias, weight1, weight2, bias2, bias1, bias, epsilon, heads, keep):
        normal, statistics = layer_norm_forward(x, norm_weight, norm_bias, epsilon, needs_statistics=True)
        qkv = linear_forward(normal, weight1, bias1)
        attended, weights = _attend(qkv, bias, heads, needs_weights=True)
        ctx.needs_gradient = needs_gradients(x, norm_weight, norm_bias, weight1, weight2, bias2, bias1, bias)
        ctx.is_present = [True] * 6 + [bias1 is not None, bias is not None]
        ctx.heads, ctx.keep = heads, keep
        ctx.save_for_backward(x, statistics, norm_weight, normal, weight1, qkv, weights, attended, weight2)
        return add_branch(x, lambda base: linear_forward(attended, weight2, bias2, base), keep and keep.tensor)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        x, statistics, norm_weight, normal, weight1, qkv, weights, attended, weight2 = ctx.saved_tensor()
        needs, gradient, heads = ctx.needs_gradient, as_contiguous(gradient), ctx.heads
        entering = branch_gradient(gradient, ctx.keep and ctx.keep.tensor)
        bias_gradient = empty(heads.count, *weights.shape[1:]) if needs[7] else None
        qkv_gradient = _attend_backward(
            compute_input_gradient(entering, weight2, attended.shape), qkv, weights, bias_gradient, heads
        )
        norm_gradients = x_gradient = None
        if any(needs[:3]):
            normal_gradient = compute_input_gradient(qkv_gradient, weight1, x.shape)
            x_gradient, norm_gradients = layer_norm_backward(normal_gradient, x, statistics, norm_weight, gradient)
        gradients = select_gradients(
            needs,
            x_gradient,
            norm_gradients[0] if needs[1] else None,
            norm_gradients[1] if needs[2] else None,
            compute_weight_gradient(normal, qkv_gradient, weight1) if needs[3] else None,
            compute_weight_gradient(attended, entering, weight2) if needs[4] else None,
            column_sums(entering) if needs[5] else None,
            column_sums(qkv_gradient) if needs[6] else None,
            bias_gradient,
        )
        return tuple(value for value, is_given in zip(gradients, ctx.is_present) if is_given)


def attention(
    x, norm, qkv, projection, heads: HeadLayout, bias=None, keep: paddle.Tensor | None = None
) -> paddle.Tensor:
    """Compute x + keep * projection(attention(qkv(norm(x)))), where each token attends to its whole window.

    Args:
        x: (items, ..., channels), an item's tokens in one or more axes.
        qkv: Linear layer from channels to 3 * channels (queries, keys, values of all heads); may have no bias.
        bias: (heads, tokens, tokens), added before the softmax.
        keep: (items, 1, ...) factor of each item's branch, without gradient; None for 1.
    """
    x, bias = as_contiguous(x), bias if bias is None else as_contiguous(bias)
    if paddle.is_grad_enabled():
        parameters = norm.weight, norm.bias, qkv.weight, projection.weight, projection.bias, qkv.bias
        return differentiable(
            _AttentionBranch,
            x,
            *parameters,
            bias,
            norm._epsilon,
            heads,
            keep if keep is None else UntrackedTensor(keep),
        )
    normal, _ = layer_norm_forward(x, norm.weight, norm.bias, norm._epsilon, needs_statistics=False)
    attended, _ = _attend(linear_forward(normal, qkv.weight, qkv.bias), bias, heads, needs_weights=False)
    return add_branch(x, lambda base: linear_forward(attended, projection.weight, projection.bias, base), keep)


class _AttentionWithin(PyLayer):
    @staticmethod
    def forward(ctx, qkv, heads):
        out, weights = _attend(qkv, None, heads, needs_weights=True)
        ctx.heads = heads
        ctx.save_for_backward(qkv, weights)
        return out

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        qkv, weights = ctx.saved_tensor()
        return _attend_backward(as_contiguous(gradient), qkv, weights, None, ctx.heads)


def attend_within(qkv, heads: HeadLayout) -> paddle.Tensor:
    """Compute the attention (items, tokens, channels) of (items, tokens, 3 * channels), whose windows are in order."""
    qkv = as_contiguous(qkv)
    if paddle.is_grad_enabled() and not qkv.stop_gradient:
        return differentiable(_AttentionWithin, qkv, heads)
    return _attend(qkv, None, heads, needs_weights=False)[0]


def _attend_to(q, kv, heads: HeadLayout):
    """Compute the attention of queries, and the softmax (items, heads, queries, tokens)."""
    (items, queries, _), tokens = q.shape, kv.shape[1]
    out, weights = empty(*q.shape), empty(items, heads.count, queries, tokens)
    addresses = [address(tensor) for tensor in (q, kv, weights, out)]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.cross_attention(require_product().pointer, *addresses, *sizes, heads.scale)
    return out, weights


def _attend_to_backward(gradient, q, kv, weights, heads: HeadLayout):
    q_gradient, kv_gradient = empty(*q.shape), empty(*kv.shape)
    addresses = [address(tensor) for tensor in (gradient, q, kv, weights, q_gradient, kv_gradient)]
    (items, queries, _), tokens = q.shape, kv.shape[1]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.cross_attention_gradient(require_product().pointer, *addresses, *sizes, heads.scale)
    return q_gradient, kv_gradient


class _AttentionTo(PyLayer):
    @staticmethod
    def forward(ctx, q, kv, heads):
        out, weights = _attend_to(q, kv, heads)
        ctx.needs_gradient, ctx.heads = needs_gradients(q, kv), heads
        ctx.save_for_backward(q, kv, weights)
        return out

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        q, kv, weights = ctx.saved_tensor()
        gradients = _attend_to_backward(as_contiguous(gradient), q, kv, weights, ctx.heads)
        return select_gradients(ctx.needs_gradient, *gradients)


def attend(q, kv, heads: HeadLayout) -> paddle.Tensor:
    """Compute attention of queries (items, queries, channels) to keys and values (items, tokens, 2 * channels)."""
    q, kv = as_contiguous(q), as_contiguous(kv)
    return differentiable(_AttentionTo, q, kv, heads) if paddle.is_grad_enabled() else _attend_to(q, kv, heads)[0]
