"""Elastic distortion of points by a smooth random field."""

from collections.abc import Callable

import numpy as np

from ...core.runtime.compiled import compiled

_Draw = Callable[[int, int], np.ndarray]
_MIN_PLANES, _SLAB_NODES = 8, 1 << 19  # of a part of the grid that is in memory at a time


def elastic_distortion(
    xyz: np.ndarray, granularity: float, magnitude: float, generator: np.random.Generator
) -> np.ndarray:
    """Move points (N, 3), of any float dtype, by a random field; the result has the dtype of ``xyz``.

    The field is normal noise on a grid, blurred, times ``magnitude``, interpolated linearly. Its nodes are ``2 *
    granularity`` apart. Both are in the unit of ``xyz``. After the blur a displacement along one axis has a standard
    deviation of about ``0.11 * magnitude``.
    Source: the data pipeline of SparseConvNet (B. Graham et al., arXiv 1711.10275), as PointGroup (L. Jiang et al.,
    arXiv 2004.01658) uses it. There the grid extends equally to both sides of the origin; here of the middle of the
    points' bounding box, so that it is no larger than the points need. It is drawn and used in slabs along x.
    """
    if not len(xyz):
        return xyz
    middle = np.array([(column.min() + column.max()) / 2 for column in xyz.T], xyz.dtype)
    centered = xyz - middle
    nodes = grid_shape(centered, granularity)

    def draw(first: int, last: int) -> np.ndarray:
        return np.moveaxis(generator.standard_normal((last - first, 3, *nodes[1:]), dtype=np.float32), 1, 0)

    return displace_in_slabs(centered, nodes, draw, granularity, magnitude) + middle


def grid_shape(xyz: np.ndarray, granularity: float) -> tuple[int, ...]:
    """Return the number of nodes along each axis of a grid around the origin that encloses one point or more."""
    farthest = [np.float64(max(-column.min(), column.max())) for column in xyz.T]  # ten times as fast as along rows
    return tuple(int(length // granularity) + 3 for length in farthest)


def displace_in_slabs(
    xyz: np.ndarray, nodes: tuple[int, ...], draw: _Draw, granularity: float, magnitude: float
) -> np.ndarray:
    """Displace points by the noise that ``draw`` returns, (3, planes, y nodes, z nodes), for planes first to last."""
    width, middle = 2.0 * granularity, (np.array(nodes) - 1) / 2
    step = max(_MIN_PLANES, _SLAB_NODES // (nodes[1] * nodes[2]))
    slabs = ((xyz[:, 0] / np.float64(width) + middle[0]).astype(np.int64) // step).astype(np.min_scalar_type(nodes[0]))
    order, ends = np.argsort(slabs, kind="stable"), np.cumsum(np.bincount(slabs, minlength=nodes[0]))
    displaced, noise, end = np.empty(xyz.shape, xyz.dtype), np.empty((3, 0, *nodes[1:]), np.float32), 0
    for slab, first in enumerate(range(0, nodes[0] - 1, step)):
        # Planes first to first + step, and two more on either side, which the blur reaches.
        start, previous, end = max(first - 2, 0), end, min(first + step + 3, nodes[0])
        noise = np.concatenate([noise[:, noise.shape[1] - (previous - start) :], draw(previous, end)], axis=1)
        rows = order[ends[slab - 1] if slab else 0 : ends[slab]]
        if len(rows):
            field = np.moveaxis(blur(noise) * np.float64(magnitude), 0, -1)  # (planes, y nodes, z nodes, 3)
            _interpolate(xyz, rows, np.ascontiguousarray(field), start, middle, width, displaced)
    return displaced


@compiled
def _interpolate(xyz, rows, field, start, middle, width, displaced):
    """Add the field, of the grid's planes from ``start``, to the points ``rows``; the origin is at node ``middle``."""
    cell, lower, upper = np.empty(3, np.int64), np.empty(3), np.empty(3)
    for n in rows:
        for axis in range(3):
            place = np.float64(xyz[n, axis]) / width + middle[axis]
            cell[axis] = int(place)
            upper[axis] = place - cell[axis]
            lower[axis] = 1.0 - upper[axis]
        total_x, total_y, total_z = np.float64(xyz[n, 0]), np.float64(xyz[n, 1]), np.float64(xyz[n, 2])
        for i in range(2):
            for j in range(2):
                plane = (upper[0] if i else lower[0]) * (upper[1] if j else lower[1])
                for k in range(2):
                    weight = plane * (upper[2] if k else lower[2])
                    node = field[cell[0] - start + i, cell[1] + j, cell[2] + k]
                    total_x += node[0] * weight
                    total_y += node[1] * weight
                    total_z += node[2] * weight
        displaced[n, 0], displaced[n, 1], displaced[n, 2] = total_x, total_y, total_z


def blur(noise: np.ndarray) -> np.ndarray:
    """Return the mean of three neighbors along each axis of (3, x, y, z), applied twice, with zeros outside.

    It is rounded to float32 after each pass as in the reference.
    """
    third = np.float64(np.float32(1.0) / np.float32(3.0))
    for axis in 2 * (1, 2, 3):
        rows = np.moveaxis(noise, axis, 0)
        total = rows.astype(np.float64)
        total[1:] += rows[:-1]
        total[:-1] += rows[1:]
        noise = np.moveaxis((total * third).astype(np.float32), 0, axis)
    return np.ascontiguousarray(noise)
