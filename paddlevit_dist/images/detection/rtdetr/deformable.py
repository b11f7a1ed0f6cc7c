"""Values of maps at any points, interpolated and weighted."""

from collections.abc import Sequence

import paddle
from paddle.nn import functional as F


def sample(values, sizes, places, weights, numbers: Sequence[int], is_discrete: bool = False) -> paddle.Tensor:
    """stand-in"""
    batch, _, heads, dim = values.shape
    queries = places.shape[1]
    parts = paddle.split(values, [h * w for h, w in sizes], axis=1)
    spots = paddle.split(places, list(numbers), axis=3)
    found = []
    for part, spot, (height, width), number in zip(parts, spots, sizes, numbers):
        plane = part.transpose([0, 2, 3, 1]).reshape([batch * heads, dim, height, width]).astype(places.dtype)
        grid = spot.transpose([0, 2, 1, 3, 4]).reshape([batch * heads, queries, number, 2])
        if is_discrete:
            cells = grid * paddle.to_tensor([width, height], dtype=grid.dtype) + 0.5
            x = paddle.clip(cells[..., 0].astype("int64"), 0, width - 1)
            y = paddle.clip(cells[..., 1].astype("int64"), 0, height - 1)
            index = (y * width + x).reshape([batch * heads, 1, -1]).expand([-1, dim, -1])
            found.append(
                paddle.take_along_axis(plane.flatten(2), index, 2).reshape([batch * heads, dim, queries, number])
            )
        else:
            found.append(F.grid_sample(plane, 2 * grid - 1, "bilinear", "zeros", False))
    joined = paddle.concat(found, axis=-1)  # (batch * heads, dim, queries, points)
    factors = weights.transpose([0, 2, 1, 3]).reshape([batch * heads, 1, queries, -1])
    out = (joined * factors).sum(-1).reshape([batch, heads * dim, queries])
    return out.transpose([0, 2, 1]).astype(values.dtype)
