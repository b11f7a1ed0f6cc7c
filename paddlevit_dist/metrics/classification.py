"""Score samples that have one class each, images or shapes; common parts of the tasks that do so.

Scores are sums and counts. Rows of predictions hold the most probable classes. The figures of a report get a record of
each sample (48 bytes).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..intervals import ClassificationCounts, means
from ..runtime.transfers import read_later
from ..tasks.metrics import PerSampleMetrics, SampleTable
from ..tasks.prediction import CheckpointMeta
from ..tasks.step_types import EvaluationStep
from ..tasks.task import Records, Task

_FEWEST_CLASSES_OF_TOP5 = 6  # the best five of five classes are all of them
BEST = 5  # classes with the largest scores

#: the true class and its score (a probability), and the best classes with their scores; -1 and 0 if there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


class ClassificationMetrics(PerSampleMetrics):
    """Count correct labels among the best 1 and 5, by class for the best 1, and sum the cross-entropy.

    Args:
        num_classes: number of classes; top-5 is reported from six up.
        class_names: of all classes or of the first ones; None uses their numbers.
    """

    lists = ("_rows",)

    def __init__(self, num_classes: int, class_names: Sequence[str] | None = None) -> None:
        super().__init__()
        self.num_classes = num_classes
        names = list(class_names or ())[:num_classes]
        self.class_names = [*names, *map(str, range(len(names), num_classes))]
        self._rows: list[Callable[[], list[np.ndarray]]] = []  # the columns of ``per_sample``, of each batch
        self.has_top5 = num_classes >= _FEWEST_CLASSES_OF_TOP5
        self.state |= {
            "correct": paddle.zeros([3], dtype="int64"),  # top-1, top-5, all
            "of classes": paddle.zeros([2, num_classes], dtype="int64"),  # top-1, all
            "loss": paddle.zeros([], dtype="float64"),
        }

    def update(self, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Add a batch: logits, float (batch, classes), and labels, int64 (batch,)."""
        logits = logits.astype("float32")
        losses = F.cross_entropy(logits, labels, reduction="none")  # (batch, 1) or (batch,)
        self.state["loss"] = self.state["loss"] + losses.astype("float64").sum()
        # The rank of the true label: classes of higher score, and earlier ones of equal score, so that ties count once.
        true_score = paddle.take_along_axis(logits, labels.unsqueeze(1), axis=1)  # (batch, 1)
        earlier = paddle.arange(logits.shape[1]) < labels.unsqueeze(1)  # (batch, classes)
        ahead = (logits > true_score) | ((logits == true_score) & earlier)
        position = ahead.astype("int64").sum(axis=1)  # (batch,)
        # A NaN score compares as false with everything and must not count as correct.
        finite = (logits - logits == 0).all(axis=1)  # ``isfinite`` would wait for a GPU
        place = paddle.where(finite, position, paddle.full_like(position, self.num_classes))  # (batch,)
        best = paddle.where(finite, logits.argmax(axis=1), paddle.full_like(position, -1))  # (batch,)
        confidence = F.softmax(logits).max(axis=1)  # (batch,)
        self._rows.append(read_later(labels, place, losses, best, confidence))
        hits = [((position < k) & finite).astype("int64").sum() for k in (1, 5)]
        total = paddle.full([], labels.shape[0], dtype="int64")
        self.state["correct"] = self.state["correct"] + paddle.stack([*hits, total])
        membership = (labels.unsqueeze(1) == paddle.arange(self.num_classes)).astype("int64")  # (batch, classes)
        is_right = ((position < 1) & finite).astype("int64").unsqueeze(1)  # (batch, 1)
        counted = paddle.stack([(membership * is_right).sum(axis=0), membership.sum(axis=0)])
        self.state["of classes"] = self.state["of classes"] + counted

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute accuracies in percent, their counts and the mean loss from a state summed over all ranks."""
        top1, top5, total = state["correct"].numpy().tolist()
        values = {"top-1": 100.0 * top1 / total, "top-5": 100.0 * top5 / total, "loss": state["loss"].item() / total}
        right, number = state["of classes"].numpy()
        values["balanced accuracy"] = 100.0 * float((right[number > 0] / number[number > 0]).mean())
        values.update({"top-1 count": top1, "top-5 count": top5, "samples": total})
        return {name: value for name, value in values.items() if self.has_top5 or not name.startswith("top-5")}

    def per_sample(self) -> list[np.ndarray]:
        """Return the columns that intervals and tables need, (samples,) each: 20 bytes of a sample.

        They are the label (int32), the place of the true class from 0 (int32), the loss (float32), the best class
        (int32, -1 where scores are not finite) and its probability (float32).
        """
        batches = [[column.ravel() for column in read()] for read in self._rows]
        dtypes = (np.int32, np.int32, np.float32, np.int32, np.float32)
        return [np.concatenate([np.array([], d), *(b[k] for b in batches)]).astype(d) for k, d in enumerate(dtypes)]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Recompute accuracies, recalls and mean loss for each draw, from ``per_sample``; weights (draws, samples)."""
        return {**self._classify(table)(weights), **means({"loss": table[2]})(weights)}

    def proportions(self, table: Sequence[np.ndarray]) -> dict[str, int]:
        """Return the number of samples of each proportion."""
        return self._classify(table).rates()

    def _classify(self, table: Sequence[np.ndarray]) -> ClassificationCounts:
        top = (1, BEST) if self.has_top5 else (1,)
        return ClassificationCounts(table[0], table[1], self.num_classes, self.class_names, top)

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Name the columns for a file that ``compare`` reads."""
        top = np.array((1, BEST) if self.has_top5 else (1,), np.int32)
        names = ("labels", "places", "losses", "predictions")
        return SampleTable("classes", self.class_names, {**dict(zip(names, table)), "top": top})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Return the columns of a readable table of samples.

        They are the names of the true and of the best class, whether these are equal, the probability of the best
        class, the place of the true class from 1, and the loss.
        """
        labels, places, losses, best, confidences = table
        is_known = best >= 0
        return {
            "truth": [self.class_names[label] for label in labels.tolist()],
            "prediction": [self.class_names[label] if label >= 0 else None for label in best.tolist()],
            "correct": places == 0,
            "confidence": np.where(is_known, confidences, np.nan),
            "rank": [place + 1 if known else None for place, known in zip(places.tolist(), is_known)],
            "loss": losses,
        }

    def summary(self, values: dict[str, float]) -> str:
        """Format the line that an evaluation ends with."""
        top5 = f" top-5 {values['top-5']:.2f}" if self.has_top5 else ""
        return f"top-1 {values['top-1']:.2f}{self.format_interval('top-1', 1)}{top5} loss {values['loss']:.4f}"


def require_num_classes(number: int | None) -> int:
    """Return the number of a model's classes, which the configuration, the data or the weights have set."""
    if number is None:
        raise ValueError("the number of classes is not known: open a dataset, or load metadata of trained weights")
    return number


class ClassifierTask(Task):
    """Evaluate samples of one class each; a batch has "labels", int64 (batch,)."""

    best_metric = ("top-1", True)

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
        return record_later(logits, batch["labels"]) if step.keeps_records else None

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
