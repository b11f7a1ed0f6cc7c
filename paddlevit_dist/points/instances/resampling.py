"""Average precision of instances for scenes that are drawn several times or not at all: exact for each draw."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...intervals import weighted_sums
from ...runtime.compiled import compiled


def resampled_precisions(tables: Sequence[Any], weights: np.ndarray) -> np.ndarray:
    """``metrics.average_precisions`` of the scenes of each draw, float64 (draws, classes, thresholds).

    Args:
        tables: a ``metrics.MatchTable`` for each scene; at least one.
        weights: float64 (draws, scenes), how often a draw has each scene.
    """
    classes, thresholds = tables[0].missed.shape
    numbers, places, scores, is_right = (np.concatenate([table[column] for table in tables]) for column in range(4))
    scenes = np.repeat(np.arange(len(tables)), [len(table.scores) for table in tables])
    curves = numbers.astype(np.int64) * thresholds + places  # a curve for each class and threshold
    order = np.lexsort((-scores, curves))
    curves, scores = curves[order], scores[order]
    # Decisions of one score count together, as the benchmark looks at distinct scores.
    is_last = np.ones(len(order), bool)
    is_last[:-1] = (curves[1:] != curves[:-1]) | (scores[1:] != scores[:-1])
    bounds = np.searchsorted(curves, np.arange(classes * thresholds + 1))
    missed = np.stack([table.missed.reshape(-1) for table in tables])  # (scenes, curves)
    num_true = weighted_sums(weights, np.stack([table.num_true for table in tables]))  # (draws, classes)
    result = np.empty((len(weights), classes * thresholds))
    _areas(weights, scenes[order], is_right[order], is_last, bounds, weighted_sums(weights, missed), result)
    result = result.reshape(-1, classes, thresholds)
    result[num_true == 0] = np.nan
    return result


@compiled(error_model="numpy")
def _areas(weights, scenes, is_right, is_last, bounds, missed, areas):
    """Area under each curve of precision over recall, by trapezoids from precision 1 at recall 0 on: the benchmark's
    sum, in another order."""
    for draw in range(len(weights)):
        for curve in range(len(bounds) - 1):
            to_find = missed[draw, curve]
            for row in range(bounds[curve], bounds[curve + 1]):
                if is_right[row]:
                    to_find += weights[draw, scenes[row]]
            right, number, area = 0.0, 0.0, 0.0
            recall_before, precision_before = 0.0, 1.0
            for row in range(bounds[curve], bounds[curve + 1]):
                weight = weights[draw, scenes[row]]
                number += weight
                if is_right[row]:
                    right += weight
                if is_last[row] and number > 0.0 and to_find > 0.0:
                    recall, precision = right / to_find, right / number
                    area += (recall - recall_before) * (precision + precision_before) / 2
                    recall_before, precision_before = recall, precision
            areas[draw, curve] = area
