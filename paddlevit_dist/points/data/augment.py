"""Random augmentation of a scene: geometry, colors, selection of points, and mixing of two scenes.

A step is called as ``step(scene, generator)`` and returns a new scene, a ``Scene`` or another named tuple with the
fields that the step changes; the input arrays are not modified. All randomness comes from ``generator``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .elastic import elastic_distortion
from .scene import IGNORED, NORMAL, POINT_FIELDS, Scene, VoxelizedScene, find_floor, find_middle

if TYPE_CHECKING:
    from .scenes import SceneDataset

Step = Callable[[Any, np.random.Generator], Any]
AnyScene = TypeVar("AnyScene", Scene, VoxelizedScene)
SceneOrMatrix = TypeVar("SceneOrMatrix")


def apply(steps: Sequence[Step], scene: SceneOrMatrix, generator: np.random.Generator) -> SceneOrMatrix:
    """Apply all steps to the scene in order."""
    for step in steps:
        scene = step(scene, generator)
    return scene


@dataclass(frozen=True)
class RandomApply:
    """A step applied with ``probability``."""

    probability: float
    step: Step

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene, changed or not."""
        return self.step(scene, generator) if generator.random() < self.probability else scene


@dataclass(frozen=True)
class MatrixDistortion:
    """Matrix factor: add normal noise of standard deviation ``deviation`` to each element."""

    deviation: float

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the matrix with noise."""
        return matrix + generator.standard_normal((3, 3)) * self.deviation


@dataclass(frozen=True)
class RandomFlip:
    """Matrix factor: negate diagonal elements with ``probability``, for x only, or for x and y independently.

    The result is not an exact mirror image if noise was added before, as in PointGroup.
    """

    probability: float
    axes: int

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the matrix with random signs."""
        signs = np.ones((3, 3))
        for axis in range(self.axes):
            if generator.random() < self.probability:
                signs[axis, axis] = -1.0
        return matrix * signs


@dataclass(frozen=True)
class RandomRotation:
    """Matrix factor: rotate about axis 0, 1 or 2 by at most ``max_angle`` radians, in one or both directions."""

    axis: int
    max_angle: float
    both_directions: bool = True

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the matrix times a random rotation."""
        angle = generator.uniform(-1.0 if self.both_directions else 0.0, 1.0) * self.max_angle
        return matrix @ rotation(self.axis, angle) if angle else matrix


@dataclass(frozen=True)
class RandomScale:
    """Matrix factor: scale all lengths by a factor between ``low`` and ``high``."""

    low: float
    high: float

    def __call__(self, matrix: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Return the matrix times a random factor."""
        return generator.uniform(self.low, self.high) * matrix


def rotation(axis: int, angle: float) -> np.ndarray:
    """Return a rotation about ``axis`` by radians, float64 (3, 3), for ``xyz @ matrix``; about z from x toward y."""
    first, second = [(1, 2), (2, 0), (0, 1)][axis]
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = math.cos(angle)
    matrix[first, second], matrix[second, first] = math.sin(angle), -math.sin(angle)
    return matrix


@dataclass(frozen=True)
class AffineMap:
    """Map all points by the product of the matrix factors ``parts``, applied in order to the identity.

    ``centered`` keeps the center of the scene's bounding box on the floor fixed; else the origin, as in PointGroup.
    """

    parts: tuple[Step, ...]
    centered: bool = True

    def matrix(self, generator: np.random.Generator) -> np.ndarray:
        """Return a random matrix for ``xyz @ matrix``, float64 (3, 3)."""
        return apply(self.parts, np.eye(3), generator)

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with mapped points and normals."""
        matrix = self.matrix(generator)
        if self.centered:
            return map_around_middle(scene, matrix)
        scene = transform_normals(scene, matrix)
        return scene._replace(xyz=apply_matrix(scene.xyz.astype(np.float64), matrix).astype(np.float32))


def map_around_middle(scene: AnyScene, matrix: np.ndarray) -> AnyScene:
    """Map points and normals by ``xyz @ matrix``, with the center of the scene's bounding box on the floor fixed."""
    middle = find_middle(scene)
    scene = transform_normals(scene, matrix)
    return scene._replace(xyz=(scene.xyz - middle) @ matrix.astype(np.float32) + middle)


def transform_normals(scene: AnyScene, matrix: np.ndarray) -> AnyScene:
    """Return ``scene`` with its normals, at their lengths, mapped by the transposed inverse, for ``xyz @ matrix``."""
    if NORMAL not in scene.channels:
        return scene
    normal = scene.channels[NORMAL]
    transformed = apply_matrix(normal.astype(np.float64), np.linalg.inv(matrix).T)
    lengths = [np.sqrt((vectors**2).sum(axis=1, keepdims=True)) for vectors in (normal, transformed)]
    transformed *= lengths[0] / np.maximum(lengths[1], np.finfo(np.float64).tiny)
    return scene._replace(channels={**scene.channels, NORMAL: transformed.astype(np.float32)})


@dataclass(frozen=True)
class MetersConversion:
    """Convert coordinates in a unit of ``unit_m`` meters to meters."""

    unit_m: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator | None) -> AnyScene:
        """Return the scene in meters."""
        return scene._replace(xyz=scene.xyz * np.float32(self.unit_m))


def to_meters(unit_m: float) -> tuple[Step, ...]:
    """Return the steps that convert coordinates to meters; none if the unit is the meter."""
    return () if unit_m == 1.0 else (MetersConversion(unit_m),)


def apply_matrix(xyz: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return ``xyz @ matrix`` for (N, 3) and (3, 3), without BLAS, whose threads a loader process would wait for."""
    x, y, z = xyz.T
    return np.stack([x * column[0] + y * column[1] + z * column[2] for column in matrix.T], axis=1)


@dataclass(frozen=True)
class ElasticDistortion:
    """Elastic distortion in several passes, usually a fine one and then a coarse one.

    Each of ``passes`` is granularity and magnitude of an ``elastic_distortion``, in the unit of the coordinates.
    """

    passes: tuple[tuple[float, float], ...]

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with distorted points."""
        for granularity, magnitude in self.passes:
            scene = scene._replace(xyz=elastic_distortion(scene.xyz, granularity, magnitude, generator))
        return scene


@dataclass(frozen=True)
class PointJitter:
    """Jitter every point with normal noise, at most three standard deviations along each axis."""

    deviation_m: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with jittered points."""
        noise = generator.standard_normal(scene.xyz.shape, dtype=np.float32)
        return scene._replace(xyz=scene.xyz + np.clip(noise, -3.0, 3.0) * np.float32(self.deviation_m))


@dataclass(frozen=True)
class PointDropout:
    """Drop a fraction of the points; never all of them."""

    share: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with the remaining points."""
        keep = generator.random(len(scene.xyz)) >= self.share
        return select(scene, keep) if keep.any() else scene


@dataclass(frozen=True)
class PointColorJitter:
    """Add noise of deviation ``deviation`` to all colors, and to each channel a shift up to ``shift``; both of 255."""

    deviation: float
    shift: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with jittered colors."""
        shift = generator.uniform(-self.shift, self.shift, 3).astype(np.float32)
        noise = generator.standard_normal(scene.rgb.shape, dtype=np.float32) * np.float32(self.deviation)
        return scene._replace(rgb=_to_uint8(scene.rgb + noise + shift))


@dataclass(frozen=True)
class ColorNoise:
    """Add one normal shift of standard deviation ``deviation`` to all colors if they are float32."""

    deviation: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with shifted colors."""
        return scene._replace(rgb=scene.rgb + (generator.standard_normal(3) * self.deviation).astype(np.float32))


@dataclass(frozen=True)
class ColorContrast:
    """Stretch each channel to its full range, blended with the original by a random weight."""

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with stretched colors."""
        if not len(scene.rgb):
            return scene
        low, high = scene.rgb.min(axis=0).astype(np.float32), scene.rgb.max(axis=0).astype(np.float32)
        share = np.float32(generator.random())
        stretched = (scene.rgb - low) * (255.0 / np.maximum(high - low, 1.0))
        return scene._replace(rgb=_to_uint8((1.0 - share) * scene.rgb + share * stretched))


@dataclass(frozen=True)
class Mix3D:
    """With ``probability``, overlay another scene, to which ``steps`` are applied, on this one, after these steps."""

    dataset: "SceneDataset"
    steps: tuple[Step, ...]
    probability: float

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        """Return the scene, mixed or not."""
        # The partner is always drawn, so that the probability does not change other random numbers of a sample.
        is_mixed = generator.random() < self.probability
        partner = int(generator.integers(len(self.dataset)))
        return mix(scene, apply(self.steps, self.dataset.read(partner), generator)) if is_mixed else scene


def mix(scene: Scene, other: Scene) -> Scene:
    """Superimpose the middle of another scene's floor on that of ``scene``; keep all instances, and common channels.

    Source: A. Nekrasov et al., "Mix3D: Out-of-Context Data Augmentation for 3D Scenes", 3DV 2021, arXiv 2110.02210.
    """
    next_instance = int(scene.instance.max(initial=-1)) + 1
    shifted = np.where(other.instance == IGNORED, IGNORED, other.instance + next_instance)
    return Scene(
        np.concatenate([scene.xyz, other.xyz - find_middle(other) + find_middle(scene)]),
        np.concatenate([scene.rgb, other.rgb]),
        np.concatenate([scene.semantic, other.semantic]),
        np.concatenate([scene.instance, shifted.astype(scene.instance.dtype)]),
        f"{scene.name}+{other.name}",
        channels={
            name: np.concatenate([values, other.channels[name]])
            for name, values in scene.channels.items()
            if name in other.channels
        },
        floor=find_floor(scene),
    )


@dataclass(frozen=True)
class PointCrop:
    """Select the points around a random labeled point (around any, if none has a label), in their original order.

    ``shape`` is "sphere" or "block", which is square on the floor and unlimited in height; ``size_m`` is its diameter
    or edge. Heights are measured from the lowest point of a block, or of the scene around a sphere.
    """

    shape: str
    size_m: float

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with the selected points."""
        if not len(scene.xyz):
            return scene
        labeled = np.flatnonzero(scene.semantic != IGNORED)
        number = int(generator.integers(len(labeled) or len(scene.xyz)))
        center = scene.xyz[labeled[number] if len(labeled) else number]
        axes = range(3 if self.shape == "sphere" else 2)
        near = np.flatnonzero(np.abs(scene.xyz[:, 0] - center[0]) <= self.size_m / 2)
        for axis in axes[1:]:  # only among the points left
            near = near[np.abs(scene.xyz[near, axis] - center[axis]) <= self.size_m / 2]
        if self.shape == "sphere":
            near = near[((scene.xyz[near] - center) ** 2).sum(axis=1) <= (self.size_m / 2) ** 2]
        selected = select(scene, near)
        return selected if self.shape == "sphere" else selected._replace(floor=None)


@dataclass(frozen=True)
class CropToBudget:
    """Select the ``max_points`` points nearest along the floor to a random point of the scene, in their old order."""

    max_points: int

    def __call__(self, scene: AnyScene, generator: np.random.Generator) -> AnyScene:
        """Return the scene with the selected points."""
        if len(scene.xyz) <= self.max_points:
            return scene
        center = scene.xyz[int(generator.integers(len(scene.xyz))), :2]
        distance = ((scene.xyz[:, :2] - center) ** 2).sum(axis=1)
        nearest = np.argpartition(distance, self.max_points - 1)[: self.max_points]
        nearest.sort()
        return select(scene, nearest)


def select(scene: AnyScene, points: np.ndarray) -> AnyScene:
    """Select points of a scene by mask or index; heights are measured from the same floor as before."""
    arrays = {name: getattr(scene, name)[points] for name in scene._fields if name in POINT_FIELDS}
    channels = {name: values[points] for name, values in scene.channels.items()}
    return scene._replace(**arrays, channels=channels, floor=find_floor(scene))


def _to_uint8(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0.0, 255.0).astype(np.uint8)
