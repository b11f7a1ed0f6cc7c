"""Score samples that have one class each, images or shapes; common parts of the tasks that do so.

Rows of predictions hold the most probable classes. The figures of a report get a record of each sample (48 bytes).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..registry.required_methods import missing_method
from ..runtime.transfers import read_later
from ..tasks.class_names import name_outputs
from ..tasks.loss_checks import call_losses
from ..tasks.metrics import TableMetrics
from ..tasks.prediction import CheckpointMeta
from ..tasks.step_types import EvaluationStep, LossTerm
from ..tasks.task import Records, Task
from .classification_scores import BEST, list_tops

#: the true class and its score (a probability), and the best classes with their scores; -1 and 0 if there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


class ClassificationMetrics(TableMetrics):
    """Collect the true class, its place, the loss and the best class of each sample, and count classes.

    Args:
        num_classes: number of classes; top-5 is reported from six up.
        class_names: of all classes or of the first ones; None uses their numbers.
        kind: registered name of the scores, derived from ``ClassificationScores``.

    Attributes:
        state: "of classes", int64 (2, classes): correct samples and all samples of each class.
    """

    def __init__(self, num_classes: int, class_names: Sequence[str] | None = None, kind: str = "classes") -> None:
        names = name_outputs(class_names, num_classes)
        self.num_classes = num_classes
        super().__init__(kind, names, {"top": np.array(list_tops(num_classes), np.int32)})
        self.state["of classes"] = paddle.zeros([2, num_classes], dtype="int64")

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Add a batch: logits, float (batch, classes), and labels, int64 (batch,)."""
        logits = logits.astype("float32")
        losses = F.cross_entropy(logits, labels, reduction="none")  # (batch, 1) or (batch,)
        # The rank of the true label: classes of higher score, and earlier ones of equal score, so that ties count once.
        true_score = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)  # (batch, 1)
        earlier = paddle.arange(logits.shape[1]) < labels.unsqueeze(1)  # (batch, classes)
        ahead = (logits > true_score) | ((logits == true_score) & earlier)
        position = ahead.astype("int64").sum(axis=1)  # (batch,)
        # A NaN score compares as false with everything and must not count as correct.
        finite = (logits - logits == 0).all(axis=1)  # ``isfinite`` would wait for a GPU
        place = paddle.where(finite, position, paddle.full_like(position, self.num_classes))  # (batch,)
        best = paddle.where(finite, logits.argmax(axis=1), paddle.full_like(position, -1))  # (batch,)
        self.add_batch(
            labels=labels.astype("int32"),
            places=place.astype("int32"),
            losses=losses.reshape([-1]),
            predictions=best.astype("int32"),
            confidences=F.softmax(logits).max(axis=1),
        )
        membership = (labels.unsqueeze(1) == paddle.arange(self.num_classes)).astype("int64")  # (batch, classes)
        is_right = (place < 1).astype("int64").unsqueeze(1)  # (batch, 1)
        counted = paddle.stack([(membership * is_right).sum(axis=0), membership.sum(axis=0)])
        self.state["of classes"] = self.state["of classes"] + counted


def require_num_classes(number: int | None) -> int:
    """Return the number of a model's classes, which the configuration, the data or the weights have set."""
    if number is None:
        raise ValueError("the number of classes is not known: open a dataset, or load metadata of trained weights")
    return number


class ClassifierTask(Task):
    """Evaluate samples of one class each; a batch has "labels", int64 (batch,)."""

    best_metric: tuple[str, bool] = ("top-1", True)  # mypy reads this file after some that derive from it

    num_classes: int | None
    class_names: Sequence[str] | None
    evaluated_classes: Sequence[str] | None  # names of the outputs, or of the first ones, if they are known

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute the logits of a batch: (batch, classes)."""
        raise NotImplementedError

    def eval_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: EvaluationStep
    ) -> Records | None:
        """Add a batch to the metrics, and return its records if the step keeps them."""
        logits = self.logits(model, batch)
        step.metrics.update(logits, batch["labels"])
        if isinstance(step.metrics, TableMetrics) and step.metrics.expects_loss:
            step.metrics.add_own_loss(self._sum_own_loss(logits.astype("float32"), batch))
        return self._record(logits, batch["labels"]) if step.keeps_records else None

    def losses(self, outputs: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Return the loss of each sample, float (batch,), of a task with another loss; by default, there is none.

        An evaluation reports the mean as the loss. In training, mixup and cutmix of images call it for the labels of
        both, and weight its results by their shares.

        Args:
            outputs: logits, float32 (batch, classes).
            batch: tensors by name, such as "labels", int64 (batch,), the classes of the samples.
        """
        raise missing_method(type(self), "losses")

    def _sum_own_loss(self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> LossTerm:
        """Sum a user's loss of a batch whose samples are not mixed; logits are float32."""
        losses = call_losses(self, logits, batch, logits.shape[:1])
        return LossTerm(losses.sum(), logits.shape[0])

    def _record(self, logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
        """Return a function that returns the records of a batch."""
        return record_later(logits, labels)

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take the number and the names of the classes from a checkpoint."""
        self.num_classes, self.class_names = meta.num_classes, meta.class_names


def record_later(logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
    """Return a function that returns a record, bytes, for each sample of a batch.

    Nothing waits for the device before the function is called. It only holds data of the size of the records. Logits
    are (batch, classes), labels int64 (batch,).
    """
    probabilities = F.softmax(logits.astype("float32"))
    scores, classes = paddle.topk(probabilities, min(BEST, probabilities.shape[1]))  # (batch, best)
    true = paddle.take_along_axis(probabilities, labels.unsqueeze(1), axis=1)  # (batch, 1)
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
