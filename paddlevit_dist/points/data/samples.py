"""Conversion of a scene to network input: augmentation, then voxelization; and collation into a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...core.tasks.dataset import TransformedDataset
from .augment import Step, apply
from .elastic import elastic_distortion
from .features import build_channels, require_channels
from .scene import IGNORED, Scene
from .scenes import SceneDataset
from .voxels import first_occurrences, sparse_collate, voxel_means


class SceneView(NamedTuple):
    """The voxels of a scene in one view; test-time augmentation uses several views."""

    voxels: np.ndarray  # int32 (M, 3), in voxels from an arbitrary origin, in the order of their first points
    features: np.ndarray  # float32 (M, C), of each voxel's first point or the mean over its points
    inverse: np.ndarray  # int64 (P,), the voxel of each point


class PointSample(NamedTuple):
    """A scene as network input. PointGroup's samples have these fields and one more."""

    scene: Scene  # P points, as voxelized in the first view
    views: list[SceneView]  # voxels of the scene, in one view or several


class VoxelizedSample(Protocol):
    """The fields that samples of all tasks have, see ``PointSample``."""

    @property
    def scene(self) -> Scene:
        """P points, as voxelized in the first view."""

    @property
    def views(self) -> list[SceneView]:
        """Voxels of the scene, in one view or several."""


@dataclass(frozen=True)
class SceneSamples(TransformedDataset):
    """A dataset of scenes with all their processing, as read by a loader process.

    ``steps`` are applied to a scene in this order before voxelization, see ``augment``. A voxel has the input
    ``features`` of its first point, or, if ``voxel_features`` is "mean", the mean over its points.
    """

    dataset: SceneDataset
    steps: tuple[Step, ...]
    voxel_features: str
    features: tuple[str, ...] = field(default=("rgb",), kw_only=True)

    # the dataset knows them
    labeled = property(lambda samples: samples.dataset.labeled)
    class_names = property(lambda samples: samples.dataset.class_names)

    def sample(self, index: int, generator: np.random.Generator) -> VoxelizedSample:
        """Return scene ``index`` as network input; all randomness comes from ``generator``."""
        return self.build_sample(self.dataset.read(index), generator)

    def build_sample(self, scene: Scene, generator: np.random.Generator) -> VoxelizedSample:
        """Return an arbitrary scene as network input; all randomness comes from ``generator``."""
        return self.voxelize(apply(self.steps, self._with_channels(scene), generator))

    def _with_channels(self, scene: Scene) -> Scene:
        """Return ``scene`` with only the channels that the features use."""
        require_channels(self.features, tuple(scene.channels), f"the points of {scene.name}")
        return scene._replace(channels={name: scene.channels[name] for name in build_channels(self.features)})

    def voxelize(self, scene: Any) -> VoxelizedSample:
        """Return the sample of a scene to which all steps have been applied."""
        raise NotImplementedError

    def view(self, voxels: np.ndarray, features: Callable[[Any], np.ndarray]) -> SceneView:
        """Return the voxels of P points from int32 (P, 3), the voxel of each.

        ``features`` maps point indices, int64 (n,) or a slice, to features float32 (n, C).
        """
        first, inverse = first_occurrences(voxels)  # (M,), (P,)
        if self.voxel_features == "first":  # features of the other points are not needed
            return SceneView(voxels[first], features(first), inverse)
        return SceneView(voxels[first], voxel_means(features(slice(None)), inverse, len(first)), inverse)


def collate_samples(samples: Sequence[VoxelizedSample]) -> dict[str, Any]:
    """Collate the points and voxels of B scenes: the first view of every scene, then every second view, and so on.

    Returns:
        ``coordinates`` int32 (M, 4) with the number of the view in column 0, ``features`` float32 (M, C), ``inverse``
        int64 (views x P,), the row of each point in each view, ``labels`` int64 (P,), the class or -100, and
        ``offsets`` int32 (B + 1,), the first point of each scene. If all scenes are empty, there is one dummy voxel
        for each view and one dummy point, after the last offset.
    """
    views = [sample.views[number] for number in range(len(samples[0].views)) for sample in samples]
    labels = np.concatenate([sample.scene.semantic for sample in samples]).astype(np.int64)
    offsets = np.cumsum([0, *(len(sample.scene.semantic) for sample in samples)], dtype=np.int32)
    if not len(labels):  # Paddle cannot handle empty tensors here
        channels = views[0].features.shape[1]
        dummy = SceneView(np.zeros((1, 3), np.int32), np.zeros((1, channels), np.float32), np.zeros(1, np.int64))
        views = [dummy if position % len(samples) == 0 else view for position, view in enumerate(views)]
        labels = np.array([IGNORED], np.int64)
    ends = np.cumsum([len(view.voxels) for view in views])
    coordinates, features = sparse_collate([view.voxels for view in views], [view.features for view in views])
    return {
        "coordinates": coordinates,
        "features": features,
        "inverse": np.concatenate([view.inverse + end - len(view.voxels) for end, view in zip(ends, views)]),
        "labels": labels,
        "offsets": offsets,
    }


def compile_loops() -> None:
    """Compile or load the loops that both tasks' loader processes run: once, before the processes are forked."""
    for dtype in (np.float32, np.float64):
        elastic_distortion(np.zeros((1, 3), dtype), 1.0, 1.0, np.random.default_rng(0))
    _, inverse = first_occurrences(np.zeros((1, 3), np.int32))
    voxel_means(np.zeros((1, 3), np.float32), inverse, 1)
