"""What a dataset of volumes with label maps is, and where decoded label maps are kept."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...contracts.dataset import Dataset
from ...loading.checked_files import checked_file, write_array
from ...runtime.errors import UserError
from ..geometry import Geometry, canonical, check_voxels, nearest_positions
from ..reading import read_volume
from ..settings import MAX_VOXELS
from ..store import Decoded, DecodedStore

IGNORED = 255  # of a voxel without a class; so a dataset has at most 255 classes
_PLACES = 500  # voxels of each class that are kept, to draw training crops around


class Options(NamedTuple):
    """How a dataset is read; see the keys VOLUMES.* of the same names."""

    spacing_mm: Sequence[float] | None = None
    max_voxels: int = MAX_VOXELS
    fold: int = 0


AS_THEY_ARE = Options()


class Source(NamedTuple):
    """Where the labels of a volume belong.

    Attributes:
        file: the volume of its first channel; None: it was drawn.
        geometry: of that file, with its axes as they are stored.
    """

    file: str | None
    geometry: Geometry


class LabelMap(NamedTuple):
    """The classes of a volume's voxels.

    Attributes:
        array: uint8 (depth, height, width), classes from 0 or ``IGNORED``; axes are aligned with the world's.
        geometry: of the array.
        places: by class, without the background, int (at most 500, 3): some of its voxels z, y, x.
    """

    array: np.ndarray
    geometry: Geometry
    places: Mapping[int, np.ndarray]

    @classmethod
    def of(cls, array: np.ndarray, geometry: Geometry) -> "LabelMap":
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
    class_names: list[str] = []
    #: the number that files have for each class
    numbers: list[int] = []
    #: names of the channels, such as "CT"
    channels: list[str] = ["intensity"]
    #: (depth, height, width), millimetres, at which volumes are read
    spacing: np.ndarray

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: Options = AS_THEY_ARE
    ) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "SegmentedVolumes":
        volumes = config.VOLUMES
        options = Options(volumes.SPACING_MM, volumes.MAX_VOXELS, volumes.FOLD)
        return cls(config.DATA.DATA_PATH, split, cache_folder, options)

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        return len(self.class_names)

    def read(self, index: int) -> tuple[list[Decoded], LabelMap | None]:
        """The channels of volume ``index``, of one geometry, and the labels of their voxels; None without labels."""
        raise NotImplementedError

    def stored_labels(self, index: int) -> LabelMap | None:
        """The labels as they are stored, at their own spacing, without being resampled; None without labels."""
        raise NotImplementedError

    def source(self, index: int) -> Source:
        """Where the labels of volume ``index`` belong."""
        raise NotImplementedError

    def case(self, index: int) -> str:
        """Name of volume ``index``: its file name without channel and suffix."""
        raise NotImplementedError


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

    def labels(self, file: str) -> LabelMap:
        """The label map of a file.

        Raises:
            UserError: as ``DecodedStore.get``; or a voxel has a number that is no class.
        """
        stored, array = self._kept(file)
        places = {int(label): np.array(own, np.int64) for label, own in stored["places"].items()}
        return LabelMap(array, Geometry(array.shape, np.array(stored["affine"])), places)

    def _key(self, file: str) -> str:
        facts = [super()._key(file), self.numbers, self.ignored]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()

    def _decode(self, file: str, facts: Path, target: Path) -> None:
        voxels, header = read_volume(file, self.max_voxels)
        array, affine = canonical(self._classes(file, voxels), header.geometry.affine)
        if self.spacing is not None:
            geometry, positions = nearest_positions(Geometry(array.shape, affine), np.array(self.spacing))
            check_voxels(file, geometry.shape, self.max_voxels, " at VOLUMES.SPACING_MM")
            array, affine = array[np.ix_(*positions)], geometry.affine
        found = LabelMap.of(np.ascontiguousarray(array), Geometry(array.shape, affine))
        self.folder.mkdir(parents=True, exist_ok=True)
        checksum = write_array(target, found.array)
        places = {label: own.tolist() for label, own in found.places.items()}
        stored = {"file": file, "affine": affine.tolist(), "places": places, "checksum": checksum}
        with checked_file(facts) as out:
            out.write(json.dumps(stored).encode("utf-8"))

    def _classes(self, file: str, voxels: np.ndarray) -> np.ndarray:
        """uint8 of the same shape."""
        numbers = np.array([*self.numbers, *([] if self.ignored is None else [self.ignored])])
        classes = np.array([*range(len(self.numbers)), IGNORED][: len(numbers)], np.uint8)
        order = np.argsort(numbers)
        found = np.empty(voxels.shape, np.uint8)
        for depth, own in enumerate(voxels):  # slice by slice: indices have 8 bytes for each voxel
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
