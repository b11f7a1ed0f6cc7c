"""What a log says of labeled images, what ``doctor`` checks of them, and what is asked of their models."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.distributed import has_batch_norm
from ...core.metrics.classification import require_num_classes
from ...core.registry.lookup import list_names
from ...core.registry.manifest import NO_LABELS
from ...core.registry.required_methods import is_builtin
from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.model import as_model
from ...core.tasks.model_factory import build_outline
from ...core.tasks.protocols import (
    Capturable,
    Checkable,
    CheckpointMatching,
    LogContributor,
    ModelChecking,
    Recomputable,
    count_samples,
)
from ..data.quarantine import merge_quarantine
from .samples import ClassificationSamples
from .task import Classification, LabeledImageTask

_ANY_NUMBER_OF_CLASSES = 10  # for a model that is only built to check its dimensions


class ImageClassLog(TaskAspect, LogContributor):
    """Describes images, and lists those that could not be read."""

    task: LabeledImageTask

    def describe_samples(self, dataset: Any) -> str:
        """Describe a split: number of images, and images in each class."""
        text = count_samples(self.task, dataset)
        # A program may pass its own samples to the trainer.
        return text + dataset.describe_classes() if isinstance(dataset, ClassificationSamples) else text

    def count_classes(self, dataset: Any) -> dict[str, int] | None:
        """Count the images of each class, or with each label."""
        return dataset.count_classes() if isinstance(dataset, ClassificationSamples) else None

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images of all ranks into one list; every rank must call this."""
        return merge_quarantine(self.task.replacements, Path(self.task.config.SAVE))


class ImageClassChecks(TaskAspect, Checkable):
    """Lets ``doctor`` check labels and first losses."""

    task: LabeledImageTask

    def get_labels(self, dataset: Any) -> np.ndarray | None:
        """Return the label of each sample, int64 (samples,); None if they are not known."""
        labels = dataset.dataset.labels if isinstance(dataset, ClassificationSamples) else None
        return None if labels is None else np.asarray(labels, dtype=np.int64)

    def labels_in(self, sample: Any) -> np.ndarray | None:
        """Return the class of a sample."""
        return np.asarray(sample[1], dtype=np.int64)

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of uniform predictions, to compare the first loss with."""
        if self.task.class_weights is not None:
            return {}
        return {"loss": math.log(require_num_classes(self.task.num_classes))}


class PretrainedMatching(TaskAspect, CheckpointMatching):
    """Lets a task start from weights that were learned without labels."""

    compatible_tasks = (*list_names("task", NO_LABELS),)


class LabeledImageModelCheck(TaskAspect, ModelChecking):
    """Checks the configured model."""

    task: LabeledImageTask

    def check_model(self) -> list[str]:
        """Build the model without memory for its weights, to check its options."""
        build_outline(lambda: self.task.create_network(self.task.num_classes or _ANY_NUMBER_OF_CLASSES))
        return []


class ClassificationModelCheck(LabeledImageModelCheck):
    """Checks the configured model, and looks for a teacher."""

    def check_model(self) -> list[str]:
        """Build the model without memory for its weights, to check its options, and look for a teacher."""
        notes, train = super().check_model(), self.task.config.TRAIN
        if self.task.config.EVAL or train.DISTILLATION_TYPE == "none" or train.TEACHER_MODEL is not None:
            return notes
        return [*notes, f"note: training needs TRAIN.TEACHER_MODEL (TRAIN.DISTILLATION_TYPE {train.DISTILLATION_TYPE})"]


class ClassifierCapture(TaskAspect, Capturable):
    """Lets the passes of tasks of this package be captured; a derived task may compute anything."""

    task: Classification

    def find_obstacle(self) -> str:
        """Return why captured passes would not repeat a step, or an empty text."""
        if not is_builtin(type(self.task)):
            return "it is derived from the task of classifiers"
        return "its teacher may be any network" if self.task.teacher is not None else ""

    def use_one_shape(self) -> None:
        """Let random erasing process the images without boxes, too."""
        if self.task.erasing is not None:
            self.task.erasing = dataclasses.replace(self.task.erasing, takes_all=True)


class ClassifierRecomputation(TaskAspect, Recomputable):
    """Recomputes the blocks of a classifier."""

    task: Classification

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations are recomputed; a ``UserError`` if there are none, or batch norms."""
        blocks = as_model(model).recomputed_layers()
        if not blocks and has_batch_norm(model):
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.task.config.MODEL.NAME} has batch norms, whose running statistics "
                "recomputation would update twice per batch; remove TRAIN.RECOMPUTE"
            )
        if not blocks:
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.task.config.MODEL.NAME} has no LayerList named 'blocks'; add one, or remove "
                "TRAIN.RECOMPUTE"
            )
        return blocks
