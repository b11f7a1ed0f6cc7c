"""Top-1, top-5 and loss of a classifier as sums and counts."""

from __future__ import annotations

from typing import Any, Dict

import paddle
import paddle.nn.functional as F

from ...contracts.task import Metrics

_FEWEST_CLASSES_OF_TOP5 = 6  # the best five of five classes are all of them


class ClassificationMetrics(Metrics):
    """Counts of correct labels among the best 1 and 5, and the summed cross-entropy.

    Args:
        num_classes: number of classes; top-5 is reported from six up.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.has_top5 = num_classes >= _FEWEST_CLASSES_OF_TOP5
        self.state = {
            "correct": paddle.zeros([3], dtype="int64"),  # top-1, top-5, all
            "loss": paddle.zeros([], dtype="float64"),
        }

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Add a batch: logits (batch, classes), labels int64 (batch,)."""
        logits = logits.astype("float32")
        losses = F.cross_entropy(logits, labels, reduction="none")  # (batch, 1) or (batch,)
        self.state["loss"] = self.state["loss"] + losses.astype("float64").sum()
        # The rank of the true label: classes that score higher, and equal ones before it, so that ties count once.
        true_score = paddle.take_along_axis(logits, labels.unsqueeze(-1), axis=-1)  # (batch, 1)
        earlier = paddle.arange(logits.shape[-1]).unsqueeze(0) < labels.unsqueeze(-1)  # (batch, classes)
        ahead = (logits > true_score) | ((logits == true_score) & earlier)
        position = ahead.astype("int64").sum(axis=-1)  # (batch,)
        # A NaN score compares as false with everything and must not count as correct.
        finite = (logits - logits == 0).all(axis=-1)  # ``isfinite`` would wait for a GPU
        hits = [((position < k) & finite).astype("int64").sum() for k in (1, 5)]
        total = paddle.full([], labels.shape[0], dtype="int64")
        self.state["correct"] = self.state["correct"] + paddle.stack([*hits, total])

    def compute(self, state: Dict[str, Any]) -> Dict[str, float]:
        top1, top5, total = state["correct"].numpy().tolist()
        values = {"top-1": 100.0 * top1 / total, "top-5": 100.0 * top5 / total, "loss": state["loss"].item() / total}
        values.update({"top-1 count": top1, "top-5 count": top5, "samples": total})
        return {name: value for name, value in values.items() if self.has_top5 or not name.startswith("top-5")}

    def summary(self, values: Dict[str, float]) -> str:
        top5 = f" top-5 {values['top-5']:.2f}" if self.has_top5 else ""
        return f"top-1 {values['top-1']:.2f}{top5} loss {values['loss']:.4f}"
