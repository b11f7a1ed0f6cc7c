"""Batches of scenes: with the original's fields, and with what the network reads of them.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import numpy as np
import paddle

from ..compiled import compiled
from ..data.scene import IGNORED, Scene
from ..data.voxels import features_of_voxels, first_occurrences, voxel_means
from ..sparse import PlanSpec, build_plan
from .samples import Changes, InstanceSample, prepare_scene

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


def collate_scenes(samples: Sequence[InstanceSample], smallest_shape: int = 128) -> Dict[str, Any]:
    """A batch with the fields of the original; N points, M voxels, B scenes, I instances.

    Args:
        smallest_shape: least width of ``spatial_shape``.

    Returns:
        ``locs`` int64 (N, 4), number of the scene and voxel coordinates, in the order of the scenes;
        ``voxel_locs`` int64 (M, 4), the different rows of ``locs`` in the order of their first points;
        ``p2v_map`` int32 (N,), row of ``voxel_locs`` of each point;
        ``v2p_map`` int32 (M, 1 + most points of a voxel), number of points and which ones, then zeros;
        ``locs_float`` float32 (N, 3), metres;
        ``feats`` float32 (N, 3), colours from -1 to 1;
        ``labels`` int64 (N,), class or -100;
        ``instance_labels`` int64 (N,), instance from 0 to I - 1 over all scenes, or -100;
        ``instance_info`` float32 (N, 9), mean, minimum and maximum (x, y, z each, metres) of the point's instance, -100
        throughout where it has none;
        ``instance_pointnum`` int32 (I,), points of each instance;
        ``id`` list of B names;
        ``offsets`` int32 (B + 1,), where each scene begins;
        ``spatial_shape`` int64 (3,), voxels from 0 to the largest coordinate, at least ``smallest_shape``.
    """
    sizes = [len(sample.voxels) for sample in samples]
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
        "locs_float": np.concatenate([sample.xyz for sample in samples]),
        "feats": np.concatenate([sample.colors for sample in samples]),
        "labels": np.concatenate([sample.semantic for sample in samples]).astype(np.int64),
        "instance_labels": _shifted_instances(samples).astype(np.int64),
        "instance_info": np.concatenate([sample.table.of_points(sample.instance) for sample in samples]),
        "instance_pointnum": np.concatenate([sample.table.sizes for sample in samples]),
        "id": [sample.name for sample in samples],
        "offsets": np.cumsum([0, *sizes], dtype=np.int32),
        "spatial_shape": np.maximum(extent, smallest_shape),
    }


def network_batch(
    samples: Sequence[InstanceSample],
    spec: Optional[PlanSpec],
    use_positions: bool = True,
    voxel_features: str = "mean",
) -> Dict[str, Any]:
    """What the network and its losses read of a batch, with the work on voxels done; at least one point.

    Args:
        spec: of the network; None leaves the plan out, for looking at a batch without a network.
        use_positions: the voxels show the positions of their points beside the colours.
        voxel_features: "mean" over the points of each voxel, or its "first" point's.

    Returns:
        ``voxel_feats`` float32 (M, 6 or 3); ``plan_pairs`` and ``plan_header`` of its coordinate plan;
        ``instance_centres`` float32 (N, 3), the first columns of ``instance_info``; and of ``collate_scenes`` the
        fields ``p2v_map``, ``locs_float``, ``labels``, ``offsets`` and, in int32, ``instance_labels``.
    """
    sizes = [len(sample.voxels) for sample in samples]
    rows = np.empty((sum(sizes), 4), np.int32)
    rows[:, 0] = np.repeat(np.arange(len(samples), dtype=np.int32), sizes)
    rows[:, 1:] = np.concatenate([sample.voxels for sample in samples])
    first, inverse = first_occurrences(rows)
    xyz = np.concatenate([sample.xyz for sample in samples])
    shown = [np.concatenate([sample.colors for sample in samples])] + ([xyz] if use_positions else [])
    features = np.concatenate(shown, axis=1)  # (N, 6 or 3)
    plan = {} if spec is None else build_plan(rows[first], spec, len(samples))
    return {
        "voxel_feats": features_of_voxels(features, first, inverse, voxel_features),
        "p2v_map": inverse.astype(np.int32),
        "locs_float": xyz,
        "labels": np.concatenate([sample.semantic for sample in samples]).astype(np.int64),
        "instance_labels": _shifted_instances(samples),
        "instance_centres": np.concatenate([sample.table.of_points(sample.instance, 3) for sample in samples]),
        "offsets": np.cumsum([0, *sizes], dtype=np.int32),
        **plan,
    }


def compile_loops() -> None:
    """Compile, or load, the loops that a loader process runs: once, for all that are forked from this process."""
    labels = np.zeros(1, np.int16)
    scene = Scene(np.zeros((1, 3), np.float32), np.zeros((1, 3), np.uint8), labels, labels, "one point")
    for array in scene[:4]:
        array.flags.writeable = False  # as those of a file are: numba compiles for each kind of array
    for changes in (None, Changes()):
        samples = [prepare_scene(scene, 50.0, 512, changes, np.random.default_rng(0))]
        network_batch(samples, None)
        collate_scenes(samples)


def _shifted_instances(samples: Sequence[InstanceSample]) -> np.ndarray:
    """Instances numbered over all scenes, int32 (N,)."""
    parts: List[np.ndarray] = []
    before = 0
    for sample in samples:
        parts.append(np.where(sample.instance >= 0, sample.instance + np.int32(before), np.int32(IGNORED)))
        before += len(sample.table.sizes)
    return np.concatenate(parts)
