"""Attention of queries to keys and values of other tokens, each read where its projection has written it."""

from typing import Any

import paddle
from paddle.autograd import PyLayer

from . import exponential_kernels
from .branches import Heads
from .functions import address, chosen, differentiable, in_order, wanted, with_graph
from .memory import empty, product


def _attend(q, kv, heads: Heads):
    """What the queries' tokens attend to, and the softmax (items, heads, queries, tokens)."""
    (items, queries, _), tokens = q.shape, kv.shape[1]
    out, weights = empty(*q.shape), empty(items, heads.count, queries, tokens)
    places = [address(tensor) for tensor in (q, kv, weights, out)]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.attention_of_some(product().pointer, *places, *sizes, heads.scale)
    return out, weights


def _attend_backward(gradient, q, kv, weights, heads: Heads):
    """The gradients by ``q`` and ``kv``."""
    of_q, of_kv = empty(*q.shape), empty(*kv.shape)
    places = [address(tensor) for tensor in (gradient, q, kv, weights, of_q, of_kv)]
    (items, queries, _), tokens = q.shape, kv.shape[1]
    sizes = items, tokens, queries, heads.count, heads.dim
    exponential_kernels.attention_of_some_gradient(product().pointer, *places, *sizes, heads.scale)
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
    """What queries (items, queries, channels) get from keys and values (items, tokens, 2 * channels), like ``q``."""
    q, kv = in_order(q), in_order(kv)
    return differentiable(_Attention, q, kv, heads) if paddle.is_grad_enabled() else _attend(q, kv, heads)[0]
