"""The usual way to prepare a scene for PointGroup, as the peer of ``scene_memory.py``: SciPy's interpolators, one pass
over all points for each instance, float64 labels.

Written for the comparison after the description of the pipeline in L. Jiang et al., "PointGroup", CVPR 2020, arXiv
2004.01658. Voxels are made by our own functions, a compiled hash table as the original's is.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.interpolate
import scipy.ndimage

PlainScene = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # xyz, colors float32; labels, instances float64


def distort(xyz: np.ndarray, noise: Sequence[np.ndarray], granularity: int, magnitude: float) -> np.ndarray:
    """Elastic distortion with given noise, three arrays on the grid of ``get_grid``."""
    kernels = [np.full(shape, 1 / 3, np.float32) for shape in ((3, 1, 1), (1, 3, 1), (1, 1, 3))]
    for kernel in 2 * kernels:
        noise = [scipy.ndimage.convolve(part, kernel, mode="constant", cval=0) for part in noise]
    axes = [np.linspace(-(nodes - 1) * granularity, (nodes - 1) * granularity, nodes) for nodes in noise[0].shape]
    shifts = [
        scipy.interpolate.RegularGridInterpolator(axes, part, bounds_error=False, fill_value=0)(xyz) for part in noise
    ]
    return xyz + np.stack(shifts, axis=1) * magnitude


def get_grid(xyz: np.ndarray, granularity: int) -> tuple[int, ...]:
    """Shape of the grid of noise around these points."""
    return tuple(np.abs(xyz).max(axis=0).astype(np.int32) // granularity + 3)


def matrix(generator: Any) -> np.ndarray:
    """Distortion, mirror and rotation."""
    result = np.eye(3) + 0.1 * generator.standard_normal((3, 3))
    result[0, 0] *= 1 if generator.random() < 0.5 else -1
    angle = 2 * math.pi * generator.random()
    turn = [[math.cos(angle), math.sin(angle), 0], [-math.sin(angle), math.cos(angle), 0], [0, 0, 1]]
    return result @ turn


def elastic_twice(xyz: np.ndarray, generator: Any) -> np.ndarray:
    """The fine and the coarse pass, in voxels of 2 cm."""
    for granularity, magnitude in ((6, 40.0), (20, 160.0)):
        shape = get_grid(xyz, granularity)
        noise = [generator.standard_normal(shape).astype(np.float32) for _ in range(3)]
        xyz = distort(xyz, noise, granularity, magnitude)
    return xyz


def crop(xyz: np.ndarray, max_points: int, generator: Any) -> tuple[np.ndarray, np.ndarray]:
    """Shifted points, and which are kept."""
    limits = np.array([512.0] * 3)
    extent = xyz.max(axis=0) - xyz.min(axis=0)
    moved, kept = xyz, xyz.min(axis=1) >= 0
    while kept.sum() > max_points:
        moved = xyz + np.clip(limits - extent + 0.001, None, 0) * generator.random(3)
        kept = (moved.min(axis=1) >= 0) & ((moved < limits).sum(axis=1) == 3)
        limits[:2] -= 32
    return moved, kept


def relabel(instance: np.ndarray) -> np.ndarray:
    """Instances without gaps."""
    instance = instance.copy()
    number = 0
    while number < instance.max():
        if not (instance == number).any():
            instance[instance == instance.max()] = number
        number += 1
    return instance


def instance_info(xyz: np.ndarray, instance: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Mean, minimum and maximum of each point's instance, and the sizes of the instances."""
    info, sizes = np.full((len(xyz), 9), -100.0, np.float32), []
    for number in range(int(instance.max()) + 1):
        members = np.where(instance == number)[0]
        own = xyz[members]
        info[members] = np.concatenate([own.mean(axis=0), own.min(axis=0), own.max(axis=0)])
        sizes.append(len(members))
    return info, sizes


def prepare(scene: PlainScene, max_points: int, generator: Any) -> dict[str, Any]:
    """All steps for one scene."""
    xyz, colors, semantic, instance = scene
    middle = xyz @ matrix(generator)
    voxels = elastic_twice(middle * 50, generator)
    voxels -= voxels.min(axis=0)
    voxels, kept = crop(voxels, max_points, generator)
    middle, voxels, colors, semantic = middle[kept], voxels[kept], colors[kept], semantic[kept]
    instance = relabel(instance[kept])
    info, sizes = instance_info(middle, instance.astype(np.int32))
    colors = colors + 0.1 * generator.standard_normal(3).astype(np.float32)
    return {
        "voxels": voxels,
        "xyz": middle,
        "colors": colors,
        "semantic": semantic,
        "instance": instance,
        "info": info,
        "sizes": sizes,
    }


def voxelize(locs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unique rows in the order of their first points, the row of each point, and the points of each row after their
    number."""
    from paddlevit_dist.points.data.voxels import first_occurrences

    first, inverse = first_occurrences(locs.astype(np.int32))
    members = np.zeros((len(first), 1 + int(np.bincount(inverse).max(initial=0))), np.int32)
    fill_members()(inverse, members)
    return locs[first], inverse.astype(np.int32), members


@functools.cache
def fill_members() -> Any:
    """A loop that puts each point into the row of its voxel, compiled."""
    from paddlevit_dist.core.runtime.compiled import compiled

    @compiled
    def fill(p2v_map, table):
        for point in range(len(p2v_map)):
            row = table[p2v_map[point]]
            row[0] += 1
            row[row[0]] = point

    return fill


def merge(scenes: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """A batch with the fields of the original."""
    instances, before = [], 0
    for scene in scenes:
        shifted = scene["instance"].copy()
        shifted[shifted != -100] += before
        before += len(scene["sizes"])
        instances.append(shifted)
    numbers = [np.full((len(scene["voxels"]), 1), n, np.int64) for n, scene in enumerate(scenes)]
    locs = np.concatenate(
        [np.concatenate([n, scene["voxels"].astype(np.int64)], axis=1) for n, scene in zip(numbers, scenes)]
    )
    voxel_locs, p2v_map, v2p_map = voxelize(locs)
    return {
        "locs": locs,
        "voxel_locs": voxel_locs,
        "p2v_map": p2v_map,
        "v2p_map": v2p_map,
        "locs_float": np.concatenate([scene["xyz"] for scene in scenes]).astype(np.float32),
        "feats": np.concatenate([scene["colors"] for scene in scenes]),
        "labels": np.concatenate([scene["semantic"] for scene in scenes]).astype(np.int64),
        "instance_labels": np.concatenate(instances).astype(np.int64),
        "instance_info": np.concatenate([scene["info"] for scene in scenes]),
        "instance_pointnum": np.array([size for scene in scenes for size in scene["sizes"]], np.int32),
        "offsets": np.cumsum([0, *(len(scene["voxels"]) for scene in scenes)], dtype=np.int32),
        "spatial_shape": np.maximum(locs[:, 1:].max(axis=0) + 1, 128),
    }


def merge_ours(samples: Sequence[Any]) -> dict[str, np.ndarray]:
    """The same fields of our samples."""
    scenes = [sample.scene for sample in samples]
    sizes = [len(scene.xyz) for scene in scenes]
    locs = np.empty((sum(sizes), 4), np.int64)
    locs[:, 0] = np.repeat(np.arange(len(samples)), sizes)
    locs[:, 1:] = np.concatenate([sample.voxels for sample in samples])
    instances, before = [], 0
    for sample in samples:
        numbers = sample.scene.instance
        instances.append(np.where(numbers >= 0, numbers + np.int32(before), np.int32(-100)))
        before += len(sample.table.sizes)
    voxel_locs, p2v_map, v2p_map = voxelize(locs)
    return {
        "locs": locs,
        "voxel_locs": voxel_locs,
        "p2v_map": p2v_map,
        "v2p_map": v2p_map,
        "locs_float": np.concatenate([scene.xyz for scene in scenes]),
        "feats": np.concatenate([scene.rgb for scene in scenes]),
        "labels": np.concatenate([scene.semantic for scene in scenes]).astype(np.int64),
        "instance_labels": np.concatenate(instances).astype(np.int64),
        "instance_info": np.concatenate([sample.table.gather_for_points(sample.scene.instance) for sample in samples]),
        "instance_pointnum": np.concatenate([sample.table.sizes for sample in samples]),
        "offsets": np.cumsum([0, *sizes], dtype=np.int32),
        "spatial_shape": np.maximum(locs[:, 1:].max(axis=0, initial=0) + 1, 128),
    }
