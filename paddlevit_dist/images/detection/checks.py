"""What a log says of detection, what ``doctor`` and checkpoints compare, and which parameters decay."""

import numpy as np

from ...core.runtime.printing import one_line
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.protocols import Checkable, CheckpointMatching
from ..backbone_aspects import BackboneLog
from .data.samples import DetectionSample, DetectionSamples
from .task import Detection


class BoxLog(BackboneLog):
    """Describes images with boxes, and the losses and the speed of detectors."""

    task: Detection

    def describe_samples(self, dataset: TransformedDataset) -> str | None:
        """Describe the dataset of a split in one line."""
        if not isinstance(dataset, DetectionSamples):  # a user's dataset
            return None
        return one_line(dataset.dataset.summary())

    def count_classes(self, dataset: TransformedDataset) -> dict[str, int] | None:
        """Count the boxes of each category; None for drawn images, which are not counted."""
        return dataset.dataset.count_categories() if isinstance(dataset, DetectionSamples) else None

    def finish_epoch(self) -> list[str]:
        """Return log lines on the epoch's losses, and merge all ranks' unreadable images; every rank must call it."""
        return [*self.task.criterion.epoch_lines(), *super().finish_epoch()]

    def evaluation_lines(self) -> list[str]:
        """Return a line on this process's detection speed."""
        return [line] if (line := self.task.speed.line()) else []


class BoxChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels."""

    def labels_in(self, sample: DetectionSample) -> np.ndarray | None:
        """Return the labels of the objects in a sample."""
        return sample.labels


class BoxMatching(TaskAspect, CheckpointMatching):
    """Knows how to read images as weights were trained."""

    task: Detection

    def mismatch_hint(self, name: str, trained_value: object) -> str:
        """Return how to resolve a difference from a checkpoint's setting."""
        if name in self.task.turned:
            return f"set DATA.EXIF_ROTATE {str(trained_value).lower()} to read images as in training"
        return super().mismatch_hint(name, trained_value)
