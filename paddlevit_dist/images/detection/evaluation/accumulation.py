"""Precision and recall of matched pictures, and the twelve numbers that COCO reports of them.

Each number is formed as pycocotools forms it, in the same order of operations: they are equal to the last digit.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Sequence

import numpy as np

from ....compiled import compiled
from .tables import AREA_NAMES, AREA_RANGES, IOU_THRESHOLDS, MAX_DETECTIONS, MatchTable

RECALLS = np.linspace(0.0, 1.0, 101)
STAT_NAMES = "AP AP50 AP75 AP_small AP_medium AP_large AR_1 AR_10 AR_100 AR_small AR_medium AR_large".split()
UNDEFINED = -1.0  # where there is nothing to find
_AT_50, _AT_75 = 0, 5


class Accumulated(NamedTuple):
    """Precision and recall, -1 where nothing can be found.

    Attributes:
        precision: float64 (IoU thresholds 10, recalls 101, classes, areas 4, numbers of detections 3).
        recall: float64 (10, classes, 4, 3), the largest that is reached.
        scores: float64, as ``precision``: the score from which on a recall is reached.
        max_detections: the numbers of detections.
    """

    precision: np.ndarray
    recall: np.ndarray
    scores: np.ndarray
    max_detections: Sequence[int]

    def stats(self) -> np.ndarray:
        """The twelve numbers in pycocotools' order, float64 (12,): AP, at IoU 0.5 and 0.75, of small, medium and large
        areas, and recalls of 1, 10 and 100 detections, of small, medium and large areas. -1 where undefined."""
        areas = range(1, len(AREA_NAMES))
        last = len(self.max_detections) - 1
        precisions = [self.precision[..., 0, last]]
        precisions += [self.precision[[at], ..., 0, last] for at in (_AT_50, _AT_75)]
        precisions += [self.precision[..., area, last] for area in areas]
        recalls = [self.recall[..., 0, number] for number in range(len(self.max_detections))]
        recalls += [self.recall[..., area, last] for area in areas]
        return np.array([_mean(values) for values in precisions + recalls])

    def class_ap(self) -> np.ndarray:
        """AP, AP50 and AP75 of each class, float64 (classes, 3), in all areas; -1 without annotations."""
        per_class = np.moveaxis(self.precision[..., 0, -1], 2, 0)  # (classes, thresholds, recalls)
        columns = [per_class, per_class[:, [_AT_50]], per_class[:, [_AT_75]]]
        return np.array([[_mean(column[k]) for column in columns] for k in range(len(per_class))]).reshape(-1, 3)

    def curve(self, labels: Sequence[int]) -> np.ndarray:
        """float64 (101,), precision at each of ``RECALLS``, the mean over these classes, which are annotated: in all
        areas, at an IoU of 0.5; 0 where a recall is not reached."""
        return self.precision[_AT_50, :, labels, 0, -1].mean(axis=0)

    def named(self) -> Dict[str, float]:
        """The twelve numbers by name."""
        return dict(zip(STAT_NAMES, self.stats().tolist()))


def _mean(values: np.ndarray) -> float:
    """Mean of the values that are defined; -1 if none is."""
    defined = values[values > UNDEFINED]
    return float(np.mean(defined)) if len(defined) else UNDEFINED


def accumulate(table: MatchTable, max_detections: Sequence[int] = MAX_DETECTIONS) -> Accumulated:
    """Precision and recall of all pictures of a table. Detections of equal score are ranked by the picture's id.

    Args:
        table: of all pictures; matched with the same ``max_detections``.
        max_detections: ascending.
    """
    num_classes = len(table.totals)
    num_limits = len(max_detections)
    shape = (len(IOU_THRESHOLDS), num_classes, len(AREA_RANGES), num_limits)
    recall = np.full(shape, UNDEFINED)
    precision = np.full(shape[:1] + RECALLS.shape + shape[1:], UNDEFINED)
    scores = np.full_like(precision, UNDEFINED)
    order = np.argsort(table.labels, kind="stable")  # pictures stay in ascending order within a class
    bounds = np.searchsorted(table.labels[order], np.arange(num_classes + 1))
    ranks = _ranks(table)
    limits = np.asarray(max_detections, np.int64)
    for label in range(num_classes):
        rows = order[bounds[label] : bounds[label + 1]]
        own_scores = table.scores[rows].astype(np.float64)
        by_score = np.argsort(-own_scores, kind="stable")
        rows = rows[by_score]
        _sample(
            table.found[rows], table.ignored[rows], ranks[rows], own_scores[by_score], limits, table.totals[label],
            RECALLS, precision[:, :, label], recall[:, label], scores[:, :, label],
        )  # fmt: skip
    return Accumulated(precision, recall, scores, tuple(max_detections))


def _ranks(table: MatchTable) -> np.ndarray:
    """Place of each row among those of its picture and class, from 0: int64 (rows,)."""
    pictures, labels = table.image_of_rows(), table.labels
    is_first = np.ones(len(labels), bool)
    is_first[1:] = (pictures[1:] != pictures[:-1]) | (labels[1:] != labels[:-1])
    first = np.flatnonzero(is_first)
    return np.arange(len(labels)) - np.repeat(first, np.diff(np.append(first, len(labels))))


@compiled(error_model="numpy")
def _sample(found, ignored, ranks, scores, limits, totals, recalls, precision, recall, score_at):
    """Precision at each recall for one class, written to (thresholds, recalls, areas, limits)."""
    steps, _, areas, _ = precision.shape
    tiny = np.spacing(1.0)
    reached, precise, rows = np.empty(len(found)), np.empty(len(found)), np.empty(len(found), np.int64)
    for area in range(areas):
        if totals[area] == 0:
            continue
        for step in range(steps):
            bit = np.uint64(1) << np.uint64(area * steps + step)
            for which in range(len(limits)):
                right, wrong, number = 0.0, 0.0, 0
                for row in range(len(found)):
                    if ranks[row] >= limits[which]:
                        continue
                    if found[row] & bit:
                        right += 1.0
                    elif not ignored[row] & bit:
                        wrong += 1.0
                    reached[number] = right / totals[area]
                    precise[number] = right / (wrong + right + tiny)
                    rows[number] = row
                    number += 1
                recall[step, area, which] = reached[number - 1] if number else 0.0
                for place in range(number - 1, 0, -1):  # precision does not rise with recall
                    precise[place - 1] = max(precise[place - 1], precise[place])
                place = 0
                for point in range(len(recalls)):
                    while place < number and reached[place] < recalls[point]:
                        place += 1
                    if place < number:
                        precision[step, point, area, which] = precise[place]
                        score_at[step, point, area, which] = scores[rows[place]]
                    else:
                        precision[step, point, area, which] = 0.0
                        score_at[step, point, area, which] = 0.0
