"""Base class of all datasets of volumes with landmarks."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.tasks.dataset import Dataset
from ..core.tasks.sample_groups import SUBJECT
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

    @classmethod
    def open(cls, config: VolumeSettings, split: str, cache_folder: Path) -> "VolumeDataset":
        """Open a split with the DATA and VOLUMES keys of a configuration."""
        volumes = config.VOLUMES
        options = VolumeOptions(*(volumes[name.upper()] for name in VolumeOptions._fields))
        return cls(config.DATA.DATA_PATH, split, cache_folder, options)

    @abstractmethod
    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a volume with geometry, and its landmarks' voxels z, y, x, float64 (landmarks, 3), NaN if missing."""

    @property
    def class_names(self) -> list[str]:  # type: ignore[override] # each output of the model is a landmark
        """Names of the landmarks."""
        return self.names

    def stored(self, index: int) -> list[np.ndarray]:
        """Read the channels of volume ``index`` at their stored spacing, without resampling."""
        return [self.read(index)[0].array]

    def world(self, index: int) -> np.ndarray:
        """Return the landmarks in RAS millimeters, float64 (landmarks, 3): x to the right, y to the front, z up."""
        decoded, points = self.read(index)
        return decoded.geometry.world(points)

    def placed(self) -> list[int] | None:
        """Count the volumes in which each landmark is present; None: unknown without reading all."""
        return None

    @abstractmethod
    def case(self, index: int) -> str:
        """Return the name of volume ``index``: its file name without suffix."""

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        return "ras"
