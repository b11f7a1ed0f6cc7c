"""From a scene to what PointGroup reads of it, in a loader process, with one generator for each reading.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658. Its
evaluation turns and mirrors scenes at random too; ours takes them as they are, so that it gives the same result again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ...contracts.dataset import Samples
from ..compiled import compiled
from ..data.augment import affine_matrix, mapped
from ..data.elastic import elastic_distortion
from ..data.scene import COLOR_RANGE, IGNORED, Scene
from ..data.scenes import SceneDataset

_STEP_VOXELS = 32  # by which the crop gets narrower, for each try
_SLACK = 0.001


class InstanceTable(NamedTuple):
    """Where the instances of a scene lie.

    Attributes:
        rows: float32 (instances, 9): mean, minimum and maximum (x, y, z each, metres) of each instance's points.
        sizes: int32 (instances,), points of each.
    """

    rows: np.ndarray
    sizes: np.ndarray

    def of_points(self, instance: np.ndarray, columns: int = 9) -> np.ndarray:
        """The first columns for the instance that each point belongs to, -100 throughout where it belongs to none.

        Args:
            instance: integers (n,), as ``instance_table`` was given.

        Returns:
            float32 (n, columns).
        """
        last = np.full((1, columns), IGNORED, np.float32)  # where -1 points to
        return np.concatenate([self.rows[:, :columns], last])[np.maximum(instance, -1)]


def crop(
    xyz: np.ndarray, max_points: int, full_scale: int, generator: np.random.Generator
) -> Tuple[np.ndarray, np.ndarray]:
    """Move the scene at random behind a box until at most ``max_points`` points are inside.

    Each try draws three numbers; after it the box, ``full_scale`` voxels wide at first, is 32 voxels narrower in x and
    y. A scene that has few enough points stays whole, however large it is.

    A box that would leave nothing, for which the original has no rule, ends the search: of the points of the try before
    it, ``max_points`` are chosen at random.

    Args:
        xyz: float (n, 3), voxels, none negative.

    Returns:
        The moved points (n, 3), which are not negative where they are kept, and which to keep, bool (n,).
    """
    moved, kept = xyz, np.ones(len(xyz), bool)
    extent = np.array([np.ptp(column) if len(column) else 0.0 for column in xyz.T])
    limits = np.full(3, float(full_scale))
    while np.count_nonzero(kept) > max_points:
        offset = np.minimum(limits - extent + _SLACK, 0.0) * generator.random(3)
        tried = xyz + offset
        inside = np.ones(len(xyz), bool)
        for column, limit in zip(tried.T, limits):
            inside &= (column >= 0.0) & (column < limit)
        if not inside.any():
            chosen = generator.choice(np.flatnonzero(kept), max_points, replace=False)
            kept = np.zeros(len(xyz), bool)
            kept[chosen] = True
            break
        moved, kept = tried, inside
        limits[:2] -= _STEP_VOXELS
    return moved, kept


def without_gaps(instance: np.ndarray) -> np.ndarray:
    """Instance numbers from 0 on, after some instances have lost all their points.

    As the original does it: the largest number moves into the lowest gap, until there is none.

    Args:
        instance: integers (n,), -100 for none.
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


def instance_table(xyz: np.ndarray, instance: np.ndarray) -> InstanceTable:
    """Mean, minimum, maximum and number of points of each instance; the numbers have no gaps.

    A scene without instances has no sizes. (The original reports -99 instances there.)

    Args:
        xyz: float (n, 3).
        instance: integers (n,), from 0 or -100.
    """
    number = int(instance.max(initial=-1)) + 1
    rows, sizes = np.zeros((number, 9)), np.zeros(number, np.int64)
    rows[:, 3:6], rows[:, 6:] = np.inf, -np.inf
    _gather_instances(xyz, instance, rows, sizes)
    rows[:, :3] /= sizes[:, None]
    return InstanceTable(rows.astype(np.float32), sizes.astype(np.int32))


@compiled
def _gather_instances(xyz, instance, rows, sizes):
    """Sums, minima and maxima into the rows."""
    for n in range(len(xyz)):
        if instance[n] >= 0:
            row = rows[instance[n]]
            sizes[instance[n]] += 1
            for axis in range(3):
                value = np.float64(xyz[n, axis])
                row[axis] += value
                row[3 + axis] = min(row[3 + axis], value)
                row[6 + axis] = max(row[6 + axis], value)


_REFERENCE_SCALE = 50  # voxels per metre that the granularities and magnitudes are meant for
_ELASTIC = ((6, 40.0), (20, 160.0))  # granularity and magnitude of each pass, in voxels of that size


@dataclass(frozen=True)
class Changes:
    """What training changes at random about a scene.

    Args:
        distortion: standard deviation of what is added to each element of the matrix that maps the points.
        flip: probability of mirroring x.
        rotation: turn around z by any angle.
        elastic: distort the voxel coordinates, finely and then coarsely.
        color_noise: standard deviation of a common shift of each channel, of colours from -1 to 1.
        max_points: a larger scene is cropped to this many points; None: never.
    """

    distortion: float = 0.1
    flip: float = 0.5
    rotation: bool = True
    elastic: bool = True
    color_noise: float = 0.1
    max_points: Optional[int] = 250_000

    def matrix(self, generator: np.random.Generator) -> np.ndarray:
        """A random matrix for ``xyz @ matrix``, float64 (3, 3)."""
        noise = generator.standard_normal((3, 3)) * self.distortion
        is_flipped = bool(generator.random() < self.flip)
        angle = 2.0 * math.pi * generator.random()
        return affine_matrix(noise, is_flipped, angle=angle if self.rotation else 0.0)


class InstanceSample(NamedTuple):
    """A scene of n points as the network reads it.

    Attributes:
        name: of the scene.
        voxels: int32 (n, 3), from 0.
        xyz: float32 (n, 3), metres, mapped but not distorted.
        colors: float32 (n, 3), in the range that is asked for.
        semantic: int16 (n,), class or -100.
        instance: int32 (n,), from 0 without gaps, or -100.
        table: where the instances lie.
        offset: ``Scene.offset``; of a scene that was not mapped.
    """

    name: str
    voxels: np.ndarray
    xyz: np.ndarray
    colors: np.ndarray
    semantic: np.ndarray
    instance: np.ndarray
    table: InstanceTable
    offset: Tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class InstanceSamples(Samples):
    """A data set of scenes with everything that is done to them: what a loader process reads.

    Args:
        scale: voxels per metre.
        full_scale: width of the box that a scene is first cropped to, in voxels.
        changes: of training scenes; None takes them as they are, whole.
        color_range: what colours of 0 and 255 become.
        notices: lines for the log.
    """

    dataset: SceneDataset
    scale: float
    full_scale: int = 512
    changes: Optional[Changes] = None
    color_range: Tuple[float, float] = COLOR_RANGE
    notices: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def describe(self, index: int) -> str:
        return self.dataset.describe(index)

    def sample(self, index: int, generator: np.random.Generator) -> InstanceSample:
        """Scene ``index``; all that is random comes from ``generator``."""
        scene = self.dataset.read(index)
        return prepare_scene(scene, self.scale, self.full_scale, self.changes, generator, self.color_range)


def prepare_scene(
    scene: Scene,
    scale: float,
    full_scale: int,
    changes: Optional[Changes],
    generator: np.random.Generator,
    color_range: Tuple[float, float] = COLOR_RANGE,
) -> InstanceSample:
    """Map, scale, distort, move to the origin, crop, number the instances anew, and locate them."""
    xyz = scene.xyz
    if changes is not None:
        xyz = mapped(xyz.astype(np.float64), changes.matrix(generator)).astype(np.float32)
    voxels = voxel_coordinates(xyz, scale, changes is not None and changes.elastic, generator)  # (n, 3) float64
    colors = scene.rgb.astype(np.float32)
    low, high = color_range
    colors *= np.float32((high - low) / 255)
    colors += np.float32(low)
    semantic, instance = scene.semantic, scene.instance.astype(np.int32)
    if changes is not None and changes.max_points is not None and len(xyz) > changes.max_points:
        voxels, kept = crop(voxels, changes.max_points, full_scale, generator)
        voxels, xyz, colors, semantic, instance = (a[kept] for a in (voxels, xyz, colors, semantic, instance))
    if changes is not None and changes.color_noise:
        deviation = changes.color_noise * (high - low) / 2  # that of the original's colours, from -1 to 1
        colors += (generator.standard_normal(3) * deviation).astype(np.float32)
    instance = without_gaps(instance)
    # No coordinate is negative: the conversion rounds down.
    return InstanceSample(
        scene.name,
        voxels.astype(np.int32),
        xyz,
        colors,
        semantic,
        instance,
        instance_table(xyz, instance),
        scene.offset,
    )


def voxel_coordinates(xyz: np.ndarray, scale: float, elastic: bool, generator: np.random.Generator) -> np.ndarray:
    """Coordinates in voxels with the scene's minimum at 0, float64 (n, 3).

    Args:
        xyz: float (n, 3), metres.
        elastic: distort them on the way.
    """
    voxels = xyz.astype(np.float64) * scale
    if elastic:
        for granularity, magnitude in _ELASTIC:
            step = max(granularity * scale // _REFERENCE_SCALE, 1)
            voxels = elastic_distortion(voxels, step, magnitude * scale / _REFERENCE_SCALE, generator)
    move_to_origin(voxels)
    return voxels


def move_to_origin(voxels: np.ndarray) -> None:
    """Subtract the minimum along each axis, in place, of float (n, 3); by column, since numpy is slow along rows."""
    for axis in range(3 if len(voxels) else 0):
        voxels[:, axis] -= voxels[:, axis].min()
