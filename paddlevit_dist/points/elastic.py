"""Elastic distortion: points follow a field of random displacements that changes smoothly through space."""

from __future__ import annotations

from typing import Tuple

import numpy as np

_BLOCK = 1 << 14  # points at a time: what belongs to them stays in the processor's cache


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
    farthest = np.abs(xyz).max(axis=0).astype(np.float64)
    return tuple(int(nodes) + 3 for nodes in farthest // granularity)


def displace(xyz: np.ndarray, noise: np.ndarray, granularity: float, magnitude: float) -> np.ndarray:
    """``elastic_distortion`` with given noise.

    Args:
        xyz: (N, 3), any float dtype.
        noise: float32 (3, x nodes, y nodes, z nodes), one displacement for each axis, of ``grid_shape`` or larger.

    Returns:
        (N, 3) in the dtype of ``xyz``.
    """
    field = _blurred(noise).reshape(3, -1)  # (3, nodes)
    nodes = noise.shape[1:]
    steps = np.array([nodes[1] * nodes[2], nodes[2], 1])
    corners = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    middle = (np.array(nodes)[:, None] - 1) / 2  # the origin, in cells of the grid
    moved = np.empty_like(xyz)
    for start in range(0, len(xyz), _BLOCK):
        points = xyz[start : start + _BLOCK]
        place = points.T.astype(np.float64) / (2 * granularity) + middle  # (3, block)
        cell = place.astype(np.int64)
        upper = place - cell
        shares = np.stack([1.0 - upper, upper])  # of the lower and the upper node of each axis, (2, 3, block)
        first = steps @ cell
        where = [first + int(steps @ corner) for corner in corners]
        weights = [shares[i, 0] * shares[j, 1] * shares[k, 2] for i, j, k in corners]
        for axis in range(3):
            shift = weights[0] * field[axis].take(where[0])
            for weight, nodes_of_corner in zip(weights[1:], where[1:]):
                shift += weight * field[axis].take(nodes_of_corner)
            moved[start : start + _BLOCK, axis] = points[:, axis] + magnitude * shift
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
