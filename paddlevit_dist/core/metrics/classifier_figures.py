"""Figures of a classifier's evaluation, of images or shapes: what it confuses, how sure it is, and its mistakes."""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..intervals import class_shares, nanmean, quotient
from ..tasks.class_names import name_outputs
from ..tasks.figures import (
    Chart,
    ConfusionMatrix,
    Figure,
    FigureTable,
    FilledCells,
    Gallery,
    count_cells,
    find_confused,
    find_most_confused,
)
from .counts import count_statistics
from .tables import percent

_BINS = 15  # of confidence, as in Guo et al.
_MOST_PAIRS = 40
_SHOWN = 12  # samples of a gallery


class EvaluatedPredictions:
    """A classifier's predictions for all samples, with the scores of the true and of the best classes.

    Args:
        indices: int64 (samples,), in the dataset.
        rows: ``classifier.RECORD`` (samples,).
        num_classes: outputs of the model.
        names: of its classes; None shows their numbers.
        sample_name: what samples are called, such as "images".
    """

    def __init__(
        self,
        indices: np.ndarray,
        rows: np.ndarray,
        num_classes: int,
        names: Sequence[Any] | None = None,
        sample_name: str = "images",
    ) -> None:
        # Samples with NaN scores count as wrong, with confidence 0.
        self.sample_name = sample_name
        self.indices = indices
        self.labels = rows["label"].astype(np.int64)
        self.true_scores = np.nan_to_num(rows["true"].astype(np.float64), nan=0.0)
        self.best_classes = rows["classes"].astype(np.int64)  # (samples, best)
        self.best_scores = np.nan_to_num(rows["scores"].astype(np.float64), nan=0.0)
        self.predicted = np.clip(self.best_classes[:, 0], 0, num_classes - 1)
        self.confidence = self.best_scores[:, 0]
        self.is_right = (self.predicted == self.labels) & np.isfinite(rows["scores"][:, 0])
        self.num_classes = num_classes
        self.names = name_outputs(names, num_classes)

    def caption(self, row: int, description: str) -> str:
        """Describe the sample in this row: its true and predicted class with their scores, and where it comes from."""
        label, best = self.labels[row], self.predicted[row]
        lines = [f"{self.names[label]} ({self.true_scores[row]:.1%})"]
        if best != label:
            lines = [f"true: {lines[0]}", f"predicted: {self.names[best]} ({self.confidence[row]:.1%})"]
        return "\n".join([*lines, description])


def tables(evaluated: EvaluatedPredictions) -> list[Figure]:
    """Return the figures of confusion, of the scores of each class, and of calibration."""
    cells = count_cells(evaluated.labels, evaluated.predicted, evaluated.num_classes)
    wrong = find_confused(cells)
    return [
        ConfusionMatrix("Confusion", evaluated.names, cells, _accuracy_note(evaluated)),
        *_pairs(wrong, evaluated),
        _classes(wrong, evaluated),
        *calibration(evaluated.confidence, evaluated.is_right, evaluated.sample_name),
    ]


def _accuracy_note(evaluated: EvaluatedPredictions) -> str:
    total, right = len(evaluated.labels), int(evaluated.is_right.sum())
    right_of_class = np.bincount(evaluated.labels, evaluated.is_right, evaluated.num_classes)
    macro = float(nanmean(quotient(right_of_class, _count_labels(evaluated)))) if total else 0.0
    text = f"{right:,} of {total:,} {evaluated.sample_name} ({right / max(total, 1):.2%}) are classified correctly"
    return f"{text}; the average over classes is {macro:.2%} (macro accuracy)."


def _count_labels(evaluated: EvaluatedPredictions) -> np.ndarray:
    """Return the number of samples of each class, int64 (classes,)."""
    return np.bincount(evaluated.labels, minlength=evaluated.num_classes)


def _pairs(wrong: FilledCells, evaluated: EvaluatedPredictions) -> list[Figure]:
    """Return the table of the most frequent confusions."""
    names, numbers = evaluated.names, _count_labels(evaluated)
    counts = dict(zip(zip(wrong.rows.tolist(), wrong.columns.tolist()), wrong.counts.tolist()))
    rows = []
    for (label, predicted), number in islice(counts.items(), _MOST_PAIRS):
        share = 100 * number / int(numbers[label])
        rows.append((names[label], names[predicted], number, share, counts.get((predicted, label), 0)))
    if all(row[2] == 1 for row in rows):
        return []  # none is more frequent than others
    columns = ("true class", "taken for", evaluated.sample_name, "% of the class", "the other way round")
    note = f"The {_MOST_PAIRS} most frequent." if len(counts) > _MOST_PAIRS else ""
    return [FigureTable("Most confused", columns, rows, note)]


def _classes(wrong: FilledCells, evaluated: EvaluatedPredictions) -> Figure:
    statistics = count_statistics(evaluated.labels, evaluated.predicted, evaluated.num_classes)
    shares, (_, numbers, predicted) = class_shares(statistics), statistics.tolist()
    others, rows = find_most_confused(wrong), []
    for label, name in enumerate(evaluated.names):
        other = evaluated.names[others[label]] if label in others else None
        scores = (percent(shares[score][label]) for score in ("recall", "precision", "Dice"))  # Dice of samples is F1
        rows.append((name, *scores, other, numbers[label], predicted[label]))
    columns = ("class", "recall %", "precision %", "F1 %", "most often taken for", evaluated.sample_name, "predicted")
    return FigureTable("Classes", columns, rows)


def calibration(confidence: np.ndarray, is_right: np.ndarray, sample_name: str = "images") -> list[Figure]:
    """Return a reliability diagram, with the expected calibration error, and a histogram of confidences.

    A model is calibrated if 80 of 100 predictions with 80 % confidence are right. The 15 bins have equal widths.
    Source: Guo et al., On Calibration of Modern Neural Networks, 2017, section 2, equations 2, 3 and 5. ``confidence``:
    float (samples,), the probability of the predicted class; ``is_right``: bool (samples,).
    """
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)
    numbers = np.bincount(bins, minlength=_BINS)
    sums = np.bincount(bins, weights=confidence, minlength=_BINS)
    hits = np.bincount(bins, weights=is_right, minlength=_BINS)
    filled = np.flatnonzero(numbers)
    error = float(np.abs(hits - sums).sum() / max(len(confidence), 1))
    mean, accuracy = sums[filled] / numbers[filled], hits[filled] / numbers[filled]
    over = "surer than it should be" if sums.sum() > hits.sum() else "less sure than it could be"
    centers = (np.arange(_BINS) + 0.5) / _BINS
    return [
        Chart(
            "Calibration",
            "confidence",
            "share that is right",
            {"this model": (mean, accuracy), "perfect": ((0.0, 1.0), (0.0, 1.0))},
            note=f"Expected calibration error {100 * error:.2f} %; overall the model is {over}.",
        ),
        Chart("Confidence", "confidence", sample_name, {sample_name: (centers, numbers)}, kind="bar"),
    ]


def galleries(
    evaluated: EvaluatedPredictions, read_image: Callable[[int], np.ndarray | None], describe: Callable[[int], str]
) -> list[Figure]:
    """Return galleries of the most confident mistakes and of the samples with the least probable true class.

    Args:
        evaluated: the predictions.
        read_image: returns the image of a sample by its index, uint8 (height, width[, 3]); None if it cannot be read.
        describe: returns where a sample comes from, by its index.
    """
    mistakes = most_confident_mistakes(evaluated)
    others = np.setdiff1d(np.arange(len(evaluated.labels)), mistakes)
    hardest = others[np.argsort(evaluated.true_scores[others], kind="stable")][:_SHOWN]
    mistakes_text = "Wrong, by how sure the model is of them."
    hardest_text = "Of the others, right or wrong, those whose true class the model believes in least."
    figures: list[Figure] = []
    for title, text, rows in (
        ("Most confident mistakes", mistakes_text, mistakes),
        (f"Hardest {evaluated.sample_name}", hardest_text, hardest),
    ):
        indices = evaluated.indices[rows].tolist()
        read = [(read_image(index), evaluated.caption(row, describe(index))) for row, index in zip(rows, indices)]
        images = [(pixels, caption) for pixels, caption in read if pixels is not None]
        if images:
            figures.append(Gallery(title, images, f"{text} As the model sees them, with its scores in brackets."))
    return figures


def most_confident_mistakes(evaluated: EvaluatedPredictions) -> np.ndarray:
    """Return the rows of the most confident mistakes, int64."""
    wrong = np.flatnonzero(~evaluated.is_right)
    return wrong[np.argsort(-evaluated.confidence[wrong], kind="stable")][:_SHOWN]
