"""What a network that segments volumes says of new ones: label maps as NIfTI, where the volumes lie."""

import gzip
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...contracts.dataset import Samples
from ...contracts.prediction import (
    Entry,
    Learned,
    PredictionWriter,
    Row,
    TaskPrediction,
)
from ...contracts.sample_checks import BadSample
from ...runtime.errors import UserError
from ...runtime.files import atomic_file
from ..geometry import as_stored, square
from ..inputs import Readable, VolumeInputs, find_volumes, read_new
from ..intensities import Intensities
from ..nonzero import per_channel, recorded
from ..reading import library
from ..store import Decoded
from .dataset import IGNORED, LabelMap, Source, VolumeFiles
from .figures import class_slices
from .nnunet import grouped
from .samples import SegmentedSamples

_UNKNOWN = (
    "the weights do not say which labels they find in which channels at which spacing: give the run's folder, or "
)
_CLASSES = "classes.txt"


class Segmented(NamedTuple):
    """The classes of a volume's voxels.

    Attributes:
        index: of the volume.
        labels: uint8 (depth, height, width), as labels are stored, along the world's axes.
        volume: float32 (depth, height, width), the first channel as the network sees it.
        spacing: of ``labels``, millimetres.
    """

    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    labels: np.ndarray
    volume: np.ndarray
    spacing: np.ndarray


class VolumeSegmentationPrediction(TaskPrediction):
    """Label maps of new volumes."""

    class_names: list[str]
    numbers: list[int]
    channels: list[str]
    spacing: np.ndarray | None
    within: str | None

    def set_up_from(self, learned: Learned) -> None:
        known, spacing = learned.input, self.config.VOLUMES.SPACING_MM or learned.input.get("spacing_mm")
        if not learned.class_names or not spacing or not known.get("channels") or not known.get("label_numbers"):
            raise UserError(_UNKNOWN + "weights with their about.yaml")
        self.class_names, self.numbers = list(learned.class_names), list(known["label_numbers"])
        self.channels, self.spacing = list(known["channels"]), np.array(spacing, dtype=np.float64)
        self.within = recorded(known)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> VolumeInputs:
        files, unreadable = find_volumes(list(map(str, inputs)))
        intensities = Intensities.of(self.config.VOLUMES, len(self.channels), self.within)
        dataset = NewVolumes(files, self)
        dataset.within = per_channel(intensities.within, intensities.kinds)
        return VolumeInputs(SegmentedSamples(dataset, intensities), unreadable)

    def prediction_rows(self, prediction: Segmented) -> list[Row]:
        """The millilitres of each class.

        Raises:
            BadSample: the outputs are not finite.
        """
        counts = np.bincount(prediction.labels.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs for it are not finite")
        millilitres = (counts * prediction.spacing.prod() / 1000).round(3).tolist()
        return [{f"ml {name}": own for name, own in zip(self.class_names[1:], millilitres[1:])}]

    def prediction_writer(self, folder: Path, samples: Samples) -> "LabelWriter":
        library("nibabel", str(folder))
        return LabelWriter(folder, samples.dataset, self.class_names, self.numbers)


class NewVolumes(VolumeFiles):
    """Volumes without labels, each decoded when it is read.

    Args:
        files: of one channel each; those of one volume have its name and _0000, _0001 and so on.
        task: what ``set_up_from`` knows.
    """

    labelled = False

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
                volumes += grouped(own, self.channels)
            except UserError as error:
                unreadable.append((own[0], str(error)))
        found = Readable(volumes, self.max_voxels)
        self.names, self.files, self.headers = found.stems, found.files, found.headers
        self.unreadable, self.notices = [*unreadable, *found.unreadable], found.notices

    def read(self, index: int) -> tuple[list[Decoded], LabelMap | None]:
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

    def write(self, index: int, prediction: Segmented, truth: Any = None) -> Row:
        name = self.dataset.case(index)
        write_labels(self.folder / f"{name}.nii.gz", self.numbers[prediction.labels], self.dataset.source(index))
        spacing = prediction.spacing * prediction.labels.shape / np.array(prediction.volume.shape)
        drawn = class_slices(prediction.volume, spacing, prediction.labels, self.class_names)
        with atomic_file(self.folder / f"{name}.png") as file:
            Image.fromarray(drawn).save(file, "PNG")
        return {"labels": f"{name}.nii.gz", "picture": f"{name}.png"}

    def finish(self, entries: Iterable[Entry]) -> list[str]:
        if not any(True for _ in entries):
            return []
        lines = [f"{number}\t{name}\n" for number, name in zip(self.numbers.tolist(), self.class_names)]
        with atomic_file(self.folder / _CLASSES) as file:
            file.write("".join(lines).encode())
        return [f"label maps (.nii.gz) are in {self.folder}; their numbers are explained in {_CLASSES}"]


def write_labels(file: Path, labels: np.ndarray, source: Source) -> None:
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
