"""Intersection over union per class, from a confusion matrix."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import numpy as np
import paddle

from ...contracts.task import Metrics
from ..data.scene import IGNORED


class SemanticMetrics(Metrics):
    """Counts of (label, prediction) pairs over points, and the summed cross-entropy.

    Points labelled ``IGNORED`` are excluded. Intersections and unions of all scenes and ranks are summed before
    dividing. The mean IoU is over classes that occur as a label or as a prediction of a labelled point.

    Args:
        class_names: one per class.
    """

    def __init__(self, class_names: List[str]) -> None:
        super().__init__()
        self.class_names = class_names
        number = len(class_names)
        self.state = {
            "confusion": paddle.zeros([number, number], dtype="int64"),  # rows labels, columns predictions
            "loss": paddle.zeros([], dtype="float64"),
        }

    def update(self, predictions: paddle.Tensor, labels: paddle.Tensor, loss: Optional[paddle.Tensor] = None) -> None:
        """Add points: predictions and labels int64 (points,); ``loss`` is their summed cross-entropy."""
        number = len(self.class_names)
        # An extra bin takes the ignored points, to avoid a data-dependent shape.
        pairs = paddle.where(
            labels == IGNORED, paddle.full_like(labels, number * number), labels * number + predictions
        )
        if pairs.shape[0]:  # Paddle cannot count empty input
            counts = paddle.bincount(pairs, minlength=number * number + 1)[: number * number]
            self.state["confusion"] = self.state["confusion"] + counts.astype("int64").reshape([number, number])
        if loss is not None:
            self.state["loss"] = self.state["loss"] + loss.astype("float64")

    def compute(self, state: Dict[str, Any]) -> Dict[str, float]:
        """mIoU, accuracy and mean class accuracy as fractions, the loss, and the IoU of each class that occurs."""
        confusion = state["confusion"].numpy().astype(np.int64)
        intersection, target = np.diag(confusion), confusion.sum(axis=1)
        union = target + confusion.sum(axis=0) - intersection
        total = int(target.sum())
        values = {
            "mIoU": float(np.mean(intersection[union > 0] / union[union > 0])) if total else 0.0,
            "accuracy": float(intersection.sum() / total) if total else 0.0,
            "mean class accuracy": (float(np.mean(intersection[target > 0] / target[target > 0])) if total else 0.0),
            "loss": state["loss"].item() / max(total, 1),
            "points": total,
        }
        for name, part, whole in zip(self.class_names, intersection, union):
            if whole:
                values[f"IoU {name}"] = float(part / whole)
        return values

    def summary(self, values: Dict[str, float]) -> str:
        return (
            f"mIoU {values['mIoU']:.4f} accuracy {values['accuracy']:.4f} "
            f"mean class accuracy {values['mean class accuracy']:.4f} loss {values['loss']:.4f}"
        )
