"""Images with several labels, with any registered classifier: binary cross-entropy, or the asymmetric loss."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.metrics.classification import require_num_classes
from ...core.runtime import autocast
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from ...core.runtime.transfers import constant
from ...core.tasks.dataset import is_training_split
from ...core.tasks.loss_checks import adds_own_loss, call_losses, sum_losses
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_finite
from ...core.tasks.step_types import LossTerm, StepPosition
from ...core.tasks.task import Records
from ..classification.distillation import split_heads
from ..classification.task import Classification
from ..data.image_dataset import ImageDataset
from ..data.image_labels import LABELS, make_labels
from ..views import join_sigmoid
from .losses import asymmetric_loss, binary_cross_entropy, smooth_labels, teacher_loss
from .metrics import LabelMetrics, record_later
from .mixing import KNOWN, TARGETS, apply_mix, draw_mix
from .samples import MultiLabelSamples, balance_positives, find_missing_labels
from .settings import MultiLabelSettings
from .thresholds import LabelOutputs


class MultiLabel(Classification):
    """Trains and evaluates a classifier whose images have several labels each; unknown labels count nowhere."""

    aspects = {
        "Checkable": ".checks:LabelChecks",
        "Drawable": ".figures:LabelDrawing",
        "Ensembling": ".prediction:LabelPrediction",
        "Exportable": ".export:LabelExport",
        "Predictable": ".prediction:LabelPrediction",
        "Reportable": ".figures:LabelFigures",
    }
    config: MultiLabelSettings
    best_metric = ("mAP", True)
    _samples_type = MultiLabelSamples
    _fewest_classes = 1
    _truth = LABELS
    _join_views = staticmethod(join_sigmoid)
    traits = replace(Classification.traits, normalizers_per_sample=None, normalizer_names=("loss", "distillation"))

    def __init__(self, config: MultiLabelSettings) -> None:
        super().__init__(config)
        if type(self).summed_loss is not Classification.summed_loss:
            raise UserError(
                f"{type(self).__name__}.summed_loss is never called: it is the loss of images of one class: override "
                "losses, which returns that of each label"
            )
        self.positive_weights: tuple[float, ...] | None = None
        self.outputs = LabelOutputs(self)

    def _open_labeled(self, split: str, cache_folder: Path) -> tuple[ImageDataset, list[str]]:
        dataset, notices = super()._open_labeled(split, cache_folder)
        if dataset.label_matrix is None:
            raise UserError(
                f"dataset {self.config.DATA.DATASET} has one class for each image, but TASK {self.config.TASK} reads "
                "several labels: give it an attribute 'label_matrix', or set TASK classification"
            )
        return dataset, notices

    def build_dataset(self, split: str, cache_folder: Path) -> MultiLabelSamples:
        """Open a split with its transform, check it, and log what was found."""
        samples = super().build_dataset(split, cache_folder)
        assert isinstance(samples, MultiLabelSamples)
        if (samples.label_matrix < 0).all():
            raise UserError(
                f"dataset {self.config.DATA.DATASET} ({split}): no label of any image is known; expected 1 and 0"
            )
        samples.notices += map(one_line, find_missing_labels(samples, split))
        if is_training_split(self.config, split):
            samples.is_training = True
            self.positive_weights = self._weigh_positives(samples.label_matrix)
        else:
            texts = samples.eval_protocol, self.outputs.thresholds.describe(samples)
            samples.eval_protocol = ", ".join(filter(None, texts))
        return samples

    def _weigh_positives(self, labels: np.ndarray) -> tuple[float, ...] | None:
        """Return the factor of each class's positives, from the labels int8 (samples, classes); None: 1."""
        weights, number = self.config.MULTI_LABEL.POSITIVE_WEIGHTS, require_num_classes(self.num_classes)
        if weights is None or self.config.MULTI_LABEL.LOSS != "bce":
            return None
        listed = balance_positives(labels).tolist() if weights == "balanced" else list(weights)
        if weights == "balanced":
            listed += [1.0] * (number - len(listed))
        if len(listed) != number:
            raise UserError(f"MULTI_LABEL.POSITIVE_WEIGHTS has {len(listed)} numbers, expected {number}, one per class")
        return tuple(listed)

    def check_sample(self, sample: Any) -> None:
        """Check the values of an image and its labels, also of samples that a program has made."""
        require_finite(sample[0], "image")
        if np.ndim(sample[1]):  # not of an image without labels
            make_labels(sample[1], len(sample[1]))

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images and labels to a batch; in training also draw the mix of its images."""
        images, labels, *drawn = zip(*samples)
        # images uint8 (batch, channels, size, size); labels int8 (batch, classes), or zeros (batch,) of new images
        batch = {"images": np.stack(images), "labels": self._pad(np.stack(labels).astype(np.int8))}
        if drawn and self.mixing is not None:
            batch.update(draw_mix(self.mixing, drawn[0][0], batch))
        if self.erasing is not None:
            for erased in drawn[1:]:
                batch.update(self.erasing.collate(erased))
        return batch

    def _pad(self, labels: np.ndarray) -> np.ndarray:
        """Add unknown labels of outputs that the dataset has no class for (MODEL.NUM_CLASSES)."""
        more = (self.num_classes or 0) - labels.shape[-1]
        return labels if labels.ndim == 1 or more <= 0 else np.pad(labels, ((0, 0), (0, more)), constant_values=-1)

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model, and in training its teacher, whose outputs have to be logits."""
        model = super().build_model(num_classes)
        if self.teacher is not None and self.teacher.gives_probabilities:
            raise UserError(
                f"TRAIN.TEACHER_MODEL {self.config.TRAIN.TEACHER_MODEL} gives probabilities of one class: export "
                "it without -outputs=probabilities"
            )
        return model

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, int]:
        """Count the known labels of a batch, and all labels, for which a teacher has an opinion."""
        known = batch[KNOWN] if KNOWN in batch else batch["labels"] >= 0
        return {"loss": int(known.sum()), "distillation": batch["labels"].size}

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses of a batch."""
        images = self.normalizer(batch["images"])
        if self.erasing is not None:
            images = self.erasing.fill(images, batch)
        images = apply_mix(images, batch)
        shape = images.shape[0], self.num_classes
        heads = split_heads(model(images), model, shape, self.teacher is not None)
        with autocast.off():
            logits, teacher_logits = (head.astype("float32") for head in heads)
            targets, known = read_targets(batch)
            if adds_own_loss(self):
                loss = self._sum_own_loss(logits, batch)
            else:
                loss = LossTerm(self._label_loss(logits, targets, known), known.sum())
            if self.teacher is None:
                return {"loss": loss}
            train, size = self.config.TRAIN, logits.shape[0] * logits.shape[1]
            distillation = teacher_loss(train.DISTILLATION_TYPE, teacher_logits, self.teacher(images))
            share = train.DISTILLATION_ALPHA
            return {
                "loss": loss._replace(weight=1.0 - share),
                "distillation": LossTerm(distillation, size, weight=share),
            }

    def losses(self, outputs: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each label or image, of a task with another loss; by default, there is none.

        An evaluation reports the mean as the loss.

        Args:
            outputs: logits, float32 (batch, classes).
            batch: tensors by name, such as "labels", float32 (batch, classes), 1 or 0, and shares of mixed images, and
                "known", 1 or 0: whether a label is known.

        Returns:
            Float (batch, classes), where unknown labels do not count, or (batch,).
        """
        return super().losses(outputs, batch)

    def _sum_own_loss(self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> LossTerm:
        targets, known = read_targets(batch)
        losses = call_losses(self, logits, {**batch, "labels": targets, KNOWN: known}, logits.shape, logits.shape[:1])
        return sum_losses(losses, known > 0)

    def _label_loss(self, logits: paddle.Tensor, targets: paddle.Tensor, known: paddle.Tensor) -> paddle.Tensor:
        keys = self.config.MULTI_LABEL
        targets = smooth_labels(targets, self.config.TRAIN.SMOOTHING)
        if keys.LOSS == "asymmetric":
            return asymmetric_loss(logits, targets, known, keys.GAMMA_NEGATIVE, keys.GAMMA_POSITIVE, keys.MARGIN)
        weights = self.positive_weights and constant(np.array, self.positive_weights, "float32")
        return binary_cross_entropy(logits, targets, known, weights)

    def build_metrics(self) -> LabelMetrics:  # type: ignore[override] # of several labels
        """Return the metrics of an evaluation."""
        names, thresholds = self.outputs.names, self.outputs.thresholds
        return LabelMetrics(names, thresholds.levels(names), *thresholds.goal)

    def _record(self, logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
        return record_later(logits, labels)

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take the number and the names of the classes from a checkpoint."""
        super().load_meta(meta)
        self.outputs.trained_names = dict(zip(meta.class_names or (), map(str, meta.data.get("classes") or ())))


def read_targets(batch: dict[str, paddle.Tensor]) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Return the shares of labels in a training batch and whether they count, float32 (batch, classes) each."""
    if TARGETS in batch:
        return batch[TARGETS], batch[KNOWN]
    labels = batch["labels"].astype("float32")
    return (labels > 0).astype("float32"), (labels >= 0).astype("float32")
