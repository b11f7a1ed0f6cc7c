"""Attention by Triton, forward and backward, from q, k and v as their product leaves them side by side.

No weight of attention is ever in memory: the backward pass computes them again from the logarithm of each row's sum.
In float32 products are rounded to TF32, as all products of a GPU are unless TRAIN.TF32 is false; sums are float32.
The gradients of a token's q, and of its k and v, are each written by one program: results do not change from run to
run.

Source: Dao, FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning, 2023, algorithms 1 and 2.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

from .launches import FLOAT32, TensorFactory
from .prepared import PreparedLaunch

CHANNELS = 16, 32, 64  # of a head: what was compared with float64 on an H200
CAPABILITY = 9, 0  # of the GPUs where it was timed, by ``TILES``


@triton.jit
def _product(a, b, total):
    """Return total + a b; float32 is rounded to TF32 first: the device would cut its last bits off."""
    if a.dtype == tl.float32:
        a = ((a.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
        b = ((b.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
    return tl.dot(a, b, total)


@triton.jit
def _load_rows(tensor, row, channel, step, tokens):
    """Return values (rows, channels) of a head, 0 behind the last token."""
    return tl.load(tensor + row[:, None] * step + channel[None, :], mask=(row < tokens)[:, None], other=0.0)


@triton.jit
def _store_rows(tensor, row, channel, step, tokens, values):
    place = tensor + row[:, None] * step + channel[None, :]
    tl.store(place, values.to(tensor.dtype.element_ty), mask=(row < tokens)[:, None])


@triton.jit
def attention(
    packed,
    out,
    log_sums,
    scale,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    channels: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
):
    """Compute out = softmax(scale q k^T) v of one head for ``rows_at_once`` tokens.

    ``packed`` is (items, tokens, 3, heads, channels), ``out`` (items, tokens, heads, channels). ``log_sums`` is
    (items * heads, tokens): of each row of scale q k^T, log2 of the sum of its exponents. ``scale`` contains log2(e).
    """
    item, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    width: tl.constexpr = heads * channels
    packed += item.to(tl.int64) * (3 * tokens * width) + head * channels
    out += item.to(tl.int64) * (tokens * width) + head * channels
    row, channel = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once), tl.arange(0, channels)
    q = _load_rows(packed, row, channel, 3 * width, tokens)
    largest = tl.full([rows_at_once], float("-inf"), tl.float32)
    sums = tl.zeros([rows_at_once], tl.float32)
    result = tl.zeros([rows_at_once, channels], tl.float32)
    for start in range(0, tokens, columns_at_once):
        column = start + tl.arange(0, columns_at_once)
        k = _load_rows(packed + width, column, channel, 3 * width, tokens)
        v = _load_rows(packed + 2 * width, column, channel, 3 * width, tokens)
        score = _product(q, tl.trans(k), tl.zeros([rows_at_once, columns_at_once], tl.float32)) * scale
        score = tl.where((column < tokens)[None, :], score, float("-inf"))
        now_largest = tl.maximum(largest, tl.max(score, 1))
        weight, factor = tl.exp2(score - now_largest[:, None]), tl.exp2(largest - now_largest)
        sums = sums * factor + tl.sum(weight, 1)
        result = _product(weight.to(v.dtype), v, result * factor[:, None])
        largest = now_largest
    _store_rows(out, row, channel, width, tokens, result / sums[:, None])
    tl.store(log_sums + tl.program_id(1) * tokens + row, largest + tl.log2(sums), mask=row < tokens)


@triton.jit
def attention_backward_rows(
    packed,
    out,
    log_sums,
    gradient,
    packed_gradient,
    along,
    scale,
    factor,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    channels: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
):
    """Compute the gradient of q of one head for ``rows_at_once`` tokens, and each row's sum of gradient * out.

    ``along`` (items * heads, tokens) keeps these sums; ``factor`` is the scale without log2(e).
    """
    item, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    width: tl.constexpr = heads * channels
    packed += item.to(tl.int64) * (3 * tokens * width) + head * channels
    packed_gradient += item.to(tl.int64) * (3 * tokens * width) + head * channels
    out += item.to(tl.int64) * (tokens * width) + head * channels
    gradient += item.to(tl.int64) * (tokens * width) + head * channels
    row, channel = tl.program_id(0) * rows_at_once + tl.arange(0, rows_at_once), tl.arange(0, channels)
    q = _load_rows(packed, row, channel, 3 * width, tokens)
    of_out = _load_rows(gradient, row, channel, width, tokens)
    row_along = tl.sum(of_out.to(tl.float32) * _load_rows(out, row, channel, width, tokens).to(tl.float32), 1)
    tl.store(along + tl.program_id(1) * tokens + row, row_along, mask=row < tokens)
    log_sum = tl.load(log_sums + tl.program_id(1) * tokens + row, mask=row < tokens, other=float("inf"))
    result = tl.zeros([rows_at_once, channels], tl.float32)
    for start in range(0, tokens, columns_at_once):
        column = start + tl.arange(0, columns_at_once)
        zeros = tl.zeros([rows_at_once, columns_at_once], tl.float32)
        k = _load_rows(packed + width, column, channel, 3 * width, tokens)
        v = _load_rows(packed + 2 * width, column, channel, 3 * width, tokens)
        weight = tl.exp2(_product(q, tl.trans(k), zeros) * scale - log_sum[:, None])
        of_score = weight * (_product(of_out, tl.trans(v), zeros) - row_along[:, None])
        result = _product(of_score.to(k.dtype), k, result)  # k is 0 behind the last token
    _store_rows(packed_gradient, row, channel, 3 * width, tokens, result * factor)


@triton.jit
def attention_backward_columns(
    packed,
    log_sums,
    gradient,
    packed_gradient,
    along,
    scale,
    factor,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    channels: tl.constexpr,
    rows_at_once: tl.constexpr,
    columns_at_once: tl.constexpr,
):
    """Compute the gradients of k and v of one head of ``columns_at_once`` tokens, after the gradient of q."""
    item, head = tl.program_id(1) // heads, tl.program_id(1) % heads
    width: tl.constexpr = heads * channels
    packed += item.to(tl.int64) * (3 * tokens * width) + head * channels
    packed_gradient += item.to(tl.int64) * (3 * tokens * width) + head * channels
    gradient += item.to(tl.int64) * (tokens * width) + head * channels
    column, channel = tl.program_id(0) * columns_at_once + tl.arange(0, columns_at_once), tl.arange(0, channels)
    k = _load_rows(packed + width, column, channel, 3 * width, tokens)
    v = _load_rows(packed + 2 * width, column, channel, 3 * width, tokens)
    of_k = tl.zeros([columns_at_once, channels], tl.float32)
    of_v = tl.zeros([columns_at_once, channels], tl.float32)
    for start in range(0, tokens, rows_at_once):
        row = start + tl.arange(0, rows_at_once)
        zeros = tl.zeros([columns_at_once, rows_at_once], tl.float32)
        q = _load_rows(packed, row, channel, 3 * width, tokens)
        of_out = _load_rows(gradient, row, channel, width, tokens)
        of_row = tl.program_id(1) * tokens + row
        row_along = tl.load(along + of_row, mask=row < tokens, other=0.0)
        log_sum = tl.load(log_sums + of_row, mask=row < tokens, other=float("inf"))
        weight = tl.exp2(_product(k, tl.trans(q), zeros) * scale - log_sum[None, :])  # (columns, rows)
        of_v = _product(weight.to(k.dtype), of_out, of_v)
        of_score = weight * (_product(v, tl.trans(of_out), zeros) - row_along[None, :])
        of_k = _product(of_score.to(k.dtype), q, of_k)
    _store_rows(packed_gradient + width, column, channel, 3 * width, tokens, of_k * factor)
    _store_rows(packed_gradient + 2 * width, column, channel, 3 * width, tokens, of_v)


class AttentionTile(NamedTuple):
    """How attention is divided: rows and columns of the weights that a program has at once, its warps and stages."""

    rows: int
    columns: int
    warps: int
    stages: int


class AttentionTiles(NamedTuple):
    """Tiles of the forward pass, of the gradients of q, and of the gradients of k and v."""

    forward: AttentionTile
    rows: AttentionTile
    columns: AttentionTile


# The fastest of 36 each on an H200, at 197 and 577 tokens and heads of 64 channels, by whether it is float32.
TILES = {
    True: AttentionTiles(AttentionTile(128, 32, 4, 1), AttentionTile(128, 32, 4, 1), AttentionTile(32, 128, 8, 1)),
    False: AttentionTiles(AttentionTile(64, 32, 4, 3), AttentionTile(64, 32, 4, 3), AttentionTile(32, 128, 8, 1)),
}


class PackedAttention:
    """Prepared launches of attention, and of its gradient.

    Args:
        framework: of the tensors.
        shape: of q, k and v together, (items, tokens, 3 * heads, channels): first all heads of q.
        dtype: of all tensors.
        scale: of q k^T.
        tiles: how the work is divided; None for the usual way.
    """

    def __init__(
        self,
        framework: TensorFactory,
        shape: Sequence[int],
        dtype: str,
        scale: float,
        tiles: AttentionTiles | None = None,
    ) -> None:
        items, tokens, packed_heads, channels = shape
        heads = packed_heads // 3
        tiles = tiles or TILES[dtype == FLOAT32]
        self._create = framework.prepare([items, tokens, heads * channels], dtype)
        self._create_packed = framework.prepare(shape, dtype)
        self._create_sums = framework.prepare([items * heads, tokens], FLOAT32)
        numbers = scale * math.log2(math.e), scale
        sizes = tokens, heads, channels
        in_rows, of_q, of_k = tiles
        self._start = PreparedLaunch(
            attention,
            (-(-tokens // in_rows.rows), items * heads),
            (dtype, dtype, FLOAT32),
            numbers[:1],
            (*sizes, in_rows.rows, in_rows.columns),
            in_rows.warps,
            in_rows.stages,
        )
        self._start_rows = PreparedLaunch(
            attention_backward_rows,
            (-(-tokens // of_q.rows), items * heads),
            (dtype, dtype, FLOAT32, dtype, dtype, FLOAT32),
            numbers,
            (*sizes, of_q.rows, of_q.columns),
            of_q.warps,
            of_q.stages,
        )
        self._start_columns = PreparedLaunch(
            attention_backward_columns,
            (-(-tokens // of_k.columns), items * heads),
            (dtype, FLOAT32, dtype, dtype, FLOAT32),
            numbers,
            (*sizes, of_k.rows, of_k.columns),
            of_k.warps,
            of_k.stages,
        )

    def __call__(self, packed: Any) -> tuple[Any, Any]:
        """Compute the result (items, tokens, heads * channels), and what its gradient needs of it."""
        out, log_sums = self._create(), self._create_sums()
        self._start(packed, out, log_sums)
        return out, log_sums

    def compute_gradient(self, packed: Any, out: Any, log_sums: Any, gradient: Any) -> Any:
        """Compute the gradient of q, k and v together from that of the result."""
        packed_gradient, along = self._create_packed(), self._create_sums()
        self._start_rows(packed, out, log_sums, gradient, packed_gradient, along)
        self._start_columns(packed, log_sums, gradient, packed_gradient, along)
        return packed_gradient
