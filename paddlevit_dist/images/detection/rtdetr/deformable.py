"""Multi-scale deformable sampling: what queries read at a few points of several maps.

Sources: Zhu et al., Deformable DETR, 2021 (arXiv 2010.04159, equation 3, without its projections); the discrete way is
that of RT-DETRv2 (Lv et al., 2024, arXiv 2407.17140, section 3.2).
"""

from collections.abc import Sequence

import paddle
from paddle.nn import functional as F

from ....extension import make
from ....runtime import autocast

Shapes = Sequence[tuple[int, int]]  # rows and columns of the map of each level


def sample(
    values: paddle.Tensor,
    shapes: Shapes,
    locations: paddle.Tensor,
    weights: paddle.Tensor,
    points_per_level: Sequence[int],
    is_discrete: bool = False,
) -> paddle.Tensor:
    """For each query and head the sum over all points of weight times value.

    A value lies at the centre of its cell and is interpolated bilinearly; beyond the maps there are zeros. Values and
    locations of less than float32 are sampled in float32, also in automatic mixed precision.

    Args:
        values: (N, cells, heads, channels), the rows of all maps one after another.
        shapes: (height, width) of the map of each level; they have ``cells`` cells.
        locations: (N, Q, heads, points, 2), x and y as shares of a map's sides, the points of all levels one after
            another.
        weights: (N, Q, heads, points).
        points_per_level: how many points of each level there are.
        is_discrete: the value of one cell instead: column int(x * width + 0.5) and row int(y * height + 0.5), those
            beyond the map moved to its border. Locations receive no gradient.

    Returns:
        (N, Q, heads * channels), of the dtype of ``values``.
    """
    is_half = values.dtype in (paddle.float16, paddle.bfloat16)
    dtype = paddle.float32 if is_half else values.dtype
    given = tuple(autocast.as_dtype(tensor, dtype) for tensor in (values, locations, weights))
    levels = tuple((*shape, number) for shape, number in zip(shapes, points_per_level))
    with autocast.off():
        found = _discrete(*given, levels) if is_discrete else _interpolated(*given, levels)
    return autocast.as_dtype(found, values.dtype)


Levels = tuple[tuple[int, int, int], ...]  # of each level rows, columns and number of points


def _interpolated(values, locations, weights, levels: Levels) -> paddle.Tensor:
    if not paddle.in_dynamic_mode():
        return _by_grids(values, locations, weights, levels)
    return make(
        lambda one: one.deformable_samples(values, locations, weights, levels),
        lambda: _by_grids(values, locations, weights, levels),
    )


def _by_grids(values, locations, weights, levels: Levels) -> paddle.Tensor:
    queries, (heads, channels) = locations.shape[1], values.shape[2:]
    maps = values.transpose([0, 2, 3, 1]).split([rows * columns for rows, columns, _ in levels], axis=3)
    grids = (2.0 * locations - 1.0).transpose([0, 2, 1, 3, 4])  # (N, heads, Q, points, 2), from -1 to 1
    grids = grids.reshape([-1, *grids.shape[2:]]).split([number for *_, number in levels], axis=2)
    found = [
        F.grid_sample(
            plane.reshape([-1, channels, rows, columns]), grid, "bilinear", padding_mode="zeros", align_corners=False
        )
        for plane, grid, (rows, columns, _) in zip(maps, grids, levels)
    ]  # (N * heads, channels, Q, points of the level)
    shares = weights.transpose([0, 2, 1, 3]).reshape([-1, 1, *weights.shape[1::2]])  # (N * heads, 1, Q, points)
    total = (paddle.concat(found, axis=3) * shares).sum(axis=3)  # (N * heads, channels, Q)
    return total.reshape([-1, heads * channels, queries]).transpose([0, 2, 1])


def _discrete(values, locations, weights, levels: Levels) -> paddle.Tensor:
    (_, cells, heads, channels), found, start = values.shape, [], 0
    places = locations.detach().split([number for *_, number in levels], axis=3)
    for place, (rows, columns, _) in zip(places, levels):
        x, y = (
            (place[..., axis] * side + 0.5).clip(0, side - 1).astype("int64")
            for axis, side in ((0, columns), (1, rows))
        )
        found.append(start + y * columns + x)  # (N, Q, heads, points of the level)
        start += rows * columns
    batch = values.shape[0] if paddle.in_dynamic_mode() else paddle.shape(values)[0]
    first = (paddle.arange(batch, dtype="int64") * cells).reshape([-1, 1, 1, 1])  # made on the device
    head = paddle.arange(heads, dtype="int64").reshape([1, 1, -1, 1])
    index = (first + paddle.concat(found, axis=3)) * heads + head  # of rows of ``channels`` numbers
    rows_found = paddle.gather(values.reshape([-1, channels]), index.flatten())
    parts = rows_found.reshape([-1, *weights.shape[1:], channels]) * weights.unsqueeze(4)
    return parts.sum(axis=3).flatten(2)  # (N, Q, heads * channels)
