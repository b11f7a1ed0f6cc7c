"""Base class of all datasets of volumes with landmarks."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..tasks.dataset import Dataset
from ..tasks.sample_groups import SUBJECT
from .geometry import VolumeGeometry
from .settings import MAX_VOXELS, VolumeSettings
from .store import DecodedVolume


class VolumeOptions(NamedTuple):
    """Settings for reading a dataset of volumes; fields correspond to the keys VOLUMES.*."""

    spacing_mm: Sequence[float] | None = None
    landmarks: Sequence[str] | None = None
    landmark_units: str = "mm"
    coordinate_system: str = "file"
    max_voxels: int = MAX_VOXELS


DEFAULT_OPTIONS = VolumeOptions()


class VolumeDataset(Dataset):
    """Base class of datasets of volumes with landmarks; ``read(index)`` returns ``(DecodedVolume, points)``."""

    holds = "volumes"
    groups_by = SUBJECT
    #: names of the landmarks, in the order of the model's outputs
    names: list[str] = []
    #: voxel spacing of all volumes, millimeters (depth, height, width)
    spacing: np.ndarray
    #: region of each channel's mean and deviation, set by the task, see ``nonzero``; None: always the whole volume
    within: Sequence[str] | None = None

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: VolumeOptions = DEFAULT_OPTIONS
    ) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, config: VolumeSettings, split: str, cache_folder: Path) -> "VolumeDataset":
        """Open a split with the DATA and VOLUMES keys of a configuration."""
        volumes = config.VOLUMES
        options = VolumeOptions(*(volumes[name.upper()] for name in VolumeOptions._fields))
        return cls(config.DATA.DATA_PATH, split, cache_folder, options)

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a volume with geometry, and its landmarks' voxels z, y, x, float64 (landmarks, 3), NaN if missing."""
        decoded = self.volume(index)
        return decoded, self.points(index, decoded.geometry)

    @property
    def class_names(self) -> list[str]:  # type: ignore[override] # each output of the model is a landmark
        """Names of the landmarks."""
        return self.names

    def volume(self, index: int) -> DecodedVolume:
        """Return the voxels and geometry of volume ``index``."""
        raise NotImplementedError

    def stored(self, index: int) -> list[np.ndarray]:
        """Read the channels of volume ``index`` at their stored spacing, without resampling."""
        return [self.volume(index).array]

    def points(self, index: int, geometry: VolumeGeometry) -> np.ndarray:
        """Return voxels z, y, x of the landmarks, (landmarks, 3), in an array of ``geometry``; NaN if missing."""
        raise NotImplementedError

    def world(self, index: int) -> np.ndarray:
        """Return the landmarks in RAS millimeters, float64 (landmarks, 3): x to the right, y to the front, z up."""
        decoded, points = self.read(index)
        return decoded.geometry.world(points)

    def placed(self) -> list[int]:
        """Count the volumes in which each landmark is present."""
        raise NotImplementedError

    def case(self, index: int) -> str:
        """Return the name of volume ``index``: its file name without suffix."""
        raise NotImplementedError

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        raise NotImplementedError
