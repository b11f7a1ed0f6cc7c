"""Batches for PointGroup: the instance fields that its losses need, and the fields of the original.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...runtime.compiled import compiled
from ..data.scene import IGNORED
from ..data.voxels import first_occurrences
from .input import InstanceSample

_MIN_SHAPE = 128  # voxels along an axis


def instance_fields(samples: Sequence[InstanceSample]) -> dict[str, np.ndarray]:
    """Return the fields that losses and grouping need for N >= 1 points, in addition to ``collate_samples``.

    They are ``xyz`` float32 (N, 3), meters; ``instance_labels`` int32 (N,), instance from 0 over all scenes, or -100;
    and ``instance_centers`` float32 (N, 3), mean of the point's instance, all -100 if it has none.
    """
    return {
        "xyz": np.concatenate([sample.scene.xyz for sample in samples]),
        "instance_labels": _shift_instances(samples),
        "instance_centers": np.concatenate(
            [sample.table.gather_for_points(sample.scene.instance, 3) for sample in samples]
        ),
    }


def _shift_instances(samples: Sequence[InstanceSample]) -> np.ndarray:
    """Return instances numbered over all scenes, int32 (N,)."""
    parts: list[np.ndarray] = []
    offset = 0
    for sample in samples:
        instances = sample.scene.instance
        parts.append(np.where(instances >= 0, instances + np.int32(offset), np.int32(IGNORED)))
        offset += len(sample.table.sizes)
    return np.concatenate(parts)


class VoxelMaps(NamedTuple):
    """Voxelization of points."""

    voxel_locs: np.ndarray  # (M, 1 + D) in the dtype of the points' coordinates, in the order of their first points
    p2v_map: np.ndarray  # int32 (N,), the voxel of each point
    # int32 (M, 1 + most points of a voxel): number of points, their indices in ascending order, then zeros
    v2p_map: np.ndarray


def voxelize(locs: np.ndarray) -> VoxelMaps:
    """Return the voxels of integers (N, 1 + D) within int32, scene number in column 0, and the maps both ways."""
    first, inverse = first_occurrences(locs.astype(np.int32))
    max_points = int(np.bincount(inverse).max(initial=0))  # in a voxel
    members = np.zeros((len(first), 1 + max_points), np.int32)
    _fill_members(inverse, members)
    return VoxelMaps(locs[first], inverse.astype(np.int32), members)


@compiled
def _fill_members(p2v_map, table):
    for point in range(len(p2v_map)):
        row = table[p2v_map[point]]
        row[0] += 1
        row[row[0]] = point


def pool_to_voxels(features: paddle.Tensor, p2v_map: paddle.Tensor, num_voxels: int) -> paddle.Tensor:
    """Return the differentiable mean (M, C) of (N, C) over each voxel's points, int (N,); every voxel occurs."""
    channels = features.shape[1]
    if not features.shape[0]:
        return features  # (0, C); kernels may not accept empty input
    rows = p2v_map.unsqueeze(1)
    sums = paddle.scatter_nd_add(paddle.zeros([num_voxels, channels], dtype=features.dtype), rows, features)
    ones = paddle.ones([features.shape[0]], dtype=features.dtype)
    counts = paddle.scatter_nd_add(paddle.zeros([num_voxels], dtype=features.dtype), rows, ones)
    return sums / counts.unsqueeze(1)


def collate_scenes(samples: Sequence[InstanceSample]) -> dict[str, Any]:
    """Return a batch with the fields of the original; N points, M voxels, B scenes, I instances.

    Returns:
        ``locs`` int64 (N, 4), scene number and voxel coordinates, in the order of the scenes;
        ``voxel_locs`` int64 (M, 4), the unique rows of ``locs`` in the order of their first points;
        ``p2v_map`` int32 (N,), row of ``voxel_locs`` of each point;
        ``v2p_map`` int32 (M, 1 + most points of a voxel), number of points and their indices, then zeros;
        ``locs_float`` float32 (N, 3), meters;
        ``feats`` float32 (N, 3), colors in the configured range;
        ``labels`` int64 (N,), class or -100;
        ``instance_labels`` int64 (N,), instance from 0 to I - 1 over all scenes, or -100;
        ``instance_info`` float32 (N, 9), mean, minimum and maximum (x, y, z each, meters) of the instance, else -100;
        ``instance_pointnum`` int32 (I,), points of each instance;
        ``id`` list of B names;
        ``offsets`` int32 (B + 1,), first point of each scene;
        ``spatial_shape`` int64 (3,), voxels from 0 to the largest coordinate, at least 128.
    """
    scenes = [sample.scene for sample in samples]
    sizes = [len(scene.xyz) for scene in scenes]
    locs = np.empty((sum(sizes), 4), np.int64)
    locs[:, 0] = np.repeat(np.arange(len(samples)), sizes)
    locs[:, 1:] = np.concatenate([sample.voxels for sample in samples])
    maps = voxelize(locs)
    extent = locs[:, 1:].max(axis=0, initial=0) + 1
    return {
        "locs": locs,
        "voxel_locs": maps.voxel_locs,
        "p2v_map": maps.p2v_map,
        "v2p_map": maps.v2p_map,
        "locs_float": np.concatenate([scene.xyz for scene in scenes]),
        "feats": np.concatenate([scene.rgb for scene in scenes]),
        "labels": np.concatenate([scene.semantic for scene in scenes]).astype(np.int64),
        "instance_labels": _shift_instances(samples).astype(np.int64),
        "instance_info": np.concatenate([sample.table.gather_for_points(sample.scene.instance) for sample in samples]),
        "instance_pointnum": np.concatenate([sample.table.sizes for sample in samples]),
        "id": [scene.name for scene in scenes],
        "offsets": np.cumsum([0, *sizes], dtype=np.int32),
        "spatial_shape": np.maximum(extent, _MIN_SHAPE),
    }
