"""The residual branches of a transformer block, each as one differentiable function: x + f(norm(x)).

Between Paddle's matrix products, rows are passed over once for what several layers would do one after another, and
queries, keys and values are read where the projection has written them. ``accelerate.can_use_fast_path`` says when
these functions may be called; nothing is checked here.
"""

from typing import Any, NamedTuple

import paddle
from paddle.autograd import PyLayer

from . import exponential_kernels, row_kernels
from .functions import (
    address,
    by_input,
    by_weight,
    choose,
    column_sums,
    count_rows,
    differentiable,
    find_wanted,
    hidden_backward,
    hidden_forward,
    in_order,
    layer_norm_backward,
    layer_norm_forward,
    linear_forward,
    with_graph,
)
from .memory import empty, product


class HeadLayout(NamedTuple):
    """How the tokens of an item attend to one another."""

    count: int
    dim: int  # of one head
    scale: float
    windows: int = 1  # an item's tokens attend inside windows of equal size
    index: "UntrackedTensor | None" = (
        None  # int64 (windows, tokens): an item's rows in the order of windows; None: as they are
    )
    mask: "UntrackedTensor | None" = None  # float32 (windows, tokens, tokens), added before the softmax


class UntrackedTensor:
    """A tensor that Paddle does not see among a function's arguments."""

    def __init__(self, tensor: paddle.Tensor) -> None:
        self.tensor = tensor


def _count_held(held: UntrackedTensor | None) -> int:
    return 0 if held is None else held.tensor.data_ptr()


def _sizes(x: paddle.Tensor, heads: HeadLayout):
    """(items, windows, tokens of a window, heads, channels of a head)"""
    return x.shape[0], heads.windows, count_rows(x) // x.shape[0] // heads.windows, heads.count, heads.dim


def _attend(qkv, bias, heads: HeadLayout, keeps: bool):
    """Attention of (items, ..., 3 * channels), and the softmax if ``keeps``."""
    sizes = _sizes(qkv, heads)
    batch, windows, tokens, count, _ = sizes
    out = empty(*qkv.shape[:-1], qkv.shape[-1] // 3)
    weights = empty(batch * windows * count if keeps else 1, tokens, tokens)
    places = (
        address(qkv),
        address(weights),
        address(out),
        address(bias),
        _count_held(heads.mask),
        _count_held(heads.index),
    )
    exponential_kernels.attention(product().pointer, *places, *sizes, heads.scale, keeps)
    return out, weights


def _attend_backward(gradient, qkv, weights, bias_gradient, heads: HeadLayout):
    """The gradient by ``qkv``; ``bias_gradient`` is filled if there is one."""
    out = empty(*qkv.shape)
    places = [address(tensor) for tensor in (gradient, qkv, weights, out, bias_gradient)]
    exponential_kernels.attention_gradient(
        product().pointer, *places, _count_held(heads.index), *_sizes(qkv, heads), heads.scale
    )
    return out


def join(x, branch_of, keep):
    """x + branch, given a function from what the branch is added to (x or nothing) to the sum."""
    if keep is None:
        return branch_of(x)
    out = branch_of(None)
    row_kernels.add_scaled(address(x), address(out), address(keep), x.shape[0], x.size // x.shape[0])
    return out


def into_branch(gradient, keep):
    """Compute the part of the gradient that enters the branch."""
    if keep is None:
        return gradient
    out = gradient.clone()
    row_kernels.scale(address(out), address(keep), out.shape[0], out.size // out.shape[0])
    return out


class _MlpBranch(PyLayer):
    @staticmethod
    def forward(ctx, x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, epsilon, keep):
        normal, statistics = layer_norm_forward(x, norm_weight, norm_bias, epsilon, keeps=True)
        hidden, slope = hidden_forward(normal, weight1, bias1, keeps=True)
        ctx.wanted = find_wanted(x, norm_weight, norm_bias, weight1, bias1, weight2, bias2)
        ctx.keep = keep
        ctx.save_for_backward(x, statistics, norm_weight, normal, weight1, hidden, slope, weight2)
        return join(x, lambda base: linear_forward(hidden, weight2, bias2, base), keep and keep.tensor)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        x, statistics, norm_weight, normal, weight1, hidden, slope, weight2 = ctx.saved_tensor()
        want, gradient = ctx.wanted, in_order(gradient)
        entering = into_branch(gradient, ctx.keep and ctx.keep.tensor)
        inner, bias1_gradient = hidden_backward(entering, weight2, slope, hidden)
        of_norm = of_x = None
        if any(want[:3]):
            of_normal = by_input(inner, weight1, x.shape)
            of_x, of_norm = layer_norm_backward(of_normal, x, statistics, norm_weight, gradient)
        return choose(
            want,
            of_x,
            of_norm[0] if want[1] else None,
            of_norm[1] if want[2] else None,
            by_weight(normal, inner, weight1) if want[3] else None,
            bias1_gradient,
            by_weight(hidden, entering, weight2) if want[5] else None,
            column_sums(entering) if want[6] else None,
        )


def mlp(x, norm, first, second, keep: paddle.Tensor | None = None) -> paddle.Tensor:
    """x + keep * second(GELU(first(norm(x)))), along the last axis.

    Args:
        norm, first, second: a LayerNorm and two Linear layers.
        keep: (items, 1, ...) factor of each item's branch, without gradient; None for 1.
    """
    x = in_order(x)
    parameters = norm.weight, norm.bias, first.weight, first.bias, second.weight, second.bias
    if paddle.is_grad_enabled():
        return differentiable(
            _MlpBranch, x, *parameters, norm._epsilon, keep if keep is None else UntrackedTensor(keep)
        )
    normal, _ = layer_norm_forward(x, norm.weight, norm.bias, norm._epsilon, keeps=False)
    hidden, _ = hidden_forward(normal, first.weight, first.bias, keeps=False)
    return join(x, lambda base: linear_forward(hidden, second.weight, second.bias, base), keep)


class _AttentionBranch(PyLayer):
    @staticmethod
    def forward(ctx, x, norm_weight, norm_bias, weight1, weight2, bias2, bias1, added, epsilon, heads, keep):
        normal, statistics = layer_norm_forward(x, norm_weight, norm_bias, epsilon, keeps=True)
        qkv = linear_forward(normal, weight1, bias1)
        attended, weights = _attend(qkv, added, heads, keeps=True)
        ctx.wanted = find_wanted(x, norm_weight, norm_bias, weight1, weight2, bias2, bias1, added)
        ctx.given = [True] * 6 + [bias1 is not None, added is not None]
        ctx.heads, ctx.keep = heads, keep
        ctx.save_for_backward(x, statistics, norm_weight, normal, weight1, qkv, weights, attended, weight2)
        return join(x, lambda base: linear_forward(attended, weight2, bias2, base), keep and keep.tensor)

    @staticmethod
    @with_graph()
    def backward(ctx, gradient):
        x, statistics, norm_weight, normal, weight1, qkv, weights, attended, weight2 = ctx.saved_tensor()
        want, gradient, heads = ctx.wanted, in_order(gradient), ctx.heads
        entering = into_branch(gradient, ctx.keep and ctx.keep.tensor)
        of_added = empty(heads.count, *weights.shape[1:]) if want[7] else None
        of_qkv = _attend_backward(by_input(entering, weight2, attended.shape), qkv, weights, of_added, heads)
        of_norm = of_x = None
        if any(want[:3]):
            of_normal = by_input(of_qkv, weight1, x.shape)
            of_x, of_norm = layer_norm_backward(of_normal, x, statistics, norm_weight, gradient)
        gradients = choose(
            want,
            of_x,
            of_norm[0] if want[1] else None,
            of_norm[1] if want[2] else None,
            by_weight(normal, of_qkv, weight1) if want[3] else None,
            by_weight(attended, entering, weight2) if want[4] else None,
            column_sums(entering) if want[5] else None,
            column_sums(of_qkv) if want[6] else None,
            of_added,
        )
        return tuple(value for value, is_given in zip(gradients, ctx.given) if is_given)


def attention(
    x, norm, qkv, projection, heads: HeadLayout, bias=None, keep: paddle.Tensor | None = None
) -> paddle.Tensor:
    """x + keep * projection(attention(qkv(norm(x)))), every token of a window attending to all of it.

    Args:
        x: (items, ..., channels), an item's tokens in one or more axes.
        norm, qkv, projection: a LayerNorm and two Linear layers, from channels to 3 * channels (queries, keys, values
            of all heads) and back to channels; ``qkv`` may have no bias.
        bias: (heads, tokens, tokens), added before the softmax.
        keep: (items, 1, ...) factor of each item's branch, without gradient; None for 1.
    """
    x, bias = in_order(x), bias if bias is None else in_order(bias)
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
    normal, _ = layer_norm_forward(x, norm.weight, norm.bias, norm._epsilon, keeps=False)
    attended, _ = _attend(linear_forward(normal, qkv.weight, qkv.bias), bias, heads, keeps=False)
    return join(x, lambda base: linear_forward(attended, projection.weight, projection.bias, base), keep)


# ---- attention of queries to keys and values of other tokens, each read where its projection has written it ----------


def _attend_to(q, kv, heads: HeadLayout):
    """Compute what the queries' tokens attend to, and the softmax (items, heads, queries, tokens)."""
    (items, queries, _), tokens = q.shape, kv.shape[1]
    out, weights = empty(*q.shape), empty(items, heads.count, queries, tokens)
    places = [address(tensor) for tensor in (q, kv, weights, out)]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.attention_of_some(product().pointer, *places, *sizes, heads.scale)
    return out, weights


def _attend_to_backward(gradient, q, kv, weights, heads: HeadLayout):
    """The gradients by ``q`` and ``kv``."""
    of_q, of_kv = empty(*q.shape), empty(*kv.shape)
    places = [address(tensor) for tensor in (gradient, q, kv, weights, of_q, of_kv)]
    (items, queries, _), tokens = q.shape, kv.shape[1]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.attention_of_some_gradient(product().pointer, *places, *sizes, heads.scale)
    return of_q, of_kv


class _AttentionTo(PyLayer):
    @staticmethod
    def forward(ctx: Any, q, kv, heads):
        out, weights = _attend_to(q, kv, heads)
        ctx.wanted, ctx.heads = find_wanted(q, kv), heads
        ctx.save_for_backward(q, kv, weights)
        return out

    @staticmethod
    @with_graph()
    def backward(ctx: Any, gradient):
        return choose(ctx.wanted, *_attend_to_backward(in_order(gradient), *ctx.saved_tensor(), ctx.heads))


def attend(q, kv, heads: HeadLayout) -> paddle.Tensor:
    """Compute what queries (items, queries, channels) get of keys, values (items, tokens, 2 * channels), like ``q``."""
    q, kv = in_order(q), in_order(kv)
    return differentiable(_AttentionTo, q, kv, heads) if paddle.is_grad_enabled() else _attend_to(q, kv, heads)[0]
