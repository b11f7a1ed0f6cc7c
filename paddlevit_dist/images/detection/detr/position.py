"""Where the cells of a feature map are, which of them hold a picture, and their sine embedding; and queries that begin
as points on a grid."""

from __future__ import annotations

import math
from typing import NamedTuple, Optional, Tuple

import numpy as np
import paddle
from paddle import nn

_EPSILON = 1e-6
_TEMPERATURE = 10000.0


class Cells(NamedTuple):
    """The rows and columns of a map that hold a picture; what is padded lies at the right and the bottom.

    Attributes:
        rows: bool (N or 1, height).
        columns: bool (N or 1, width).
    """

    rows: paddle.Tensor
    columns: paddle.Tensor

    def padding(self) -> paddle.Tensor:
        """bool (N or 1, height, width), true where a map is padded."""
        return paddle.logical_not(paddle.logical_and(self.rows.unsqueeze(2), self.columns.unsqueeze(1)))


def cells_of(
    sizes: Optional[paddle.Tensor], padded: Tuple[int, int], grid: Tuple[int, int], stride: Optional[int] = None
) -> Cells:
    """Which cells of a map hold a picture.

    Args:
        sizes: int64 (N, 2), height and width of each picture in pixels; None: nothing is padded.
        padded: (height, width) of the batch in pixels.
        grid: (height, width) of the map.
        stride: None: a cell is the pixel that the authors' nearest resizing of the mask finds for it, which depends on
            the batch. A number: a picture has ceil(pixels / stride) cells, as many as without the batch.
    """
    if sizes is None:
        return Cells(*(paddle.ones([1, cells], dtype="bool") for cells in grid))
    if stride is not None:
        sizes = (sizes + (stride - 1)) // stride
    sides = []
    for axis, (pixels, cells) in enumerate(zip(padded, grid)):
        source = paddle.arange(cells, dtype="int64")  # made on the device: nothing waits for a copy
        source = source if stride is not None else source * pixels // cells
        sides.append(source.unsqueeze(0) < sizes[:, axis : axis + 1].astype("int64"))
    return Cells(*sides)


def sine_embedding(cells: Cells, channels: int, dtype: str = "float32") -> paddle.Tensor:
    """The sine embedding of each cell, (N or 1, height * width, channels): the first half is the row's, the rest the
    column's.

    Source: DETR, appendix A.4, with the authors' normalisation: positions count a picture's cells from 1 and end at
    2 pi. A padded cell beside a picture has position 0 on the axis that leads away from it.

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
    """(N, cells): numbers of the cells from 1, scaled so that a picture ends at 2 pi; what is padded counts as its last
    cell."""
    last = inside.sum(axis=1, keepdim=True)  # (N, 1)
    # ``cumsum`` of a single row would wait for a GPU.
    numbers = paddle.minimum(paddle.arange(1, inside.shape[1] + 1, dtype=inside.dtype), last)
    return numbers / (last + _EPSILON) * (2 * math.pi)


def waves(position: paddle.Tensor, channels: int) -> paddle.Tensor:
    """(..., channels): sine and cosine in turn of ``position`` (...) over wavelengths that grow by pairs."""
    exponents = paddle.arange(0, channels, 2, dtype=position.dtype) / channels  # (channels / 2,)
    angles = position.unsqueeze(-1) / paddle.exp(exponents * math.log(_TEMPERATURE))
    return paddle.stack([paddle.sin(angles), paddle.cos(angles)], axis=-1).flatten(-2)


def grid_points(number: int) -> np.ndarray:
    """Row and column of points that fill a picture evenly, float64 (number, 2), as shares of it from 0 to 1."""
    rows = max(round(math.sqrt(number)), 1)
    points = []
    for row, own in enumerate(np.array_split(np.arange(number), rows)):
        points += [((row + 0.5) / rows, (column + 0.5) / len(own)) for column in range(len(own))]
    return np.array(points)


class Anchors(nn.Layer):
    """Lets queries begin at points, with what the encoder says there, and tells boxes from the points.

    So a query is near some object from the beginning, and a small network learns in minutes. Sources of the idea: Wang
    et al., Anchor DETR, 2022, arXiv 2109.07107, section 3.1; Yao et al., Efficient DETR, 2021, arXiv 2104.01318.
    """

    def __init__(self, number: int):
        super().__init__()
        self.register_buffer("points", paddle.to_tensor(grid_points(number), dtype=paddle.get_default_dtype()))

    def start(self, memory: paddle.Tensor, cells: Cells) -> paddle.Tensor:
        """What the encoder's output (batch, cells, dim) holds at the points of each picture, (batch, queries, dim)."""
        width = cells.columns.shape[1]
        down, across = (side.astype(self.points.dtype).sum(axis=1, keepdim=True) for side in cells)  # (N or 1, 1)
        rows = paddle.floor(self.points[:, 0] * down)  # (N or 1, queries)
        places = rows * width + paddle.floor(self.points[:, 1] * across)
        first = paddle.arange(memory.shape[0], dtype="int64").unsqueeze(1) * memory.shape[1]
        places = places.astype("int64") + first  # (batch, queries)
        found = paddle.gather(memory.flatten(0, 1), places.flatten())
        return found.reshape([memory.shape[0], -1, memory.shape[2]])

    def forward(self, boxes):
        """Boxes (..., queries, 4) before the sigmoid, whose centres are told from the points."""
        centres = paddle.log(self.points / (1.0 - self.points)).flip(axis=-1).astype(boxes.dtype)  # across and down
        return paddle.concat([boxes[..., :2] + centres, boxes[..., 2:]], axis=-1)


class AtPoints(nn.initializer.Initializer):
    """Queries (number, dim) start as the sine embedding of their points."""

    def forward(self, var, block=None):
        number, dim = var.shape
        angles = paddle.to_tensor(grid_points(number) * (2 * math.pi), dtype=var.dtype)  # (number, 2)
        with paddle.no_grad():
            var.set_value(waves(angles, dim // 2).flatten(1))
