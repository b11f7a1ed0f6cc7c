"""Queries that begin as points on a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
from paddle import nn

from .position import waves


def grid_points(number: int) -> np.ndarray:
    """Row and column of points that fill a picture evenly, float64 (number, 2), as shares of it from 0 to 1."""
    rows = max(round(math.sqrt(number)), 1)
    points = []
    for row, own in enumerate(np.array_split(np.arange(number), rows)):
        points += [((row + 0.5) / rows, (column + 0.5) / len(own)) for column in range(len(own))]
    return np.array(points)


class Anchors(nn.Layer):
    """Tells boxes from points, and lets each query look around its point from the beginning.

    A query starts as the sine embedding of its point, and the decoder's attention to the cells compares it with theirs
    by projections that start equal, so that it is highest where they agree. Source of the idea: Wang et al., Anchor
    DETR, 2022, arXiv 2109.07107, section 3.1.

    Args:
        queries: (queries, dim), the embeddings to start.
        transformer: whose decoder is to start so.
    """

    def __init__(self, queries: paddle.Tensor, transformer: Any):
        super().__init__()
        number, dim = queries.shape
        points = grid_points(number)
        start = nn.initializer.Assign(np.log(points / (1.0 - points))[:, ::-1].astype(np.float32))
        self.points = self.create_parameter([number, 2], default_initializer=start)  # across and down, before a sigmoid
        with paddle.no_grad():
            placed = paddle.to_tensor(points * (2 * math.pi), dtype=queries.dtype)  # (queries, 2)
            queries.set_value(waves(placed, dim // 2).flatten(1))
            for layer in transformer.decoder.layers:
                layer.multihead_attn.k_proj.weight.set_value(layer.multihead_attn.q_proj.weight)

    def forward(self, boxes):
        """Boxes (..., queries, 4) before the sigmoid, whose centres are told from the points."""
        return paddle.concat([boxes[..., :2] + self.points, boxes[..., 2:]], axis=-1)
