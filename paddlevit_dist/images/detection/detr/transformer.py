"""DETR's transformer: an encoder over the cells of a feature map with positions, and a decoder of queries.

Queries may start at points on a grid. Source: Carion et al., End-to-End Object Detection with Transformers, 2020
(appendix A.3). Norms follow the residual sums. Linear weights are (in, out) as Paddle stores them.
"""

import functools
import math
from collections.abc import Callable
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
    """Linear layers with activations between them; the last is initialized with zeros if it ``starts_at_zero``."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        layers: int,
        starts_at_zero: bool = False,
        activation: Callable[[paddle.Tensor], paddle.Tensor] = F.relu,
    ):
        super().__init__()
        self._activation = activation
        dims = [inputs, *[hidden] * (layers - 1), outputs]
        self.layers = nn.LayerList([dense(before, after) for before, after in zip(dims, dims[1:])])
        if starts_at_zero:
            for parameter in self.layers[-1].parameters():
                nn.initializer.Constant(0.0)(parameter)

    def forward(self, x):
        """Apply the layers to (..., inputs)."""
        for layer in self.layers[:-1]:
            x = self._activation(layer(x))
        return self.layers[-1](x)


class ValidCells(NamedTuple):
    """Rows and columns of a map that are inside an image; padding is at the right and the bottom."""

    rows: paddle.Tensor  # bool (N or 1, height)
    columns: paddle.Tensor  # bool (N or 1, width)

    def padding(self) -> paddle.Tensor:
        """Return the mask of padded cells, bool (N or 1, height, width)."""
        return paddle.logical_not(paddle.logical_and(self.rows.unsqueeze(2), self.columns.unsqueeze(1)))


def find_valid_cells(
    sizes: paddle.Tensor | None, padded: tuple[int, int], grid: tuple[int, int], stride: int | None = None
) -> ValidCells:
    """Find the cells of a map that are inside an image.

    Args:
        sizes: int64 (N, 2), height and width of each image in pixels; None: no padding.
        padded: (height, width) of the batch in pixels.
        grid: (height, width) of the map.
        stride: None: cells follow from the authors' nearest-neighbor resizing of the mask, which depends on the batch.
            A number: an image has ceil(pixels / stride) cells in any batch.
    """
    if sizes is None:
        return ValidCells(*(paddle.ones([1, length], dtype="bool") for length in grid))
    if stride is not None:
        sizes = (sizes + (stride - 1)) // stride
    sides = []
    for axis, (pixels, cells) in enumerate(zip(padded, grid)):
        source = paddle.arange(cells, dtype="int64")  # created on the device without a copy
        source = source if stride is not None else source * pixels // cells
        sides.append(source.unsqueeze(0) < sizes[:, axis : axis + 1].astype("int64"))
    return ValidCells(*sides)


def sine_embedding(cells: ValidCells, channels: int, dtype: str = "float32") -> paddle.Tensor:
    """Return the sine embedding of each cell, (N or 1, height * width, channels): half its row's, half its column's.

    Source: DETR, appendix A.4, with the authors' normalization: positions count an image's cells from 1 and end at 2
    pi. A padded cell next to an image has position 0 on the axis that points away from it. ``channels`` is a multiple
    of 4.
    """
    rows, columns = (side.astype(dtype) for side in cells)
    down, across = _positions(rows), _positions(columns)  # (N, height), (N, width)
    down = down.unsqueeze(2) * columns.unsqueeze(1)  # (N, height, width)
    across = across.unsqueeze(1) * rows.unsqueeze(2)  # (N, height, width)
    embedded = paddle.concat([sine_waves(down, channels // 2), sine_waves(across, channels // 2)], axis=-1)
    return embedded.flatten(1, 2)


def _positions(inside: paddle.Tensor) -> paddle.Tensor:
    """Count cells from 1, scaled so that an image ends at 2 pi, (N, cells); padding has the last cell's number."""
    last = inside.sum(axis=1, keepdim=True)  # (N, 1)
    # ``cumsum`` of a single row waits for a GPU.
    numbers = paddle.minimum(paddle.arange(1, inside.shape[1] + 1, dtype=inside.dtype), last)
    return numbers / (last + 1e-6) * (2 * math.pi)


def sine_waves(position: paddle.Tensor, channels: int) -> paddle.Tensor:
    """Return alternating sine and cosine of ``position`` (...), with wavelengths growing by pair: (..., channels)."""
    exponents = paddle.arange(0, channels, 2, dtype=position.dtype) / channels  # (channels / 2,)
    angles = position.unsqueeze(-1) / paddle.exp(exponents * math.log(_TEMPERATURE))
    return paddle.stack([paddle.sin(angles), paddle.cos(angles)], axis=-1).flatten(-2)


def grid_points(number: int) -> np.ndarray:
    """Return row and column of points evenly filling an image, float64 (number, 2), as fractions from 0 to 1."""
    rows = max(round(math.sqrt(number)), 1)
    points = []
    for row, row_points in enumerate(np.array_split(np.arange(number), rows)):
        points += [((row + 0.5) / rows, (column + 0.5) / len(row_points)) for column in range(len(row_points))]
    return np.array(points)


class AnchorPoints(nn.Layer):
    """Starts queries at grid points with the encoder's outputs there, and adds the points to predicted boxes.

    A query is then near an object from the start, so that a small network learns in minutes. Sources of the idea: Wang
    et al., Anchor DETR, 2022, arXiv 2109.07107, section 3.1; Yao et al., Efficient DETR, 2021, arXiv 2104.01318.
    """

    def __init__(self, number: int):
        super().__init__()
        self.register_buffer("points", paddle.to_tensor(grid_points(number), dtype=paddle.get_default_dtype()))

    def start(self, memory: paddle.Tensor, cells: ValidCells) -> paddle.Tensor:
        """Gather the encoder's outputs (batch, cells, dim) at each image's points, (batch, queries, dim)."""
        width = cells.columns.shape[1]
        down, across = (side.astype(self.points.dtype).sum(axis=1, keepdim=True) for side in cells)  # (N or 1, 1)
        rows = paddle.floor(self.points[:, 0] * down)  # (N or 1, queries)
        places = rows * width + paddle.floor(self.points[:, 1] * across)
        first = paddle.arange(memory.shape[0], dtype="int64").unsqueeze(1) * memory.shape[1]
        places = places.astype("int64") + first  # (batch, queries)
        gathered = paddle.gather(memory.flatten(0, 1), places.flatten())
        return gathered.reshape([memory.shape[0], -1, memory.shape[2]])

    def forward(self, boxes):
        """Return boxes (..., queries, 4) before the sigmoid, with centers relative to the points."""
        centers = paddle.log(self.points / (1.0 - self.points)).flip(axis=-1).astype(boxes.dtype)  # across and down
        return paddle.concat([boxes[..., :2] + centers, boxes[..., 2:]], axis=-1)


class GridPointInitializer(nn.initializer.Initializer):
    """Initializes queries (number, dim) with the sine embedding of their points."""

    def forward(self, var, block=None):
        """Set the values of a parameter."""
        number, dim = var.shape
        angles = paddle.to_tensor(grid_points(number) * (2 * math.pi), dtype=var.dtype)  # (number, 2)
        with paddle.no_grad():
            var.set_value(sine_waves(angles, dim // 2).flatten(1))


_EPSILON = 1e-5


def xavier(inputs: int, outputs: int, together: int = 1) -> Linear:
    """Build a linear layer with Xavier-uniform weights, in the range of ``together`` stacked layers, and zero bias."""
    bound = math.sqrt(6.0 / (inputs + together * outputs))
    return Linear(inputs, outputs, weight_attr=uniform(bound), bias_attr=zeros())


class QueryAttention(MultiHeadAttention):
    """Attention of queries to keys with separate values."""

    def __init__(self, dim: int, num_heads: int, dropout: float):
        super().__init__(num_heads, head_dim("EMBED_DIM", dim, num_heads), 0.0, attention_dropout=dropout)
        self.q_proj, self.k_proj, self.v_proj = (xavier(dim, dim, together=3) for _ in range(3))
        self.out_proj = xavier(dim, dim)

    def forward(self, query, key, value, bias: paddle.Tensor | None = None):
        """Return the output (batch, queries, dim) of query (batch, queries, dim), key and value (batch, keys, dim).

        ``bias`` (batch, 1, 1, keys) is added before the softmax.
        """
        parts = (self.heads(part) for part in (self.q_proj(query), self.k_proj(key), self.v_proj(value)))
        before = None if bias is None else functools.partial(_add_bias, bias=bias)
        return self.out_proj(attend(self, *parts, before=before))


def _add_bias(weights, bias: paddle.Tensor):
    return weights + bias.astype(weights.dtype)


class _TransformerLayer(nn.Layer):
    """Base class of encoder and decoder layers: self-attention and an MLP with a ReLU."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__()
        self.self_attn = QueryAttention(dim, num_heads, dropout)
        self.linear1, self.linear2 = xavier(dim, feedforward), xavier(feedforward, dim)
        self.norm1, self.norm2 = LayerNorm(dim, epsilon=_EPSILON), LayerNorm(dim, epsilon=_EPSILON)
        self.dropout = nn.Dropout(dropout)

    def mlp(self, x):
        """Apply the MLP."""
        return self.dropout(self.linear2(self.dropout(F.relu(self.linear1(x)))))


class EncoderLayer(_TransformerLayer):
    """Self-attention of cells, with positions added to queries and keys."""

    def forward(self, x, position, bias: paddle.Tensor | None = None):
        """Return the output (batch, cells, dim) of ``x`` at ``position`` (batch or 1, cells, dim)."""
        x_with_position = x + position
        x = self.norm1(x + self.dropout(self.self_attn(x_with_position, x_with_position, x, bias)))
        return self.norm2(x + self.mlp(x))


class DetrDecoderLayer(_TransformerLayer):
    """Self-attention of queries, then attention to cells."""

    def __init__(self, dim: int, num_heads: int, feedforward: int, dropout: float):
        super().__init__(dim, num_heads, feedforward, dropout)
        self.multihead_attn = QueryAttention(dim, num_heads, dropout)
        self.norm3 = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, x, queries, keys, memory, bias: paddle.Tensor | None = None):
        """Return the output (batch, queries, dim) of ``x``.

        Args:
            queries: (1, queries, dim), embeddings added to ``x`` in every attention.
            keys: (batch, cells, dim), the encoder's output with positions.
            memory: (batch, cells, dim), the encoder's output.
            bias: (batch, 1, 1, cells).
        """
        x_with_queries = x + queries
        x = self.norm1(x + self.dropout(self.self_attn(x_with_queries, x_with_queries, x)))
        x = self.norm2(x + self.dropout(self.multihead_attn(x + queries, keys, memory, bias)))
        return self.norm3(x + self.mlp(x))


class DetrEncoder(nn.Layer):
    """The encoder's layers."""

    def __init__(self, layers: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([EncoderLayer(*layer) for _ in range(layers)])

    def forward(self, x, position, bias: paddle.Tensor | None = None):
        """Return the encoder's output (batch, cells, dim)."""
        for layer in self.layers:
            x = layer(x, position, bias)
        return x  # (batch, cells, dim)


class DetrDecoder(nn.Layer):
    """The decoder's layers; ``norm`` applies to each layer's output for the heads, but not for the next layer."""

    def __init__(self, layers: int, dim: int, *layer: Any):
        super().__init__()
        self.layers = nn.LayerList([DetrDecoderLayer(dim, *layer) for _ in range(layers)])
        self.norm = LayerNorm(dim, epsilon=_EPSILON)

    def forward(self, start, queries, position, memory, bias: paddle.Tensor | None = None):
        """Return the outputs of all layers (layers, batch, queries, dim), see ``DetrDecoderLayer``.

        ``start`` (batch, queries, dim) are initial values of the queries; ``position`` is (batch or 1, cells, dim).
        """
        keys, x = memory + position, start
        outputs: list[paddle.Tensor] = []
        for layer in self.layers:
            x = layer(x, queries, keys, memory, bias)
            outputs.append(x)
        return self.norm(paddle.stack(outputs))


class Transformer(nn.Layer):
    """The encoder and the decoder, under the authors' names."""

    def __init__(
        self, dim: int, num_heads: int, feedforward: int, dropout: float, encoder_layers: int, decoder_layers: int
    ):
        super().__init__()
        layer = (dim, num_heads, feedforward, dropout)
        self.encoder = DetrEncoder(encoder_layers, *layer)
        self.decoder = DetrDecoder(decoder_layers, *layer)
