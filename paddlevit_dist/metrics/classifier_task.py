"""Common parts of tasks that give each sample, an image or a shape, one class.

These are scores, records of each sample for the figures (48 bytes), and rows of predictions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..runtime.transfers import read_later
from ..tasks.prediction import CheckpointMeta, Row
from ..tasks.protocols import Predictable, Reportable
from ..tasks.step_types import EvaluationStep
from ..tasks.task import Records
from .classification import BEST, best_classes, probabilities

#: the true class and its score (a probability), and the best classes with their scores; -1 and 0 if there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


class ClassifierTask(Predictable, Reportable):
    """Evaluate and predict samples of one class each; a batch has "labels", int64 (batch,)."""

    best_metric = ("top-1", True)

    num_classes: int | None
    class_names: Sequence[str] | None

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute the logits of a batch: (batch, classes)."""
        raise NotImplementedError

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add a batch to the metrics, and return its records if the step keeps them."""
        logits = self.logits(model, batch)
        step.metrics.update(logits, batch["labels"])
        return record_later(logits, batch["labels"]) if step.keeps_records else None

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[np.ndarray]:
        """Compute the probability of each class, float64 (classes,), for each sample."""
        return list(probabilities(self.logits(model, batch).astype("float32").numpy()))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the row of a sample: its best classes."""
        return [best_classes(prediction, self.class_names)]

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take the number and the names of the classes from a checkpoint."""
        self.num_classes, self.class_names = meta.num_classes, meta.class_names


def record_later(logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
    """Return a function that returns a record, bytes, for each sample of a batch.

    Nothing waits for the device before the function is called. It only holds data of the size of the records.

    Args:
        logits: (batch, classes).
        labels: int64 (batch,).
    """
    probabilities = F.softmax(logits.astype("float32"), axis=-1)
    scores, classes = paddle.topk(probabilities, min(BEST, probabilities.shape[-1]), axis=-1)  # (batch, best)
    true = paddle.take_along_axis(probabilities, labels.unsqueeze(-1), axis=-1)  # (batch, 1)
    arrived = read_later(labels, true, classes, scores)

    def records() -> list[bytes]:
        label_values, true_scores, best, best_scores = arrived()
        rows = np.zeros(len(label_values), RECORD)
        rows["classes"] = -1
        rows["label"], rows["true"] = label_values, true_scores[:, 0]
        rows["classes"][:, : best.shape[1]] = best
        rows["scores"][:, : best_scores.shape[1]] = best_scores
        return [row.tobytes() for row in rows]

    return records


def join_records(records: Sequence[tuple[int, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Join records to arrays: indices int64 (samples,), and records, ``RECORD`` (samples,)."""
    indices = np.array([index for index, _ in records], np.int64)
    return indices, np.frombuffer(b"".join(content for _, content in records), RECORD)
