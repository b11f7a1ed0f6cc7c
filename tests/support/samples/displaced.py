"""Elastic distortion by noise that is given, as other implementations take it."""

import numpy as np

from paddlevit_dist.points.data.elastic import displace_in_slabs, grid_shape


def displace(xyz: np.ndarray, noise: np.ndarray, granularity: float, magnitude: float) -> np.ndarray:
    """Displace points (N, 3) by the given noise, see ``elastic_distortion``; ValueError if its grid is too small.

    ``noise`` is float32 (3, x nodes, y nodes, z nodes), one displacement for each axis, on a grid around the origin, of
    ``grid_shape`` or larger.
    """
    required = grid_shape(xyz, granularity)
    if noise.shape[0] != 3 or any(nodes < minimum for nodes, minimum in zip(noise.shape[1:], required)):
        raise ValueError(f"noise has shape {noise.shape}, expected at least {(3, *required)} for these points")
    return displace_in_slabs(xyz, noise.shape[1:], lambda first, last: noise[:, first:last], granularity, magnitude)
