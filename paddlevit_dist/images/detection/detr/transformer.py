"""DETR's transformer: an encoder over the cells of a feature map, which knows where these are, and a decoder of queries
that look at them, which may begin as points on a grid.

Source: Carion et al., End-to-End Object Detection with Transformers, 2020 (appendix A.3). Norms follow the residual
sums. Linear weights are (in, out) as Paddle stores them.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional as F

from ...models.attention import MultiHeadAttention, attend, head_dim
from ...models.layers import LayerNorm, Linear
from ..detector import dense, uniform, zeros

_TEMPERATURE = 10000.0


class HeadMlp(nn.Layer):
    """Linear layers with ReLUs between them; the last begins at zero if it ``starts_at_zero``."""

    def __init__(self, inputs: int, hidden: int, outputs: int, layers: int, starts_at_zero: bool = False):
        super().__init__()
        dims = [inputs, *[hidden] * (layers - 1), outputs]
        self.layers = nn.LayerList([dense(before, after) for before, after in zip(dims, dims[1:])])
        if starts_at_zero:
            for parameter in self.layers[-1].parameters():
                nn.initializer.Constant(0.0)(parameter)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class ValidCells(NamedTuple):
    """The rows and columns of a map that hold an image; what is padded lies at the right and the bottom.

    Attributes:
        rows: bool (N or 1, height).
        columns: bool (N or 1, width).
    """

    rows: paddle.Tensor
    columns: paddle.Tensor

    def padding(self) -> paddle.Tensor:
        """bool (N or 1, height, width), true where a map is padded."""
        return paddle.logical_not(paddle.logical_and(self.rows.unsqueeze(2), self.columns.unsqueeze(1)))


def find_valid_cells(
    sizes: paddle.Tensor | None, padded: tuple[int, int], grid: tuple[int, int], stride: int | None = None
) -> ValidCells:
    """Which cells of a map hold an image.

    Args:
        sizes: int64 (N, 2), height and width of each image in pixels; None: nothing is padded.
        padded: (height, width) of the batch in pixels.
        grid: (height, width) of the map.
        stride: None: a cell is the pixel that the authors' nearest resizing of the mask finds for it, which depends on
            the batch. A number: an image has ceil(pixels / stride) cells, as many as without the batch.
    """
    if sizes is None:
        return ValidCells(*(paddle.ones([1, cells], dtype="bool") for cells in grid))
    if stride is not None:
        sizes = (sizes + (stride - 1)) // stride
    sides = []
    for axis, (pixels, cells) in enumerate(zip(padded, grid)):
        source = paddle.arange(cells, dtype="int64")  # made on the device: nothing waits for a copy
        source = source if stride is not None else source * pixels // cells
        sides.append(source.unsqueeze(0) < sizes[:, axis : axis + 1].astype("int64"))
    return ValidCells(*sides)


def sine_embedding(cells: ValidCells, channels: int, dtype: str = "float32") -> paddle.Tensor:
    """The sine embedding of each cell, (N or 1, height * width, channels): the first half is the row's, the rest the
    column's.

    Source: DETR, appendix A.4, with the authors' normalization: positions count an image's cells from 1 and end at
    2 pi. A padded cell beside an image has position 0 on the axis that leads away from it.

    Args:
        channels: a multiple of 4.
        dtype: to compute in.
    """
    rows, columns = (side.astype(dtype) for side in cells)
    down, across = _positions(rows), _positions(columns)  # (N, height), (N, width)
    down = down.unsqueeze(2) * columns.unsqueeze(1)  # (N, height, width)
    across = across.unsqueeze(1) * rows.unsqueeze(2)  # (N, height, width)
    embedded = paddle.concat([waves(down, channels // 2), waves(across, channels // 2)], axis=-1)
    return embedded.flatten(1, 2)


def _positions(inside: paddle.Tensor) -> paddle.Tensor:
    """(N, cells): numbers of the cells from 1, scaled so that an image ends at 2 pi; what is padded counts as its last
    cell."""
    last = inside.sum(axis=1, keepdim=True)  # (N, 1)
    # ``cumsum`` of a single row would wait for a GPU.
    numbers = paddle.minimum(paddle.arange(1, inside.shape[1] + 1, dtype=inside.dtype), last)
    return numbers / (last + 1e-6) * (2 * math.pi)


def waves(position: paddle.Tensor, channels: int) -> paddle.Tensor:
    """(..., channels): sine and cosine in turn of ``position`` (...) over wavelengths that grow by pairs."""
    exponents = paddle.arange(0, channels, 2, dtype=position.dtype) / channels  # (channels / 2,)
    angles = position.unsqueeze(-1) / paddle.exp(exponents * math.log(_TEMPERATURE))
    return paddle.stack([paddle.sin(angles), paddle.cos(angles)], axis=-1).flatten(-2)


def grid_points(number: int) -> np.ndarray:
    """Row and column of points that fill an image evenly, float64 (number, 2), as shares of it from 0 to 1."""
    rows = max(round(math.sqrt(number)), 1)
    points = []
    for row, own in enumerate(np.array_split(np.arange(number), rows)):
        points += [((row + 0.5) / rows, (column + 0.5) / len(own)) for column in range(len(own))]
    return np.array(points)


class AnchorPoints(nn.Layer):
    """Lets queries begin at points, with what the encoder says there, and tells boxes from the points.

    So a query is near some object from the beginning, and a small network learns in minutes. Sources of the idea: Wang
    et al., Anchor DETR, 2022, arXiv 2109.07107, section 3.1; Yao et al., Efficient DETR, 2021, arXiv 2104.01318.
    """

    def __init__(self, number: int):
        super().__init__()
        self.register_buffer("points", paddle.to_tensor(grid_points(number), dtype=paddle.get_default_dtype()))

    def start(self, memory: paddle.Tensor, cells: ValidCells) -> paddle.Tensor:
        """Gather what the encoder's output (batch, cells, dim) holds at each image's points, (batch, queries, dim)."""
        width = cells.columns.shape[1]
        down, across = (side.astype(self.points.dtype).sum(axis=1, keepdim=True) for side in cells)  # (N or 1, 1)
        rows = paddle.floor(self.points[:, 0] * down)  # (N or 1, queries)
        places = rows * width + paddle.floor(self.points[:, 1] * across)
        first = paddle.arange(memory.shape[0], dtype="int64").unsqueeze(1) * memory.shape[1]
        places = places.astype("int64") + first  # (batch, queries)
        found = paddle.gather(memory.flatten(0, 1), places.flatten())
        return found.reshape([memory.shape[0], -1, memory.shape[2]])

    def forward(self, boxes):
        """Boxes (..., queries, 4) before the sigmoid, whose centers are told from the points."""
        centers = paddle.log(self.points / (1.0 - self.points)).flip(axis=-1).astype(boxes.dtype)  # across and down
        return paddle.concat([boxes[..., :2] + centers, boxes[..., 2:]], axis=-1)


class AtPoints(nn.initializer.Initializer):
    """Queries (number, dim) start as the sine embedding of their points."""

    def forward(self, var, block=None):
        number, dim = var.shape
        angles = paddle.to_tensor(grid_points(number) * (2 * math.pi), dtype=var.dtype)  # (number, 2)
        with paddle.no_grad():
            var.set_value(waves(angles, dim // 2).flatten(1))


_EPSILON = 1e-5


def xavier(inputs: int, outputs: int, together: int = 1) -> Linear:
    """A linear layer with Xavier-uniform weights and zero bias.

    Args:
        together: layers that the authors keep as one of ``together * outputs``, whose weights are drawn as its.
    """
    bound = math.sqrt(6.0 / (inputs + together * outputs))
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=zeros())


class QueryAttention(MultiHeadAttention):
    """Attention of queries to keys that have their own values."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__(num_heads, head_dim("EMBED_DIM", dim, num_heads), 0.0, attention_dropout=dropout)
        self.q_proj, self.k_proj, self.v_proj = (xavier(dim, dim, together=3) for _ in range(3))
        self.out_proj = xavier(dim, dim)

    def forward(self, query, key, value, bias: paddle.Tensor | None = None):
        """(batch, queries, dim) of queries (batch, queries, dim), keys and values (batch, keys, dim); ``bias`` (batch,
        1, 1, keys) is added before the softmax."""
        parts = (self.heads(part) for part in (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        before = None if bias is None else functools.partial(_add_bias, bias=bias)
        return self.out_proj(attend(self, *parts, before=before))


def _add_bias(weights, bias: paddle.Tensor):
    return weights + bias.astype(weights.dtype)


class _TransformerLayer(nn.Layer):
    """Common parts of the layers of encoder and decoder: self-attention and an MLP with a ReLU."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__()
        self.self_attn = QueryAttention(dim, num_heads, dropout)
        self.linear1, self.linear2 = xavier(dim, feedforward), xavier(feedforward, dim)
        self.norm1, self.norm2 = LayerNorm(dim, epsilon=_EPSILON), LayerNorm(dim, epsilon=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def mlp(self, x):
        return self.dropout(self.linear2(self.dropout(F.relu(self.linear1(x)))))


class EncoderLayer(_TransformerLayer):
    """Cells look at each other; where they are is added to queries and keys."""

    def forward(self, x, position, bias: paddle.Tensor | None = None):
        """(batch, cells, dim) of the same; ``position`` (batch or 1, cells, dim), ``bias`` (batch, 1, 1, cells)."""
        placed = x + position
        x = self.norm1(x + self.dropout(self.self_attn(placed, placed, x, bias)))
        return self.norm2(x + self.mlp(x))


class DetrDecoderLayer(_TransformerLayer):
    """Queries look at each other, then at the cells."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__(dim, num_heads, feedforward, dropout)
        self.multihead_attn = QueryAttention(dim, num_heads, dropout)
        self.norm3 = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, queries, keys, memory, bias: paddle.Tensor | None = None):
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


class DetrEncoder(nn.Layer):
    def __init__(self, layers: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([EncoderLayer(*layer) for _ in range(layers)])

    def forward(self, x, position, bias: paddle.Tensor | None = None):
        for layer in self.layers:
            x = layer(x, position, bias)
        return x  # (batch, cells, dim)


class DetrDecoder(nn.Layer):
    """``norm`` is applied to the output of each layer for the heads; the next layer has it without."""

    def __init__(self, layers: int, dim: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([DetrDecoderLayer(dim, *layer) for _ in range(layers)])
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, start, queries, position, memory, bias: paddle.Tensor | None = None):
        """(layers, batch, queries, dim).

        Args:
            start: what queries hold at first, (batch, queries, dim).
        """
        keys, x = memory + position, start
        outputs: list[paddle.Tensor] = []
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
        self.encoder = DetrEncoder(encoder_layers, *layer)
        self.decoder = DetrDecoder(decoder_layers, *layer)
