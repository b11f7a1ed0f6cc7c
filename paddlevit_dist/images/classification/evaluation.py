"""How a classifier is scored: top-1, top-5 and loss as sums and counts; and what its figures need to know of each
picture, 48 bytes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.dataset import Samples
from ...contracts.figures import Figure
from ...contracts.task import EvaluationStep, Kept, Metrics, Records, TaskEvaluation
from ...intervals import Classified, means
from ...runtime.transfers import read_later
from ..transforms.on_device import Normaliser
from .classifier_figures import Evaluated, report_figures
from .rollout import rolled_out

_FEWEST_CLASSES_OF_TOP5 = 6  # the best five of five classes are all of them
BEST = 5  # classes with the largest scores

#: the true class and its score (a probability), and the best classes with theirs; -1 and 0 where there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


class ClassifierEvaluation(TaskEvaluation):
    """The scores of a classifier and its figures."""

    best_metric = ("top-1", True)
    makes_figures = True

    normaliser: Normaliser
    num_classes: int | None
    evaluated_classes: Sequence[str] | None = None  # their names, where the data know them

    def build_metrics(self) -> "ClassificationMetrics":
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


class ClassificationMetrics(Metrics):
    """Counts of correct labels among the best 1 and 5, and the summed cross-entropy.

    Args:
        num_classes: number of classes; top-5 is reported from six up.
        class_names: of all classes or of the first; None: they are called by their numbers.
    """

    def __init__(self, num_classes: int, class_names: Sequence[str] | None = None) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.shares = ("top-1", f"top-{BEST}")
        names = list(class_names or ())[:num_classes]
        self.class_names = [*names, *map(str, range(len(names), num_classes))]
        self._rows: list[Callable[[], list[np.ndarray]]] = []  # the columns of ``per_sample``, of each batch
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
        place = paddle.where(finite, position, paddle.full_like(position, self.num_classes))  # (batch,)
        best = paddle.where(finite, logits.argmax(axis=-1), paddle.full_like(position, -1))  # (batch,)
        confidence = F.softmax(logits, axis=-1).max(axis=-1)  # (batch,)
        self._rows.append(read_later(labels, place, losses, best, confidence))
        hits = [((position < k) & finite).astype("int64").sum() for k in (1, 5)]
        total = paddle.full([], labels.shape[0], dtype="int64")
        self.state["correct"] = self.state["correct"] + paddle.stack([*hits, total])

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        top1, top5, total = state["correct"].numpy().tolist()
        values = {"top-1": 100.0 * top1 / total, "top-5": 100.0 * top5 / total, "loss": state["loss"].item() / total}
        values.update({"top-1 count": top1, "top-5 count": top5, "samples": total})
        return {name: value for name, value in values.items() if self.has_top5 or not name.startswith("top-5")}

    def per_sample(self) -> list[np.ndarray]:
        """Label and place int32, loss float32, best class int32 (-1 where scores are not finite) and its probability
        float32, each (pictures,): 20 bytes of a picture."""
        batches = [[column.reshape(-1) for column in read()] for read in self._rows]
        dtypes = (np.int32, np.int32, np.float32, np.int32, np.float32)
        return [np.concatenate([np.zeros(0, d), *(b[k] for b in batches)]).astype(d) for k, d in enumerate(dtypes)]

    def resampled(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        labels, places, losses, *_ = table
        top = (1, BEST) if self.has_top5 else (1,)
        values = Classified(labels, places, self.num_classes, self.class_names, top)(weights)
        return {**values, **means({"loss": losses})(weights)}

    def kept(self, table: Sequence[np.ndarray]) -> Kept:
        top = np.array((1, BEST) if self.has_top5 else (1,), np.int32)
        names = ("labels", "places", "losses", "predictions")
        return Kept("classes", self.class_names, {**dict(zip(names, table)), "top": top})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Names of the true and of the best class, whether they are one, probability of the best, place of the true
        class from 1, and the loss."""
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
        top5 = f" top-5 {values['top-5']:.2f}" if self.has_top5 else ""
        return f"top-1 {values['top-1']:.2f}{self.beside('top-1', 1)}{top5} loss {values['loss']:.4f}"


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
