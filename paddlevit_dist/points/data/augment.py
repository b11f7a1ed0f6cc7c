"""Random changes of a scene: of its shape, of its colours, of which points it has, and two scenes in one.

Each augmentation is called as ``augmentation(scene, generator)`` and returns a new scene; the arrays of the one it is
given stay as they are. All that is random comes from ``generator``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Optional, Sequence, Tuple

import numpy as np

from ...errors import UserError
from .elastic import elastic_distortion
from .scene import IGNORED, Scene

GREY = 128


def affine_matrix(
    distortion: Optional[np.ndarray] = None,
    flip_x: bool = False,
    flip_y: bool = False,
    angle: float = 0.0,
    tilt: Tuple[float, float] = (0.0, 0.0),
    scale: float = 1.0,
) -> np.ndarray:
    """float64 (3, 3) to multiply points with from the right: ``xyz @ matrix``.

    Args:
        distortion: (3, 3), added to the identity.
        flip_x, flip_y: negate the first, the second element of the diagonal.
        angle: radians around z, from x towards y.
        tilt: radians around x and around y.
        scale: factor of all lengths.
    """
    matrix = np.eye(3) if distortion is None else np.eye(3) + distortion
    # As PointGroup does it: with a distortion that is not quite a mirror image.
    matrix[0, 0] *= -1.0 if flip_x else 1.0
    matrix[1, 1] *= -1.0 if flip_y else 1.0
    for axis, radians in ((0, tilt[0]), (1, tilt[1]), (2, angle)):
        if radians:
            matrix = matrix @ _rotation(axis, radians)
    return scale * matrix


def mapped(xyz: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """``xyz @ matrix`` for (N, 3) and (3, 3), without the matrix library: its threads would wait for one another in a
    loader process for longer than this takes."""
    x, y, z = xyz.T
    return np.stack([x * column[0] + y * column[1] + z * column[2] for column in matrix.T], axis=1)


def _rotation(axis: int, angle: float) -> np.ndarray:
    one, other = [(1, 2), (2, 0), (0, 1)][axis]
    matrix = np.eye(3)
    matrix[one, one] = matrix[other, other] = math.cos(angle)
    matrix[one, other], matrix[other, one] = math.sin(angle), -math.sin(angle)
    return matrix


@dataclass(frozen=True)
class Affine:
    """Distort, mirror, turn and scale the scene around the middle of its box on the floor.

    Args:
        distortion: standard deviation of what is added to each element of the matrix; PointGroup takes 0.1.
        flip: probability of mirroring, for x and for y.
        rotation: largest angle around z to both sides, radians; pi for any direction.
        tilt: largest angle around x and y, radians.
        scale: range of the factor.
    """

    distortion: float = 0.0
    flip: float = 0.0
    rotation: float = 0.0
    tilt: float = 0.0
    scale: Tuple[float, float] = (1.0, 1.0)

    def matrix(self, generator: np.random.Generator) -> np.ndarray:
        """A random matrix for ``xyz @ matrix``."""
        distortion = generator.standard_normal((3, 3)) * self.distortion
        flips = generator.random(2) < self.flip
        turns = generator.uniform(-1.0, 1.0, 3) * (self.tilt, self.tilt, self.rotation)
        scale = generator.uniform(*self.scale)
        return affine_matrix(distortion, bool(flips[0]), bool(flips[1]), turns[2], (turns[0], turns[1]), scale)

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        matrix = self.matrix(generator).astype(np.float32)
        middle = _middle(scene.xyz)
        return scene._replace(xyz=(scene.xyz - middle) @ matrix + middle)


@dataclass(frozen=True)
class Jitter:
    """Move every point by itself: normally, at most three standard deviations along each axis."""

    deviation_m: float

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        noise = generator.standard_normal(scene.xyz.shape, dtype=np.float32)
        return scene._replace(xyz=scene.xyz + np.clip(noise, -3.0, 3.0) * np.float32(self.deviation_m))


@dataclass(frozen=True)
class Elastic:
    """Elastic distortion, fine and then coarse, with ``probability``.

    Args:
        stages: granularity and magnitude of each, metres, for ``elastic_distortion``.
    """

    probability: float = 1.0
    stages: Tuple[Tuple[float, float], ...] = ((0.1, 0.4), (0.4, 1.6))

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        if generator.random() >= self.probability or not len(scene.xyz):
            return scene
        middle = _middle(scene.xyz)  # the grid reaches to both sides of the origin
        xyz = scene.xyz - middle
        for granularity, magnitude in self.stages:
            xyz = elastic_distortion(xyz, granularity, magnitude, generator)
        return scene._replace(xyz=xyz + middle)


@dataclass(frozen=True)
class Dropout:
    """Leave out a share of the points, with ``probability``; never all of them."""

    share: float
    probability: float = 1.0

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        if generator.random() >= self.probability:
            return scene
        kept = generator.random(len(scene.xyz)) >= self.share
        return select(scene, kept) if kept.any() else scene


@dataclass(frozen=True)
class ColorJitter:
    """Noise on each point's colours, and one shift of all of them.

    Args:
        deviation: of a point's noise, of 255.
        shift: largest shift of a channel to both sides, of 255.
    """

    deviation: float = 0.0
    shift: float = 0.0

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        shift = generator.uniform(-self.shift, self.shift, 3).astype(np.float32)
        noise = generator.standard_normal(scene.rgb.shape, dtype=np.float32) * np.float32(self.deviation)
        return scene._replace(rgb=_as_bytes(scene.rgb + noise + shift))


@dataclass(frozen=True)
class ColorContrast:
    """Stretch each channel to its full range, blended with what it was by a random share, with ``probability``."""

    probability: float

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        if generator.random() >= self.probability or not len(scene.rgb):
            return scene
        low, high = scene.rgb.min(axis=0).astype(np.float32), scene.rgb.max(axis=0).astype(np.float32)
        share = np.float32(generator.random())
        stretched = (scene.rgb - low) * (255.0 / np.maximum(high - low, 1.0))
        return scene._replace(rgb=_as_bytes((1.0 - share) * scene.rgb + share * stretched))


@dataclass(frozen=True)
class ColorDrop:
    """Take all colours away, with ``probability``: every point becomes grey."""

    probability: float

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        if generator.random() >= self.probability:
            return scene
        return scene._replace(rgb=np.full_like(scene.rgb, GREY))


@dataclass(frozen=True)
class Augmentation:
    """Several augmentations one after the other."""

    steps: Tuple[Any, ...]

    def __call__(self, scene: Scene, generator: np.random.Generator) -> Scene:
        for step in self.steps:
            scene = step(scene, generator)
        return scene


@dataclass(frozen=True)
class Strength:
    """How strongly scenes are changed for training; ``build`` makes the augmentation of it.

    Args:
        flip, rotation, tilt, scale, distortion: as in ``Affine``.
        jitter_m: as in ``Jitter``.
        elastic: probability of ``Elastic``.
        dropout: share of ``Dropout``, which is done every other time.
        color_jitter, color_shift: as in ``ColorJitter``.
        color_contrast, color_drop: their probabilities.
    """

    flip: float = 0.5
    rotation: float = math.pi
    tilt: float = 0.05
    scale: Tuple[float, float] = (0.9, 1.1)
    distortion: float = 0.0
    jitter_m: float = 0.0
    elastic: float = 0.0
    dropout: float = 0.0
    color_jitter: float = 0.0
    color_shift: float = 0.0
    color_contrast: float = 0.0
    color_drop: float = 0.0

    def build(self) -> Augmentation:
        """The augmentation, without steps that would do nothing.

        Raises:
            UserError: a number outside its range.
        """
        self._check()
        steps = [
            (True, Affine(self.distortion, self.flip, self.rotation, self.tilt, self.scale)),
            (self.elastic, Elastic(self.elastic)),
            (self.jitter_m, Jitter(self.jitter_m)),
            (self.dropout, Dropout(self.dropout, 0.5)),
            (self.color_contrast, ColorContrast(self.color_contrast)),
            (self.color_jitter or self.color_shift, ColorJitter(self.color_jitter, self.color_shift)),
            (self.color_drop, ColorDrop(self.color_drop)),
        ]
        return Augmentation(tuple(step for wanted, step in steps if wanted))

    def _check(self) -> None:
        limits = dict.fromkeys(("flip", "elastic", "dropout", "color_contrast", "color_drop"), 1.0)
        for field in fields(self):
            value, high = getattr(self, field.name), limits.get(field.name, math.inf)
            numbers = value if isinstance(value, tuple) else (value,)
            if not all(0.0 <= number <= high for number in numbers):
                expected = "a probability or share from 0 to 1" if high == 1.0 else "a number from 0 up"
                raise UserError(f"augmentation of scenes: {field.name} is {value}, expected {expected}")
        if not 0.0 < self.scale[0] <= self.scale[1]:
            raise UserError(f"augmentation of scenes: scale is {self.scale}, expected (low, high) above 0")


def crop_to_budget(scene: Scene, max_points: int, generator: np.random.Generator) -> Scene:
    """The ``max_points`` points nearest to a random point of the scene, measured along the floor, in their order; the
    scene itself where it has no more than these."""
    if len(scene.xyz) <= max_points:
        return scene
    centre = scene.xyz[int(generator.integers(len(scene.xyz))), :2]
    distance = ((scene.xyz[:, :2] - centre) ** 2).sum(axis=1)
    nearest = np.argpartition(distance, max_points - 1)[:max_points]
    nearest.sort()
    return select(scene, nearest)


def mix(scene: Scene, other: Scene) -> Scene:
    """Two scenes in one place, each around the origin on the floor, with the instances of both.

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
    )


def select(scene: Scene, points: Any) -> Scene:
    """Some points of a scene, by mask or by position."""
    return Scene(*(array[points] for array in scene[:4]), *scene[4:])


def _middle(xyz: np.ndarray) -> np.ndarray:
    """The middle of the scene's box on the floor, at its lowest height, float32 (3,)."""
    if not len(xyz):
        return np.zeros(3, np.float32)
    low, high = _bounds(xyz)
    return np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]], np.float32)


def _bounds(xyz: np.ndarray) -> Tuple[Sequence[float], Sequence[float]]:
    columns = [np.ascontiguousarray(xyz[:, axis]) for axis in range(3)]  # many times faster than along the rows
    return [float(column.min()) for column in columns], [float(column.max()) for column in columns]


def _as_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0.0, 255.0).astype(np.uint8)
