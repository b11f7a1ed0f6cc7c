"""Score thresholds for a wished precision or recall of each class, also for bootstrap draws of the images.

All numbers are at an IoU of 0.5, over all areas. Thresholds are scores of detections: boxes with at least this score
are kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .accumulation import MatchTable

_AT_50 = np.uint64(1)  # bit of an IoU of 0.5 over all areas
_ROUNDING = 1e-12


class WishedRates(NamedTuple):
    """What a threshold has to reach, as shares; None: not wished."""

    precision: float | None = None  # the lowest score from which on at least this share of the boxes is right
    recall: float | None = None  # the highest score from which on at least this share of the annotations is found

    def name(self, kind: str, class_name: str) -> str:
        """Return the name of a class's threshold; ``kind`` is "precision" or "recall"."""
        return f"score for {kind} {getattr(self, kind):g} {class_name}"


NO_WISHES = WishedRates()


class ClassDetections(NamedTuple):
    """The counted detections of a class, by falling score, and its annotations."""

    scores: np.ndarray  # float64 (n,)
    images: np.ndarray  # int64 (n,), position of the image
    is_right: np.ndarray  # bool (n,)
    annotated: np.ndarray  # int64 (images,), annotations that count in each image


def split_by_class(table: MatchTable, annotated: np.ndarray) -> list[ClassDetections]:
    """Return the detections of each class, without ignored ones; ``annotated`` is int64 (images, classes)."""
    is_counted = (table.ignored & _AT_50) == 0
    images, labels = table.image_positions()[is_counted], table.labels[is_counted]
    scores, is_right = table.scores[is_counted].astype(np.float64), (table.true_positives[is_counted] & _AT_50) != 0
    classes = []
    for label in range(annotated.shape[1]):
        rows = np.flatnonzero(labels == label)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        classes.append(ClassDetections(scores[rows], images[rows], is_right[rows], annotated[:, label]))
    return classes


def count_annotated(table: MatchTable) -> np.ndarray:
    """Return the annotations of each image and class that count over all areas, int64 (images, classes)."""
    counts = np.zeros((len(table.image_ids), len(table.totals)), np.int64)
    np.add.at(counts, (table.annotated[:, 0], table.annotated[:, 1]), table.annotated[:, 2])
    return counts


def find_thresholds(
    classes: Sequence[ClassDetections], names: Sequence[str], wished: WishedRates, weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Return thresholds by class and wish, float64 (draws,), NaN if not reached; ``weights`` are (draws, images)."""
    thresholds: dict[str, np.ndarray] = {}
    for name, detections in zip(names, classes):
        drawn = np.array([_find(detections, wished, own) for own in weights], np.float64)  # (draws, 2)
        for column, kind in enumerate(WishedRates._fields):
            if getattr(wished, kind) is not None:
                thresholds[wished.name(kind, name)] = drawn[:, column]
    return thresholds


def _find(detections: ClassDetections, wished: WishedRates, weights: np.ndarray) -> tuple[float, float]:
    """Return the thresholds of a class for precision and recall in one draw, weights (images,)."""
    scores, own = detections.scores, weights[detections.images]
    is_last = np.append(np.diff(scores) != 0, True)[: len(scores)]  # of equal scores
    number, right = np.cumsum(own)[is_last], np.cumsum(own * detections.is_right)[is_last]
    is_present = np.diff(number, prepend=0.0) > 0  # a score of an image that is not drawn cannot be one
    scores, number, right = (column[is_present] for column in (scores[is_last], number, right))
    total = float(np.dot(detections.annotated.astype(np.float64), weights))
    precise = found = np.nan
    if wished.precision is not None:
        reached = np.flatnonzero(right >= wished.precision * number * (1 - _ROUNDING))
        precise = scores[reached[-1]] if len(reached) else np.nan
    if wished.recall is not None and total > 0:
        reached = np.flatnonzero(right >= wished.recall * total * (1 - _ROUNDING))
        found = scores[reached[0]] if len(reached) else np.nan
    return float(precise), float(found)
