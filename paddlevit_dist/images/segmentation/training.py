"""How a network that segments pictures learns: cross-entropy, and what else is configured, over the labelled pixels."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.task import Step, TaskTraining, Term
from ...labelling.losses import (
    cross_entropies,
    dice_losses,
    hardest,
    lovasz_of_rows,
    resized_cross_entropy,
    weights_of,
)
from ...runtime import autocast
from ..models.segmenter import resized
from ..transforms.on_device import Normaliser
from .data.segmentation_dataset import IGNORED

_OF_PIXELS, _OF_CLASSES = ("loss", "auxiliary"), ("dice", "lovasz")  # what terms are divided by


class SegmentationTraining(TaskTraining):
    """The losses of a segmenter.

    Cross-entropy is divided by the labelled pixels of all ranks and micro-batches, or by their classes' weights. Dice
    and Lovasz losses are of each class in each picture, and divided by how many of these there are. mmsegmentation's
    authors divide by the pixels of a device, those without a class too.
    """

    normaliser: Normaliser
    num_classes: int
    auxiliary_weight = 0.0  # the model's

    @property
    def count_names(self) -> tuple[str, ...]:  # type: ignore[override] # hard pixels are counted by the step
        keys = self.config.SEGMENTATION
        of_classes = _OF_CLASSES if keys.DICE_WEIGHT or keys.LOVASZ_WEIGHT else ()
        return (*_OF_PIXELS[keys.OHEM_THRESHOLD is not None :], *of_classes)

    def counts(self, batch: dict[str, Any]) -> dict[str, Any]:
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        of_pictures = np.stack([np.bincount(row.ravel(), minlength=IGNORED + 1) for row in batch["labels"]])
        pixels = of_pictures[:, :IGNORED].sum(axis=0)  # (classes,)
        labelled = pixels.sum() if weights is None else np.dot(pixels[: len(weights)], weights)
        present = np.count_nonzero(of_pictures[:, :IGNORED])
        numbers = {**dict.fromkeys(_OF_PIXELS, labelled), **dict.fromkeys(_OF_CLASSES, present)}
        return {name: numbers[name] for name in self.count_names}

    def expected_losses(self) -> dict[str, float]:
        return {"loss": math.log(self.num_classes)}

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: Step) -> dict[str, Term]:
        labels = batch["labels"].astype("int64")  # (N, H, W)
        outputs = model(self.normaliser(batch["images"]))
        main, *auxiliary = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        with autocast.off():
            keys, logits = self.config.SEGMENTATION, main.astype("float32")
            if keys.OHEM_THRESHOLD is not None or keys.DICE_WEIGHT or keys.LOVASZ_WEIGHT:
                logits = upsampled(main, labels.shape[1:])  # (N, classes, H, W), by far the largest tensor of the step
            terms = {"loss": self._cross_entropy(logits, labels, keys.OHEM_THRESHOLD)}
            rows = logits.flatten(2), labels.flatten(1), IGNORED  # (N, classes, pixels), (N, pixels)
            if keys.DICE_WEIGHT:
                terms["dice"] = Term(*dice_losses(*rows), keys.DICE_WEIGHT)
            if keys.LOVASZ_WEIGHT:
                terms["lovasz"] = Term(*lovasz_of_rows(*rows), keys.LOVASZ_WEIGHT)
            for other in auxiliary:
                term = self._cross_entropy(other.astype("float32"), labels)
                terms["auxiliary"] = term._replace(weight=self.auxiliary_weight)
        return terms

    def _cross_entropy(self, logits: paddle.Tensor, labels: paddle.Tensor, threshold: float | None = None) -> Term:
        keys = self.config.SEGMENTATION
        weights = None if keys.CLASS_WEIGHTS is None else tuple(keys.CLASS_WEIGHTS)
        counted = (labels != IGNORED).astype("float32") if weights is None else weights_of(labels, IGNORED, weights)
        if threshold is None:
            return Term(resized_cross_entropy(logits, labels, IGNORED, weights), counted.sum())
        losses = cross_entropies(logits, labels, IGNORED, axis=1)
        counted = counted * hardest(losses, labels, IGNORED, threshold, keys.OHEM_KEPT)
        return Term((losses * counted).sum(), counted.sum())


def upsampled(logits: paddle.Tensor, size: Sequence[int]) -> paddle.Tensor:
    """float32 (N, classes, *size): bilinear between the centres of pixels. It is made float32 before it becomes large:
    one large tensor, and not two."""
    return resized(logits.astype("float32"), size)
