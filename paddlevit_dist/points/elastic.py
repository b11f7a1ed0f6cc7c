"""Elastic distortion: points follow a field of random displacements that changes smoothly through space."""

from __future__ import annotations

from typing import Tuple

import numpy as np

_BLOCK = 1 << 13  # points at a time: what belongs to them stays in the processor's cache
_CORNERS = tuple((i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1))


def elastic_distortion(
    xyz: np.ndarray, granularity: float, magnitude: float, generator: np.random.Generator
) -> np.ndarray:
    """Move each point by a random field.

    The field is normal noise on a grid around the origin, blurred, times ``magnitude``, linear in between. The grid has
    one node for each ``granularity`` of the scene's extent but reaches to both sides of the origin, so its nodes are
    ``2 * granularity`` apart. Both are in the unit of ``xyz``. After the blur a displacement along one axis has a
    standard deviation of about ``0.11 * magnitude``.

    Source: the data pipeline of SparseConvNet (B. Graham et al., arXiv 1711.10275), as PointGroup (L. Jiang et al.,
    arXiv 2004.01658) uses it.

    Args:
        xyz: (N, 3), any float dtype.

    Returns:
        (N, 3) in the dtype of ``xyz``.
    """
    noise = generator.standard_normal((3, *grid_shape(xyz, granularity)), dtype=np.float32)
    return displace(xyz, noise, granularity, magnitude)


def grid_shape(xyz: np.ndarray, granularity: float) -> Tuple[int, ...]:
    """Nodes along each axis of the grid that reaches around all points; none can lie outside it."""
    if not len(xyz):
        return (3, 3, 3)
    farthest = [np.float64(max(-column.min(), column.max())) for column in xyz.T]  # ten times as fast as along rows
    return tuple(int(length // granularity) + 3 for length in farthest)


def displace(xyz: np.ndarray, noise: np.ndarray, granularity: float, magnitude: float) -> np.ndarray:
    """``elastic_distortion`` with given noise.

    Args:
        xyz: (N, 3), any float dtype.
        noise: float32 (3, x nodes, y nodes, z nodes), one displacement for each axis, of ``grid_shape`` or larger.

    Returns:
        (N, 3) in the dtype of ``xyz``.
    """
    field = _blurred(noise).reshape(3, -1) * np.float64(magnitude)  # (3, nodes)
    nodes = noise.shape[1:]
    strides = (nodes[1] * nodes[2], nodes[2], 1)
    steps = [int(np.dot(strides, corner)) for corner in _CORNERS]  # from a cell's lowest node
    middle = (np.array(nodes)[:, None] - 1) / 2  # the origin, in cells of the grid
    moved = np.empty_like(xyz)
    for start in range(0, len(xyz), _BLOCK):
        points = xyz[start : start + _BLOCK].T.astype(np.float64)  # (3, block)
        upper = points / (2 * granularity) + middle
        cell = upper.astype(np.int64)
        upper -= cell
        shares = (1.0 - upper, upper)  # of the lower and the upper node of each axis
        planes = [shares[i][0] * shares[j][1] for i in (0, 1) for j in (0, 1)]
        weights = [plane * shares[k][2] for plane in planes for k in (0, 1)]  # in the order of the corners
        first = cell[0] * strides[0] + cell[1] * strides[1] + cell[2]
        where = [first + step for step in steps]
        for axis in range(3):
            total = points[axis]
            for weight, node in zip(weights, where):
                part = field[axis].take(node, mode="clip")  # none lies outside; looking for such takes time
                part *= weight
                total += part
            moved[start : start + _BLOCK, axis] = total
    return moved


def _blurred(noise: np.ndarray) -> np.ndarray:
    """The mean of three neighbours along each axis, twice, with zeros outside; (3, x, y, z), float32 after each pass
    as the reference rounds."""
    third = np.float64(np.float32(1.0) / np.float32(3.0))
    for axis in 2 * (1, 2, 3):
        rows = np.moveaxis(noise, axis, 0)
        total = rows.astype(np.float64)
        total[1:] += rows[:-1]
        total[:-1] += rows[1:]
        noise = np.moveaxis((total * third).astype(np.float32), 0, axis)
    return np.ascontiguousarray(noise)
