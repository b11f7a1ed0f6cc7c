"""Scores of classified samples, which have one class each. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals import ClassificationCounts, ScoreRange, means, nanmean, quotient
from ..intervals.score_ranges import ERROR_RANGE, PERCENT_RANGE, SHARE_RANGE
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
_SPECIFICITY = 0.95
SENSITIVITY = f"sensitivity at {100 * _SPECIFICITY:.0f} % specificity"


def list_tops(num_classes: int) -> tuple[int, ...]:
    """Return the k of top-k accuracy: the best five of five classes are all of them."""
    return (1, BEST) if num_classes > BEST else (1,)


def compute_binary(is_positive: np.ndarray, shares: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Compute what shares, float (samples,), say of two classes, for each draw of ``weights``.

    Returns:
        The area under the ROC curve, where equal shares count half; the highest sensitivity, in percent, of a
        threshold with a specificity of 95 % or more; and the Brier score, the mean squared error of the shares.
    """
    order = np.argsort(-shares, kind="stable")
    is_last = np.append(np.diff(shares[order]) != 0, True)  # of equal shares
    above = [np.cumsum(weights[:, order] * part[order], axis=1)[:, is_last] for part in (is_positive, ~is_positive)]
    found, false = (quotient(part, np.repeat(part[:, -1:], part.shape[1], axis=1)) for part in above)
    before = np.pad(found, ((0, 0), (1, 0)))[:, :-1]
    area = ((found + before) / 2 * np.diff(false, axis=1, prepend=0.0)).sum(axis=1)
    sensitivity = np.where(false <= 1 - _SPECIFICITY + 1e-12, found, 0.0).max(axis=1)
    is_defined = np.isfinite(area)
    return {
        "AUC": area,
        SENSITIVITY: np.where(is_defined, 100.0 * sensitivity, np.nan),
        "Brier score": weights @ (shares - is_positive) ** 2 / weights.sum(axis=1),
    }


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
    directions = {"Brier score": "lower"}
    logs_classes = False
    has_cross_entropy = True

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute accuracies and recalls in percent, and the mean loss."""
        labels, places, top = arrays["labels"], arrays["places"], arrays["top"].tolist()
        values = ClassificationCounts(labels, places, len(self.classes), self.classes, top)(weights)
        loss = means({"loss": arrays["losses"]})(weights)["loss"]
        if "predictions" in arrays:  # -1: scores that are not finite have an infinite loss, which ends a training run
            is_odd = arrays["predictions"] < 0
            if not (np.isnan(arrays["losses"]) & ~is_odd).any():  # else losses are not known
                loss = np.where(weights @ is_odd > 0, np.inf, loss)
            values |= self._compute_agreement(labels, arrays["predictions"], weights)
        if len(self.classes) == 2 and np.isfinite(arrays["losses"]).all():
            # the probability of the true class; losses of older tables may be other ones
            of_true = np.exp(np.minimum(-arrays["losses"].astype(np.float64), 0.0))
            of_second = np.round(np.where(labels == 1, of_true, 1 - of_true), 6)  # losses have seven digits
            values |= compute_binary(labels == 1, of_second, weights)
        accuracies = {f"top-{k}": values.pop(f"top-{k}") for k in top}
        return {**accuracies, name_loss(arrays): loss, **values}

    def _compute_agreement(self, labels: np.ndarray, found: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the mean precision in percent, Matthews' correlation coefficient and Cohen's kappa of each draw.

        The mean is of classes that are predicted. Two classes have their own precisions, too. Sources: J. Gorodkin,
        "Comparing two K-category assignments by a K-category correlation coefficient", Computational Biology and
        Chemistry 28, 2004; J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological
        Measurement 20, 1960.
        """
        size, number, is_right = len(self.classes), weights.sum(axis=1), labels == found
        # (draws, classes): of the class, predicted as it, and both; predictions of no class are from -1
        true, taken, right = (
            np.stack([np.bincount(places + 1, draw, size + 1)[1:] for draw in weights])
            for places in (labels, found, np.where(is_right, labels, -1))
        )
        precisions, correct, alike = 100.0 * quotient(right, taken), right.sum(axis=1), (true * taken).sum(axis=1)
        spreads = (number**2 - (counts**2).sum(axis=1) for counts in (true, taken))
        return {
            "macro precision": nanmean(precisions),
            "MCC": quotient(correct * number - alike, np.sqrt(np.prod([*spreads], axis=0))),
            "kappa": quotient(correct * number - alike, number**2 - alike),
            **({f"precision {name}": column for name, column in zip(self.classes, precisions.T)} if size == 2 else {}),
        }

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of the loss and of the mean recall."""
        percents = ["balanced accuracy", "macro precision", SENSITIVITY, *(f"precision {name}" for name in classes)]
        ranges: dict[str, ScoreRange | None] = dict.fromkeys((LOSS, CROSS_ENTROPY), ERROR_RANGE)
        ranges |= dict.fromkeys(percents, PERCENT_RANGE)
        ranges |= dict.fromkeys(("MCC", "kappa"), (-1.0, 1.0)) | dict.fromkeys(("AUC", "Brier score"), SHARE_RANGE)
        return ranges

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
