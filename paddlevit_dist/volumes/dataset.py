"""Base class of all datasets of volumes with landmarks."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.registry.required_methods import is_builtin
from ..core.runtime.printing import describe_value
from ..core.tasks.dataset import Dataset
from ..core.tasks.listed_dataset import create_dataset
from ..core.tasks.sample_checks import BadSample
from ..core.tasks.sample_groups import SUBJECT
from .settings import MAX_VOXELS, VolumeSettings
from .store import DecodedVolume
from .volume_fields import check_volume, make_landmarks, require_cases


class VolumeOptions(NamedTuple):
    """Settings for reading a dataset of volumes; fields correspond to the keys VOLUMES.*."""

    spacing_mm: Sequence[float] | None = None
    landmarks: Sequence[str] | None = None
    landmark_units: str = "mm"
    coordinate_system: str = "file"
    max_voxels: int = MAX_VOXELS


DEFAULT_OPTIONS = VolumeOptions()


class NamedVolumes(Dataset):
    """Base class of datasets of volumes with names."""

    groups_by = SUBJECT
    indexed = ("case", "stored", "source", "world", "convention")

    def make_facts(self, name: str) -> None:
        """Make what the attributes say of the classes what tasks expect, and check the names of the volumes."""
        super().make_facts(name)
        if not is_builtin(self.own_class):
            self.number_classes(name)
        require_cases(map(self.case, range(len(self))), name)

    @abstractmethod
    def case(self, index: int) -> str:
        """Return the name of volume ``index``, which no other has: its file name without channel and suffix."""

    def describe(self, index: int) -> str:
        """Return the origin of volume ``index`` for messages; by default, its name."""
        return f"volume {self.case(index)}"

    def identity(self, index: int) -> str:
        """Return a name as any dataset does; by default a number, as another split may have volumes of the same names.

        It follows from the description of a derived class.
        """
        default = NamedVolumes.describe
        is_default = getattr(self.own_class, "describe", default) is default
        return Dataset.describe(self, index) if is_default else super().identity(index)


class VolumeDataset(NamedVolumes):
    """Base class of datasets of volumes with landmarks; ``read(index)`` returns ``(DecodedVolume, points)``.

    ``class_names`` are the names of the landmarks. The ``read`` of a derived class may return points in each form that
    ``make_landmarks`` takes; ``make_volume`` creates a volume.
    """

    holds = "volumes"
    #: names of the landmarks, in the order of the model's outputs
    names: Sequence[str] = []
    #: voxel spacing of all volumes, millimeters (depth, height, width)
    spacing: Any  # of an own dataset also a list
    #: region of each channel's mean and deviation, set by the task, see ``nonzero``; None: always the whole volume
    within: Sequence[str] | None = None

    @classmethod
    def open(cls, config: VolumeSettings, split: str, cache_folder: Path) -> "VolumeDataset":
        """Open a split with the DATA and VOLUMES keys of a configuration."""
        volumes = config.VOLUMES
        options = VolumeOptions(*(volumes[name.upper()] for name in VolumeOptions._fields))
        return create_dataset(cls, config.DATA.DATA_PATH, split, cache_folder, options)

    def make_sample(self, sample: Any) -> tuple[DecodedVolume, np.ndarray]:
        """Return what ``read`` of a derived class returned with float64 points; BadSample if a part is wrong.

        Voxels are not read.
        """
        if not isinstance(sample, (tuple, list)) or len(sample) != 2:
            what = f"{self.own_class.__name__}.read returns {describe_value(sample)}"
            raise BadSample(f"{what}, expected (DecodedVolume, points)")
        decoded = check_volume(sample[0], "volume", getattr(self, "spacing", None))
        return decoded, make_landmarks(sample[1], self.list_class_names(), decoded.geometry)

    @abstractmethod
    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a volume with geometry, and its landmarks' voxels z, y, x, float64 (landmarks, 3), NaN if missing."""

    @property
    def class_names(self) -> Sequence[str]:
        """Names of the landmarks."""
        return self.names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        self.names = names or []

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

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        return "ras"
