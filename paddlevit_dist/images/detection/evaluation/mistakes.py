"""What a report says of mistakes: confused classes, and the pictures that went worst."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Tuple

import numpy as np

from .detections import Detections, as_written
from .tables import MatchTable

_AT_50 = 0
_OVERLAP = 0.5


def pairs(truth: Any, detections: Detections, num_classes: int, least_score: float) -> np.ndarray:
    """What was taken for what in one picture, whatever the classes: of all annotations and detections that overlap
    enough those with the largest IoU belong together, then those with the next, and so on.

    Args:
        truth: as ``matching.Truth``. Crowds count as neither missed nor found; detections that lie in one, and belong
            to nothing else, are left out.
        least_score: detections with a lower score are left out.

    Returns:
        uint16 (pairs, 2), label of the annotation and of the detection; ``num_classes`` for the annotation of what is
        nothing, and for the detection of what was missed.
    """
    chosen = np.asarray(detections.scores) >= least_score
    boxes, labels = as_written(detections.boxes)[chosen], np.asarray(detections.labels)[chosen]
    is_crowd = np.asarray(truth.is_crowd, bool)
    true_boxes, true_labels = np.asarray(truth.boxes, np.float64).reshape(-1, 4), np.asarray(truth.labels)
    shared, areas, true_areas = _shared(boxes, true_boxes)
    with np.errstate(divide="ignore", invalid="ignore"):
        overlaps = np.nan_to_num(shared / (areas[:, None] + true_areas - shared))[:, ~is_crowd]
        inside = np.nan_to_num(shared / areas[:, None])[:, is_crowd]
    true_labels = true_labels[~is_crowd]
    is_found, is_used = np.zeros(len(true_labels), bool), np.zeros(len(labels), bool)
    result = []
    for place in np.argsort(-overlaps, axis=None, kind="stable")[: np.count_nonzero(overlaps >= _OVERLAP)]:
        row, true_row = np.unravel_index(place, overlaps.shape)
        if not is_used[row] and not is_found[true_row]:
            is_used[row] = is_found[true_row] = True
            result.append((true_labels[true_row], labels[row]))
    is_used |= (inside >= _OVERLAP).any(axis=1)
    result += [(label, num_classes) for label in true_labels[~is_found]]
    result += [(num_classes, label) for label in labels[~is_used]]
    return np.array(result, np.uint16).reshape(-1, 2)


def _shared(boxes: np.ndarray, true_boxes: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared areas (n, m), and areas (n,) and (m,), of boxes x, y, width, height."""
    ends, true_ends = boxes[:, :2] + boxes[:, 2:], true_boxes[:, :2] + true_boxes[:, 2:]
    sides = np.minimum(ends[:, None], true_ends) - np.maximum(boxes[:, None, :2], true_boxes[:, :2])  # (n, m, 2)
    return np.maximum(sides, 0).prod(axis=2), boxes[:, 2:].prod(axis=1), true_boxes[:, 2:].prod(axis=1)


def confusion(all_pairs: Iterable[np.ndarray], num_classes: int) -> np.ndarray:
    """How often each was taken for each: int64 (num_classes + 1, num_classes + 1), annotated classes down, found ones
    across, "nothing" last.

    Args:
        all_pairs: of ``pairs``, of any number of pictures.
    """
    matrix = np.zeros((num_classes + 1) ** 2, np.int64)
    for some in all_pairs:
        np.add.at(matrix, some[:, 0].astype(np.int64) * (num_classes + 1) + some[:, 1], 1)
    return matrix.reshape(num_classes + 1, num_classes + 1)


class Quality(NamedTuple):
    """How well each picture of a table went, at an IoU of 0.5.

    Attributes:
        right, wrong, missed: int64 (pictures,), true and false detections, and annotations that none finds.
        f1: float64 (pictures,), 1 for a picture in which nothing is annotated and nothing was found.
    """

    right: np.ndarray
    wrong: np.ndarray
    missed: np.ndarray
    f1: np.ndarray

    def hardest(self, most: int) -> np.ndarray:
        """Positions of the pictures that went worst, by F1 and then by the number of mistakes; those without mistakes
        are not among them."""
        mistakes = self.wrong + self.missed
        order = np.lexsort((-mistakes, self.f1))  # stable
        return order[mistakes[order] > 0][:most]


def quality(table: MatchTable, least_score: float) -> Quality:
    """Of each picture of a table, from its detections that have at least this score."""
    bit = np.uint64(1) << np.uint64(_AT_50)
    counts = table.scores >= least_score
    found = counts & ((table.found & bit) != 0)
    false = counts & ((table.found & bit) == 0) & ((table.ignored & bit) == 0)
    pictures, number = table.image_of_rows(), len(table.image_ids)
    right, wrong = (np.bincount(pictures[which], minlength=number).astype(np.int64) for which in (found, false))
    missed = np.maximum(table.num_true - right, 0)
    total = 2 * right + wrong + missed
    return Quality(right, wrong, missed, np.where(total > 0, 2 * right / np.maximum(total, 1), 1.0))
