"""Predictions for new volumes: label maps as NIfTI, with the geometry of the volumes."""

import gzip
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.files import atomic_file
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, PredictionRecord, PredictionWriter, Row, pack_array
from ...core.tasks.protocols import EnsembleMember, Ensembling
from ...core.tasks.sample_checks import BadSample
from ..geometry import from_canonical, remove_shear, step_lengths, voxel_ml
from ..guessing import remove_kinds
from ..inputs import ReadableVolumes, VolumeInputs, find_volumes, read_at_spacing
from ..intensities import IntensityConfig
from ..nonzero import regions_per_channel
from ..reading import import_extra
from ..store import DecodedVolume
from .components import keep_largest
from .dataset import IGNORED, LabelMap, LabelSource, SegmentedVolumes, VolumeFiles
from .decoding import MeanProbabilities
from .figures import class_slices
from .nnunet import group_by_names, group_channels
from .regions import LabelRegion, group_labels, name_labels
from .samples import SegmentedSamples, SegmentedVolume, split_batch
from .task import VolumeSegmentation, find_removals, stored_steps

_CLASSES = "classes.txt"


class VolumeLabelPrediction(TaskAspect, Ensembling):
    """Predicts the label of each voxel, with one or several models."""

    task: VolumeSegmentation

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[SegmentedVolume]:
        """Predict the class of each voxel of each volume."""
        return [predicted for predicted, _ in self.task.segment_batch(model, batch)]

    def predict_mean(self, members: Iterable[EnsembleMember], batch: dict[str, Any]) -> list[SegmentedVolume]:
        """Predict the label of each voxel by the mean of the members' probabilities on the stored grid."""
        task, predictions = self.task, []
        removals = find_removals(task.config.VOLUMES, task.class_names, task.regions)
        for record, volume, _ in split_batch(batch):
            mean = MeanProbabilities(len(task.class_names), record.stored, task.regions)
            for member, model in members:
                mean.add(member.window_maps(model, volume), stored_steps(record))
            labels, steps = keep_largest(mean.choose_labels(), removals), np.array(record.stored_spacing)
            predictions.append(SegmentedVolume(record.index, labels, volume[0].numpy(), steps))
        return predictions

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> VolumeInputs:
        """Open the volumes in files and folders for prediction."""
        task = self.task
        files, unreadable, skipped = find_volumes(inputs)
        intensities = IntensityConfig.from_config(task.config.VOLUMES, len(task.channels), task.within)
        dataset = NewVolumes(files, task)
        dataset.within = regions_per_channel(intensities.within, intensities.kinds)
        return VolumeInputs(SegmentedSamples(dataset, intensities), unreadable, skipped)

    def prediction_rows(self, prediction: SegmentedVolume) -> list[Row]:
        """Return the milliliters of each class or region; BadSample if the outputs are not finite."""
        counts = np.bincount(prediction.labels.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs are not finite")
        groups = list(group_labels(self.task.class_names, self.task.regions).items())[1:]
        of_voxel = voxel_ml(prediction.spacing)
        return [{f"ml {name}": round(float(counts[list(labels)].sum() * of_voxel), 3) for name, labels in groups}]

    def prediction_arrays(self, index: int, prediction: SegmentedVolume, samples: InputSamples) -> ArrayMakers:
        """Return the label of each voxel, as in the label map's file."""
        labels = smallest_numbers(self.task.numbers)[prediction.labels]
        return {"labels": pack_array(orient_labels(labels, samples.dataset.source(index)))}

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> "LabelWriter":
        """Create the writer of prediction files."""
        import_extra("nibabel", str(folder))
        return LabelWriter(folder, samples.dataset, self.task.class_names, self.task.numbers, self.task.regions)


class NewVolumes(VolumeFiles):
    """Volumes without labels, decoded when read, from files of one channel each; ``task`` is after ``load_meta``.

    The files of one volume have its name and _0000, _0001 and so on, or _ and the names of the channels. A volume that
    is called like a kind of file, such as imaging.nii.gz, or like one in another folder, has the name of its folder.
    """

    labeled = False

    def __init__(self, files: Sequence[str], task: VolumeSegmentation) -> None:
        self.class_names, self.numbers, self.channels = task.class_names, task.numbers, task.channels
        self.regions = task.regions
        self.spacing, self.max_voxels = task.spacing, task.config.VOLUMES.MAX_VOXELS
        folders: dict[str, list[str]] = {}
        for file in files:
            folders.setdefault(os.path.dirname(file), []).append(file)
        volumes: list[tuple[str, Sequence[str]]] = []
        unreadable: list[tuple[str, str]] = []
        of_folders: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for folder, folder_files in folders.items():
            found = group_by_names(folder_files, self.channels)
            of_folders[folder] = found or group_channels(folder_files, self.channels, unreadable)
        counts = Counter(name for found in of_folders.values() for name, _ in found)
        without_name = {"", *map(str.lower, self.channels)}
        for folder, found in of_folders.items():
            for name, channel_files in found:
                is_named = counts[name] == 1 and remove_kinds(name).lower() not in without_name
                is_case = is_named or (name and len(found) > 1)
                volumes.append((name if is_case else os.path.basename(folder), channel_files))
        readable = ReadableVolumes(volumes, self.max_voxels)
        self.names, self.files, self.headers = readable.stems, readable.files, readable.headers
        self.unreadable, self.notices = [*unreadable, *readable.unreadable], readable.notices

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        """Read the channels of volume ``index``, which has no labels."""
        files, geometry = self.files[index], self.headers[index].geometry
        read = (
            read_at_spacing(*arguments, geometry, self.spacing, self.max_voxels, files)
            for arguments in zip(files, self.within)
        )
        return list(read), None

    def stored_labels(self, index: int) -> LabelMap | None:
        """Return None: the volumes have no labels."""
        return None


class LabelWriter(PredictionWriter):
    """Writer of ``NAME.nii.gz`` for each volume, and ``NAME.png``, three slices with the predicted classes.

    Label maps have the label numbers of the training data and the voxels of the volume's first file. Without
    ``regions``, each class is a label.
    """

    writes_evaluations = True

    def __init__(
        self,
        folder: Path,
        dataset: SegmentedVolumes,
        class_names: Sequence[str],
        numbers: Sequence[int],
        regions: Sequence[LabelRegion],
    ) -> None:
        self.folder, self.dataset = folder, dataset
        self.groups = group_labels(class_names, regions)
        self.label_names = name_labels(class_names, regions, numbers)
        self.numbers = smallest_numbers(numbers)

    def write(self, index: int, prediction: SegmentedVolume, truth: np.ndarray | None = None) -> Row:
        """Write the files of one volume and return their names."""
        name = self.dataset.case(index)
        write_labels(self.folder / f"{name}.nii.gz", self.numbers[prediction.labels], self.dataset.source(index))
        spacing = step_lengths(prediction.spacing) * prediction.labels.shape / np.array(prediction.volume.shape)
        drawn = class_slices(prediction.volume, spacing, prediction.labels, self.label_names)
        with atomic_file(self.folder / f"{name}.png") as file:
            Image.fromarray(drawn).save(file, "PNG")
        return {"labels": f"{name}.nii.gz", "picture": f"{name}.png"}

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the table of label numbers and return lines for the log."""
        if not any(True for _ in entries):
            return []
        lines = [
            f"{','.join(map(str, self.numbers[list(labels)].tolist()))}\t{name}\n"
            for name, labels in self.groups.items()
        ]
        with atomic_file(self.folder / _CLASSES) as file:
            file.write("".join(lines).encode())
        return [f"label maps (.nii.gz) are in {self.folder}; {_CLASSES} lists the classes of their numbers"]


def smallest_numbers(numbers: Sequence[int]) -> np.ndarray:
    """Return the numbers of labels in the smallest unsigned type."""
    return np.array(numbers, np.uint8 if max(numbers) < 256 else np.uint16)


def orient_labels(labels: np.ndarray, source: LabelSource) -> np.ndarray:
    """Return labels along the world's axes as (columns, rows, slices) of their volume's file, as nibabel reads it."""
    return from_canonical(labels, source.geometry.affine).T


def write_labels(file: Path, labels: np.ndarray, source: LabelSource) -> None:
    """Write a label map, along the world's axes, as NIfTI with the voxels and the affine (sform) of its volume's file.

    If the file has no qform, which ITK needs in addition to a sheared sform, the qform is the position that ITK itself
    gives such a series.
    """
    nibabel = import_extra("nibabel", str(file))
    array, affine, header = orient_labels(labels, source), source.geometry.affine, None
    kind = nibabel.Nifti1Image
    if source.file is not None and source.file.lower().endswith((".nii", ".nii.gz")):
        stored = nibabel.load(source.file)  # keeps the codes and the unit of length
        kind, affine, header = type(stored), stored.affine, stored.header.copy()
        header["cal_max"] = header["cal_min"] = 0
    image = kind(np.ascontiguousarray(array), affine, header, dtype=labels.dtype)
    image.header.set_slope_inter(1, 0)
    if header is None:
        image.header.set_xyzt_units("mm")
    if image.header["sform_code"] and not image.header["qform_code"]:
        image.set_qform(remove_shear(affine), 1)
    with atomic_file(file) as out:
        out.write(gzip.compress(image.to_bytes(), compresslevel=6, mtime=0))
