"""The task: a class for each voxel of a volume, learned, scored, predicted and exported."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...losses import dice_losses, summed_cross_entropy
from ...models import create_model
from ...runtime import autocast
from ...runtime.errors import UserError
from ...runtime.transfers import read_later, to_device
from ...tasks.dataset import TransformedDataset, dataset_class
from ...tasks.figures import Figure
from ...tasks.metrics import Metrics
from ...tasks.prediction import CheckpointMeta, Row
from ...tasks.sample_checks import BadSample, require_finite
from ...tasks.task import EvaluationStep, ExportParts, LossTerm, Records, StepPosition, Task
from ..export import segmentation_parts
from ..geometry import between, require_same_spacing, step_lengths, three_digits, voxel_ml
from ..inputs import VolumeInputs, find_volumes
from ..intensities import IntensityConfig
from ..nonzero import per_channel, recorded, settle
from ..reading import library
from ..samples import AugmentationConfig
from ..sliding_window import mirror_model, predict
from .dataset import IGNORED, SegmentedVolumes
from .figures import class_slices, segmentation_figures
from .fingerprint import find_misnamed, fingerprint
from .metrics import VolumeMetrics
from .prediction import LabelWriter, NewVolumes, SegmentedVolume
from .samples import SegmentedSamples, VolumeRecord, collate, split_batch
from .settings import AXES, VolumeSegmentationSettings

_UNKNOWN = (
    "the weights do not say which labels they find in which channels at which spacing: give the run's folder, or "
)
_VALUES_AT_ONCE = 1 << 25  # of outputs that are brought to the stored grid, some 500 MB with what they are made of


class VolumeSegmentation(Task):
    """Trains and evaluates a network that gives each voxel of a volume a class.

    Losses: cross-entropy over the labeled voxels of all ranks and micro-batches, and the Dice loss of each class but
    the background in each crop where it occurs. With deep supervision level k, of half the resolution of level k - 1,
    has both losses with the weight 1 / 2^k, and weights sum up to 1; its labels are those of every 2^k-th voxel.
    Scores: each volume alone, each voxel once, as its labels are stored; no number depends on batches or processes.

    Source of the losses: F. Isensee et al., 2021, "nnU-Net: a self-configuring method for deep learning-based
    biomedical image segmentation", Nature Methods 18, supplementary note 2. There Dice is of all crops of a batch, or
    of each crop and class whether it occurs or not.
    """

    config: VolumeSegmentationSettings
    sample_name = "volumes"
    draws_samples = True
    batch_norm = "sync"
    fixed_shapes = True
    best_metric = ("Dice", True)
    makes_figures = True

    def __init__(self, config: VolumeSegmentationSettings) -> None:
        super().__init__(config)
        self.class_names: list[str] = []
        self.numbers: list[int] = []
        self.channels: list[str] = []
        self.spacing: np.ndarray | None = None  # (depth, height, width), mm
        self.within: str | None = None  # what z_score is of, see ``nonzero``

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentedSamples:
        volumes, is_training = self.config.VOLUMES, self.trains_on(split)
        dataset = dataset_class(self.config, SegmentedVolumes).open(self.config, split, cache_folder)
        if not len(dataset):
            raise UserError(
                f"dataset {self.config.DATA.DATASET} has no {split} volumes at {self.config.DATA.DATA_PATH}"
            )
        self._take_facts(dataset)
        told = settle(self, dataset, self._intensities().kinds, is_training)
        intensities = self._intensities()
        if not is_training:
            if volumes.SURFACE_DISTANCES and dataset.labeled:
                library("scipy", "VOLUMES.SURFACE_DISTANCES true (false leaves distances out)")  # before hours
            samples = SegmentedSamples(dataset, intensities, notices=[*dataset.notices, *told])
            samples.eval_protocol = self.protocol_line()
            return samples
        notices = [*dataset.notices, *told, *find_misnamed(self.channels, intensities.kinds)]
        mirrored = [AXES.index(axis) for axis in volumes.MIRROR_AXES]
        drawn = volumes.CROP_SIZE, AugmentationConfig.of(volumes), volumes.FOREGROUND_FRACTION, mirrored
        return SegmentedSamples(dataset, intensities, *drawn, notices)

    def _intensities(self) -> IntensityConfig:
        return IntensityConfig.of(self.config.VOLUMES, len(self.channels) or 1, self.within)

    def _take_facts(self, dataset: SegmentedVolumes) -> None:
        require_same_spacing(self.config.DATA.DATASET, self.spacing, dataset.spacing)
        wanted = self.config.MODEL.NUM_CLASSES
        if wanted is not None and wanted != len(dataset.class_names):
            raise UserError(
                f"MODEL.NUM_CLASSES (-num_classes) is {wanted}, but there are {len(dataset.class_names)} classes with "
                f"the background ({', '.join(dataset.class_names)}); leave it out"
            )
        self.class_names, self.numbers = list(dataset.class_names), list(dataset.numbers)
        self.channels, self.spacing = list(dataset.channels), dataset.spacing

    def check_sample(self, sample: dict[str, Any]) -> None:
        require_finite(sample["volume"], "volume")
        wrong = (sample["labels"] >= len(self.class_names)) & (sample["labels"] != IGNORED)
        if wrong.any():  # of a dataset of somebody's own
            raise BadSample(f"a voxel has the class {int(sample['labels'][wrong][0])}, of {len(self.class_names)}")

    def collate(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return collate(samples)

    def describe_samples(self, samples: Any) -> str:
        channels = f", channels {', '.join(self.channels)}" if len(self.channels) > 1 else ""
        return f"{super().describe_samples(samples)}{channels}, classes {', '.join(self.class_names)}"

    def dataset_signature(self, samples: Any) -> dict[str, Any]:
        return {
            **super().dataset_signature(samples),
            "number of classes": len(self.class_names),
            "classes": list(self.class_names),
        }

    def preprocess_signature(self) -> dict[str, Any]:
        """Orientation, voxel spacing, intensities, channels, and the number that files have for each class."""
        return {
            "orientation": "RAS",
            "spacing_mm": [three_digits(length) for length in self.spacing.tolist()],
            **self._intensities().about(),
            "channels": list(self.channels),
            "label_numbers": list(self.numbers),
        }

    def classes_in(self, sample: dict[str, Any]) -> np.ndarray | None:
        return np.setdiff1d(sample["labels"], IGNORED).astype(np.int64)

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        volumes = self.config.VOLUMES
        return create_model(
            self.config.MODEL.NAME,
            num_classes=num_classes or len(self.class_names),
            in_channels=len(self.channels) or 1,
            width=volumes.UNET_WIDTH,
            depth=volumes.UNET_DEPTH,
            norm=volumes.UNET_NORM,
            activation=volumes.UNET_ACTIVATION,
            supervised=self.supervised,
        )

    # ---- training ------------------------------------------------------------------------------------------------

    @property
    def supervised(self) -> int:
        """Levels below the first that have a loss: all of the way up but the coarsest."""
        volumes = self.config.VOLUMES
        return max(0, volumes.UNET_DEPTH - 2) if volumes.DEEP_SUPERVISION else 0

    @property
    def count_names(self) -> tuple[str, ...]:  # type: ignore[override] # they depend on the configuration
        sorts = ("cross_entropy", "dice") if self.config.VOLUMES.DICE_WEIGHT else ("cross_entropy",)
        return tuple(named(sort, level) for level in range(self.supervised + 1) for sort in sorts)

    def counts(self, batch: dict[str, Any]) -> dict[str, int]:
        numbers = {}
        for level in range(self.supervised + 1):
            labels = at_level(batch["labels"], level)
            of_crops = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1)[:IGNORED] for row in labels])
            numbers[named("cross_entropy", level)] = int(of_crops.sum())
            numbers[named("dice", level)] = int(np.count_nonzero(of_crops[:, 1:]))
        return {name: numbers[name] for name in self.count_names}

    def expected_losses(self) -> dict[str, float]:
        return {"cross_entropy": math.log(len(self.class_names))}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        outputs = model(batch["volume"])
        outputs = outputs if isinstance(outputs, (tuple, list)) else [outputs]
        total = sum(0.5**level for level in range(len(outputs)))
        terms = {}
        with autocast.off():
            for level, maps in enumerate(outputs):
                labels = at_level(batch["labels"], level).astype("int64").flatten(1)  # (N, voxels)
                logits = maps.astype("float32").flatten(2)  # (N, classes, voxels)
                weight, labeled = 0.5**level / total, (labels != IGNORED).astype("float32").sum()
                loss = summed_cross_entropy(logits, labels, IGNORED, 1)
                terms[named("cross_entropy", level)] = LossTerm(loss, labeled, weight)
                if self.config.VOLUMES.DICE_WEIGHT:
                    dice = dice_losses(logits, labels, IGNORED, 1)
                    terms[named("dice", level)] = LossTerm(*dice, weight * self.config.VOLUMES.DICE_WEIGHT)
        return terms

    # ---- evaluation ----------------------------------------------------------------------------------------------

    def protocol_line(self) -> str:
        """Say what a score depends on besides the weights and the data."""
        volumes = self.config.VOLUMES
        size = " x ".join(map(str, volumes.CROP_SIZE))
        mirroring = f", mean of {2 ** len(self._choose_mirrored())} mirror images" if self._choose_mirrored() else ""
        return f"windows of {size} voxels, overlap {volumes.OVERLAP:g}, {volumes.WINDOW_WEIGHTS} weights{mirroring}"

    def _choose_mirrored(self) -> list[int]:
        volumes = self.config.VOLUMES
        return [AXES.index(axis) for axis in volumes.MIRROR_AXES] if volumes.TEST_MIRROR else []

    def build_metrics(self) -> Metrics:
        return VolumeMetrics(self.class_names, self.config.VOLUMES.SURFACE_DISTANCES)

    def segmented(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> Iterator[tuple[SegmentedVolume, np.ndarray]]:
        """The classes of each volume's voxels, and its labels; a device computes the next volume while one is looked
        at."""
        before = None
        for place, volume, labels in split_batch(batch):
            later = place, read_later(self.class_map(model, volume, place), labels, volume[0])
            if before is not None:
                yield _to_class_numbers(*before)
            before = later
        if before is not None:
            yield _to_class_numbers(*before)

    def class_map(self, model: paddle.nn.Layer, volume: paddle.Tensor, place: VolumeRecord) -> paddle.Tensor:
        """The class of each voxel, uint8 of the stored labels' shape; ``IGNORED`` where an output is not finite.

        Outputs of windows and their mirror images are averaged, then brought to the stored spacing linearly, and the
        largest one of a voxel is its class.
        """
        volumes = self.config.VOLUMES
        network = mirror_model(lambda windows: model(windows).astype("float32"), self._choose_mirrored())
        maps = predict(network, volume, volumes.CROP_SIZE, volumes.OVERLAP, volumes.WINDOW_WEIGHTS)
        steps, planes = step_lengths(np.array(place.stored_spacing)) / np.array(place.spacing), []
        every = max(1, _VALUES_AT_ONCE // (len(self.class_names) * place.stored[1] * place.stored[2]))
        for first in range(0, place.stored[0], every):
            part = on_grid(maps, place.stored, steps, slice(first, first + every))
            found, finite = part.argmax(axis=0, dtype="int32"), paddle.isfinite(part).all(axis=0)
            planes.append(paddle.where(finite, found, paddle.full_like(found, IGNORED)).astype("uint8"))
        return paddle.concat(planes)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        found, truths, records = [], [], []
        for predicted, labels in self.segmented(model, batch):
            if not labels.size:  # of a split without labels
                labels = np.full_like(predicted.labels, IGNORED)
            records.append(step.metrics.update(predicted.labels, labels, predicted.spacing))
            found.append(predicted)
            truths.append(labels)
        if step.writer is not None:
            step.writer.add(found, truths)
        return (lambda: records) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[SegmentedVolume]:
        """The class of each voxel of each volume."""
        return [predicted for predicted, _ in self.segmented(model, batch)]

    def figures(self, samples: Any, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer) -> list[Figure]:
        if not records or not isinstance(samples, SegmentedSamples):
            return []

        def again(index: int) -> tuple[SegmentedVolume, np.ndarray]:
            batch = self.collate([samples.sample(index, np.random.default_rng(0))])
            tensors = {name: to_device(own) if isinstance(own, np.ndarray) else own for name, own in batch.items()}
            return next(self.segmented(model, tensors))

        return segmentation_figures(samples, records, self.class_names, again)

    # ---- prediction and export -----------------------------------------------------------------------------------

    def load_meta(self, learned: CheckpointMeta) -> None:
        known, spacing = learned.input, self.config.VOLUMES.SPACING_MM or learned.input.get("spacing_mm")
        if not learned.class_names or not spacing or not known.get("channels") or not known.get("label_numbers"):
            raise UserError(_UNKNOWN + "weights with their about.yaml")
        self.class_names, self.numbers = list(learned.class_names), list(known["label_numbers"])
        self.channels, self.spacing = list(known["channels"]), np.array(spacing, dtype=np.float64)
        self.within = recorded(known)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> VolumeInputs:
        files, unreadable = find_volumes(list(map(str, inputs)))
        intensities = IntensityConfig.of(self.config.VOLUMES, len(self.channels), self.within)
        dataset = NewVolumes(files, self)
        dataset.within = per_channel(intensities.within, intensities.kinds)
        return VolumeInputs(SegmentedSamples(dataset, intensities), unreadable)

    def prediction_rows(self, prediction: SegmentedVolume) -> list[Row]:
        """The milliliters of each class.

        Raises:
            BadSample: the outputs are not finite.
        """
        counts = np.bincount(prediction.labels.ravel(), minlength=IGNORED + 1)
        if counts[IGNORED]:
            raise BadSample("the model's outputs for it are not finite")
        milliliters = (counts * voxel_ml(prediction.spacing)).round(3).tolist()
        return [{f"ml {name}": own for name, own in zip(self.class_names[1:], milliliters[1:])}]

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> "LabelWriter":
        library("nibabel", str(folder))
        return LabelWriter(folder, samples.dataset, self.class_names, self.numbers)

    def export_parts(self) -> ExportParts:
        facts = self.class_names, self.numbers, self.channels, self.spacing
        return segmentation_parts(self.config.VOLUMES, self._intensities(), *facts)

    # ---- images ----------------------------------------------------------------------------------------------

    def images(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Three slices of each crop of a batch, with its classes."""
        pairs = zip(batch["volume"], batch["labels"])
        return [self._look_at(np.asarray(volume[0]), np.asarray(labels)) for volume, labels in pairs]

    def summarize_samples(self, samples: Any) -> Iterable[str]:
        return fingerprint(samples.dataset)

    def evaluation_images(self, samples: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Three slices of whole volumes."""
        readings = [samples.dataset.read(index) for index in indices]
        return [self._look_at(np.asarray(channels[0].array, np.float32), labels.array) for channels, labels in readings]

    def _look_at(self, volume: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
        found = [self.class_names[label] for label in np.setdiff1d(labels, [0, IGNORED]).tolist()]
        return class_slices(volume, self.spacing, labels, self.class_names), ", ".join(found) or "background"


def named(sort: str, level: int) -> str:
    """The name of a term of the loss."""
    return sort if not level else f"{sort} 1/{2**level}"


def at_level(labels: Any, level: int) -> Any:
    """Every 2**level-th voxel of labels (N, depth, height, width)."""
    step = 2**level
    return labels[:, ::step, ::step, ::step]


def _to_class_numbers(place: VolumeRecord, values: Any) -> tuple[SegmentedVolume, np.ndarray]:
    classes, labels, volume = values()
    return SegmentedVolume(place.index, classes, volume, np.array(place.stored_spacing)), labels


def on_grid(maps: paddle.Tensor, shape: Sequence[int], steps: np.ndarray, planes: slice = slice(None)) -> paddle.Tensor:
    """Maps (classes, depth, height, width) at places 0, step, 2 step and so on along each axis, interpolated linearly;
    beyond the last voxel they stay as they are there.

    Args:
        shape: (depth, height, width) of the result.
        steps: of each axis, in voxels of ``maps``.
        planes: of the result's depth, those that are wanted.
    """
    for axis, (count, step) in enumerate(zip(shape, steps), 1):
        length, wanted = maps.shape[axis], planes if axis == 1 else slice(None)
        if count == length and abs(step - 1) < 1e-6:
            maps = maps[:, planes] if axis == 1 else maps
            continue
        lower, share = (line[wanted] for line in between(length, count, step))
        first, second = (
            paddle.index_select(maps, to_device(np.minimum(lower + more, length - 1)), axis) for more in (0, 1)
        )
        maps = first + to_device(share).reshape([-1 if own == axis else 1 for own in range(4)]) * (second - first)
    return maps
