"""The sampling of deformable attention: values of maps at any points, interpolated, weighted and added.

Source: Zhu et al., Deformable DETR, ICLR 2021, arXiv 2010.04159, equation 3; the nearest cell in place of bilinear
interpolation: Lv et al., RT-DETRv2, arXiv 2407.17140, section 2.
"""

from collections.abc import Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

Sizes = Sequence[tuple[int, int]]  # height and width of the maps, the finest first


Levels = Sequence[tuple[int, int, int]]  # height and width of each map, and its number of points


class PointSampling(nn.Layer):
    """The weighted sum of the points of each head of each query, which ``cpu_kernels`` replaces by a compiled loop.

    Args:
        numbers: of points on each map, whose points come one after the other.
        is_discrete: the value of the cell that a point lies in, the nearest of the map for those outside; places then
            have no gradient.
    """

    def __init__(self, numbers: Sequence[int], is_discrete: bool = False):
        super().__init__()
        self.numbers, self.is_discrete = tuple(numbers), is_discrete

    def forward(self, values, sizes: Sizes, places, weights):
        """(batch, queries, heads * dim) in the type of ``values``; computed in that of ``places``. It waits for no
        device.

        Args:
            values: (batch, cells of all maps, heads, dim), row by row.
            sizes: of the maps.
            places: (batch, queries, heads, points, 2), across and down as shares of the map: 0 is the outer edge of its
                first cell, 1 that of its last. Beyond, values are 0. float32 or float64.
            weights: (batch, queries, heads, points), of the type of ``places``.
        """
        levels = [(*size, number) for size, number in zip(sizes, self.numbers)]
        found = (_nearest if self.is_discrete else _between)(values.astype(places.dtype), places, weights, levels)
        return found.astype(values.dtype)


def _between(values, places, weights, levels: Levels):
    """Interpolated. A saved program takes any batch: no shape is computed from it."""
    if paddle.in_dynamic_mode() and values.stop_gradient and not places.stop_gradient:
        values = values.detach()
        values.stop_gradient = False  # Paddle's kernel writes both gradients, also where one has no memory
    queries, (heads, dim) = places.shape[1], values.shape[2:]
    maps = values.transpose([0, 2, 3, 1]).split([height * width for height, width, _ in levels], axis=3)
    grids = (2.0 * places - 1.0).transpose([0, 2, 1, 3, 4])  # (batch, heads, queries, points, 2)
    grids = grids.reshape([-1, *grids.shape[2:]]).split([number for *_, number in levels], axis=2)
    found = [
        F.grid_sample(part.reshape([-1, dim, height, width]), grid, align_corners=False)
        for part, grid, (height, width, _) in zip(maps, grids, levels)
    ]  # (batch * heads, dim, queries, points of the map)
    factors = weights.transpose([0, 2, 1, 3]).reshape([-1, 1, queries, weights.shape[3]])
    total = (paddle.concat(found, axis=3) * factors).sum(axis=3)  # (batch * heads, dim, queries)
    return total.reshape([-1, heads * dim, queries]).transpose([0, 2, 1])


def _nearest(values, places, weights, levels: Levels):
    """Of one cell each, by rows of ``dim`` numbers."""
    (_, cells, heads, dim), found, start = values.shape, [], 0
    for place, (height, width, _) in zip(places.detach().split([number for *_, number in levels], axis=3), levels):
        column, row = (
            (place[..., axis] * side + 0.5).clip(0, side - 1).astype("int64")
            for axis, side in ((0, width), (1, height))
        )
        found.append(start + row * width + column)  # (batch, queries, heads, points of the map)
        start += height * width
    batch = values.shape[0] if paddle.in_dynamic_mode() else paddle.shape(values)[0]
    first = (paddle.arange(batch, dtype="int64") * cells).reshape([-1, 1, 1, 1])  # made on the device
    head = paddle.arange(heads, dtype="int64").reshape([1, 1, -1, 1])
    index = (first + paddle.concat(found, axis=3)) * heads + head
    rows = paddle.gather(values.reshape([-1, dim]), index.flatten())
    parts = rows.reshape([-1, *weights.shape[1:], dim]) * weights.unsqueeze(4)
    return parts.sum(axis=3).flatten(2)  # (batch, queries, heads * dim)
