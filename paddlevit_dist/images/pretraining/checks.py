"""What a log, ``doctor`` and ``inspect data`` ask of tasks that learn without labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure
from ...core.tasks.protocols import Checkable, Drawable, LogContributor, Reportable, count_samples
from ..data.quarantine import merge_quarantine
from .samples import PretrainingSamples
from .task import PretrainingTask


class PretrainingLog(TaskAspect, LogContributor):
    """Says how many images there are, and lists those that could not be read."""

    task: PretrainingTask

    def describe_samples(self, dataset: TransformedDataset) -> str:
        """Describe a split: number of images, and of classes that neighbors vote for."""
        text = count_samples(self.task, dataset)
        if not isinstance(dataset, PretrainingSamples) or dataset.is_training:
            return text
        number = self.task.config.PRETRAINING.NEIGHBORS
        chooses = (
            "the last checkpoint counts as the best" if self.task.traits.takes_last else "the loss chooses the best one"
        )
        return text + (
            f" of {dataset.dataset.num_classes:,} classes, compared with their {number} nearest neighbors"
            if dataset.has_classes
            else f", which have no classes: {chooses}"
        )

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images of all ranks into one list; every rank must call this."""
        return merge_quarantine(self.task.replacements, Path(self.task.config.SAVE))


class PretrainingChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check samples, which have no labels."""

    task: PretrainingTask


class PretrainingDrawing(TaskAspect, Drawable):
    """Draws images without labels."""

    task: PretrainingTask

    def visualize_batch(self, dataset: Any, batch: dict[str, np.ndarray], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images."""
        return self.draw(batch["images"])

    def visualize_eval_samples(self, dataset: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Return the images as an evaluation sees them."""
        return self.draw(np.stack([dataset.sample(index, np.random.default_rng(0))[0] for index in indices]))

    def draw(self, images: np.ndarray) -> list[tuple[np.ndarray, str]]:
        """Return images uint8 (batch, channels, height, width) with empty captions."""
        normalized = self.task.normalize(paddle.to_tensor(images))
        return [(pixels, "") for pixels in self.task.normalizer.pixels(normalized)]


class PretrainingFigures(TaskAspect, Reportable):
    """Makes no figures."""

    task: PretrainingTask

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Return nothing."""
        return []
