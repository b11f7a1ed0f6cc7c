"""RF-DETR Seg's masks: products of each query's vector with the vectors of a map's cells.

Source: Robinson et al., RF-DETR, arXiv 2511.09554, with the ``SegmentationHead`` of roboflow/rf-detr, whose names the
parameters have.
"""

from collections.abc import Sequence
from typing import NamedTuple

import paddle
from paddle import nn

from ...mask_queries.mask_logits import resize
from ...models.layers import GELU, ChannelsLastConv, ChannelsLastDepthwiseConv, LayerNorm
from ..detector import dense, single_or_double, uniform, zeros

_CELL_EPSILON, _QUERY_EPSILON = 1e-6, 1e-5  # of the norms


class MaskVectors(NamedTuple):
    """What the masks of one head's queries are made of, of N images and Q queries."""

    queries: paddle.Tensor  # (N, Q, dim)
    cells: paddle.Tensor  # (N, height, width, dim)
    bias: paddle.Tensor  # (N, Q, 1), all equal

    def logits(self) -> paddle.Tensor:
        """Return the logits of all masks, (N, Q, height, width), float32 or float64."""
        height, width = self.cells.shape[1:3]
        logits = single_or_double(paddle.matmul(self.queries, self.cells.flatten(1, 2), transpose_y=True))
        return (logits + self.bias.astype(logits.dtype)).reshape([-1, self.queries.shape[1], height, width])


class DepthwiseBlock(nn.Layer):
    """A depthwise convolution, a norm and a linear layer over channels, with a residual connection."""

    def __init__(self, dim: int):
        super().__init__()
        bound = 1 / 3  # PyTorch's default for nine weights
        self.dwconv = ChannelsLastDepthwiseConv(dim, 3, weight_attr=uniform(bound), bias_attr=uniform(bound))
        self.norm = LayerNorm(dim, epsilon=_CELL_EPSILON)
        self.pwconv1 = dense(dim, dim)
        self.act = GELU()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (batch, height, width, dim)."""
        return x + self.act(self.pwconv1(self.norm(self.dwconv(x))))


class QueryBlock(nn.Layer):
    """A norm and an MLP, with a residual connection."""

    def __init__(self, dim: int):
        super().__init__()
        self.norm_in = LayerNorm(dim, epsilon=_QUERY_EPSILON)
        self.layers = nn.Sequential(dense(dim, 4 * dim), GELU(), dense(4 * dim, dim))

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Apply the layers to (..., dim)."""
        return x + self.layers(self.norm_in(x))


class MaskHead(nn.Layer):
    """Makes the vectors of queries and of cells, a block for each decoder layer; other layers are shared by all."""

    def __init__(self, dim: int, blocks: int):
        super().__init__()
        self.blocks = nn.LayerList([DepthwiseBlock(dim) for _ in range(blocks)])
        bound = dim**-0.5
        attributes = {"weight_attr": uniform(bound), "bias_attr": uniform(bound)}
        self.spatial_features_proj = ChannelsLastConv(dim, dim, 1, **attributes)
        self.query_features_block = QueryBlock(dim)
        self.query_features_proj = dense(dim, dim)
        self.bias = self.create_parameter([1], attr=zeros())

    def last(self, x: paddle.Tensor, size: tuple[int, int], queries: paddle.Tensor) -> MaskVectors:
        """Return the vectors of the last decoder layer's ``queries`` (N, Q, dim); see ``forward``."""
        x = resize(x, size).transpose([0, 2, 3, 1])
        for block in self.blocks:
            x = block(x)
        return self._project(x, queries)

    def forward(
        self, x: paddle.Tensor, size: tuple[int, int], layers: Sequence[paddle.Tensor], selected: paddle.Tensor
    ) -> list[MaskVectors]:
        """Return the vectors of each layer's queries, and of the encoder's.

        Args:
            x: a map of the encoder, (N, dim, rows, columns).
            size: height and width of the masks.
            layers: (N, Q, dim) of each decoder layer.
            selected: (N, Q, dim), the encoder's cells.
        """
        x, parts = resize(x, size).transpose([0, 2, 3, 1]), []
        start = x
        for block, queries in zip(self.blocks, layers):
            x = block(x)
            parts.append(self._project(x, queries))
        return [*parts, self._project(start, selected)]

    def _project(self, x: paddle.Tensor, queries: paddle.Tensor) -> MaskVectors:
        queries = self.query_features_proj(self.query_features_block(queries))
        # Data parallelism overlooks parameters among outputs.
        bias = self.bias.astype(queries.dtype) + paddle.zeros_like(queries[..., :1])
        return MaskVectors(queries, self.spatial_features_proj(x), bias)
