"""Volumes for prediction: files and DICOM folders at any path."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from ..core.runtime.errors import UserError
from ..core.tasks.dataset import TransformedDataset
from ..core.tasks.prediction import InputSamples, find_inputs, note_counted, output_names, stamps
from . import dicom
from .dataset import VolumeDataset
from .geometry import VolumeGeometry, step_lengths, turned_spacing
from .guessing import is_label_file
from .nonzero import VOLUME
from .reading import SUFFIXES, VolumeHeader, case_name, format_remarks, list_parts, read_aligned_headers
from .store import DecodedVolume, read_decoded

_EXPECTED = f"expected {', '.join(SUFFIXES)}, or a folder of these or of a DICOM series"
_LABELS = ("labelsTr", "labelsTs")
_SAME_SPACING = 5e-3  # relative: weights record their spacing with three digits


def read_at_spacing(
    file: str, within: str, geometry: VolumeGeometry, spacing: np.ndarray, max_voxels: int, channels: Sequence[str]
) -> DecodedVolume:
    """Read a volume, see ``read_decoded``, and resample it to the weights' spacing, mm (depth, height, width)."""
    has_same_spacing = np.allclose(step_lengths(turned_spacing(geometry)), spacing, rtol=_SAME_SPACING)
    return read_decoded(file, None if has_same_spacing else spacing.tolist(), max_voxels, within, channels)


def find_volumes(inputs: Sequence[str]) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    """Find the volumes in paths, in their order and sorted within folders; see ``find_inputs``."""
    return find_inputs(
        inputs,
        _find_in_folder,
        lambda path: path if path.lower().endswith(SUFFIXES) else None,
        what="volume",
        expected=_EXPECTED,
    )


def _find_in_folder(folder: str, others: list[str]) -> Iterator[str]:
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        # nnU-Net keeps labels next to images; their names look like volumes.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith(".") and name not in _LABELS)
        files = [os.path.join(parent, name) for name in sorted(names) if not name.startswith(".")]
        volumes = [file for file in files if file.lower().endswith(SUFFIXES)]
        scans = [file for file in volumes if not is_label_file(file, parent)] or volumes  # seg.nii.gz next to ct.nii.gz
        yield from scans
        others += [file for file in volumes if file not in scans]
        if dicom.contains_dicom(parent, volumes):
            yield parent
            continue
        parts = set(volumes)
        for volume in volumes:
            with contextlib.suppress(OSError):  # told when the volume is read
                parts.update(list_parts(volume))
        others += [file for file in files if file not in parts]


class ReadableVolumes:
    """Volumes, name and files of each, whose headers can be read and whose channels have the same geometry."""

    def __init__(self, volumes: Iterable[tuple[str, Sequence[str]]], max_voxels: int) -> None:
        self.files: list[Sequence[str]] = []
        self.headers: list[VolumeHeader] = []  # of the first file of each
        self.unreadable: list[tuple[str, str]] = []  # first file of each other volume, with the reason
        all_headers: dict[str, VolumeHeader] = {}
        names = []
        for name, files in tqdm(volumes, desc="reading headers", unit="volume", disable=None, leave=False):
            try:
                all_headers.update(read_aligned_headers(files, max_voxels))
            except UserError as error:
                self.unreadable.append((files[0], str(error)))
                continue
            names.append(name)
            self.files.append(files)
            self.headers.append(all_headers[files[0]])
        self.stems = output_names(names)
        self.notices = [*format_remarks(all_headers), *note_counted(names, self.stems, "volume")]


class InputVolumes(VolumeDataset):
    """Volumes without landmarks, each decoded when it is read, to ``spacing``, millimeters (depth, height, width).

    ``coordinate_system`` is VOLUMES.COORDINATE_SYSTEM: "file", or the convention of all predictions.
    """

    labeled = False
    within: Sequence[str] = (VOLUME,)

    def __init__(
        self, files: Sequence[str], names: Sequence[str], spacing: np.ndarray, coordinate_system: str, max_voxels: int
    ) -> None:
        self.names, self.spacing, self.coordinate_system, self.max_voxels = (
            list(names),
            spacing,
            coordinate_system,
            max_voxels,
        )
        readable = ReadableVolumes([(case_name(file), (file,)) for file in files], max_voxels)
        self.stems, self.files, self.headers = readable.stems, readable.files, readable.headers
        self.unreadable, self.notices = readable.unreadable, readable.notices

    def __len__(self) -> int:
        return len(self.files)

    def describe(self, index: int) -> str:
        """Return the path of volume ``index``, for messages."""
        return self.files[index][0]

    def case(self, index: int) -> str:
        """Return the name of volume ``index``."""
        return self.stems[index]

    def convention(self, index: int) -> str:
        """Return the convention of predictions for volume ``index``: "ras" or "lps"."""
        return self.headers[index].convention if self.coordinate_system == "file" else self.coordinate_system

    def read(self, index: int) -> tuple[DecodedVolume, np.ndarray]:
        """Return a volume with geometry, and NaN for its unknown landmarks, float64 (landmarks, 3)."""
        files, geometry = self.files[index], self.headers[index].geometry
        decoded = read_at_spacing(files[0], self.within[0], geometry, self.spacing, self.max_voxels, files)
        return decoded, np.full((len(self.names), 3), np.nan)


class VolumeInputs(InputSamples):
    """Whole volumes for prediction, with intensities as in evaluation, and paths without volumes, with reasons."""

    labeled = False

    def __init__(
        self, samples: TransformedDataset, unreadable: Sequence[tuple[str, str]], notices: Sequence[str] = ()
    ) -> None:
        self.samples, self.dataset = samples, samples.dataset
        self.names = [files[0] for files in self.dataset.files]
        self.unreadable = [*unreadable, *self.dataset.unreadable]
        self.notices = [*notices, *self.dataset.notices]

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        """Return volume ``index`` with scaled intensities."""
        return self.samples.sample(index, generator)

    def content(self) -> Any:
        """Return sizes and times of all files, which identify the inputs."""
        return stamps(part for files in self.dataset.files for file in files for part in (file, *list_parts(file)))
