"""From where the features height and centered_xyz are measured, in training and in an evaluation in blocks."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..data.features import RELATIVE, shift_features
from ..data.samples import SceneView
from ..data.scene import Scene, find_middle


@dataclass(frozen=True)
class FeatureOrigin:
    """Where training measures features from: the middle of a scene's floor, or of what a crop leaves of the scene.

    A crop has its own middle. Its floor is the scene's, except if training crops blocks, which are unlimited in
    height. An evaluation in blocks measures from the same origin.

    Args:
        features: POINTS.FEATURES.
        crop: POINTS.CROP.
        max_points: POINTS.MAX_POINTS.
    """

    features: tuple[str, ...]
    crop: Literal["sphere", "block"] | None
    max_points: int | None

    def find_bounds(self, scene: Scene, view: SceneView) -> np.ndarray | None:
        """Return the bounds of the points of each voxel, float32 (M, 5): lowest x, y and z, then highest x and y.

        They are meters from the origin of the scene, in this view, and 0 along the axes along which training measures
        from there. None: no feature is relative to an origin.
        """
        if not any(name in RELATIVE for name in self.features):
            return None
        is_cropped = self.crop is not None or (self.max_points is not None and len(scene.xyz) > self.max_points)
        order = np.argsort(view.inverse, kind="stable")
        starts = np.searchsorted(view.inverse[order], np.arange(len(view.voxels)))
        places = (scene.xyz - find_middle(scene))[order] * np.float32([is_cropped, is_cropped, self.crop == "block"])
        lowest, highest = np.minimum.reduceat(places, starts), np.maximum.reduceat(places[:, :2], starts)
        return np.concatenate([lowest, highest], axis=1)

    def find_shift(self, bounds: np.ndarray) -> np.ndarray:
        """Return what the features of a block's points exceed training's by, float32 (1, C); ``bounds`` are (M, 5)."""
        lowest, highest = bounds.min(axis=0), bounds.max(axis=0)
        origin = np.array([*(lowest[:2] + highest[3:]) / 2, lowest[2]], np.float32)
        return shift_features(self.features, origin)
