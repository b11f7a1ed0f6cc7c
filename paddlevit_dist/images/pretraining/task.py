"""Base class of tasks that learn from images without labels: data, evaluation by neighbors, preprocessing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.printing import one_line
from ...core.tasks.class_names import require_unique
from ...core.tasks.dataset import is_training_split
from ...core.tasks.sample_checks import require_finite
from ..classification.opening import open_images
from ..classification.samples import evaluation_transform
from ..classification.task import LabeledImageTask
from ..classification.training_samples import build_training_transform
from ..data.class_folders import ClassFolders
from ..data.image_dataset import ImageDataset
from ..data.quarantine import ReplacementReader
from ..data.reading import ReadConfig
from ..data.seen_images import see_whole
from ..data.table_columns import SUFFIXES as TABLE_SUFFIXES
from ..data.table_images import TableImages
from .metrics import PretrainingMetrics
from .samples import PretrainingSamples
from .scores import TOP1
from .settings import PretrainingSettings
from .unlabeled import UnlabeledImages


class PretrainingTask(LabeledImageTask):
    """Base class of tasks that learn from images alone.

    If the evaluated images have classes, the share that their neighbors classify right chooses the best checkpoint,
    else the loss. A subclass has a network whose ``forward`` of images alone computes their features.
    """

    aspects = {
        "Checkable": ".checks:PretrainingChecks",
        "Drawable": ".checks:PretrainingDrawing",
        "LogContributor": ".checks:PretrainingLog",
        "Reportable": ".checks:PretrainingFigures",
    }
    config: PretrainingSettings
    best_metric = ("loss", False)
    _samples_type: Any = PretrainingSamples

    def __init__(self, config: PretrainingSettings) -> None:
        super().__init__(config)
        self._choose_metric(_expects_classes(config))

    def _choose_metric(self, has_classes: bool) -> None:
        """Set whether evaluated images have classes, and what chooses the best checkpoint."""
        self.has_classes = has_classes
        self.best_metric = (TOP1, True) if has_classes else PretrainingTask.best_metric

    def build_dataset(self, split: str, cache_folder: Path) -> Any:
        """Open a split with its transform, and check it."""
        is_training = is_training_split(self.config, split)
        dataset, notices = self._open(split, cache_folder)
        if self._inspection is not None:
            data = self.config.DATA
            seen = see_whole(data.IMAGE_SIZE, data.IMAGE_CHANNELS)
            notices = [*notices, *self._inspection.inspect(dataset, split, int(dataset.num_classes or 0), seen)]
        if is_training:
            samples = self.build_samples(dataset, build_training_transform(self.config, dataset.kind), True)
            if self.config.DATA.ON_INVALID_SAMPLE == "skip":
                samples.replacements = self.replacements = ReplacementReader(Path(self.config.SAVE).absolute())
            else:
                samples.read_parts()
        else:
            samples = self.build_samples(dataset, evaluation_transform(self.config.DATA, dataset.kind), False)
            self._choose_metric(samples.has_classes)
            self.class_names = self.evaluated_classes = [*map(str, dataset.class_names or ())] or None
            require_unique(self.class_names or (), f"dataset {self.config.DATA.DATASET}: classes")
        samples.notices = [*map(one_line, notices)]
        return samples

    def build_samples(self, dataset: ImageDataset, transform: Any, is_training: bool) -> PretrainingSamples:
        """Create the samples of a split."""
        samples: PretrainingSamples = self._samples_type(dataset, transform, is_training)
        return samples

    def _open(self, split: str, cache_folder: Path) -> tuple[ImageDataset, list[str]]:
        path = self.config.PRETRAINING.LABELED_PATH
        if path is None or split == "train":
            return open_images(self.config, split, cache_folder)
        dataset = open_labeled(path, cache_folder)
        data = self.config.DATA
        dataset.read_with(ReadConfig(bool(data.EXIF_ROTATE), data.MAX_PIXELS))
        return dataset, list(dataset.notices)

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images and classes to a batch."""
        images, labels, *_ = zip(*samples)
        # images uint8 (batch, channels, size, size); labels int64 (batch,), -1 in training
        return {"images": np.stack(images), "labels": np.asarray(labels, np.int64)}

    def check_sample(self, sample: Any) -> None:
        """Check the values of an image."""
        require_finite(sample[0], "image")

    def signature(self, dataset: Any = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the number of samples."""
        return super().signature() if dataset is None else {"samples": len(dataset)}

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model; it has no classes."""
        return self.create_network(0)

    def build_metrics(self) -> PretrainingMetrics:
        """Return the metrics of an evaluation."""
        return PretrainingMetrics(self.class_names or (), self.config.PRETRAINING.NEIGHBORS)


def _expects_classes(config: PretrainingSettings) -> bool:
    """Return whether evaluated images will have classes, before they are opened, as ``search`` asks."""
    data = config.DATA
    if config.PRETRAINING.LABELED_PATH is not None or data.DATASET != "unlabeled":
        return True
    return data.VAL_FRACTION is None and UnlabeledImages.has_validation_classes(data.DATA_PATH)


def open_labeled(path: str, cache_folder: Path) -> ImageDataset:
    """Open images with classes: the validation images of class folders or of a table, or all if these have none.

    A ``UserError`` says that the path has neither, or is an address.
    """
    if is_address(path):
        raise UserError(f"PRETRAINING.LABELED_PATH {path}: expected class folders or a table of labels on this machine")
    try:
        dataset = _open_classes(Path(path).expanduser(), cache_folder)
    except UserError as error:
        raise UserError(f"PRETRAINING.LABELED_PATH: {error}") from None
    if (dataset.num_classes or 0) < 2:
        raise UserError(f"PRETRAINING.LABELED_PATH {path} has only one class: neighbors vote between two or more")
    return dataset


def _open_classes(place: Path, cache_folder: Path) -> ImageDataset:
    is_table = place.is_file() and place.name.lower().endswith(TABLE_SUFFIXES)
    kind: Any = TableImages if is_table else ClassFolders
    if kind.has_validation(str(place)):
        opened: ImageDataset = kind(str(place), "val", cache_folder)
    elif is_table:
        opened = TableImages(str(place), "train", cache_folder)
    else:
        opened = ClassFolders.whole(str(place), cache_folder)
    return opened
