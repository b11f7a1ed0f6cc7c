"""The sampling of deformable attention: values of maps at any points, interpolated, weighted and added.

Source: Zhu et al., Deformable DETR, ICLR 2021, arXiv 2010.04159, equation 3; the nearest cell in place of bilinear
interpolation: Lv et al., RT-DETRv2, arXiv 2407.17140, section 2.
"""

from collections.abc import Sequence

import paddle
from paddle import nn
from paddle.nn import functional as F

Sizes = Sequence[tuple[int, int]]  # height and width of the maps, the finest first


class PointSampling(nn.Layer):
    """``sample`` as a layer, which ``cpu_kernels`` replaces by a compiled loop.

    Args:
        numbers: of points on each map.
        is_discrete: see ``sample``.
    """

    def __init__(self, numbers: Sequence[int], is_discrete: bool = False):
        super().__init__()
        self.numbers, self.is_discrete = tuple(numbers), is_discrete

    def forward(self, values, sizes: Sizes, places, weights):
        return sample(values, sizes, places, weights, self.numbers, self.is_discrete)


def sample(
    values: paddle.Tensor,
    sizes: Sizes,
    places: paddle.Tensor,
    weights: paddle.Tensor,
    numbers: Sequence[int],
    is_discrete: bool = False,
) -> paddle.Tensor:
    """What each head of each query finds: the weighted sum of its points, (batch, queries, heads * dim) in the type of
    ``values``; computed in that of ``places``. It waits for no device.

    Args:
        values: (batch, cells of all maps, heads, dim), row by row.
        sizes: of the maps.
        places: (batch, queries, heads, points, 2), across and down as shares of the map: 0 is the outer edge of its
            first cell, 1 that of its last. Beyond, values are 0. float32 or float64.
        weights: (batch, queries, heads, points), of the type of ``places``.
        numbers: of points on each map, whose points come one after the other.
        is_discrete: the value of the cell that a point lies in, the nearest of the map for those outside; places then
            have no gradient.
    """
    _, _, heads, dim = values.shape  # of a graph the number of images is not known
    queries, found = places.shape[1], []
    parts = paddle.split(values, [height * width for height, width in sizes], axis=1)
    for part, own, size, number in zip(parts, paddle.split(places, list(numbers), axis=3), sizes, numbers):
        maps = part.astype(places.dtype).transpose([0, 2, 3, 1]).reshape([-1, dim, *size])
        grid = own.transpose([0, 2, 1, 3, 4]).reshape([-1, queries, number, 2])
        found.append((_nearest if is_discrete else _between)(maps, grid))
    factors = weights.transpose([0, 2, 1, 3]).reshape([-1, 1, queries, sum(numbers)])
    total = (paddle.concat(found, axis=-1) * factors).sum(-1)  # (batch * heads, dim, queries)
    return total.reshape([-1, heads * dim, queries]).transpose([0, 2, 1]).astype(values.dtype)


def _between(maps, grid):
    """As ``_nearest``, interpolated."""
    if paddle.in_dynamic_mode() and maps.stop_gradient and not grid.stop_gradient:
        maps = maps.detach()
        maps.stop_gradient = False  # Paddle's kernel writes both gradients, also where one has no memory
    return F.grid_sample(maps, 2 * grid - 1, align_corners=False)


def _nearest(maps, grid):
    """(maps, dim, queries, points) of maps (maps, dim, height, width) and places (maps, queries, points, 2)."""
    _, dim, height, width = maps.shape
    x, y = (
        paddle.clip(grid[..., axis].detach() * side + 0.5, 0, side - 1).astype("int64")
        for axis, side in ((0, width), (1, height))
    )
    _, queries, number, _ = grid.shape
    cells = (y * width + x).reshape([-1, 1, queries * number]).expand([-1, dim, -1])
    return paddle.take_along_axis(maps.flatten(2), cells, 2).reshape([-1, dim, queries, number])
