"""Average precision of predicted instances, from the decisions of all scenes."""

from __future__ import annotations

from typing import List

import numpy as np

from .matching import IOU_THRESHOLDS, MatchTable

_AT_50, _AT_25 = (int(np.argmin(np.abs(IOU_THRESHOLDS - iou))) for iou in (0.5, 0.25))
_MEAN_OF = [position for position in range(len(IOU_THRESHOLDS)) if position != _AT_25]


def average_precisions(table: MatchTable) -> np.ndarray:
    """Average precision of each class and threshold, float64 (classes, thresholds).

    NaN for a class without a true instance of sufficient size, 0 for one without a prediction.
    """
    result = np.full(table.missed.shape, np.nan)
    for number, position in np.ndindex(*result.shape):
        if table.num_true[number] == 0:
            continue
        chosen = (table.class_numbers == number) & (table.thresholds == position)
        missed = int(table.missed[number, position])
        result[number, position] = _average_precision(table.scores[chosen], table.is_right[chosen], missed)
    return result


def ap(precisions: np.ndarray) -> np.ndarray:
    """Mean over the thresholds 0.5 to 0.9 of each class, (classes,), from ``average_precisions``."""
    return precisions[:, _MEAN_OF].mean(axis=1)


def ap50(precisions: np.ndarray) -> np.ndarray:
    """At an IoU of 0.5, (classes,)."""
    return precisions[:, _AT_50]


def ap25(precisions: np.ndarray) -> np.ndarray:
    """At an IoU of 0.25, (classes,)."""
    return precisions[:, _AT_25]


def mean_over_classes(per_class: np.ndarray) -> float:
    """Mean over the classes that have a value, 0 if none has."""
    values: List[float] = per_class[~np.isnan(per_class)].tolist()
    return float(np.mean(values)) if values else 0.0


def _average_precision(scores: np.ndarray, is_right: np.ndarray, missed: int) -> float:
    """Area below the curve of precision over recall, by the benchmark's rule: precision at each distinct score times
    half the distance of the recalls at its two neighbours, with an artificial last point of precision 1, recall 0."""
    if not len(scores):
        return 0.0
    order = np.argsort(scores, kind="stable")
    _, first = np.unique(scores[order], return_index=True)  # decisions from there on have at least that score
    below = np.concatenate([[0], np.cumsum(is_right[order])])[first]  # right ones that a higher threshold loses
    found = np.count_nonzero(is_right) - below
    precision = np.append(found / (len(scores) - first), 1.0)
    recall = np.append(found / (np.count_nonzero(is_right) + missed), 0.0)
    padded = np.concatenate([recall[:1], recall, [0.0]])
    return float(precision @ (padded[:-2] - padded[2:]) / 2)
