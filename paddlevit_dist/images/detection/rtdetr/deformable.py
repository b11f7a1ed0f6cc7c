"""Sampling of deformable attention: weighted sums of interpolated values of maps at any points.

Source: Zhu et al., Deformable DETR, ICLR 2021, arXiv 2010.04159, equation 3; nearest cells instead of bilinear
interpolation: Lv et al., RT-DETRv2, arXiv 2407.17140, section 2.
"""

from collections.abc import Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

Sizes = Sequence[tuple[int, int]]  # height and width of the maps, the finest first


Levels = Sequence[tuple[int, int, int]]  # height and width of each map, and its number of points


class PointSampling(nn.Layer):
    """Weighted sum of the points of each head of each query, which ``cpu_kernels`` replaces by a compiled loop.

    Args:
        numbers: number of points on each map; the points of a map are consecutive.
        is_discrete: use the value of the cell that contains a point, or of the nearest cell of the map; places then
            have no gradient.
    """

    def __init__(self, numbers: Sequence[int], is_discrete: bool = False):
        super().__init__()
        self.numbers, self.is_discrete = tuple(numbers), is_discrete

    def forward(self, values, sizes: Sizes, places, weights):
        """Return sampled values (batch, queries, heads * dim), without waiting for the device.

        They have the dtype of ``values``, but are computed in the dtype of ``places``.

        Args:
            values: (batch, cells of all maps, heads, dim), row by row.
            sizes: height and width of the maps.
            places: (batch, queries, heads, points, 2), x and y as fractions of the map: 0 is the outer edge of its
                first cell, 1 of its last. Values outside are 0. float32 or float64.
            weights: (batch, queries, heads, points), in the dtype of ``places``.
        """
        levels = [(*size, number) for size, number in zip(sizes, self.numbers)]
        sampled = (_nearest if self.is_discrete else _between)(values.astype(places.dtype), places, weights, levels)
        return sampled.astype(values.dtype)


def _between(values, places, weights, levels: Levels):
    """Interpolate bilinearly; no shape is computed from the batch, so a saved program takes any batch size."""
    if paddle.in_dynamic_mode() and values.stop_gradient and not places.stop_gradient:
        values = values.detach()
        values.stop_gradient = False  # Paddle's kernel writes both gradients, even if one has no memory
    queries, (heads, dim) = places.shape[1], values.shape[2:]
    maps = values.transpose([0, 2, 3, 1]).split([height * width for height, width, _ in levels], axis=3)
    grids = (2.0 * places - 1.0).transpose([0, 2, 1, 3, 4])  # (batch, heads, queries, points, 2)
    grids = grids.reshape([-1, *grids.shape[2:]]).split([number for *_, number in levels], axis=2)
    sampled = [
        F.grid_sample(part.reshape([-1, dim, height, width]), grid, align_corners=False)
        for part, grid, (height, width, _) in zip(maps, grids, levels)
    ]  # (batch * heads, dim, queries, points of the map)
    factors = weights.transpose([0, 2, 1, 3]).reshape([-1, 1, queries, weights.shape[3]])
    total = (paddle.concat(sampled, axis=3) * factors).sum(axis=3)  # (batch * heads, dim, queries)
    return total.reshape([-1, heads * dim, queries]).transpose([0, 2, 1])


def _nearest(values, places, weights, levels: Levels):
    """Sample the nearest cell, in rows of ``dim`` numbers."""
    (_, cells, heads, dim), indices, start = values.shape, [], 0
    for place, (height, width, _) in zip(places.detach().split([number for *_, number in levels], axis=3), levels):
        column, row = (
            (place[..., axis] * side + 0.5).clip(0, side - 1).astype("int64")
            for axis, side in ((0, width), (1, height))
        )
        indices.append(start + row * width + column)  # (batch, queries, heads, points of the map)
        start += height * width
    batch = values.shape[0] if paddle.in_dynamic_mode() else paddle.shape(values)[0]
    first = (paddle.arange(batch, dtype="int64") * cells).reshape([-1, 1, 1, 1])  # created on the device
    head = paddle.arange(heads, dtype="int64").reshape([1, 1, -1, 1])
    index = (first + paddle.concat(indices, axis=3)) * heads + head
    rows = paddle.gather(values.reshape([-1, dim]), index.flatten())
    parts = rows.reshape([-1, *weights.shape[1:], dim]) * weights.unsqueeze(4)
    return parts.sum(axis=3).flatten(2)  # (batch, queries, heads * dim)
