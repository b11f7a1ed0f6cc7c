"""Volumes that are to be predicted, without landmarks: files and DICOM folders, wherever they are."""

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ..contracts.prediction import InputSamples, find_inputs, output_names, stamps
from ..runtime.errors import UserError
from . import dicom
from .dataset import VolumeDataset
from .geometry import Geometry, turned_spacing
from .intensities import Intensities
from .reading import SUFFIXES, Header, case_name, parts_of, read_header, remarks_on
from .samples import Augmentation, VolumeSamples
from .store import Decoded, moments, percentile_window, read_upright

_EXPECTED = f"expected {', '.join(SUFFIXES)}, or a folder of these or of a DICOM series"
_SAME_SPACING = 5e-3  # relative: what weights say of their spacing has three digits


def same_spacing(geometry: Geometry, spacing: np.ndarray) -> bool:
    """Whether a volume has the spacing (depth, height, width) that weights say, and need not be resampled."""
    return np.allclose(turned_spacing(geometry), spacing, rtol=_SAME_SPACING)


class VolumeFile(NamedTuple):
    """A volume to be predicted: its file or folder, the convention ("ras" or "lps") of its predictions, and whether it
    has to be resampled."""

    file: str
    convention: str
    resamples: bool


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
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        own = [name for name in sorted(names) if name.lower().endswith(SUFFIXES) and not name.startswith(".")]
        if own:
            yield from (os.path.join(place, name) for name in own)
        elif dicom.holds_dicom(place):
            yield place


class InputVolumes(VolumeDataset):
    """Volumes without landmarks, each decoded when it is read.

    Args:
        names: of the landmarks.
        spacing: millimetres (depth, height, width) that those in other spacings are resampled to.
        world: VOLUMES.WORLD: "file", or the convention of all predictions.
    """

    labelled = False

    def __init__(
        self, files: Sequence[str], names: Sequence[str], spacing: np.ndarray, world: str, max_voxels: int
    ) -> None:
        self.names, self.spacing, self.max_voxels = list(names), spacing, max_voxels
        self.cases: list[VolumeFile] = []
        self.unreadable: list[tuple[str, str]] = []
        headers: dict[str, Header] = {}
        for file in tqdm(files, desc="looking at headers", unit="volume", disable=None, leave=False):
            try:
                header = headers[file] = read_header(file, max_voxels)
            except UserError as error:
                self.unreadable.append((file, str(error)))
                continue
            same = same_spacing(header.geometry, spacing)
            self.cases.append(VolumeFile(file, header.convention if world == "file" else world, not same))
        self.stems = output_names([case_name(case.file) for case in self.cases])
        self.notices = remarks_on(headers)

    def __len__(self) -> int:
        return len(self.cases)

    def describe(self, index: int) -> str:
        return self.cases[index].file

    def case(self, index: int) -> str:
        return self.stems[index]

    def convention(self, index: int) -> str:
        return self.cases[index].convention

    def volume(self, index: int) -> Decoded:
        file, _, resamples = self.cases[index]
        voxels, affine = read_upright(file, self.spacing.tolist() if resamples else None, self.max_voxels)
        return Decoded(voxels, Geometry(voxels.shape, affine), percentile_window(voxels), moments(voxels))

    def points(self, index: int, geometry: Geometry) -> np.ndarray:
        return np.full((len(self.names), 3), np.nan)


class VolumeInputs(InputSamples):
    """Whole volumes to be predicted, with intensities as in an evaluation.

    Args:
        intensities: see ``VolumeSamples``.
        unreadable: paths without volumes, with reasons.
    """

    labelled = False

    def __init__(self, dataset: InputVolumes, intensities: Intensities, unreadable: Sequence[tuple[str, str]]) -> None:
        self.samples = VolumeSamples(dataset, None, Augmentation(), range(len(dataset.names)), intensities)
        self.cases = [(dataset.case(index), dataset.convention(index)) for index in range(len(dataset))]
        self.names = [case.file for case in dataset.cases]
        self.unreadable = [*unreadable, *dataset.unreadable]
        self.notices = list(dataset.notices)

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
        return self.samples.sample(index, generator)

    def content(self) -> Any:
        return stamps(part for file in self.names for part in (file, *parts_of(file)))
