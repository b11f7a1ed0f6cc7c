"""PointGroup's input from a scene: augmentation, voxels, and instance statistics.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658. Its
evaluation also rotates and mirrors scenes at random; ours leaves them unchanged, so that it is reproducible.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...core.runtime.compiled import compiled
from ..data.augment import (
    AffineMap,
    ColorNoise,
    ElasticDistortion,
    MatrixDistortion,
    RandomFlip,
    RandomRotation,
    Step,
    select,
    to_meters,
)
from ..data.features import point_features
from ..data.samples import SceneSamples, SceneView
from ..data.scene import IGNORED, Scene, VoxelizedScene
from ..data.voxels import discretize
from .settings import InstancePointSection

_SHRINK_VOXELS = 32  # of the crop, on each try
_SLACK = 0.001
_REFERENCE_SCALE = 50  # voxels per meter for which the granularities and magnitudes were chosen
_COLOR_NOISE = 0.1  # deviation of a shift of each channel, in halves of POINTS.COLOR_RANGE; from the published program
_FLIP_PROBABILITY = 0.5  # of mirroring x
_ELASTIC = ((6, 40.0), (20, 160.0))  # granularity and magnitude of each pass, in voxels of the reference scale


@dataclass(frozen=True)
class VoxelPlacement:
    """Scale a ``Scene`` by voxels per meter, and colors 0 to 255 to ``color_range``, giving a ``VoxelizedScene``."""

    scale: float
    color_range: tuple[float, float]

    def __call__(self, scene: Scene, generator: np.random.Generator | None) -> VoxelizedScene:
        """Return the scaled scene."""
        low, high = self.color_range
        colors = scene.rgb.astype(np.float32)
        colors *= np.float32((high - low) / 255)
        colors += np.float32(low)
        places, instance = scene.xyz.astype(np.float64) * self.scale, scene.instance.astype(np.int32)
        rest = scene.name, scene.offset, scene.channels, scene.floor
        return VoxelizedScene(places, scene.xyz, colors, scene.semantic, instance, *rest)


@dataclass(frozen=True)
class ShiftToOrigin:
    """Shift the minimum along each axis to 0."""

    def __call__(self, scene: VoxelizedScene, generator: np.random.Generator | None) -> VoxelizedScene:
        """Return the shifted scene."""
        lowest = [values.min(initial=np.inf) for values in scene.xyz.T]  # numpy is slow along rows
        return scene._replace(xyz=scene.xyz - lowest)


@dataclass(frozen=True)
class BoxCrop:
    """Crop a scene that has more than ``max_points`` points."""

    max_points: int
    full_scale: int

    def __call__(self, scene: VoxelizedScene, generator: np.random.Generator) -> VoxelizedScene:
        """Return the cropped scene."""
        if len(scene.xyz) <= self.max_points:
            return scene
        shifted, keep = crop(scene.xyz, self.max_points, self.full_scale, generator)
        return select(scene._replace(xyz=shifted), keep)


def crop(
    xyz: np.ndarray, max_points: int, full_scale: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Shift the scene at random relative to a box until at most ``max_points`` points are inside.

    Each try draws three numbers, then shrinks the box, initially ``full_scale`` voxels wide, by 32 voxels in x and y. A
    scene with few enough points is not cropped, at any size. A box without points, a case that the original does not
    handle, ends the search: ``max_points`` points of the previous try are selected at random.

    ``xyz`` is float (n, 3), voxels, none negative. Returns the shifted points (n, 3), non-negative where kept, and a
    mask of the points to keep, bool (n,).
    """
    shifted, keep = xyz, np.ones(len(xyz), bool)
    extent = np.array([np.ptp(values) if len(values) else 0.0 for values in xyz.T])
    limits = np.full(3, float(full_scale))
    while np.count_nonzero(keep) > max_points:
        offset = np.minimum(limits - extent + _SLACK, 0.0) * generator.random(3)
        candidate = xyz + offset
        inside = np.ones(len(xyz), bool)
        for column, limit in zip(candidate.T, limits):
            inside &= (column >= 0.0) & (column < limit)
        if not inside.any():
            selected = generator.choice(np.flatnonzero(keep), max_points, replace=False)
            keep = np.zeros(len(xyz), bool)
            keep[selected] = True
            break
        shifted, keep = candidate, inside
        limits[:2] -= _SHRINK_VOXELS
    return shifted, keep


def build_steps(points: InstancePointSection, scale: float, is_training: bool, unit_m: float = 1.0) -> tuple[Step, ...]:
    """Return the steps configured under POINTS, in the order of the published program; evaluation is deterministic.

    ``scale`` is voxels per meter, ``unit_m`` meters per unit of the scenes' coordinates. Evaluation does not crop.
    """
    keys, (low, high) = points.INSTANCES, points.COLOR_RANGE
    rotation = RandomRotation(2, 2.0 * math.pi if keys.ROTATION else 0.0, both_directions=False)
    passes = [
        (max(granularity * scale // _REFERENCE_SCALE, 1), magnitude * scale / _REFERENCE_SCALE)
        for granularity, magnitude in _ELASTIC
    ]
    # The original's colors range from -1 to 1.
    noise = ColorNoise(_COLOR_NOISE * (high - low) / 2)
    placement = VoxelPlacement(scale, (low, high))
    if not is_training:
        return (*to_meters(unit_m), placement, ShiftToOrigin())
    distortion = MatrixDistortion(keys.DISTORTION), RandomFlip(_FLIP_PROBABILITY, axes=1), rotation
    steps: list[Step] = [AffineMap(distortion, centered=False), placement]
    if keys.ELASTIC:
        steps.append(ElasticDistortion(tuple(passes)))
    steps.append(ShiftToOrigin())
    if points.MAX_POINTS is not None:
        steps.append(BoxCrop(points.MAX_POINTS, keys.FULL_SCALE))
    return (*to_meters(unit_m), *steps, noise)


class InstanceSample(NamedTuple):
    """A scene of n points as network input."""

    # positions in meters, mapped but not distorted; colors float32, in the requested range; instances int32, contiguous
    # from 0, or -100
    scene: Scene
    views: list[SceneView]  # voxels of the scene, starting at 0; a single view
    table: "InstanceTable"  # statistics of the instances

    @property
    def voxels(self) -> np.ndarray:
        """Voxel of each point, int32 (n, 3)."""
        return self.views[0].voxels[self.views[0].inverse]


@dataclass(frozen=True)
class InstanceSamples(SceneSamples):
    """Scenes as PointGroup's input: points have the features and, with ``has_positions``, positions after them."""

    notices: Sequence[str] = ()
    has_positions: bool = True

    def voxelize(self, scene: VoxelizedScene) -> InstanceSample:
        """Return the sample of a scene to which all steps have been applied."""
        rest = scene.name, scene.offset, scene.channels
        instance = remove_gaps(scene.instance)
        voxelized = Scene(scene.positions, scene.rgb, scene.semantic, instance, *rest, floor=scene.floor)
        names = (*self.features, "xyz") if self.has_positions else self.features
        features = point_features(voxelized, slice(None), names, None)  # (n, channels)
        view = self.view(discretize(scene.xyz), lambda points: features[points])
        return InstanceSample(voxelized, [view], compute_instance_table(scene.positions, instance))


class InstanceTable(NamedTuple):
    """Statistics of a scene's instances."""

    # float32 (instances, 9): mean, minimum and maximum (x, y, z each, meters) of each instance's points
    rows: np.ndarray
    sizes: np.ndarray  # int32 (instances,), points of each

    def gather_for_points(self, instance: np.ndarray, columns: int = 9) -> np.ndarray:
        """Return the first columns, float32 (n, columns), of the instance (n,) of each point, -100 if it has none."""
        last = np.full((1, columns), IGNORED, np.float32)  # selected by index -1
        return np.concatenate([self.rows[:, :columns], last])[np.maximum(instance, -1)]


def remove_gaps(instance: np.ndarray) -> np.ndarray:
    """Renumber instances (n,), -100 for none, contiguously from 0, after some have lost all their points.

    Like the original, this moves the largest number into the lowest gap until there are no gaps.
    """
    present = set(np.unique(instance[instance >= 0]).tolist())
    moves = {}
    gap = 0
    while present and gap < max(present):
        if gap not in present:
            largest = max(present)
            present.remove(largest)
            present.add(gap)
            moves[largest] = gap
        gap += 1
    if not moves:
        return instance
    renumbered = np.arange(max(moves) + 1, dtype=instance.dtype)
    renumbered[list(moves)] = list(moves.values())
    return np.where(instance >= 0, renumbered[np.maximum(instance, 0)], instance)


def compute_instance_table(xyz: np.ndarray, instance: np.ndarray) -> InstanceTable:
    """Compute statistics of instances (n,), contiguous from 0 or -100, of points (n, 3).

    A scene without instances has no sizes. (The original reports -99 instances then.)
    """
    number = int(instance.max(initial=-1)) + 1
    rows, sizes = np.zeros((number, 9)), np.zeros(number, np.int64)
    rows[:, 3:6], rows[:, 6:] = np.inf, -np.inf
    _accumulate_instances(xyz, instance, rows, sizes)
    rows[:, :3] /= sizes[:, None]
    return InstanceTable(rows.astype(np.float32), sizes.astype(np.int32))


@compiled
def _accumulate_instances(xyz, instance, rows, sizes):
    for n in range(len(xyz)):
        if instance[n] >= 0:
            row = rows[instance[n]]
            sizes[instance[n]] += 1
            for axis in range(3):
                value = np.float64(xyz[n, axis])
                row[axis] += value
                row[3 + axis] = min(row[3 + axis], value)
                row[6 + axis] = max(row[6 + axis], value)


def compile_loop() -> None:
    """Compile or load the loop of ``compute_instance_table``: once, before the processes are forked."""
    xyz, instance = np.zeros((1, 3), np.float32), np.zeros(1, np.int32)
    compute_instance_table(xyz, instance)
    xyz.flags.writeable = False  # like arrays from a file: numba compiles for each kind of array
    compute_instance_table(xyz, instance)
