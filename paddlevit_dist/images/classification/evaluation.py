"""How a classifier is scored, and what its figures need to know of each picture, 48 bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.dataset import Samples
from ...contracts.figures import Figure
from ...contracts.task import EvaluationStep, Records, TaskEvaluation
from ...labelling.classification import BEST, ClassificationMetrics
from ...runtime.transfers import read_later
from ..transforms.on_device import Normaliser
from .classifier_figures import Evaluated, report_figures
from .rollout import rolled_out

#: the true class and its score (a probability), and the best classes with theirs; -1 and 0 where there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


class ClassifierEvaluation(TaskEvaluation):
    """The scores of a classifier and its figures."""

    best_metric = ("top-1", True)
    makes_figures = True

    normaliser: Normaliser
    num_classes: int | None
    evaluated_classes: Sequence[str] | None = None  # their names, where the data know them

    def build_metrics(self) -> ClassificationMetrics:
        return ClassificationMetrics(self.num_classes, self.evaluated_classes)

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        logits = model(self.normaliser(batch["images"]))
        step.metrics.update(logits, batch["labels"])
        return record_later(logits, batch["labels"]) if step.keeps_records else None

    def figures(self, samples: Samples, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer) -> list[Figure]:
        evaluated = Evaluated(*joined(records), self.num_classes, samples.class_names)
        return report_figures(evaluated, samples, lambda images: rolled_out(model, self.normaliser(images)))


def record_later(logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
    """A function that gives a record, bytes, for each picture of a batch. Nothing waits for the device before it is
    called; what it holds until then is as small as the records.

    Args:
        logits: (batch, classes).
        labels: int64 (batch,).
    """
    probabilities = F.softmax(logits.astype("float32"), axis=-1)
    scores, classes = paddle.topk(probabilities, min(BEST, probabilities.shape[-1]), axis=-1)  # (batch, best)
    true = paddle.take_along_axis(probabilities, labels.unsqueeze(-1), axis=-1)  # (batch, 1)
    arrived = read_later(labels, true, classes, scores)

    def records() -> list[bytes]:
        of_labels, of_true, best, their_scores = arrived()
        rows = np.zeros(len(of_labels), RECORD)
        rows["classes"] = -1
        rows["label"], rows["true"] = of_labels, of_true[:, 0]
        rows["classes"][:, : best.shape[1]] = best
        rows["scores"][:, : their_scores.shape[1]] = their_scores
        return [row.tobytes() for row in rows]

    return records


def joined(records: Sequence[tuple[int, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Indices int64 (pictures,) and records, ``RECORD`` (pictures,)."""
    indices = np.array([index for index, _ in records], np.int64)
    return indices, np.frombuffer(b"".join(content for _, content in records), RECORD)
