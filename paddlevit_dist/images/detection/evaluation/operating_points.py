"""Precision and recall of each class, and score thresholds that reach a wished one, also for weighted images.

All numbers are at an IoU of 0.5, over all areas, unless others are asked for. Thresholds are scores of detections:
boxes with at least this score are kept.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....core.intervals import quotient
from .curves import RECALLS
from .match_tables import IOU_THRESHOLDS, MatchTable

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
    true_images: np.ndarray  # int32 (k,), position of each image with annotations
    annotated: np.ndarray  # int32 (k,), annotations that count in each of these images

    def sample_precision(self) -> np.ndarray:
        """Return the precision at each of ``RECALLS``, float64 (101,), 0 where a recall is not reached.

        It is the precision of pycocotools. The class needs annotations.
        """
        right = np.cumsum(self.is_right)
        precision = right / (np.arange(1, len(right) + 1) + np.spacing(1.0))
        precision = np.maximum.accumulate(precision[::-1])[::-1]  # it does not rise with recall
        return np.append(precision, 0.0)[np.searchsorted(right / self.annotated.sum(), RECALLS)]


def split_by_class(table: MatchTable, area: int = 0, threshold: int = 0) -> list[ClassDetections]:
    """Return the detections of each class, without ignored ones, and its annotations.

    ``area`` and ``threshold`` are indices of ``AREA_RANGES`` and ``IOU_THRESHOLDS``.
    """
    bit = np.uint64(1) << np.uint64(area * len(IOU_THRESHOLDS) + threshold)
    counted = np.flatnonzero((table.ignored & bit) == 0)
    labels, scores = table.labels[counted], table.scores[counted].astype(np.float64)
    order = np.lexsort((-scores, labels))  # stable: ties by image
    rows = counted[order]
    columns = scores[order], table.image_positions()[rows], (table.true_positives[rows] & bit) != 0
    of_classes = table.annotated[np.argsort(table.annotated[:, 1], kind="stable")]
    true_images, true_labels, annotated = of_classes[:, [0, 1, 2 + area]].T
    edges = np.arange(1, table.num_classes)
    found = [np.split(column, np.searchsorted(labels[order], edges)) for column in columns]
    true = [np.split(column, np.searchsorted(true_labels, edges)) for column in (true_images, annotated)]
    return [ClassDetections(*arrays) for arrays in zip(*found, *true)]


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
    scores, number, right = _accumulate(detections.scores, detections.is_right, weights[detections.images])
    is_present = np.diff(number, prepend=0.0) > 0  # a score of an image that is not drawn cannot be one
    scores, number, right = (column[is_present] for column in (scores, number, right))
    total = float(np.dot(detections.annotated.astype(np.float64), weights[detections.true_images]))
    precise = found = np.nan
    if wished.precision is not None:
        reached = np.flatnonzero(right >= wished.precision * number * (1 - _ROUNDING))
        precise = scores[reached[-1]] if len(reached) else np.nan
    if wished.recall is not None and total > 0:
        reached = np.flatnonzero(right >= wished.recall * total * (1 - _ROUNDING))
        found = scores[reached[0]] if len(reached) else np.nan
    return float(precise), float(found)


def _accumulate(
    scores: np.ndarray, is_right: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each of the falling scores once, and the weights of all and of right detections from it on."""
    is_last = np.append(np.diff(scores) != 0, True)[: len(scores)]  # of equal scores
    return scores[is_last], np.cumsum(weights)[is_last], np.cumsum(weights * is_right)[is_last]


class ThresholdCurve(NamedTuple):
    """Precision, recall and F1 of all classes together, of the detections with at least each of their scores."""

    scores: np.ndarray  # float (n,), falling, each once
    number: np.ndarray  # int64 (n,), detections with at least this score
    right: np.ndarray  # int64 (n,)
    annotated: int  # annotations that count

    @classmethod
    def from_table(cls, table: MatchTable) -> "ThresholdCurve":
        """Count the detections of a table, without ignored ones."""
        counted = np.flatnonzero((table.ignored & np.uint64(1)) == 0)
        order = counted[np.argsort(-table.scores[counted], kind="stable")]
        is_right = (table.true_positives[order] & np.uint64(1)) != 0
        return cls(
            *_accumulate(table.scores[order], is_right, np.ones(len(order), np.int64)), int(table.num_true.sum())
        )

    def compute_rates(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return precision, NaN without detections, recall and F1 at these thresholds, float64 (thresholds,) each."""
        places = np.searchsorted(-self.scores, -thresholds.astype(self.scores.dtype), side="right")
        number, right = (np.append(0, column)[places] for column in (self.number, self.right))
        return quotient(right, number), right / self.annotated, 2 * right / (number + self.annotated)

    def find_best(self) -> float:
        """Return the threshold with the highest F1, the highest such one; there must be detections."""
        best = int(np.argmax(self.right / (self.number + self.annotated)))
        return shorten_threshold(float(self.scores[best]), self.scores)


def shorten_threshold(threshold: float, scores: np.ndarray) -> float:
    """Return the number with the fewest digits, at least two, with which the same detections are kept as with a score.

    Rounded to the next number, a threshold may omit the detection whose score it is.
    """
    below = np.max(scores, initial=-np.inf, where=scores < threshold)
    for digits in range(2, 9):
        for short in (round(threshold, digits), round(threshold - 10**-digits, digits)):
            if np.float32(below) < np.float32(short) <= np.float32(threshold):
                return short
    return threshold
