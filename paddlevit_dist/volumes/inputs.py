"""Volumes that are to be predicted: files and DICOM folders, wherever they are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from ..runtime.errors import UserError
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import InputSamples, find_inputs, output_names, stamps
from . import dicom
from .dataset import VolumeDataset
from .geometry import VolumeGeometry, step_lengths, turned_spacing
from .nonzero import VOLUME
from .reading import SUFFIXES, VolumeHeader, case_name, headers_in_one_place, list_parts, remarks_on
from .store import DecodedVolume, read_decoded

_EXPECTED = f"expected {', '.join(SUFFIXES)}, or a folder of these or of a DICOM series"
_LABELS = ("labelsTr", "labelsTs")
_SAME_SPACING = 5e-3  # relative: what weights say of their spacing has three digits


def read_new(
    file: str, within: str, geometry: VolumeGeometry, spacing: np.ndarray, max_voxels: int, channels: Sequence[str]
) -> DecodedVolume:
    """A volume of this geometry at a spacing (depth, height, width) that weights say; ``within`` and ``channels`` as
    of ``read_decoded``."""
    same = np.allclose(step_lengths(turned_spacing(geometry)), spacing, rtol=_SAME_SPACING)
    return read_decoded(file, None if same else spacing.tolist(), max_voxels, within, channels)


def find_volumes(inputs: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The volumes in paths, in their order and sorted within folders; and the paths that hold none, with reasons."""
    return find_inputs(
        inputs,
        _of_folder,
        lambda path: path if path.lower().endswith(SUFFIXES) else None,
        what="volume",
        expected=_EXPECTED,
    )


def _of_folder(folder: str) -> Iterator[str]:
    for place, subfolders, names in os.walk(folder, followlinks=True):
        # Beside nnU-Net's volumes lie their labels: volumes, too, by their names.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name not in _LABELS)
        own = [name for name in sorted(names) if name.lower().endswith(SUFFIXES) and not name.startswith(".")]
        if own:
            yield from (os.path.join(place, name) for name in own)
        elif dicom.holds_dicom(place):
            yield place


class ReadableVolumes:
    """Volumes whose headers can be read and whose files lie in one place.

    Args:
        volumes: name and files of each.
    Attributes:
        stems: what the files of each prediction are called.
        files: of each volume.
        headers: of the first file of each.
        unreadable: the others' first files, with reasons.
        notices: lines for the log.
    """

    def __init__(self, volumes: Iterable[tuple[str, Sequence[str]]], max_voxels: int) -> None:
        self.files: list[Sequence[str]] = []
        self.headers: list[VolumeHeader] = []
        self.unreadable: list[tuple[str, str]] = []
        every: dict[str, VolumeHeader] = {}
        names = []
        for name, files in tqdm(volumes, desc="looking at headers", unit="volume", disable=None, leave=False):
            try:
                every.update(headers_in_one_place(files, max_voxels))
            except UserError as error:
                self.unreadable.append((files[0], str(error)))
                continue
            names.append(name)
            self.files.append(files)
            self.headers.append(every[files[0]])
        self.stems, self.notices = output_names(names), remarks_on(every)


class InputVolumes(VolumeDataset):
    """Volumes without landmarks, each decoded when it is read.

    Args:
        names: of the landmarks.
        spacing: millimeters (depth, height, width) that those in other spacings are resampled to.
        world: VOLUMES.COORDINATE_SYSTEM: "file", or the convention of all predictions.
    """

    labeled = False
    within: Sequence[str] = (VOLUME,)

    def __init__(
        self, files: Sequence[str], names: Sequence[str], spacing: np.ndarray, world: str, max_voxels: int
    ) -> None:
        self.names, self.spacing, self.world, self.max_voxels = list(names), spacing, world, max_voxels
        found = ReadableVolumes([(case_name(file), (file,)) for file in files], max_voxels)
        self.stems, self.files, self.headers = found.stems, found.files, found.headers
        self.unreadable, self.notices = found.unreadable, found.notices

    def __len__(self) -> int:
        return len(self.files)

    def describe(self, index: int) -> str:
        return self.files[index][0]

    def case(self, index: int) -> str:
        return self.stems[index]

    def convention(self, index: int) -> str:
        return self.headers[index].convention if self.world == "file" else self.world

    def volume(self, index: int) -> DecodedVolume:
        files, geometry = self.files[index], self.headers[index].geometry
        return read_new(files[0], self.within[0], geometry, self.spacing, self.max_voxels, files)

    def points(self, index: int, geometry: VolumeGeometry) -> np.ndarray:
        return np.full((len(self.names), 3), np.nan)


class VolumeInputs(InputSamples):
    """Whole volumes to be predicted, with intensities as in an evaluation.

    Args:
        samples: of a dataset with ``files``, those of each volume, and ``unreadable``.
        unreadable: paths without volumes, with reasons.
    """

    labeled = False

    def __init__(self, samples: TransformedDataset, unreadable: Sequence[tuple[str, str]]) -> None:
        self.samples, self.dataset = samples, samples.dataset
        self.names = [files[0] for files in self.dataset.files]
        self.unreadable = [*unreadable, *self.dataset.unreadable]
        self.notices = list(self.dataset.notices)

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        return self.samples.sample(index, generator)

    def content(self) -> Any:
        return stamps(part for files in self.dataset.files for file in files for part in (file, *list_parts(file)))
