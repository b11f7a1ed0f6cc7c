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
    """How a dataset of volumes is read; see the keys VOLUMES.* of the same names."""

    spacing_mm: Sequence[float] | None = None
    landmarks: Sequence[str] | None = None
    landmark_units: str = "mm"
    coordinate_system: str = "file"
    max_voxels: int = MAX_VOXELS


AS_THEY_ARE = VolumeOptions()


class VolumeDataset(Dataset):
    """Volumes with the positions of landmarks: ``read(index)`` gives ``(DecodedVolume, points)``."""

    holds = "volumes"
    groups_by = SUBJECT
    #: of the landmarks, in the order of the model's outputs
    names: list[str] = []
    #: (depth, height, width), millimeters, of all its volumes
    spacing: np.ndarray
    #: of each channel what its moments are of, as the task says, see ``nonzero``; None: always of the whole volume
    within: Sequence[str] | None = None

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: VolumeOptions = AS_THEY_ARE
    ) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, config: VolumeSettings, split: str, cache_folder: Path) -> "VolumeDataset":
        volumes = config.VOLUMES
        options = VolumeOptions(*(volumes[name.upper()] for name in VolumeOptions._fields))
        return cls(config.DATA.DATA_PATH, split, cache_folder, options)

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Voxels and geometry of volume ``index``, and its landmarks: float64 (landmarks, 3), voxel positions z, y, x;
        NaN where missing."""
        decoded = self.volume(index)
        return decoded, self.points(index, decoded.geometry)

    @property
    def class_names(self) -> list[str]:  # type: ignore[override] # each output of the model is a landmark
        """Names of the landmarks."""
        return self.names

    def volume(self, index: int) -> DecodedVolume:
        """Voxels and geometry of volume ``index``."""
        raise NotImplementedError

    def stored(self, index: int) -> list[np.ndarray]:
        """The voxels of its channel as they are stored, without being resampled."""
        return [self.volume(index).array]

    def points(self, index: int, geometry: VolumeGeometry) -> np.ndarray:
        """Voxel positions (landmarks, 3) in the order z, y, x within ``geometry``; NaN where missing."""
        raise NotImplementedError

    def world(self, index: int) -> np.ndarray:
        """The same landmarks in millimeters, float64 (landmarks, 3): x, y, z to the right, to the front, upwards."""
        decoded, points = self.read(index)
        return decoded.geometry.world(points)

    def placed(self) -> list[int]:
        """Number of volumes in which each landmark is present."""
        raise NotImplementedError

    def case(self, index: int) -> str:
        """Name of volume ``index``: its file name without suffix."""
        raise NotImplementedError

    def convention(self, index: int) -> str:
        """Convention of predictions for volume ``index``: "ras" or "lps"."""
        raise NotImplementedError
