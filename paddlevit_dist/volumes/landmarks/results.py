"""Predicted and true landmarks of volumes."""

from typing import NamedTuple

import numpy as np

from ..geometry import VolumeGeometry


class LandmarkPrediction(NamedTuple):
    """Predicted landmarks of one volume."""

    # index of the volume in its dataset
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used
    geometry: VolumeGeometry  # geometry of the volume
    voxels: np.ndarray  # float64 (landmarks, 3), positions z, y, x in voxels
    confidences: np.ndarray  # float (landmarks,), the values of the peaks
    volume: np.ndarray  # float32 (depth, height, width), the network's input

    @property
    def world(self) -> np.ndarray:
        """Positions in RAS millimeters, float64 (landmarks, 3): x to the right, y to the front, z up."""
        return self.geometry.world(self.voxels)


class LandmarkGroundTruth(NamedTuple):
    """Ground truth of an evaluated volume."""

    errors: np.ndarray  # float64 (landmarks,), millimeters; NaN where the truth is unknown
    places: np.ndarray  # float64 (landmarks, 3), z, y, x in voxels; NaN where unknown


class LandmarkRecord(NamedTuple):
    """The record of a volume."""

    errors: np.ndarray  # float32 (landmarks,), millimeters; NaN where the truth is unknown
    voxels: np.ndarray  # float32 (landmarks, 3), predicted positions z, y, x
