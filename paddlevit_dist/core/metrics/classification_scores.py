"""Scores of classified samples, which have one class each. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals import ClassificationCounts, ScoreRange, means
from ..intervals.score_ranges import ERROR_RANGE, PERCENT_RANGE
from ..tasks.score_kind import (
    CROSS_ENTROPY,
    LOSS,
    Arrays,
    FormatInterval,
    ScoreKind,
    are_below,
    format_losses,
    name_loss,
)

BEST = 5  # classes with the largest scores


def list_tops(num_classes: int) -> tuple[int, ...]:
    """Return the k of top-k accuracy: the best five of five classes are all of them."""
    return (1, BEST) if num_classes > BEST else (1,)


class ClassificationScores(ScoreKind):
    """Accuracies, recalls and the mean cross-entropy of samples that have one class each.

    Arrays have a row for each sample: "labels", int; "places", int, the number of classes ranked above the true one;
    "losses", float, NaN if unknown; "predictions", int, the best class, -1 for none; "confidences", float, its
    probability. Results of other programs and of former versions lack the last one. "top" are the k of top-k accuracy.
    """

    class_score = "recall {}"
    is_ranking = False
    decimals = 2
    right_rate = "top-1"
    settings = ("top",)
    class_means = {"balanced accuracy": "recall {}"}
    logs_classes = False
    has_cross_entropy = True

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute accuracies and recalls in percent, and the mean loss."""
        labels, places, top = arrays["labels"], arrays["places"], arrays["top"].tolist()
        values = ClassificationCounts(labels, places, len(self.classes), self.classes, top)(weights)
        loss = means({"loss": arrays["losses"]})(weights)["loss"]
        if "predictions" in arrays:  # -1: scores that are not finite have an infinite loss, which ends a training run
            loss = np.where(weights @ (arrays["predictions"] < 0) > 0, np.inf, loss)
        accuracies = {f"top-{k}": values.pop(f"top-{k}") for k in top}
        return {**accuracies, name_loss(arrays): loss, **values}

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of the loss and of the mean recall."""
        return {**dict.fromkeys((LOSS, CROSS_ENTROPY), ERROR_RANGE), "balanced accuracy": PERCENT_RANGE}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the samples that are right among the best k, and all samples."""
        right = {f"top-{k} count": int((arrays["places"] < k).sum()) for k in arrays["top"].tolist()}
        return {**right, "samples": len(arrays["labels"])}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with."""
        top5 = f" top-5 {values['top-5']:.2f}" if "top-5" in values else ""
        return f"top-1 {values['top-1']:.2f}{format_interval('top-1', 1)}{top5} {format_losses(values)}"

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the names of the true and of the best class, whether they are equal, and the score of the best class.

        The rank of the true class is from 1. Last is the cross-entropy.
        """
        places, best = arrays["places"], arrays["predictions"]
        is_known = best >= 0
        return {
            "truth": [self.classes[label] for label in arrays["labels"].tolist()],
            "prediction": [self.classes[label] if label >= 0 else None for label in best.tolist()],
            "correct": places == 0,
            "confidence": np.where(is_known, arrays["confidences"], np.nan),
            "rank": [place + 1 if known else None for place, known in zip(places.tolist(), is_known)],
            name_loss(arrays): arrays["losses"],
        }

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there is a label, a place and a loss for each sample."""
        columns = [arrays[name] for name in ("labels", "places", "losses")]
        predictions = arrays.get("predictions", arrays["labels"])  # results of other programs have none
        has_shapes = all(column.shape == (samples,) for column in [*columns, predictions])
        return has_shapes and are_below(arrays["labels"], classes) and are_below(predictions + 1, classes + 1)

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the class of each sample."""
        return arrays["labels"]

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        """Return which samples are right among the best k, and which of each class."""
        places, labels = arrays["places"], arrays["labels"]
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(1, len(classes) + 1))
        is_right = np.split(places[order] == 0, ends)  # of each class, in the order of the samples
        recalls = {f"recall {name}": hits for name, hits in zip(classes, is_right)}
        return {**{f"top-{k}": places < k for k in arrays["top"].tolist()}, **recalls}

    def predictions(self, arrays: Arrays) -> np.ndarray | None:
        """Return the best class of each sample."""
        return arrays.get("predictions")
