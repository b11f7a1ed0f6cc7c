"""Random augmentation of a scene: its shape, its colors, its selection of points, and mixing two scenes.

Both tasks use these steps; each builds a list of them from its keys, in its own order. A step is called as
``step(scene, generator)`` and returns a new scene, a ``Scene`` or another named tuple with the fields that the step
changes; the input arrays are not modified. All randomness comes from ``generator``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.compiled import compiled
from .scene import IGNORED, NORMAL, Scene

GRAY = 128

Step = Callable[[Any, np.random.Generator], Any]


def apply(steps: Sequence[Step], scene: Any, generator: np.random.Generator) -> Any:
    """Apply all steps to the scene in order."""
    for step in steps:
        scene = step(scene, generator)
    return scene


@dataclass(frozen=True)
class RandomApply:
    """A step applied with ``probability``."""

    probability: float
    step: Step

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        return self.step(scene, generator) if generator.random() < self.probability else scene


@dataclass(frozen=True)
class MatrixDistortion:
    """Part of a map: add normal noise of standard deviation ``deviation`` to each element."""

    deviation: float

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return matrix + generator.standard_normal((3, 3)) * self.deviation


@dataclass(frozen=True)
class RandomFlip:
    """Part of a map: negate a diagonal element with ``probability``, for x only, or for x and y independently.

    As in PointGroup: since the noise is added first, the result is not quite a mirror image.
    """

    probability: float
    axes: int

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        signs = np.ones((3, 3))
        for axis in range(self.axes):
            if generator.random() < self.probability:
                signs[axis, axis] = -1.0
        return matrix * signs


@dataclass(frozen=True)
class RandomRotation:
    """Part of a map: rotate about axis 0, 1 or 2 by at most ``largest`` radians, in one or both directions."""

    axis: int
    largest: float
    both_ways: bool = True

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        angle = generator.uniform(-1.0 if self.both_ways else 0.0, 1.0) * self.largest
        return matrix @ rotation(self.axis, angle) if angle else matrix


@dataclass(frozen=True)
class RandomScale:
    """Part of a map: scale all lengths by a factor between ``low`` and ``high``."""

    low: float
    high: float

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return generator.uniform(self.low, self.high) * matrix


def rotation(axis: int, angle: float) -> np.ndarray:
    """float64 (3, 3) for ``xyz @ matrix``; about z it rotates from x toward y.

    Args:
        axis: 0, 1 or 2.
        angle: radians.
    """
    one, other = [(1, 2), (2, 0), (0, 1)][axis]
    matrix = np.eye(3)
    matrix[one, one] = matrix[other, other] = math.cos(angle)
    matrix[one, other], matrix[other, one] = math.sin(angle), -math.sin(angle)
    return matrix


@dataclass(frozen=True)
class AffineMap:
    """Map all points by one random matrix.

    Args:
        parts: applied in order to the identity to build the matrix.
        centered: keep the center of the scene's bounding box on the floor fixed; else the origin, as in PointGroup.
    """

    parts: tuple[Step, ...]
    centered: bool = True

    def matrix(self, generator: np.random.Generator) -> np.ndarray:
        """A random matrix for ``xyz @ matrix``, float64 (3, 3)."""
        return apply(self.parts, np.eye(3), generator)

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        matrix = self.matrix(generator)
        scene = with_turned_normals(scene, matrix)
        if not self.centered:
            return scene._replace(xyz=apply_matrix(scene.xyz.astype(np.float64), matrix).astype(np.float32))
        middle = _middle(scene.xyz)
        return scene._replace(xyz=(scene.xyz - middle) @ matrix.astype(np.float32) + middle)


def with_turned_normals(scene: Any, matrix: np.ndarray) -> Any:
    """``scene`` with the normals that its surfaces have once its points are ``xyz @ matrix``: mapped by the transposed
    inverse, which keeps them upright on surfaces that are stretched, and as long as they were."""
    if NORMAL not in scene.channels:
        return scene
    normal = scene.channels[NORMAL]
    turned = apply_matrix(normal.astype(np.float64), np.linalg.inv(matrix).T)
    lengths = [np.sqrt((vectors**2).sum(axis=1, keepdims=True)) for vectors in (normal, turned)]
    turned *= lengths[0] / np.maximum(lengths[1], np.finfo(np.float64).tiny)
    return scene._replace(channels={**scene.channels, NORMAL: turned.astype(np.float32)})


@dataclass(frozen=True)
class MetersConversion:
    """Coordinates in a unit of ``unit_m`` meters become meters."""

    unit_m: float

    def __call__(self, scene: Any, generator: np.random.Generator | None) -> Any:
        return scene._replace(xyz=scene.xyz * np.float32(self.unit_m))


def to_meters(unit_m: float) -> tuple[Step, ...]:
    """The step for coordinates in this unit; none where it is the meter."""
    return () if unit_m == 1.0 else (MetersConversion(unit_m),)


def apply_matrix(xyz: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """``xyz @ matrix`` for (N, 3) and (3, 3), without BLAS: in a loader process its threads would wait for one another
    longer than this takes."""
    x, y, z = xyz.T
    return np.stack([x * column[0] + y * column[1] + z * column[2] for column in matrix.T], axis=1)


@dataclass(frozen=True)
class ElasticDistortion:
    """Elastic distortion in several passes, usually a fine one and then a coarse one.

    Args:
        passes: granularity and magnitude of each ``elastic_distortion``, in the unit of the coordinates.
        centered: center the noise grid on the scene; else on the origin, as in PointGroup.
    """

    passes: tuple[tuple[float, float], ...]
    centered: bool = True

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        if not len(scene.xyz):
            return scene
        middle = _middle(scene.xyz) if self.centered else np.zeros(3, np.float32)
        xyz = scene.xyz - middle
        for granularity, magnitude in self.passes:
            xyz = elastic_distortion(xyz, granularity, magnitude, generator)
        return scene._replace(xyz=xyz + middle)


@dataclass(frozen=True)
class PointJitter:
    """Jitter every point with normal noise, at most three standard deviations along each axis."""

    deviation_m: float

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        noise = generator.standard_normal(scene.xyz.shape, dtype=np.float32)
        return scene._replace(xyz=scene.xyz + np.clip(noise, -3.0, 3.0) * np.float32(self.deviation_m))


@dataclass(frozen=True)
class PointDropout:
    """Drop a fraction of the points; never all of them."""

    share: float

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        kept = generator.random(len(scene.xyz)) >= self.share
        return select(scene, kept) if kept.any() else scene


@dataclass(frozen=True)
class PointColorJitter:
    """Add noise to each point's colors, and one shift to all of them.

    Args:
        deviation: of a point's noise, on a scale of 255.
        shift: largest shift of a channel either way, on a scale of 255.
    """

    deviation: float
    shift: float

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        shift = generator.uniform(-self.shift, self.shift, 3).astype(np.float32)
        noise = generator.standard_normal(scene.rgb.shape, dtype=np.float32) * np.float32(self.deviation)
        return scene._replace(rgb=_as_bytes(scene.rgb + noise + shift))


@dataclass(frozen=True)
class ColorNoise:
    """Add one normal shift of standard deviation ``deviation`` to all colors if they are float32."""

    deviation: float

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        return scene._replace(rgb=scene.rgb + (generator.standard_normal(3) * self.deviation).astype(np.float32))


@dataclass(frozen=True)
class ColorContrast:
    """Stretch each channel to its full range, blended with the original by a random weight."""

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        if not len(scene.rgb):
            return scene
        low, high = scene.rgb.min(axis=0).astype(np.float32), scene.rgb.max(axis=0).astype(np.float32)
        share = np.float32(generator.random())
        stretched = (scene.rgb - low) * (255.0 / np.maximum(high - low, 1.0))
        return scene._replace(rgb=_as_bytes((1.0 - share) * scene.rgb + share * stretched))


@dataclass(frozen=True)
class ColorDrop:
    """Remove all color: every point becomes gray."""

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        return scene._replace(rgb=np.full_like(scene.rgb, GRAY))


@dataclass(frozen=True)
class Mix3D:
    """Overlay another scene on this one with ``probability``.

    Args:
        dataset: source of the other scene.
        steps: applied to the other scene; this one has already been through them.
    """

    dataset: Any
    steps: tuple[Step, ...]
    probability: float

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        # Always drawn, so that the probability changes nothing else about a sample.
        is_mixed = generator.random() < self.probability
        partner = int(generator.integers(len(self.dataset)))
        return mix(scene, apply(self.steps, self.dataset.read(partner), generator)) if is_mixed else scene


def mix(scene: Scene, other: Scene) -> Scene:
    """Two scenes superimposed, each centered on the origin on the floor, with the instances of both, and the channels
    that both have.

    Source: A. Nekrasov et al., "Mix3D: Out-of-Context Data Augmentation for 3D Scenes", 3DV 2021, arXiv 2110.02210.
    """
    beyond = int(scene.instance.max(initial=-1)) + 1
    shifted = np.where(other.instance == IGNORED, IGNORED, other.instance + max(beyond, 0))
    return Scene(
        np.concatenate([part.xyz - _middle(part.xyz) for part in (scene, other)]),
        np.concatenate([scene.rgb, other.rgb]),
        np.concatenate([scene.semantic, other.semantic]),
        np.concatenate([scene.instance, shifted.astype(scene.instance.dtype)]),
        f"{scene.name}+{other.name}",
        channels={
            name: np.concatenate([values, other.channels[name]])
            for name, values in scene.channels.items()
            if name in other.channels
        },
    )


@dataclass(frozen=True)
class PointCrop:
    """The points around a random labeled point (around any, if none has a label), in their original order.

    Args:
        shape: "sphere", or "block", which is square on the floor and reaches over all heights.
        size_m: diameter of the sphere, or edge of the block.
    """

    shape: str
    size_m: float

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        if not len(scene.xyz):
            return scene
        labeled = np.flatnonzero(scene.semantic != IGNORED)
        chosen = int(generator.integers(len(labeled) or len(scene.xyz)))
        center = scene.xyz[labeled[chosen] if len(labeled) else chosen]
        axes = range(3 if self.shape == "sphere" else 2)
        near = np.flatnonzero(np.abs(scene.xyz[:, 0] - center[0]) <= self.size_m / 2)
        for axis in axes[1:]:  # of ever fewer points
            near = near[np.abs(scene.xyz[near, axis] - center[axis]) <= self.size_m / 2]
        if self.shape == "sphere":
            near = near[((scene.xyz[near] - center) ** 2).sum(axis=1) <= (self.size_m / 2) ** 2]
        return select(scene, near)


@dataclass(frozen=True)
class CropToBudget:
    """The ``max_points`` points nearest to a random point of the scene, measured along the floor, in their original
    order; the scene itself if it has no more."""

    max_points: int

    def __call__(self, scene: Any, generator: np.random.Generator) -> Any:
        if len(scene.xyz) <= self.max_points:
            return scene
        center = scene.xyz[int(generator.integers(len(scene.xyz))), :2]
        distance = ((scene.xyz[:, :2] - center) ** 2).sum(axis=1)
        nearest = np.argpartition(distance, self.max_points - 1)[: self.max_points]
        nearest.sort()
        return select(scene, nearest)


def select(scene: Any, points: Any) -> Any:
    """Select points of a scene by mask or index."""
    chosen = scene._make(field[points] if isinstance(field, np.ndarray) else field for field in scene)
    return chosen._replace(channels={name: values[points] for name, values in scene.channels.items()})


def _middle(xyz: np.ndarray) -> np.ndarray:
    """The center of the scene's bounding box on the floor, at its lowest height, float32 (3,)."""
    if not len(xyz):
        return np.zeros(3, np.float32)
    x, y, z = (np.ascontiguousarray(xyz[:, axis]) for axis in range(3))  # many times faster than along rows
    middle = ((float(column.min()) + float(column.max())) / 2 for column in (x, y))
    return np.array([*middle, z.min()], np.float32)


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0.0, 255.0).astype(np.uint8)


def elastic_distortion(
    xyz: np.ndarray, granularity: float, magnitude: float, generator: np.random.Generator
) -> np.ndarray:
    """Move each point by a random field.

    The field is normal noise on a grid around the origin, blurred, times ``magnitude``, interpolated linearly. The grid
    has one node per ``granularity`` of the scene's extent but extends to both sides of the origin, so its nodes are
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


def grid_shape(xyz: np.ndarray, granularity: float) -> tuple[int, ...]:
    """Nodes along each axis of a grid that encloses all points."""
    if not len(xyz):
        return (3, 3, 3)
    farthest = [np.float64(max(-column.min(), column.max())) for column in xyz.T]  # ten times as fast as along rows
    return tuple(int(length // granularity) + 3 for length in farthest)


def displace(xyz: np.ndarray, noise: np.ndarray, granularity: float, magnitude: float) -> np.ndarray:
    """``elastic_distortion`` with the given noise.

    Args:
        xyz: (N, 3), any float dtype.
        noise: float32 (3, x nodes, y nodes, z nodes), one displacement for each axis, of ``grid_shape`` or larger.

    Returns:
        (N, 3) in the dtype of ``xyz``.

    Raises:
        ValueError: the grid does not enclose all points.
    """
    needed = grid_shape(xyz, granularity)
    if noise.shape[0] != 3 or any(nodes < least for nodes, least in zip(noise.shape[1:], needed)):
        raise ValueError(f"noise has shape {noise.shape}, expected at least {(3, *needed)} for these points")
    field = np.moveaxis(blur(noise) * np.float64(magnitude), 0, -1)  # (x nodes, y nodes, z nodes, 3)
    moved = np.empty(xyz.shape, xyz.dtype)
    _interpolate(xyz, np.ascontiguousarray(field), 2.0 * granularity, moved)
    return moved


@compiled
def _interpolate(xyz, field, width, moved):
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
        moved[n, 0], moved[n, 1], moved[n, 2] = total_x, total_y, total_z


def blur(noise: np.ndarray) -> np.ndarray:
    """The mean of three neighbors along each axis, twice, with zeros outside; (3, x, y, z), rounded to float32 after
    each pass as in the reference."""
    third = np.float64(np.float32(1.0) / np.float32(3.0))
    for axis in 2 * (1, 2, 3):
        rows = np.moveaxis(noise, axis, 0)
        total = rows.astype(np.float64)
        total[1:] += rows[:-1]
        total[:-1] += rows[1:]
        noise = np.moveaxis((total * third).astype(np.float32), 0, axis)
    return np.ascontiguousarray(noise)
