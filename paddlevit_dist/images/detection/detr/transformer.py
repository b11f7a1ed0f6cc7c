"""DETR's transformer: an encoder over the cells of a feature map, a decoder of queries that look at them.

Source: Carion et al., End-to-End Object Detection with Transformers, 2020 (appendix A.3). Norms follow the residual
sums. Linear weights are (in, out) as Paddle stores them.
"""

from __future__ import annotations

import functools
import math
from typing import Any, List, Optional

import paddle
from paddle import nn
from paddle.nn import functional as F

from ...kernels.layers import LayerNorm, Linear
from ...models.attention import attend
from ...models.layers import MatrixProduct, head_dim
from ..detector import uniform, zeros

_EPSILON = 1e-5


def xavier(inputs: int, outputs: int, together: int = 1) -> Linear:
    """A linear layer with Xavier-uniform weights and zero bias.

    Args:
        together: layers that the authors keep as one of ``together * outputs``, whose weights are drawn as its.
    """
    bound = math.sqrt(6.0 / (inputs + together * outputs))
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=zeros())


class Attention(nn.Layer):
    """Multi-head attention of queries to keys that have their own values."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim("EMBED_DIM", dim, num_heads)
        self.scale = self.head_dim**-0.5
        self.q_proj, self.k_proj, self.v_proj = (xavier(dim, dim, together=3) for _ in range(3))
        self.out_proj = xavier(dim, dim)
        self.query_key = MatrixProduct(transpose_y=True)
        self.attention_value = MatrixProduct()
        self.attention_dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, bias: Optional[paddle.Tensor] = None):
        """(batch, queries, dim) of queries (batch, queries, dim), keys and values (batch, keys, dim); ``bias`` (batch,
        1, 1, keys) is added before the softmax."""
        parts = [
            layer(x).reshape([-1, x.shape[1], self.num_heads, self.head_dim])
            for layer, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        ]
        before = None if bias is None else functools.partial(_biased, bias=bias)
        return self.out_proj(attend(self, *parts, before=before))


def _biased(weights, bias: paddle.Tensor):
    return weights + bias.astype(weights.dtype)


class _Layer(nn.Layer):
    """What the layers of encoder and decoder share: self-attention and an MLP with a ReLU."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__()
        self.self_attn = Attention(dim, num_heads, dropout)
        self.linear1, self.linear2 = xavier(dim, feedforward), xavier(feedforward, dim)
        self.norm1, self.norm2 = LayerNorm(dim, epsilon=_EPSILON), LayerNorm(dim, epsilon=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def mlp(self, x):
        return self.dropout(self.linear2(self.dropout(F.relu(self.linear1(x)))))


class EncoderLayer(_Layer):
    """Cells look at each other; where they are is added to queries and keys."""

    def forward(self, x, position, bias: Optional[paddle.Tensor] = None):
        """(batch, cells, dim) of the same; ``position`` (batch or 1, cells, dim), ``bias`` (batch, 1, 1, cells)."""
        placed = x + position
        x = self.norm1(x + self.dropout(self.self_attn(placed, placed, x, bias)))
        return self.norm2(x + self.mlp(x))


class DecoderLayer(_Layer):
    """Queries look at each other, then at the cells."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__(dim, num_heads, feedforward, dropout)
        self.multihead_attn = Attention(dim, num_heads, dropout)
        self.norm3 = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, queries, keys, memory, bias: Optional[paddle.Tensor] = None):
        """(batch, queries, dim) of ``x``.

        Args:
            x: (batch, queries, dim).
            queries: what each query is, added to ``x`` wherever it asks, (1, queries, dim).
            keys, memory: the encoder's output with and without positions, (batch, cells, dim).
            bias: (batch, 1, 1, cells).
        """
        placed = x + queries
        x = self.norm1(x + self.dropout(self.self_attn(placed, placed, x)))
        x = self.norm2(x + self.dropout(self.multihead_attn(x + queries, keys, memory, bias)))
        return self.norm3(x + self.mlp(x))


class Encoder(nn.Layer):
    def __init__(self, layers: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([EncoderLayer(*layer) for _ in range(layers)])

    def forward(self, x, position, bias: Optional[paddle.Tensor] = None):
        for layer in self.layers:
            x = layer(x, position, bias)
        return x  # (batch, cells, dim)


class Decoder(nn.Layer):
    """``norm`` is applied to the output of each layer for the heads; the next layer has it without."""

    def __init__(self, layers: int, dim: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([DecoderLayer(dim, *layer) for _ in range(layers)])
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, start, queries, position, memory, bias: Optional[paddle.Tensor] = None):
        """(layers, batch, queries, dim).

        Args:
            start: what queries hold at first, (batch, queries, dim).
        """
        keys, x = memory + position, start
        outputs: List[paddle.Tensor] = []
        for layer in self.layers:
            x = layer(x, queries, keys, memory, bias)
            outputs.append(x)
        return self.norm(paddle.stack(outputs))


class Transformer(nn.Layer):
    """The encoder and the decoder, under the names of the authors."""

    def __init__(
        self, dim: int, num_heads: int, feedforward: int, dropout: float, encoder_layers: int, decoder_layers: int
    ):
        super().__init__()
        layer = (dim, num_heads, feedforward, dropout)
        self.encoder = Encoder(encoder_layers, *layer)
        self.decoder = Decoder(decoder_layers, *layer)
