"""From a scene to what a network reads of it: augmented, cut to a budget of points, and voxelised."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ...contracts.dataset import Samples
from .augment import Augmentation, Strength, affine_matrix, crop_to_budget, mix
from .elastic import elastic_distortion
from .scene import COLOR_RANGE, Scene
from .scenes import SceneDataset
from .voxels import first_occurrences, sparse_quantize, voxel_means

_FEATURE_CHANNELS = {"rgb": 3, "height": 1, "ones": 1}


class View(NamedTuple):
    """The voxels of a scene, seen from one direction.

    Attributes:
        voxels: int32 (M, 3), in voxels from any origin, in the order of their first points.
        features: float32 (M, C), of each voxel's first point or the mean over its points.
        inverse: int64 (P,), the voxel of each point.
    """

    voxels: np.ndarray
    features: np.ndarray
    inverse: np.ndarray


class PointSample(NamedTuple):
    """A scene and its voxels, from one direction or several.

    Attributes:
        scene: P points, as they were voxelised first.
        views: at least one.
    """

    scene: Scene
    views: List[View]


@dataclass(frozen=True)
class PointSamples(Samples):
    """A data set of scenes with everything that is done to them: what a loader process reads.

    Args:
        voxel_size_m: edge of a voxel.
        features: what a voxel shows, of "rgb", "height" and "ones".
        augmentation: of training scenes; None leaves them as they are.
        max_points: budget of a training scene.
        mix_probability: of laying a second training scene over the first.
        rotations: directions around z from which an evaluation sees a scene.
        voxel_features: "first": a voxel shows its first point; "mean": the mean over its points.
        color_range: what colours of 0 and 255 become.
        notices: lines for the log.
    """

    dataset: SceneDataset
    voxel_size_m: float
    features: Tuple[str, ...]
    augmentation: Optional[Augmentation] = None
    max_points: Optional[int] = None
    mix_probability: float = 0.0
    rotations: int = 1
    voxel_features: str = "first"
    color_range: Tuple[float, float] = COLOR_RANGE
    notices: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    def describe(self, index: int) -> str:
        return self.dataset.describe(index)

    def sample(self, index: int, generator: np.random.Generator) -> PointSample:
        """Scene ``index``; all that is random comes from ``generator``."""
        scene = self.dataset.read(index)
        if self.augmentation is not None:
            scene = self._augmented(scene, generator)
        directions = [2 * math.pi * turn / self.rotations for turn in range(self.rotations)]
        return PointSample(scene, [self._view(scene, angle) for angle in directions])

    def _augmented(self, scene: Scene, generator: np.random.Generator) -> Scene:
        scene = self.augmentation(scene, generator)
        # Drawn in any case, so that the probability changes nothing else about a sample.
        is_mixed = generator.random() < self.mix_probability
        partner = int(generator.integers(len(self.dataset)))
        if is_mixed:
            scene = mix(scene, self.augmentation(self.dataset.read(partner), generator))
        return scene if self.max_points is None else crop_to_budget(scene, self.max_points, generator)

    def _view(self, scene: Scene, angle: float) -> View:
        xyz = scene.xyz if angle == 0.0 else scene.xyz @ affine_matrix(angle=angle).astype(np.float32)
        # (M, 3), (M,), (P,)
        voxels, first, inverse = sparse_quantize(
            xyz, return_index=True, return_inverse=True, quantization_size=self.voxel_size_m
        )
        if self.voxel_features == "first":  # of these points only
            return View(voxels, point_features(scene, first, self.features, self.color_range), inverse)
        of_points = point_features(scene, slice(None), self.features, self.color_range)  # (P, C)
        return View(voxels, voxel_means(of_points, inverse, len(voxels)), inverse)


def point_features(
    scene: Scene, points: Any, names: Sequence[str], color_range: Tuple[float, float] = COLOR_RANGE
) -> np.ndarray:
    """What a network sees of some points, float32 (points, channels): colours in ``color_range``, height in metres.

    Args:
        points: positions (int64) or a slice.
        color_range: what 0 and 255 become.
    """
    low, high = color_range
    columns = []
    for name in names:
        if name == "rgb":
            shown = scene.rgb[points].astype(np.float32) / np.float32(255 / (high - low)) + np.float32(low)
            columns.append(shown)
        elif name == "height":
            floor = scene.xyz[:, 2].min() if len(scene.xyz) else np.float32(0)
            columns.append((scene.xyz[points, 2] - floor)[:, None])
        else:
            columns.append(np.ones((len(scene.xyz[points]), 1), np.float32))
    return np.concatenate(columns, axis=1).astype(np.float32, copy=False)


def feature_channels(names: Sequence[str]) -> int:
    """How many channels ``point_features`` makes."""
    return sum(_FEATURE_CHANNELS[name] for name in names)


def augmentation_of(keys: Any) -> Augmentation:
    """The augmentation that the keys POINTS.AUGMENT describe."""
    return Strength(
        flip=keys.FLIP,
        rotation=math.radians(keys.ROTATION_DEGREES),
        tilt=math.radians(keys.TILT_DEGREES),
        scale=tuple(keys.SCALE),
        jitter_m=keys.JITTER_M,
        elastic=keys.ELASTIC,
        dropout=keys.DROPOUT,
        color_jitter=keys.COLOR_JITTER,
        color_shift=keys.COLOR_SHIFT,
        color_contrast=keys.COLOR_CONTRAST,
        color_drop=keys.COLOR_DROP,
    ).build()


def compile_loops() -> None:
    """Compile, or load, the loops that a loader process runs: once, for all that are forked from this process."""
    elastic_distortion(np.zeros((1, 3), np.float32), 1.0, 1.0, np.random.default_rng(0))
    _, inverse = first_occurrences(np.zeros((1, 3), np.int32))
    voxel_means(np.zeros((1, 3), np.float32), inverse, 1)


def join_views(samples: Sequence[PointSample]) -> Dict[str, np.ndarray]:
    """The voxels of a batch: first view of every scene, then every second one, and so on.

    Returns:
        ``coordinates`` int32 (M, 4) with the number of the view in column 0, ``features`` float32 (M, C) and
        ``inverse`` int64 (views x P,), the row of each point in each view. Where all scenes are empty, M is 1 for each
        direction and so is P.
    """
    number_of_views = len(samples[0].views)
    views = [sample.views[number] for number in range(number_of_views) for sample in samples]
    if not any(len(view.inverse) for view in views):
        # Paddle cannot compute with nothing, so a batch of empty scenes has a voxel and a point that stand for nobody.
        nobody = View(
            np.zeros((1, 3), np.int32), np.zeros((1, views[0].features.shape[1]), np.float32), np.zeros(1, int)
        )
        views = [nobody if position % len(samples) == 0 else view for position, view in enumerate(views)]
    ends = np.cumsum([len(view.voxels) for view in views])
    coordinates = np.empty((ends[-1], 4), np.int32)
    for number, (end, view) in enumerate(zip(ends, views)):
        coordinates[end - len(view.voxels) : end, 0] = number
        coordinates[end - len(view.voxels) : end, 1:] = view.voxels
    return {
        "coordinates": coordinates,
        "features": np.concatenate([view.features for view in views]),
        "inverse": np.concatenate([view.inverse + end - len(view.voxels) for end, view in zip(ends, views)]),
    }
