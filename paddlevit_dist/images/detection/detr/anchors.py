"""Queries that begin as points on a grid."""

from __future__ import annotations

import math

import numpy as np
import paddle
from paddle import nn

from .position import Cells, waves


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
