"""Attention of all families: plain products, or one fused operation on a GPU."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...core.runtime.autocast import like_products
from ...core.runtime.errors import UserError
from .layers import MatrixProduct

Weights = Callable[[paddle.Tensor], paddle.Tensor]  # of attention weights, (batch, heads, tokens, tokens attended to)

_LARGEST_HEAD, _MULTIPLE = 192, 8  # channels of a head that flash attention takes; above, only some GPUs train
_LEAST_CAPABILITY = 8  # of the GPU: Ampere; Paddle 2.6 fails on older ones

_required: list[bool] = []  # one entry for each open ``attention``


def head_dim(name: str, dim: int, num_heads: int) -> int:
    """Compute the channels of one head; a ``UserError`` with ``name`` if the heads cannot share the channels."""
    if dim % num_heads:
        raise UserError(f"{name} {dim} is not divisible by its number of heads {num_heads}: change one")
    return dim // num_heads


class MultiHeadAttention(nn.Layer):
    """Base class of attention layers: it has what ``attend`` reads, and a subclass adds the projections.

    ``dropout`` is the rate after the last projection, ``attention_dropout`` on the attention weights.
    """

    def __init__(self, num_heads: int, head_dim: int, dropout: float, attention_dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5
        self.query_key = MatrixProduct(transpose_y=True)
        self.attention_value = MatrixProduct()
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.dropout = nn.Dropout(dropout)

    @property
    def is_capturable(self) -> bool:
        """Return whether captured passes repeat the layer: fused attention would drop the same in each launch."""
        return not self.attention_dropout.p

    def heads(self, x):
        """Split (batch, tokens, n * heads * head_dim) into (batch, tokens, n * heads, head_dim)."""
        _, tokens, channels = x.shape
        return x.reshape([-1, tokens, channels // self.head_dim, self.head_dim])


def attend(
    layer: MultiHeadAttention,
    *packed: paddle.Tensor,
    before: Weights | None = None,
    after: Weights | None = None,
    mask: paddle.Tensor | None = None,
) -> paddle.Tensor:
    """Compute multi-head attention, ``after(softmax(before(scale * q k^T))) v`` with dropout on the weights.

    On a GPU in half precision it is one fused operation if no function changes the weights; its dropout then draws
    other random numbers. The plain product is the reference and computes everything else.

    Args:
        packed: q, k and v, in one to three tensors (batch, tokens, n * heads, head_dim) with n of them side by side.
        before, after: functions that change the weights before and after the softmax.
        mask: (batch, 1, n, tokens attended to), added to the weights of the first n tokens before the softmax; the
            other tokens attend to all in an operation of their own, so that no mask has tokens x tokens numbers.

    Returns:
        (batch, tokens of q, heads * head_dim).
    """
    inputs: list[paddle.Tensor] = [like_products(part) for part in packed]
    is_fused = before is None and after is None and _is_fused(layer, inputs[0])
    if is_fused:
        q, k, v = _unpack(inputs, 2, layer.num_heads)  # the operation's scale is ours
        compute, axis = _attend_fused, 1
    else:
        # One transposition for q, k and v together, then a split of whole heads: the cheapest order measured.
        q, k, v = _unpack([part.transpose([0, 2, 1, 3]) for part in inputs], 1, layer.num_heads)
        compute, axis = functools.partial(_attend_plainly, before=before, after=after), 2
    if mask is None:
        return compute(layer, q, k, v)
    rows = [mask.shape[2], q.shape[axis] - mask.shape[2]]
    first, others = paddle.split(q, rows, axis=axis)
    return paddle.concat([compute(layer, first, k, v, mask=mask), compute(layer, others, k, v)], axis=1)


def _attend_fused(layer: MultiHeadAttention, q, k, v, mask: paddle.Tensor | None = None) -> paddle.Tensor:
    """Attend by one operation, of (batch, tokens, heads, head_dim)."""
    dropout = layer.attention_dropout.p if layer.training else 0.0  # 2.6 drops weights in evaluation, too
    mask = None if mask is None else mask.astype(q.dtype).expand([-1, layer.num_heads, -1, -1])
    x = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, training=layer.training)
    return x.reshape([-1, q.shape[1], layer.num_heads * layer.head_dim])


def _attend_plainly(
    layer: MultiHeadAttention,
    q,
    k,
    v,
    mask: paddle.Tensor | None = None,
    before: Weights | None = None,
    after: Weights | None = None,
) -> paddle.Tensor:
    """Attend by products, of (batch, heads, tokens, head_dim)."""
    weights = layer.query_key(q * layer.scale, k)  # (batch, heads, tokens, tokens attended to)
    weights = weights if mask is None else weights + mask.astype(weights.dtype)
    weights = F.softmax(weights if before is None else before(weights), axis=-1)
    weights = layer.attention_dropout(weights if after is None else after(weights))
    x = layer.attention_value(weights, v)  # (batch, heads, tokens, head_dim)
    return x.transpose([0, 2, 1, 3]).flatten(2)


@contextlib.contextmanager
def attention(fused: bool) -> Iterator[None]:
    """Force plain or fused attention inside the block, on any device, where nothing changes the attention weights.

    Without a GPU, Paddle computes fused attention by its own plain product.
    """
    _required.append(fused)
    try:
        yield
    finally:
        _required.pop()


def _unpack(packed: Sequence[paddle.Tensor], axis: int, heads: int) -> list[paddle.Tensor]:
    """Split tensors that hold n of q, k and v side by side on ``axis``."""
    unpacked: list[paddle.Tensor] = []
    for part in packed:
        number = part.shape[axis] // heads
        unpacked += part.split(number, axis) if number > 1 else [part]
    return unpacked


@paddle.jit.not_to_static
def _is_fused(layer: MultiHeadAttention, q: paddle.Tensor) -> bool:
    if not paddle.in_dynamic_mode():
        return False
    if _required:
        return _required[-1]
    if q.dtype not in (paddle.float16, paddle.bfloat16) or not q.place.is_gpu_place():
        return False
    product = layer.query_key
    is_watched = product._forward_pre_hooks or product._forward_post_hooks  # they count its multiplications
    if is_watched or layer.head_dim % _MULTIPLE or layer.head_dim > _LARGEST_HEAD:
        return False
    return paddle.device.cuda.get_device_capability()[0] >= _LEAST_CAPABILITY
