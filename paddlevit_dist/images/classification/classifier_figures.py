"""Figures of a classifier's evaluation: what it confuses, how sure it is, which pictures it gets wrong."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ...contracts.dataset import Samples
from ...contracts.figures import Chart, Figure, Gallery, Matrix, Table
from ...runtime.errors import UserError
from .rollout import overlaid

_BINS = 15  # of confidence, as in Guo et al.
_MOST_PAIRS = 40
_SHOWN = 12  # pictures of a gallery
_LOOKED_AT = 8  # pictures whose attention is shown


class Evaluated:
    """What the model said of each picture.

    Args:
        indices: int64 (pictures,), in the dataset.
        rows: ``records.RECORD`` (pictures,).
        num_classes: outputs of the model.
        names: of its classes; None: their numbers are shown.
    """

    def __init__(
        self, indices: np.ndarray, rows: np.ndarray, num_classes: int, names: Sequence[Any] | None = None
    ) -> None:
        # A score that is not a number comes first in no order; such pictures count as wrong, with no confidence.
        self.indices = indices
        self.labels = rows["label"].astype(np.int64)
        self.true = np.nan_to_num(rows["true"].astype(np.float64), nan=0.0)
        self.classes = rows["classes"].astype(np.int64)  # (pictures, best)
        self.scores = np.nan_to_num(rows["scores"].astype(np.float64), nan=0.0)
        self.predicted = np.clip(self.classes[:, 0], 0, num_classes - 1)
        self.confidence = self.scores[:, 0]
        self.is_right = (self.predicted == self.labels) & np.isfinite(rows["scores"][:, 0])
        self.num_classes = num_classes
        given = list(names or ())[:num_classes]
        self.names = [*map(str, given), *map(str, range(len(given), num_classes))]

    def caption(self, place: int, description: str) -> str:
        """True and predicted classes with their scores, and where the picture comes from; ``place`` in the arrays."""
        label, best = self.labels[place], self.predicted[place]
        lines = [f"{self.names[label]} ({self.true[place]:.1%})"]
        if best != label:
            lines = [f"true: {lines[0]}", f"predicted: {self.names[best]} ({self.confidence[place]:.1%})"]
        return "\n".join([*lines, description])


def tables(evaluated: Evaluated) -> list[Figure]:
    """Confusion, scores of each class, and calibration."""
    size = evaluated.num_classes
    counts = np.bincount(evaluated.labels * size + evaluated.predicted, minlength=size * size).reshape(size, size)
    return [
        Matrix("Confusion", evaluated.names, counts, _hit_note(counts, evaluated)),
        *_pairs(counts, evaluated.names),
        _classes(counts, evaluated.names),
        *calibration(evaluated.confidence, evaluated.is_right),
    ]


def _hit_note(counts: np.ndarray, evaluated: Evaluated) -> str:
    total, right = len(evaluated.labels), int(evaluated.is_right.sum())
    numbers = counts.sum(axis=1)
    recalls = np.bincount(evaluated.labels, evaluated.is_right, evaluated.num_classes)[numbers > 0]
    macro = float((recalls / numbers[numbers > 0]).mean()) if total else 0.0
    said = f"{right:,} of {total:,} pictures ({right / max(total, 1):.2%}) are classified right"
    return f"{said}; of the classes, each counting alike, {macro:.2%} on average (macro accuracy)."


def _pairs(counts: np.ndarray, names: Sequence[str]) -> list[Figure]:
    """Which class is most often taken for which other."""
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_PAIRS]
    rows = []
    for label, predicted in zip(*np.unravel_index(order, wrong.shape)):
        number, back = int(wrong[label, predicted]), int(wrong[predicted, label])
        if number:
            share = 100 * number / counts[label].sum()
            rows.append((names[label], names[predicted], number, float(share), back))
    if not rows:
        return []
    columns = ("true class", "taken for", "pictures", "% of the class", "the other way round")
    note = f"The {_MOST_PAIRS} most frequent." if np.count_nonzero(wrong) > _MOST_PAIRS else ""
    return [Table("Most confused", columns, rows, note)]


def _classes(counts: np.ndarray, names: Sequence[str]) -> Figure:
    right, numbers, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    wrong = counts.copy()
    np.fill_diagonal(wrong, 0)
    rows = []
    for label, name in enumerate(names):
        recall = 100 * right[label] / numbers[label] if numbers[label] else None
        precision = 100 * right[label] / predicted[label] if predicted[label] else None
        both = int(numbers[label] + predicted[label])
        f1 = 200 * right[label] / both if both else None
        other = names[int(wrong[label].argmax())] if wrong[label].any() else None
        scores = (None if value is None else round(float(value), 2) for value in (recall, precision, f1))
        rows.append((name, int(numbers[label]), int(predicted[label]), *scores, other))
    columns = ("class", "pictures", "predicted", "recall %", "precision %", "F1 %", "most often taken for")
    return Table("Classes", columns, rows)


def calibration(confidence: np.ndarray, is_right: np.ndarray) -> list[Figure]:
    """Whether what is predicted with a confidence of 80 % is right in 80 of 100 cases: a reliability diagram, and the
    expected calibration error of 15 bins of equal width.

    Source: Guo et al., On Calibration of Modern Neural Networks, 2017, section 2, equations 2, 3 and 5.
    """
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)
    numbers = np.bincount(bins, minlength=_BINS)
    sums = np.bincount(bins, weights=confidence, minlength=_BINS)
    hits = np.bincount(bins, weights=is_right, minlength=_BINS)
    filled = np.flatnonzero(numbers)
    error = float(np.abs(hits - sums).sum() / max(len(confidence), 1))
    mean, accuracy = sums[filled] / numbers[filled], hits[filled] / numbers[filled]
    over = "surer than it should be" if sums.sum() > hits.sum() else "less sure than it could be"
    centres = (np.arange(_BINS) + 0.5) / _BINS
    return [
        Chart(
            "Calibration",
            "confidence",
            "share that is right",
            {"this model": (mean, accuracy), "perfect": ((0.0, 1.0), (0.0, 1.0))},
            note=f"Expected calibration error {100 * error:.2f} %; on the whole the model is {over}.",
        ),
        Chart("Confidence", "confidence", "pictures", {"pictures": (centres, numbers)}, kind="bar"),
    ]


def report_figures(
    evaluated: Evaluated, samples: Samples, look: Callable[[paddle.Tensor], np.ndarray | None]
) -> list[Figure]:
    """All figures, most telling first; without pictures that can no longer be read.

    Args:
        samples: what was evaluated.
        look: images uint8 (batch, channels, height, width) -> how much the model looks at each of their patches,
            (batch, rows, columns); None: that cannot be said of it.
    """

    @functools.cache
    def image_of(index: int) -> np.ndarray | None:
        try:
            return samples.sample(index, np.random.default_rng(0))[0]  # uint8 (channels, height, width)
        except (UserError, OSError):
            return None

    def read(places: np.ndarray) -> list[tuple[np.ndarray, str]]:
        """Images with captions."""
        indices = evaluated.indices[places].tolist()
        images = [(image_of(index), place, index) for place, index in zip(places.tolist(), indices)]
        return [
            (image, evaluated.caption(place, samples.describe(index)))
            for image, place, index in images
            if image is not None
        ]

    mistakes, hardest, looked_at = _chosen(evaluated)
    of_mistakes = "Wrong, by how sure the model is of them."
    of_hardest = "Of the other pictures, right or wrong, those whose true class the model believes in least."
    galleries: list[Figure] = []
    for title, said, places in (
        ("Most confident mistakes", of_mistakes, mistakes),
        ("Hardest pictures", of_hardest, hardest),
    ):
        pictures = [(_pixels(image), caption) for image, caption in read(places)]
        if pictures:
            galleries.append(Gallery(title, pictures, f"{said} As the model sees them, with its scores in brackets."))
    seen = read(looked_at)
    shares = look(paddle.to_tensor(np.stack([image for image, _ in seen]))) if seen else None
    attention: list[Figure] = []
    if shares is not None:
        pictures = [(overlaid(_pixels(image), share), caption) for (image, caption), share in zip(seen, shares)]
        note = "Brighter patches reach the classifier more (attention roll-out, Abnar and Zuidema 2020)."
        attention = [Gallery("What the model looks at", pictures, note)]
    return [*galleries, *tables(evaluated), *attention]


def _chosen(evaluated: Evaluated) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of the mistakes of which the model is most sure, of the other pictures whose true class it believes in
    least, and of some of both kinds to look at closely: the surest mistakes, and pictures evenly taken from those that
    are right."""
    wrong = np.flatnonzero(~evaluated.is_right)
    sure = wrong[np.argsort(-evaluated.confidence[wrong], kind="stable")][:_SHOWN]
    others = np.setdiff1d(np.arange(len(evaluated.labels)), sure)
    hard = others[np.argsort(evaluated.true[others], kind="stable")][:_SHOWN]
    right = np.flatnonzero(evaluated.is_right)
    evenly = right[np.linspace(0, len(right) - 1, min(len(right), _LOOKED_AT)).astype(np.int64)]
    half = _LOOKED_AT // 2
    return sure, hard, np.concatenate([sure[:half], evenly[: max(half, _LOOKED_AT - len(sure))]])


def _pixels(image: np.ndarray) -> np.ndarray:
    """(channels, height, width) -> (height, width[, 3]); of other numbers of channels, the first."""
    return image.transpose(1, 2, 0) if len(image) == 3 else image[0]
