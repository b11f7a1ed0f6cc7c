"""The task: a class for each voxel of a volume."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...contracts.dataset import dataset_class
from ...contracts.sample_checks import BadSample, require_finite
from ...contracts.task import ExportParts, Task
from ...models import create_model
from ...runtime.errors import UserError
from ..detection import require_same_spacing, three_digits
from ..export import segmentation_parts
from ..intensities import Intensities
from ..nonzero import settle
from ..reading import library
from ..samples import Augmentation
from .dataset import IGNORED, SegmentedVolumes
from .evaluation import VolumeSegmentationEvaluation
from .figures import class_slices
from .fingerprint import fingerprint, misnamed
from .prediction import VolumeSegmentationPrediction
from .samples import SegmentedSamples, collate
from .settings import AXES
from .training import VolumeSegmentationTraining


class VolumeSegmentation(VolumeSegmentationTraining, VolumeSegmentationEvaluation, VolumeSegmentationPrediction, Task):
    """Trains and evaluates a network that gives each voxel of a volume a class."""

    sample_name = "volumes"
    draws_samples = True
    batch_norm = "sync"
    fixed_shapes = True

    def __init__(self, config: Any) -> None:
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
            if volumes.SURFACE_DISTANCES and dataset.labelled:
                library("scipy", "VOLUMES.SURFACE_DISTANCES true (false leaves distances out)")  # before hours
            samples = SegmentedSamples(dataset, intensities, notices=[*dataset.notices, *told])
            samples.protocol = self.protocol_line()
            return samples
        notices = [*dataset.notices, *told, *misnamed(self.channels, intensities.kinds)]
        mirrored = [AXES.index(axis) for axis in volumes.MIRROR_AXES]
        drawn = volumes.CROP_SIZE, Augmentation.of(volumes), volumes.FOREGROUND_SHARE, mirrored
        return SegmentedSamples(dataset, intensities, *drawn, notices)

    def _intensities(self) -> Intensities:
        return Intensities.of(self.config.VOLUMES, len(self.channels) or 1, self.within)

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

    def about_data(self, samples: Any) -> dict[str, Any]:
        return {
            **super().about_data(samples),
            "number of classes": len(self.class_names),
            "classes": list(self.class_names),
        }

    def about_input(self) -> dict[str, Any]:
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
            blocks=volumes.UNET_BLOCKS,
            norm=volumes.UNET_NORM,
            activation=volumes.UNET_ACTIVATION,
            supervised=self.supervised,
        )

    def export_parts(self) -> ExportParts:
        facts = self.class_names, self.numbers, self.channels, self.spacing
        return segmentation_parts(self.config.VOLUMES, self._intensities(), *facts)

    # ---- pictures ----------------------------------------------------------------------------------------------

    def pictures(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Three slices of each crop of a batch, with its classes."""
        pairs = zip(batch["volume"], batch["labels"])
        return [self._seen(np.asarray(volume[0]), np.asarray(labels)) for volume, labels in pairs]

    def about_samples(self, samples: Any) -> Iterable[str]:
        return fingerprint(samples.dataset)

    def evaluation_pictures(self, samples: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Three slices of whole volumes."""
        readings = [samples.dataset.read(index) for index in indices]
        return [self._seen(np.asarray(channels[0].array, np.float32), labels.array) for channels, labels in readings]

    def _seen(self, volume: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
        found = [self.class_names[label] for label in np.setdiff1d(labels, [0, IGNORED]).tolist()]
        return class_slices(volume, self.spacing, labels, self.class_names), ", ".join(found) or "background"
