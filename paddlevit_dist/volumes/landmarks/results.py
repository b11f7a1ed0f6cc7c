"""Predicted and true landmarks of volumes."""

from typing import Any, NamedTuple

import numpy as np

from ..geometry import VolumeGeometry


class LandmarkPrediction(NamedTuple):
    """Predicted landmarks of one volume.

    Attributes:
        index: index of the volume in its dataset.
        geometry: geometry of the volume.
        voxels: float64 (landmarks, 3), positions z, y, x in voxels.
        confidences: float (landmarks,), the values of the peaks.
        volume: float32 (depth, height, width), the network's input.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    geometry: VolumeGeometry
    voxels: np.ndarray
    confidences: np.ndarray
    volume: Any

    @property
    def world(self) -> np.ndarray:
        """Positions in RAS millimeters, float64 (landmarks, 3): x to the right, y to the front, z up."""
        return self.geometry.world(self.voxels)


class LandmarkGroundTruth(NamedTuple):
    """Ground truth of an evaluated volume.

    Attributes:
        errors: float64 (landmarks,), millimeters; NaN where the truth is unknown.
        places: float64 (landmarks, 3), z, y, x in voxels; NaN where unknown.
    """

    errors: np.ndarray
    places: np.ndarray


class LandmarkRecord(NamedTuple):
    """The record of a volume.

    Attributes:
        errors: float32 (landmarks,), millimeters; NaN where the truth is unknown.
        voxels: float32 (landmarks, 3), predicted positions z, y, x.
    """

    errors: np.ndarray
    voxels: np.ndarray
