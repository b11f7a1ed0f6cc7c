"""How a network that segments pictures is scored."""

from typing import Any

import numpy as np
import paddle

from ...contracts.task import EvaluationStep, Metrics, Records, TaskEvaluation
from ..transforms.on_device import Normaliser
from .data.segmentation_dataset import IGNORED
from .samples import pictures_of
from .training import upsampled


class SegmentationEvaluation(TaskEvaluation):
    best_metric = ("mIoU", True)

    normaliser: Normaliser
    class_names: list[str]

    def build_metrics(self) -> Metrics:
        return SegmentationMetrics(self.class_names)

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        for picture in pictures_of(batch):
            logits = upsampled(model(self.normaliser(picture.image)), picture.original_size)
            step.metrics.update(logits[0].argmax(axis=0), picture.labels.astype("int64"))
        return None


class SegmentationMetrics(Metrics):
    def __init__(self, class_names: list[str]) -> None:
        super().__init__()
        self.class_names = class_names
        self.state = {"confusion": paddle.zeros([len(class_names)] * 2, "int64")}

    def update(self, predictions: paddle.Tensor, labels: paddle.Tensor) -> None:
        number = len(self.class_names)
        pairs = paddle.where(labels == IGNORED, paddle.full_like(labels, number**2), labels * number + predictions)
        counts = paddle.bincount(pairs.reshape([-1]), minlength=number**2 + 1)[: number**2]
        self.state["confusion"] += counts.astype("int64").reshape([number, number])

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        confusion = np.asarray(state["confusion"])
        right, union = np.diag(confusion), confusion.sum(0) + confusion.sum(1) - np.diag(confusion)
        return {
            "mIoU": float(np.mean(right[union > 0] / union[union > 0])),
            "accuracy": float(right.sum() / max(confusion.sum(), 1)),
        }

    def summary(self, values: dict[str, float]) -> str:
        return f"mIoU {values['mIoU']:.4f} accuracy {values['accuracy']:.4f}"
