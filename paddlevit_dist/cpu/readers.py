"""The last block of a transformer of which only the first tokens are read, as a class token: x[:, :r] + f(norm(x)).

All tokens are attended to, but queries, projection and what comes after are computed for the tokens that are read: the
others' would be thrown away, and their gradients are zero. See ``branches.py`` for the rest.
"""

from typing import Any

import paddle
from paddle.autograd import PyLayer

from . import exponential_loops, row_loops
from .branches import Heads, Held, into_branch, joined
from .functions import (
    address,
    by_input,
    by_weight,
    chosen,
    column_sums,
    differentiable,
    in_order,
    layer_norm_backward,
    layer_norm_forward,
    linear_forward,
    rows_of,
    wanted,
    with_graph,
)
from .memory import PLAIN, TURNED, empty, product


def _leading(x, readers: int):
    """A copy of the first tokens of each item."""
    return in_order(x[:, :readers])


def _project(normal, first, weight, bias):
    """Queries of the tokens that are read, keys and values of all, from the columns of one weight."""
    (width_in, full), number = weight.shape, product()
    q, kv = empty(*first.shape[:-1], full // 3), empty(*normal.shape[:-1], full // 3 * 2)
    for x, out, column in ((first, q, 0), (normal, kv, full // 3)):
        rows, columns = rows_of(x), out.shape[-1]
        if bias is not None:
            row_loops.add_bias(0, address(bias) + 4 * column, address(out), rows, columns)
        beta, sizes = 0.0 if bias is None else 1.0, (rows, columns, width_in)
        number(address(x), address(weight) + 4 * column, address(out), sizes, beta=beta, widths=(0, full, 0))
    return q, kv


def _by_projection(q_gradient, kv_gradient, normal, first, weight):
    """The gradients by ``normal`` and by the weight of ``_project``."""
    (width_in, full), number = weight.shape, product()
    of_first, of_normal, of_weight = empty(*first.shape), empty(*normal.shape), empty(*weight.shape)
    parts = (q_gradient, first, of_first, 0), (kv_gradient, normal, of_normal, full // 3)
    for gradient, x, out, column in parts:
        rows, columns, place = rows_of(gradient), gradient.shape[-1], 4 * column
        sizes = rows, width_in, columns
        number(address(gradient), address(weight) + place, address(out), sizes, (PLAIN, TURNED), 0.0, (0, full, 0))
        sizes = width_in, columns, rows
        number(address(x), address(gradient), address(of_weight) + place, sizes, (TURNED, PLAIN), 0.0, (0, 0, full))
    items = first.shape[0]
    row_loops.add_leading(address(of_first), address(of_normal), items, first.size // items, normal.size // items)
    return of_normal, of_weight


def _attend(q, kv, heads: Heads):
    """What the queries' tokens attend to, and the softmax (items, heads, readers, tokens)."""
    (items, readers, _), tokens = q.shape, kv.shape[1]
    out, weights = empty(*q.shape), empty(items, heads.count, readers, tokens)
    places = [address(tensor) for tensor in (q, kv, weights, out)]
    sizes = items, tokens, readers, heads.count, heads.dim
    exponential_loops.attention_of_some(product().pointer, *places, *sizes, heads.scale)
    return out, weights


def _attend_backward(gradient, q, kv, weights, heads: Heads):
    """The gradients by ``q`` and ``kv``."""
    of_q, of_kv = empty(*q.shape), empty(*kv.shape)
    places = [address(tensor) for tensor in (gradient, q, kv, weights, of_q, of_kv)]
    (items, readers, _), tokens = q.shape, kv.shape[1]
    sizes = items, tokens, readers, heads.count, heads.dim
    exponential_loops.attention_of_some_gradient(product().pointer, *places, *sizes, heads.scale)
    return of_q, of_kv


class _Attention(PyLayer):
    @staticmethod
    def forward(ctx: Any, q, kv, heads):
        out, weights = _attend(q, kv, heads)
        ctx.wanted, ctx.heads = wanted(q, kv), heads
        ctx.save_for_backward(q, kv, weights)
        return out

    @staticmethod
    @with_graph()
    def backward(ctx: Any, gradient):
        return chosen(ctx.wanted, *_attend_backward(in_order(gradient), *ctx.saved_tensor(), ctx.heads))


def attend(q, kv, heads: Heads) -> paddle.Tensor:
    """What queries (items, readers, channels) get from keys and values (items, tokens, 2 * channels), like ``q``."""
    q, kv = in_order(q), in_order(kv)
    return differentiable(_Attention, q, kv, heads) if paddle.is_grad_enabled() else _attend(q, kv, heads)[0]


class _FirstTokens(PyLayer):
    @staticmethod
    def forward(ctx: Any, x, norm_weight, norm_bias, weight1, weight2, bias2, bias1, epsilon, readers, heads, keep):
        normal, statistics = layer_norm_forward(x, norm_weight, norm_bias, epsilon, keeps=True)
        first = _leading(normal, readers)
        q, kv = _project(normal, first, weight1, bias1)
        attended, weights = _attend(q, kv, heads)
        ctx.wanted = wanted(x, norm_weight, norm_bias, weight1, weight2, bias2, bias1)
        ctx.has_bias, ctx.heads, ctx.keep = bias1 is not None, heads, keep
        ctx.save_for_backward(x, statistics, norm_weight, normal, first, weight1, q, kv, weights, attended, weight2)
        base = _leading(x, readers)
        return joined(base, lambda base: linear_forward(attended, weight2, bias2, base), keep and keep.tensor)

    @staticmethod
    @with_graph()
    def backward(ctx: Any, gradient):
        x, statistics, norm_weight, normal, first, weight1, q, kv, weights, attended, weight2 = ctx.saved_tensor()
        want, gradient, heads = ctx.wanted, in_order(gradient), ctx.heads
        entering = into_branch(gradient, ctx.keep and ctx.keep.tensor)
        of_attended, items = by_input(entering, weight2, attended.shape), q.shape[0]
        of_q, of_kv = _attend_backward(of_attended, q, kv, weights, heads)
        of_normal, of_weight1 = _by_projection(of_q, of_kv, normal, first, weight1)
        of_x, of_norm = layer_norm_backward(of_normal, x, statistics, norm_weight)
        row_loops.add_leading(address(gradient), address(of_x), items, gradient.size // items, x.size // items)
        gradients = chosen(
            want,
            of_x,
            of_norm[0],
            of_norm[1],
            of_weight1,
            by_weight(attended, entering, weight2) if want[4] else None,
            column_sums(entering) if want[5] else None,
            paddle.concat([column_sums(of_q), column_sums(of_kv)]) if want[6] else None,
        )
        return gradients[: 6 + ctx.has_bias]


def attention(x, readers: int, norm, qkv, projection, heads: Heads, keep: paddle.Tensor | None = None):
    """The first ``readers`` tokens (items, readers, channels) of what ``branches.attention`` returns.

    Args:
        x: (items, tokens, channels); the others are those of ``branches.attention``, with one window.
    """
    x = in_order(x)
    if paddle.is_grad_enabled():
        parameters = norm.weight, norm.bias, qkv.weight, projection.weight, projection.bias, qkv.bias
        held = keep if keep is None else Held(keep)
        return differentiable(_FirstTokens, x, *parameters, norm._epsilon, readers, heads, held)
    normal, _ = layer_norm_forward(x, norm.weight, norm.bias, norm._epsilon, keeps=False)
    q, kv = _project(normal, _leading(normal, readers), qkv.weight, qkv.bias)
    attended, _ = _attend(q, kv, heads)
    base = _leading(x, readers)
    return joined(base, lambda base: linear_forward(attended, projection.weight, projection.bias, base), keep)
