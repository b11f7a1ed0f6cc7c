"""Elastic distortion of points by a smooth random field."""

import numpy as np

from ...runtime.compiled import compiled


def elastic_distortion(
    xyz: np.ndarray, granularity: float, magnitude: float, generator: np.random.Generator
) -> np.ndarray:
    """Move points (N, 3), of any float dtype, by a random field; the result has the dtype of ``xyz``.

    The field is normal noise on a grid around the origin, blurred, times ``magnitude``, interpolated linearly. The grid
    has one node per ``granularity`` of the scene's extent but extends to both sides of the origin, so its nodes are ``2
    * granularity`` apart. Both are in the unit of ``xyz``. After the blur a displacement along one axis has a standard
    deviation of about ``0.11 * magnitude``.
    Source: the data pipeline of SparseConvNet (B. Graham et al., arXiv 1711.10275), as PointGroup (L. Jiang et al.,
    arXiv 2004.01658) uses it.
    """
    noise = generator.standard_normal((3, *grid_shape(xyz, granularity)), dtype=np.float32)
    return displace(xyz, noise, granularity, magnitude)


def grid_shape(xyz: np.ndarray, granularity: float) -> tuple[int, ...]:
    """Return the number of nodes along each axis of a grid that encloses all points."""
    if not len(xyz):
        return (3, 3, 3)
    farthest = [np.float64(max(-column.min(), column.max())) for column in xyz.T]  # ten times as fast as along rows
    return tuple(int(length // granularity) + 3 for length in farthest)


def displace(xyz: np.ndarray, noise: np.ndarray, granularity: float, magnitude: float) -> np.ndarray:
    """Displace points (N, 3) by the given noise, see ``elastic_distortion``; ValueError if its grid is too small.

    ``noise`` is float32 (3, x nodes, y nodes, z nodes), one displacement for each axis, of ``grid_shape`` or larger.
    """
    required = grid_shape(xyz, granularity)
    if noise.shape[0] != 3 or any(nodes < minimum for nodes, minimum in zip(noise.shape[1:], required)):
        raise ValueError(f"noise has shape {noise.shape}, expected at least {(3, *required)} for these points")
    field = np.moveaxis(blur(noise) * np.float64(magnitude), 0, -1)  # (x nodes, y nodes, z nodes, 3)
    displaced = np.empty(xyz.shape, xyz.dtype)
    _interpolate(xyz, np.ascontiguousarray(field), 2.0 * granularity, displaced)
    return displaced


@compiled
def _interpolate(xyz, field, width, displaced):
    """Add the field to each point; the grid is centered on the origin, its cells are ``width`` wide."""
    cell, lower, upper = np.empty(3, np.int64), np.empty(3), np.empty(3)
    for n in range(len(xyz)):
        for axis in range(3):
            place = np.float64(xyz[n, axis]) / width + (field.shape[axis] - 1) / 2
            cell[axis] = int(place)
            upper[axis] = place - cell[axis]
            lower[axis] = 1.0 - upper[axis]
        total_x, total_y, total_z = np.float64(xyz[n, 0]), np.float64(xyz[n, 1]), np.float64(xyz[n, 2])
        for i in range(2):
            for j in range(2):
                plane = (upper[0] if i else lower[0]) * (upper[1] if j else lower[1])
                for k in range(2):
                    weight = plane * (upper[2] if k else lower[2])
                    node = field[cell[0] + i, cell[1] + j, cell[2] + k]
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
