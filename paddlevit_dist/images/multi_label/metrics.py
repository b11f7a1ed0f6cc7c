"""Metrics of images with several labels over the processes of a run, and the labels that are chosen."""

from collections.abc import Sequence

import numpy as np
import paddle

from ...core.runtime.transfers import read_later
from ...core.tasks.metrics import TableMetrics
from ...core.tasks.task import Records
from .curves import GOALS, sigmoid
from .scores import KIND


class LabelMetrics(TableMetrics):
    """Collect labels and logits of each image, and choose labels by the thresholds.

    Args:
        thresholds: probability above which a label is chosen, float64 (classes,).
        goal: one of ``GOALS`` for which the threshold of each class is computed.
        wished: least precision or recall for that goal.
    """

    def __init__(
        self, class_names: Sequence[str], thresholds: np.ndarray, goal: str = GOALS[0], wished: float = 0.0
    ) -> None:
        super().__init__(KIND, class_names, {"goal": np.array([GOALS.index(goal), wished])})
        self.thresholds = thresholds

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Add a batch: logits, float (batch, classes), and labels, int8 (batch, classes), -1 where not known."""
        self.add_batch(labels=labels, logits=logits.astype("float32"))

    def rows(self) -> dict[str, np.ndarray]:
        """Return labels, logits and chosen labels of this rank's images, (images, classes) each."""
        rows = super().rows()
        return {**rows, "chosen": sigmoid(rows["logits"]) > self.thresholds} if rows else rows


def record_later(logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
    """Return a function that returns labels and logits of each image of a batch as bytes, see ``read_records``."""
    arrived = read_later(labels, logits.astype("float32"))

    def records() -> list[bytes]:
        rows, scores = arrived()
        return [own.tobytes() + other.tobytes() for own, other in zip(rows, scores)]

    return records


def read_records(records: Sequence[bytes], num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, int8 (images, classes), and logits, float32 (images, classes), of records."""
    rows = np.frombuffer(b"".join(records), [("labels", "i1", num_classes), ("logits", "<f4", num_classes)])
    return np.atleast_2d(rows["labels"]), np.atleast_2d(rows["logits"])
