"""Task: segmentation of volumes, a class for each voxel."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.checkpoint.output_names import get_class_names
from ...core.losses import dice_losses, summed_cross_entropy
from ...core.registry.required_methods import missing_method
from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from ...core.runtime.text_files import convert_facts
from ...core.runtime.transfers import read_later
from ...core.tasks.class_names import require_unique
from ...core.tasks.dataset import TransformedDataset, dataset_class, format_place, is_training_split
from ...core.tasks.loss_checks import adds_own_loss, call_losses, sum_losses
from ...core.tasks.metrics import Metrics, TableMetrics
from ...core.tasks.model_factory import create_configured, require_unset
from ...core.tasks.network_checks import check_network, require_output
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_finite
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition, TaskTraits
from ...core.tasks.task import Records, Task
from ..geometry import find_spacing, require_same_spacing, require_spacing, round_spacing, step_lengths
from ..input_facts import VolumeInputFacts
from ..intensities import IntensityConfig
from ..nonzero import read_checkpoint_about, set_region
from ..reading import import_extra
from ..samples import AugmentationConfig
from ..sliding_window import mirror_model, predict
from ..unet3d import axis_options, level_steps, read_strides
from .components import find_labels, keep_largest
from .dataset import IGNORED, SegmentedVolumes, VolumeFiles, require_known
from .decoding import choose_labels, resample_maps, split_planes
from .fingerprint import find_misnamed
from .losses import region_losses
from .metrics import VolumeMetrics
from .nnunet import NnUNet
from .regions import LabelRegion, describe_regions, group_labels, load_regions
from .samples import SegmentedSamples, SegmentedVolume, VolumeRecord, collate, split_batch
from .settings import AXES, SegmentationVolumeSection, VolumeSegmentationSettings

_NUM_FIRST = 2  # volumes that are looked at before training
_UNKNOWN = "the weights do not record their labels, channels and spacing: pass the run's folder, or "
_LOGITS = "logits (crops, classes, depth, height, width)"


class VolumeSegmentation(Task):
    """Task that trains and evaluates a network with a class for each voxel.

    Losses: cross-entropy over the labeled voxels of all ranks and micro-batches, and the Dice loss of each class but
    the background in each crop where it occurs. With deep supervision, level k, at a lower resolution than k - 1, has
    both losses with the weight 1 / 2^k, and weights are normalized to 1; its labels are the labels of its voxels.
    Regions have binary cross-entropy and Dice, see ``region_losses``. Scores: each volume is evaluated separately, each
    voxel once, at the stored size of its labels, so scores do not depend on batches or processes. Source of the losses:
    F. Isensee et al., 2021, "nnU-Net: a self-configuring method for deep learning-based biomedical image segmentation",
    Nature Methods 18, supplementary note 2. There, Dice is computed over all crops of a batch, or for each crop and
    class whether it occurs or not.
    """

    aspects = {
        "Checkable": ".checks:VolumeLabelChecks",
        "Drawable": ".figures:VolumeLabelDrawing",
        "Ensembling": ".prediction:VolumeLabelPrediction",
        "Exportable": ".export:VolumeLabelExport",
        "LogContributor": ".checks:VolumeLabelLog",
        "Predictable": ".prediction:VolumeLabelPrediction",
        "Reportable": ".figures:VolumeLabelFigures",
    }
    config: VolumeSegmentationSettings
    traits = TaskTraits(
        sample_name="volumes", batch_norm="sync", fixed_shapes=True, supports_capture=True, uses_cross_entropies=True
    )
    best_metric = ("Dice", True)

    def __init__(self, config: VolumeSegmentationSettings) -> None:
        super().__init__(config)
        self.class_names: list[str] = []
        self.numbers: list[int] = []
        self.regions: list[LabelRegion] = []
        self.channels: list[str] = []
        self.spacing: np.ndarray | None = None  # (depth, height, width), mm
        self.within: str | None = None  # region of z_score, see ``nonzero``
        volumes = config.VOLUMES
        #: levels below the first that have a loss: all of the way up but the coarsest
        self.supervised = max(0, volumes.UNET_DEPTH - 2) if volumes.DEEP_SUPERVISION else 0
        levels = range(self.supervised + 1)
        kinds = ("loss",) if adds_own_loss(self) else ("cross_entropy", "dice")
        names = tuple(term_name(kind, level) for level in levels for kind in kinds)
        self.traits = replace(self.traits, normalizer_names=names)

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentedSamples:
        """Open a split and return its samples."""
        volumes, is_training = self.config.VOLUMES, is_training_split(self.config, split)
        dataset = dataset_class(self.config, SegmentedVolumes).open(self.config, split, cache_folder)
        if not len(dataset):
            data = self.config.DATA
            raise UserError(f"dataset {data.DATASET} has no {split} volumes{format_place(data.DATA_PATH)}")
        class_notices = []
        if self.config.EVAL and isinstance(dataset, NnUNet):
            path, about = read_checkpoint_about(self.config, is_training)
            facts = convert_facts(about.get("input") or {}, VolumeInputFacts, path)
            names = get_class_names(about.get("data") or {}, about.get("input") or {})
            if names and facts.label_numbers and not facts.regions:
                class_notices = dataset.take_classes(names, facts.label_numbers)
        self._load_dataset_meta(dataset)
        region_notices = set_region(self, dataset, self._intensities().kinds, is_training)
        intensities = self._intensities()
        if not is_training:
            if volumes.SURFACE_DISTANCES and dataset.labeled:
                # Fail before hours of training.
                import_extra("scipy", "VOLUMES.SURFACE_DISTANCES true (false skips distances)")
            samples = SegmentedSamples(
                dataset, intensities, notices=[*dataset.notices, *class_notices, *region_notices]
            )
            samples.eval_protocol = format_protocol(volumes)
            return samples
        notices = [*dataset.notices, *region_notices, *find_misnamed(self.channels, intensities.kinds)]
        notices += intensities.find_shared(self.channels)
        if not isinstance(dataset, VolumeFiles):  # of files, ``inspect data`` tells more
            notices += self._describe_first(dataset)
        mirrored = [AXES.index(axis) for axis in volumes.MIRROR_AXES]
        crop_options = volumes.CROP_SIZE, AugmentationConfig.from_config(volumes), volumes.FOREGROUND_FRACTION, mirrored
        return SegmentedSamples(dataset, intensities, *crop_options, notices)

    def _describe_first(self, dataset: SegmentedVolumes) -> list[str]:
        """Return notes on the first volumes of a dataset if none has a class, or a channel has one intensity."""
        volumes = [dataset.read(index) for index in range(min(_NUM_FIRST, len(dataset)))]
        these = f"the first {len(volumes)} volumes of dataset {self.config.DATA.DATASET}"
        notes = []
        if not any(labels is not None and labels.places for _, labels in volumes):
            notes.append(f"note: no voxel of {these} has a class but the background")
        for number, name in enumerate(self.channels):
            if all(channels[number].extremes[0] == channels[number].extremes[1] for channels, _ in volumes):
                notes.append(f"note: all voxels of {these} have one intensity in channel {name}")
        return notes

    def _intensities(self) -> IntensityConfig:
        return IntensityConfig.from_config(self.config.VOLUMES, len(self.channels) or 1, self.within)

    def _load_dataset_meta(self, dataset: SegmentedVolumes) -> None:
        """Take channels and classes from a split, and raise ``UserError`` if it does not fit keys or weights."""
        spacing = find_spacing(self.config.DATA.DATASET, dataset)
        require_same_spacing(self.config.DATA.DATASET, self.spacing, spacing)
        require_unique(dataset.class_names, f"dataset {self.config.DATA.DATASET}: classes")
        num_classes = self.config.MODEL.NUM_CLASSES
        if num_classes is not None and num_classes != len(dataset.class_names):
            raise UserError(
                f"MODEL.NUM_CLASSES (-num_classes) is {num_classes}, but there are {len(dataset.class_names)} classes "
                f"with the background ({', '.join(dataset.class_names)}); remove it"
            )
        self.class_names = list(dataset.class_names)
        self.numbers = list(dataset.numbers) or [*range(len(self.class_names))]
        self.regions = list(dataset.regions)
        if not self.regions and len(self.numbers) != len(self.class_names):
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: numbers has {len(self.numbers)} entries, expected the number in "
                f"files of each of {len(self.class_names)} classes with the background"
            )
        self._find_removals()
        self.channels, self.spacing = list(dataset.channels), spacing

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Load classes, channels, spacing and input settings from the record of weights."""
        facts = meta.read_input(VolumeInputFacts)
        spacing = self.config.VOLUMES.SPACING_MM or facts.spacing_mm
        if not meta.class_names or not spacing or not facts.channels or not facts.label_numbers:
            raise UserError(_UNKNOWN + "weights with their about.yaml")
        names, numbers = len(meta.class_names), len(facts.regions or facts.label_numbers)
        if names != numbers:
            raise UserError(f"{meta.source}: {names} classes, and {numbers} numbers of them in label maps; restore it")
        self.class_names, self.numbers = list(meta.class_names), facts.label_numbers
        self.regions = load_regions(meta.input, self.numbers)
        self._find_removals()
        self.channels, self.spacing = facts.channels, np.array(spacing, dtype=np.float64)
        self.within = facts.z_score

    def check_sample(self, sample: dict[str, Any]) -> None:
        """Check that the volume is finite and that labels are classes."""
        require_finite(sample["volume"], "volume")
        require_known(sample["labels"], len(self.numbers))  # only custom datasets

    def collate(self, samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Collate samples to a batch."""
        return collate(samples)

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return orientation, spacing, intensities, channels and class numbers in files, or the classes of samples."""
        if samples is not None:
            names = list(self.class_names)
            return {**super().signature(samples), "number of classes": len(names), "classes": names}
        return {
            "orientation": "RAS",
            "spacing_mm": [round_spacing(length) for length in require_spacing(self.spacing).tolist()],
            **self._intensities().about(),
            "channels": list(self.channels),
            "label_numbers": list(self.numbers),
            **describe_regions(self.class_names, self.regions, self.numbers),
        }

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Create the configured model."""
        volumes = self.config.VOLUMES
        if self.supervised:
            require_unset(self, ["strides"])  # labels of the lower levels are read by the key
        return create_configured(
            self,
            num_classes=num_classes or len(self.class_names),
            in_channels=len(self.channels) or 1,
            width=volumes.UNET_WIDTH,
            depth=volumes.UNET_DEPTH,
            norm=volumes.UNET_NORM,
            activation=volumes.UNET_ACTIVATION,
            supervised=self.supervised,
            **axis_options(volumes),
        )

    def _downsample(self, labels: np.ndarray | paddle.Tensor, level: int) -> np.ndarray | paddle.Tensor:
        """Take the voxels of labels (N, depth, height, width) that a level has."""
        depth, height, width = level_steps(read_strides(self.config.VOLUMES))[level]
        return labels[:, ::depth, ::height, ::width]

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, int]:
        """Count the voxels, and the classes of crops, that each loss term averages over."""
        numbers = {}
        for level in range(self.supervised + 1):
            labels = self._downsample(batch["labels"], level)
            crop_counts = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1)[:IGNORED] for row in labels])
            regions, present = len(self.regions), np.count_nonzero(crop_counts[:, 1:])
            numbers[term_name("cross_entropy", level)] = int(crop_counts.sum()) * (regions or 1)
            numbers[term_name("dice", level)] = len(labels) * regions if regions else int(present)
            numbers[term_name("loss", level)] = int(crop_counts.sum())
        # Other names are of a derived class, which adds their numbers.
        return {name: numbers[name] for name in self.traits.normalizer_names if name in numbers}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses of a batch of crops."""
        outputs = model(batch["volume"])
        is_several = isinstance(outputs, (tuple, list)) and 0 < len(outputs) <= self.supervised + 1
        outputs = outputs if is_several else [outputs]
        total = sum(0.5**i for i in range(len(outputs)))
        terms = {}
        with autocast.off():
            for level, maps in enumerate(outputs):
                labels = self._downsample(batch["labels"], level).astype("int64")  # (N, depth, height, width)
                shape = labels.shape[0], len(self.class_names), *labels.shape[1:]
                logits, weight = require_output(maps, shape, model, _LOGITS).astype("float32"), 0.5**level / total
                if adds_own_loss(self):
                    own = self._sum_own_loss(logits, batch, labels)
                    terms[term_name("loss", level)] = own._replace(weight=weight)
                    continue
                for kind, (loss, count) in self._losses(logits.flatten(2), labels.flatten(1)).items():
                    terms[term_name(kind, level)] = LossTerm(loss, count, weight)
        return terms

    def losses(self, outputs: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each voxel or crop, of a task with other losses; by default, there is none.

        Training calls it for each level that has a loss. An evaluation calls it for each volume at its stored size, on
        which all outputs are then in memory, and reports the mean as the loss.

        Args:
            outputs: float32 (crops, outputs, depth, height, width), of classes, or of regions before the sigmoid.
            batch: "labels", int64 (crops, depth, height, width), 255 where a voxel is unlabeled.

        Returns:
            Float (crops, depth, height, width), where unlabeled voxels do not count, or (crops,).
        """
        raise missing_method(type(self), "losses")

    def _sum_own_loss(self, outputs: paddle.Tensor, batch: dict[str, Any], labels: paddle.Tensor) -> LossTerm:
        losses = call_losses(self, outputs, {**batch, "labels": labels}, labels.shape, labels.shape[:1])
        return sum_losses(losses, labels != IGNORED)

    def _losses(self, logits: paddle.Tensor, labels: paddle.Tensor) -> dict[str, tuple[paddle.Tensor, Any]]:
        """Return sum and count of a level's losses, from float32 (crops, outputs, voxels), int64 (crops, voxels)."""
        losses: dict[str, tuple[paddle.Tensor, Any]]
        number = len(self.regions)
        if number:
            sums = region_losses(logits, labels, [region.labels for region in self.regions])
            losses = {"cross_entropy": (sums.cross_entropy, sums.labeled * number)}
            return {**losses, "dice": (sums.dice, len(labels) * number)}
        entropy = summed_cross_entropy(logits, labels, IGNORED, 1)
        losses = {"cross_entropy": (entropy, (labels != IGNORED).astype("float32").sum())}
        return {**losses, "dice": dice_losses(logits, labels, IGNORED, 1)}

    def _find_removals(self) -> list[tuple[int, ...]]:
        return find_removals(self.config.VOLUMES, self.class_names, self.regions)

    def build_metrics(self) -> Metrics:
        """Create the metrics of an evaluation."""
        groups = group_labels(self.class_names, self.regions)
        return VolumeMetrics(list(groups), self.config.VOLUMES.SURFACE_DISTANCES, list(groups.values())[1:])

    def segment_batch(
        self, model: paddle.nn.Layer, batch: dict[str, Any], metrics: Any = None
    ) -> Iterator[tuple[SegmentedVolume, np.ndarray]]:
        """Yield predicted classes and labels of each volume; the device computes the next volume meanwhile.

        With ``metrics``, they get the loss if a user's class has one.
        """
        pending, is_own = None, isinstance(metrics, TableMetrics) and metrics.expects_loss
        for record, volume, labels in split_batch(batch):
            parts: Any = self._stored_maps(model, volume, record)
            if is_own and labels.shape[0]:
                parts = list(parts)
                outputs, truth = paddle.concat(parts, axis=1), labels.astype("int64")
                metrics.add_own_loss(self._sum_own_loss(outputs.unsqueeze(0), {}, truth.unsqueeze(0)))
            result = record, read_later(self._choose_labels(parts), labels, volume[0])
            if pending is not None:
                yield self._to_prediction(*pending)
            pending = result
        if pending is not None:
            yield self._to_prediction(*pending)

    def _to_prediction(
        self, record: VolumeRecord, values: Callable[[], list[np.ndarray]]
    ) -> tuple[SegmentedVolume, np.ndarray]:
        classes, labels, volume = values()
        classes = keep_largest(classes, self._find_removals())
        return SegmentedVolume(record.index, classes, volume, np.array(record.stored_spacing)), labels

    def class_map(self, model: paddle.nn.Layer, volume: paddle.Tensor, record: VolumeRecord) -> paddle.Tensor:
        """Predict the label of each voxel, uint8 of the stored labels' shape; ``IGNORED`` if an output is not finite.

        Outputs of windows and their mirror images are averaged, then resampled linearly to the stored spacing; see
        ``choose_labels``.
        """
        return self._choose_labels(self._stored_maps(model, volume, record))

    def _stored_maps(
        self, model: paddle.nn.Layer, volume: paddle.Tensor, record: VolumeRecord
    ) -> Iterator[paddle.Tensor]:
        """Yield the outputs of some planes after another, (outputs, depth, height, width) of the stored labels."""
        maps, steps = self.window_maps(model, volume), stored_steps(record)
        for planes in split_planes(len(maps), record.stored):
            yield resample_maps(maps, record.stored, steps, planes)

    def _choose_labels(self, parts: Iterable[paddle.Tensor]) -> paddle.Tensor:
        return paddle.concat([choose_labels(part, self.regions) for part in parts])

    def window_maps(self, model: paddle.nn.Layer, volume: paddle.Tensor) -> paddle.Tensor:
        """Compute the mean outputs of windows, (outputs, depth, height, width)."""
        volumes = self.config.VOLUMES
        compute = check_network(model, _LOGITS, len(self.class_names), keeps_size=True)
        network = mirror_model(lambda windows: compute(windows).astype("float32"), find_mirrored_axes(volumes))
        return predict(network, volume, volumes.CROP_SIZE, volumes.OVERLAP, volumes.WINDOW_WEIGHTS)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Predict a batch of volumes and add its sums to the metrics."""
        predictions, truths, records = [], [], []
        for predicted, labels in self.segment_batch(model, batch, step.metrics):
            if not labels.size:  # a split without labels
                labels = np.full_like(predicted.labels, IGNORED)
            records.append(step.metrics.update(predicted.labels, labels, predicted.spacing))
            predictions.append(predicted)
            truths.append(labels)
        if step.writer is not None:
            step.writer.add(predictions, truths)
        return (lambda: records) if step.keeps_records else None


def term_name(kind: str, level: int) -> str:
    """Return the name of a loss term, such as "dice 1/2"."""
    return kind if not level else f"{kind} 1/{2**level}"


def stored_steps(record: VolumeRecord) -> np.ndarray:
    """Return the steps between stored voxels, in voxels of the network's outputs."""
    return step_lengths(np.array(record.stored_spacing)) / np.array(record.spacing)


def format_protocol(volumes: SegmentationVolumeSection) -> str:
    """Format the settings that a score depends on besides the weights and the data."""
    size = " x ".join(map(str, volumes.CROP_SIZE))
    axes = find_mirrored_axes(volumes)
    mirroring = f", mean of {2 ** len(axes)} mirror images" if axes else ""
    windows = f"windows of {size} voxels, overlap {volumes.OVERLAP:g}, {volumes.WINDOW_WEIGHTS} weights{mirroring}"
    names = ", ".join(volumes.LARGEST_COMPONENT)
    return f"{windows}, largest component of {names}" if names else windows


def find_mirrored_axes(volumes: SegmentationVolumeSection) -> list[int]:
    """Return the axes along which windows are also evaluated mirrored."""
    return [AXES.index(axis) for axis in volumes.MIRROR_AXES] if volumes.TEST_MIRROR else []


def find_removals(
    volumes: SegmentationVolumeSection, class_names: Sequence[str], regions: Sequence[LabelRegion]
) -> list[tuple[int, ...]]:
    """Return the labels of VOLUMES.LARGEST_COMPONENT, checked."""
    return find_labels(volumes.LARGEST_COMPONENT, group_labels(class_names, regions))
