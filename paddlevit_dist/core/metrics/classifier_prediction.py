"""Prediction of classifiers: the probability of each class, and rows of the best classes."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle

from ..tasks.aspects import TaskAspect
from ..tasks.prediction import ArrayMakers, InputSamples, Row
from ..tasks.protocols import EnsembleMember, Ensembling
from ..tasks.sample_checks import BadSample
from .classification import ClassifierTask
from .classification_scores import BEST

_DIGITS = 7  # of a score; float32 has no more


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Compute the softmax of float32 (batch, classes) in float64, in which different logits never become equal."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    shares = np.exp(shifted)
    return shares / shares.sum(axis=1, keepdims=True)


def best_classes(shares: np.ndarray, class_names: Sequence[str] | None) -> Row:
    """Return a row of the most probable classes, at most five: ``class, score, class_2, score_2, ...``.

    The first of equally probable classes comes first, as in an evaluation. ``shares`` are probabilities, float64
    (classes,); ``class_names`` are of all classes or of the first ones, others get their number. Raises BadSample: the
    probabilities are not finite.
    """
    if not np.isfinite(shares).all():
        raise BadSample("the model's outputs for it are not finite")
    names = class_names or ()
    row: Row = {}
    for place, label in enumerate(np.argsort(-shares, kind="stable")[:BEST].tolist()):
        ending = f"_{place + 1}" if place else ""
        row[f"class{ending}"] = names[label] if label < len(names) else str(label)
        row[f"score{ending}"] = float(f"{shares[label]:.{_DIGITS}g}")
    return row


class ClassifierPrediction(TaskAspect, Ensembling):
    """Predicts the probability of each class, with one or several classifiers."""

    task: ClassifierTask

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor]) -> list[np.ndarray]:
        """Compute the probability of each class, float64 (classes,), for each sample."""
        return list(_compute_probabilities(self.task, model, batch))

    def predict_mean(self, members: Iterable[EnsembleMember], batch: dict[str, paddle.Tensor]) -> list[np.ndarray]:
        """Compute the mean over the models of the probability of each class, float64 (classes,), for each sample."""
        return list(np.mean([_compute_probabilities(task, model, dict(batch)) for task, model in members], axis=0))

    def prediction_rows(self, prediction: np.ndarray) -> list[Row]:
        """Return the row of a sample: its best classes."""
        return [best_classes(prediction, self.task.class_names)]

    def prediction_arrays(self, index: int, prediction: np.ndarray, samples: InputSamples) -> ArrayMakers:
        """Return the probability of each class."""
        return {"probabilities": partial(np.array, prediction)}


def _compute_probabilities(task: ClassifierTask, model: paddle.nn.Layer, batch: dict[str, Any]) -> np.ndarray:
    return probabilities(task.logits(model, batch).astype("float32").numpy())
