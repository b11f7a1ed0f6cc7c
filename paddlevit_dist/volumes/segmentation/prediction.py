"""What a network that segments volumes says of new ones: label maps as NIfTI, where the volumes lie."""

import gzip
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from ...contracts.dataset import Samples
from ...contracts.prediction import (
    Entry,
    InputSamples,
    Learned,
    PredictionWriter,
    Row,
    TaskPrediction,
    output_names,
    stamps,
)
from ...contracts.sample_checks import BadSample
from ...runtime.errors import UserError
from ...runtime.files import atomic_file
from ..geometry import Geometry, as_stored
from ..inputs import find_volumes, same_spacing
from ..intensities import Intensities
from ..reading import library, parts_of, read_header, remarks_on
from ..store import Decoded, moments, percentile_window, read_upright
from .dataset import IGNORED, LabelMap, SegmentedVolumes, Source
from .figures import class_slices
from .nnunet import Case, grouped, require_same_place
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

    def set_up_from(self, learned: Learned) -> None:
        known, spacing = learned.input, self.config.VOLUMES.SPACING_MM or learned.input.get("spacing_mm")
        if not learned.class_names or not spacing or not known.get("channels") or not known.get("label_numbers"):
            raise UserError(_UNKNOWN + "weights with their about.yaml")
        self.class_names, self.numbers = list(learned.class_names), list(known["label_numbers"])
        self.channels, self.spacing = list(known["channels"]), np.array(spacing, dtype=np.float64)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> "SegmentedInputs":
        files, unreadable = find_volumes(list(map(str, inputs)))
        dataset = NewVolumes(files, self)
        return SegmentedInputs(dataset, Intensities.of(self.config.VOLUMES, len(self.channels)), unreadable)

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


class NewVolumes(SegmentedVolumes):
    """Volumes without labels, each decoded when it is read.

    Args:
        files: of one channel each; those of one volume have its name and _0000, _0001 and so on.
        task: what ``set_up_from`` knows.
    """

    labelled = False

    def __init__(self, files: Sequence[str], task: Any) -> None:
        self.class_names, self.numbers, self.channels = task.class_names, task.numbers, task.channels
        self.spacing, self.max_voxels = task.spacing, task.config.VOLUMES.MAX_VOXELS
        self.cases: list[Case] = []
        self.geometries: list[Geometry] = []
        self.unreadable: list[tuple[str, str]] = []
        headers = {}
        for case in tqdm(self._grouped(files), desc="looking at headers", unit="volume", disable=None, leave=False):
            try:
                own = {file: read_header(file, self.max_voxels) for file in case.images}
                first, *others = case.images
                for other in others:
                    require_same_place(first, own[first].geometry, other, own[other].geometry)
            except UserError as error:
                self.unreadable.append((case.images[0], str(error)))
                continue
            headers.update(own)
            self.cases.append(case)
            self.geometries.append(own[first].geometry)
        self.stems = output_names([case.name for case in self.cases])
        self.notices = remarks_on(headers)

    def _grouped(self, files: Sequence[str]) -> list[Case]:
        folders: dict[str, list[str]] = {}
        for file in files:
            folders.setdefault(os.path.dirname(file), []).append(file)
        found = []
        for own in folders.values():
            try:
                found += [Case(name, images, None) for name, images in grouped(own, self.channels)]
            except UserError as error:
                self.unreadable.append((own[0], str(error)))
        return found

    def __len__(self) -> int:
        return len(self.cases)

    def read(self, index: int) -> tuple[list[Decoded], LabelMap | None]:
        same = same_spacing(self.geometries[index], self.spacing)
        found = []
        for file in self.cases[index].images:
            voxels, affine = read_upright(file, None if same else self.spacing.tolist(), self.max_voxels)
            found.append(Decoded(voxels, Geometry(voxels.shape, affine), percentile_window(voxels), moments(voxels)))
        return found, None

    def stored_labels(self, index: int) -> LabelMap | None:
        return None

    def source(self, index: int) -> Source:
        return Source(self.cases[index].images[0], self.geometries[index])

    def case(self, index: int) -> str:
        return self.stems[index]

    def describe(self, index: int) -> str:
        return self.cases[index].images[0]


class SegmentedInputs(InputSamples):
    """Whole volumes to be predicted, with intensities as in an evaluation.

    Args:
        unreadable: paths without volumes, with reasons.
    """

    labelled = False

    def __init__(self, dataset: NewVolumes, intensities: Intensities, unreadable: Sequence[tuple[str, str]]) -> None:
        self.dataset = dataset
        self.samples = SegmentedSamples(dataset, intensities)
        self.names = [case.images[0] for case in dataset.cases]
        self.unreadable = [*unreadable, *dataset.unreadable]
        self.notices = list(dataset.notices)

    def sample(self, index: int, generator: np.random.Generator) -> dict[str, Any]:
        return self.samples.sample(index, generator)

    def content(self) -> Any:
        files = (file for case in self.dataset.cases for file in case.images)
        return stamps(part for file in files for part in (file, *parts_of(file)))


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
    """Write a label map as NIfTI, with the voxels and the affine of the file that it belongs to.

    Args:
        labels: unsigned (depth, height, width), along the world's axes.
    """
    nibabel = library("nibabel", str(file))
    array, affine, header = as_stored(labels, source.geometry.affine).T, source.geometry.affine, None
    if source.file is not None and source.file.lower().endswith((".nii", ".nii.gz")):
        stored = nibabel.load(source.file)  # with its own codes and unit of length
        affine, header = stored.affine, stored.header.copy()
        header["cal_max"] = header["cal_min"] = 0
    image = nibabel.Nifti1Image(np.ascontiguousarray(array), affine, header, dtype=labels.dtype)
    image.header.set_slope_inter(1, 0)
    if header is None:
        image.header.set_xyzt_units("mm")
    with atomic_file(file) as out:
        out.write(gzip.compress(image.to_bytes(), compresslevel=6, mtime=0))
