"""Match predicted segments with true ones, of points and of pixels: the one rule of void. Needs no Paddle.

Source: A. Kirillov et al., "Panoptic Segmentation", CVPR 2019, arXiv 1801.00868, section 4.1.
"""

from typing import NamedTuple

import numpy as np

_LEAST_IOU = 0.5  # exclusive, so that a segment has at most one match


class Overlaps(NamedTuple):
    """The pairs of a true and a predicted segment that share elements, by ascending rows; -1 is void."""

    true_rows: np.ndarray  # int64 (pairs,)
    found_rows: np.ndarray  # int64 (pairs,)
    shared: np.ndarray  # int64 (pairs,), the number of elements

    def select(self, chosen: np.ndarray) -> "Overlaps":
        """Return the pairs that a mask, bool (pairs,), chooses."""
        return Overlaps(*(column[chosen] for column in self))


class SegmentMatches(NamedTuple):
    """The matched segments of a sample."""

    true_rows: np.ndarray  # int64 (matches,), rows of true segments, ascending
    found_rows: np.ndarray  # int64 (matches,), the row of the predicted segment of each
    ious: np.ndarray  # float64 (matches,)


def count_overlaps(truth: np.ndarray, found: np.ndarray, num_true: int, num_found: int) -> Overlaps:
    """Count the elements that segments share.

    ``truth`` and ``found`` are integers of one shape, the row of each element's segment, -1 for void.
    """
    step = num_found + 1
    keys = ((truth.astype(np.int64) + 1) * step + found + 1).ravel()
    if step * (num_true + 1) <= 4 * max(keys.size, 1 << 16):  # a table is faster than a sort
        counts = np.bincount(keys)
        keys = np.flatnonzero(counts)
        shared = counts[keys]
    else:
        keys, shared = np.unique(keys, return_counts=True)
    return Overlaps(keys // step - 1, keys % step - 1, shared)


def match_segments(overlaps: Overlaps, true_labels: np.ndarray, found_labels: np.ndarray) -> SegmentMatches:
    """Match segments of one class with an IoU above 0.5.

    Elements without a true segment do not count: the part of a prediction on void is not in the union.

    Args:
        overlaps: of all elements, see ``count_overlaps``.
        true_labels, found_labels: class of each segment; a true segment with a negative one matches nothing.
    """
    rows, columns, shared = overlaps.select(overlaps.true_rows >= 0)
    areas = sum_by_row(rows, shared, len(true_labels))
    rows, columns, shared = overlaps.select((overlaps.true_rows >= 0) & (overlaps.found_rows >= 0))
    found_areas = sum_by_row(columns, shared, len(found_labels))
    is_pair = (true_labels[rows] == found_labels[columns]) & (true_labels[rows] >= 0)
    rows, columns, shared = rows[is_pair], columns[is_pair], shared[is_pair]
    ious = shared / (areas[rows] + found_areas[columns] - shared)
    is_match = ious > _LEAST_IOU
    return SegmentMatches(rows[is_match], columns[is_match], ious[is_match])


def sum_by_row(rows: np.ndarray, numbers: np.ndarray, number: int) -> np.ndarray:
    """Sum integers by row, int64 (number,)."""
    sums = np.zeros(number, np.int64)
    np.add.at(sums, rows, numbers)
    return sums
