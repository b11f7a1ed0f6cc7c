"""Predictions of a network that segments volumes for new ones: label maps as NIfTI, where the volumes lie."""

import gzip
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.errors import UserError
from ...runtime.files import atomic_file
from ...tasks.prediction import PredictionRecord, PredictionWriter, Row
from ..geometry import as_stored, square, step_lengths
from ..inputs import ReadableVolumes, read_new
from ..reading import library
from ..store import DecodedVolume
from .dataset import LabelMap, LabelSource, VolumeFiles
from .figures import class_slices
from .nnunet import group_channels

_CLASSES = "classes.txt"


class SegmentedVolume(NamedTuple):
    """The classes of a volume's voxels.

    Attributes:
        index: of the volume.
        labels: uint8 (depth, height, width), as labels are stored, along the world's axes.
        volume: float32 (depth, height, width), the first channel as the network sees it.
        spacing: the steps of ``labels``, float64 (3, 3), see ``turned_spacing``.
    """

    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    labels: np.ndarray
    volume: np.ndarray
    spacing: np.ndarray


class NewVolumes(VolumeFiles):
    """Volumes without labels, each decoded when it is read.

    Args:
        files: of one channel each; those of one volume have its name and _0000, _0001 and so on.
        task: what ``load_meta`` knows.
    """

    labeled = False

    def __init__(self, files: Sequence[str], task: Any) -> None:
        self.class_names, self.numbers, self.channels = task.class_names, task.numbers, task.channels
        self.spacing, self.max_voxels = task.spacing, task.config.VOLUMES.MAX_VOXELS
        folders: dict[str, list[str]] = {}
        for file in files:
            folders.setdefault(os.path.dirname(file), []).append(file)
        volumes: list[tuple[str, Sequence[str]]] = []
        unreadable: list[tuple[str, str]] = []
        for own in folders.values():
            try:
                volumes += group_channels(own, self.channels)
            except UserError as error:
                unreadable.append((own[0], str(error)))
        found = ReadableVolumes(volumes, self.max_voxels)
        self.names, self.files, self.headers = found.stems, found.files, found.headers
        self.unreadable, self.notices = [*unreadable, *found.unreadable], found.notices

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        files, geometry = self.files[index], self.headers[index].geometry
        read = (read_new(*each, geometry, self.spacing, self.max_voxels, files) for each in zip(files, self.within))
        return list(read), None

    def stored_labels(self, index: int) -> LabelMap | None:
        return None


class LabelWriter(PredictionWriter):
    """Writes ``NAME.nii.gz`` for each volume, with the numbers that labels have in the training data, at the voxels of
    its first file; and ``NAME.png``, three slices with the classes found.

    Args:
        folder: exists.
        numbers: of the classes.
    """

    writes_evaluations = True

    def __init__(self, folder: Path, dataset: Any, class_names: Sequence[str], numbers: Sequence[int]) -> None:
        self.folder, self.dataset, self.class_names = folder, dataset, list(class_names)
        self.numbers = np.array(numbers, np.uint8 if max(numbers) < 256 else np.uint16)

    def write(self, index: int, prediction: SegmentedVolume, truth: Any = None) -> Row:
        name = self.dataset.case(index)
        write_labels(self.folder / f"{name}.nii.gz", self.numbers[prediction.labels], self.dataset.source(index))
        spacing = step_lengths(prediction.spacing) * prediction.labels.shape / np.array(prediction.volume.shape)
        drawn = class_slices(prediction.volume, spacing, prediction.labels, self.class_names)
        with atomic_file(self.folder / f"{name}.png") as file:
            Image.fromarray(drawn).save(file, "PNG")
        return {"labels": f"{name}.nii.gz", "picture": f"{name}.png"}

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        if not any(True for _ in entries):
            return []
        lines = [f"{number}\t{name}\n" for number, name in zip(self.numbers.tolist(), self.class_names)]
        with atomic_file(self.folder / _CLASSES) as file:
            file.write("".join(lines).encode())
        return [f"label maps (.nii.gz) are in {self.folder}; their numbers are explained in {_CLASSES}"]


def write_labels(file: Path, labels: np.ndarray, source: LabelSource) -> None:
    """Write a label map as NIfTI, with the voxels and the affine of the file that it belongs to: its sform. Where that
    has no qform, as ITK needs one beside a sheared sform, it is the place where ITK puts such a series itself.

    Args:
        labels: unsigned (depth, height, width), along the world's axes.
    """
    nibabel = library("nibabel", str(file))
    array, affine, header = as_stored(labels, source.geometry.affine).T, source.geometry.affine, None
    kind = nibabel.Nifti1Image
    if source.file is not None and source.file.lower().endswith((".nii", ".nii.gz")):
        stored = nibabel.load(source.file)  # with its own codes and unit of length
        kind, affine, header = type(stored), stored.affine, stored.header.copy()
        header["cal_max"] = header["cal_min"] = 0
    image = kind(np.ascontiguousarray(array), affine, header, dtype=labels.dtype)
    image.header.set_slope_inter(1, 0)
    if header is None:
        image.header.set_xyzt_units("mm")
    if image.header["sform_code"] and not image.header["qform_code"]:
        image.set_qform(square(affine), 1)
    with atomic_file(file) as out:
        out.write(gzip.compress(image.to_bytes(), compresslevel=6, mtime=0))
