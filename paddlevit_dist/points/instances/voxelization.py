"""Points to voxels and back: PointGroup's maps, and means over the points of a voxel.

Source: the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658, whose names and shapes
these are; its mode 4, the mean, is the only one that its configurations use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import paddle

from ..compiled import compiled
from ..voxels import first_occurrences, voxel_means

__all__ = ["VoxelMaps", "members_of_voxels", "pool_to_voxels", "voxel_means", "voxelize"]


class VoxelMaps(NamedTuple):
    """Where points lie.

    Attributes:
        voxel_locs: in the dtype of the points' (M, 1 + D), in the order in which their first points occur.
        p2v_map: int32 (N,), the voxel of each point.
        v2p_map: int32 (M, 1 + most points of a voxel): how many points, which ones in ascending order, then zeros.
    """

    voxel_locs: np.ndarray
    p2v_map: np.ndarray
    v2p_map: np.ndarray


def voxelize(locs: np.ndarray) -> VoxelMaps:
    """The voxels of points and the maps both ways.

    Args:
        locs: integers (N, 1 + D) within int32, the number of the scene in column 0.
    """
    first, inverse = first_occurrences(locs.astype(np.int32))
    return VoxelMaps(locs[first], inverse.astype(np.int32), members_of_voxels(inverse, len(first)))


def members_of_voxels(p2v_map: np.ndarray, num_voxels: int) -> np.ndarray:
    """``VoxelMaps.v2p_map`` for the other map."""
    most = int(np.bincount(p2v_map, minlength=num_voxels).max(initial=0))
    table = np.zeros((num_voxels, 1 + most), np.int32)
    _enter_members(p2v_map, table)
    return table


@compiled
def _enter_members(p2v_map, table):
    for point in range(len(p2v_map)):
        row = table[p2v_map[point]]
        row[0] += 1
        row[row[0]] = point


def pool_to_voxels(features: paddle.Tensor, p2v_map: paddle.Tensor, num_voxels: int) -> paddle.Tensor:
    """Mean of the features of each voxel's points, (M, C), with its gradient.

    Args:
        features: floating (N, C).
        p2v_map: int32 or int64 (N,); every voxel occurs.
    """
    channels = features.shape[1]
    if not features.shape[0]:
        return features  # (0, C), and no kernel is asked to work on nothing
    rows = p2v_map.unsqueeze(1)
    sums = paddle.scatter_nd_add(paddle.zeros([num_voxels, channels], dtype=features.dtype), rows, features)
    ones = paddle.ones([features.shape[0]], dtype=features.dtype)
    counts = paddle.scatter_nd_add(paddle.zeros([num_voxels], dtype=features.dtype), rows, ones)
    return sums / counts.unsqueeze(1)
