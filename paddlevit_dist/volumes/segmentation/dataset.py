"""The contract of a dataset of volumes with label maps, and where decoded label maps are kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ...tasks.dataset import Dataset
from ...tasks.sample_groups import SUBJECT
from ..geometry import VolumeGeometry
from ..reading import VolumeHeader
from ..settings import MAX_VOXELS
from ..store import DecodedStore, DecodedVolume, read_stored, read_upright
from .settings import VolumeSegmentationSettings

IGNORED = 255  # of a voxel without a class; so a dataset has at most 255 classes
_PLACES = 500  # voxels of each class that are kept, to draw training crops around


class SegmentationOptions(NamedTuple):
    """How a dataset is read; see the keys VOLUMES.* of the same names."""

    spacing_mm: Sequence[float] | None = None
    max_voxels: int = MAX_VOXELS
    fold: int = 0


AS_THEY_ARE = SegmentationOptions()


class LabelSource(NamedTuple):
    """Where the labels of a volume belong.

    Attributes:
        file: the volume of its first channel; None: it was drawn.
        geometry: of that file, with its axes as they are stored.
    """

    file: str | None
    geometry: VolumeGeometry


_NEARLY_WHOLE = 1e-3  # of a label: a slope of 1.0000000591, as some tools write, is off by less


class LabelMap(NamedTuple):
    """The classes of a volume's voxels.

    Attributes:
        array: uint8 (depth, height, width), classes from 0 or ``IGNORED``; axes are aligned with the world's.
        geometry: of the array.
        places: by class, without the background, int (at most 500, 3): some of its voxels z, y, x.
    """

    array: np.ndarray
    geometry: VolumeGeometry
    places: Mapping[int, np.ndarray]

    @classmethod
    def of(cls, array: np.ndarray, geometry: VolumeGeometry) -> "LabelMap":
        """With places that are the same on every machine."""
        places, generator = {}, np.random.default_rng(0)
        occurring = np.bincount(array.reshape(-1), minlength=IGNORED + 1) > 0
        for label in np.flatnonzero(occurring[1:IGNORED]) + 1:
            found = np.flatnonzero(array == label)
            if len(found) > _PLACES:
                found = found[np.sort(generator.integers(0, len(found), _PLACES))]
            places[int(label)] = np.stack(np.unravel_index(found, array.shape), axis=1)
        return cls(array, geometry, places)


class SegmentedVolumes(Dataset):
    """Volumes of one or several channels, and a class for each voxel: ``read(index)`` gives ``(channels, labels)``.

    Class 0 is the background.
    """

    holds = "volumes with label maps"
    groups_by = SUBJECT
    class_names: list[str] = []
    #: the number that files have for each class
    numbers: list[int] = []
    #: names of the channels, such as "CT"
    channels: list[str] = ["intensity"]
    #: (depth, height, width), millimeters, at which volumes are read
    spacing: np.ndarray
    #: of each channel what its moments are of, as the task says, see ``nonzero``; None: always of the whole volume
    within: Sequence[str] | None = None

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: SegmentationOptions = AS_THEY_ARE
    ) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, config: VolumeSegmentationSettings, split: str, cache_folder: Path) -> "SegmentedVolumes":
        volumes = config.VOLUMES
        options = SegmentationOptions(volumes.SPACING_MM, volumes.MAX_VOXELS, volumes.FOLD)
        return cls(config.DATA.DATA_PATH, split, cache_folder, options)

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        return len(self.class_names)

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        """The channels of volume ``index``, of one geometry, and the labels of their voxels; None without labels."""
        raise NotImplementedError

    def stored_labels(self, index: int) -> LabelMap | None:
        """The labels as they are stored, at their own spacing, without being resampled; None without labels. By default
        those of ``read``."""
        return self.read(index)[1]

    def stored(self, index: int) -> list[np.ndarray]:
        """The channels as they are stored, likewise."""
        return [np.asarray(channel.array) for channel in self.read(index)[0]]

    def source(self, index: int) -> LabelSource:
        """Where the labels of volume ``index`` belong."""
        raise NotImplementedError

    def case(self, index: int) -> str:
        """Name of volume ``index``: its file name without channel and suffix."""
        raise NotImplementedError


class VolumeFiles(SegmentedVolumes):
    """Such volumes in files.

    Attributes:
        names: of the volumes.
        files: those of each volume's channels.
        headers: of the first file of each.
    """

    names: Sequence[str]
    files: Sequence[Sequence[str]]
    headers: Sequence[VolumeHeader]
    max_voxels: int
    within: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> list[np.ndarray]:
        files = self.files[index]
        return [read_stored(file, self.max_voxels, first=files[0])[0] for file in files]

    def source(self, index: int) -> LabelSource:
        return LabelSource(self.files[index][0], self.headers[index].geometry)

    def case(self, index: int) -> str:
        return self.names[index]

    def describe(self, index: int) -> str:
        return self.files[index][0]


class LabelStore(DecodedStore):
    """Keeps decoded label maps in a folder, as classes.

    Args:
        numbers: that files have for each class.
        ignored: the number of a voxel without a class; None: all have one.
    """

    def __init__(
        self,
        folder: Path,
        spacing: Sequence[float] | None,
        max_voxels: int,
        numbers: Sequence[int],
        ignored: int | None = None,
    ) -> None:
        super().__init__(folder, spacing, max_voxels)
        self.numbers, self.ignored = list(numbers), ignored
        self._meaning = [self.numbers, ignored]

    def labels(self, file: str, first: str) -> LabelMap:
        """Return the label map of a file.

        Args:
            first: of the files of its volume, as of ``read_stored``.
        Raises:
            UserError: as ``DecodedStore.get``; or a voxel has a number that is no class.
        """
        stored, array = self._read_kept(file, "labels", first)
        places = {int(label): np.array(own, np.int64) for label, own in stored["places"].items()}
        return LabelMap(array, VolumeGeometry(array.shape, np.array(stored["affine"])), places)

    def _read(self, file: str, *within: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        array, affine = read_upright(file, self.spacing, self.max_voxels, self._classes, within[1])
        places = LabelMap.of(array, VolumeGeometry(array.shape, affine)).places
        return array, affine, {"places": {label: own.tolist() for label, own in places.items()}}

    def _classes(self, file: str, voxels: np.ndarray) -> np.ndarray:
        """Return uint8 of the same shape. Numbers that a header scales may be a thousandth off a whole one."""
        numbers = np.array([*self.numbers, *([] if self.ignored is None else [self.ignored])])
        classes = np.array([*range(len(self.numbers)), IGNORED][: len(numbers)], np.uint8)
        order = np.argsort(numbers)
        found = np.empty(voxels.shape, np.uint8)
        for depth, own in enumerate(voxels):  # slice by slice: indices have 8 bytes for each voxel
            if own.dtype.kind == "f":
                whole = np.rint(own)
                own = np.where(np.abs(own - whole) <= _NEARLY_WHOLE, whole, own)
            place = np.minimum(np.searchsorted(numbers[order], own), len(numbers) - 1)
            wrong = np.argwhere(numbers[order][place] != own)
            if len(wrong):
                y, x = wrong[0].tolist()
                raise UserError(
                    f"{file}: voxel {x}, {y}, {depth} (x, y, z from 0) has the label {own[y, x]}, which dataset.json "
                    f"does not name ({', '.join(map(str, sorted(numbers.tolist())))}): add it there or correct the file"
                )
            found[depth] = classes[order][place]
        return found
