"""Panoptic quality of images: matches of predicted and true segments, exactly as panopticapi's. Needs no Paddle.

Source: A. Kirillov et al., "Panoptic Segmentation", CVPR 2019, arXiv 1801.00868, and the rules of the authors' program,
cocodataset/panopticapi, for void and crowds.
"""

import numpy as np

from ...core.metrics.segments import Overlaps, count_overlaps, match_segments, sum_by_row
from .data.segments import Segments

_MOST_UNSCORED = 0.5  # share of a prediction on void and a crowd above which it is not an error


def count_image(truth: Segments, found: Segments, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Match the segments of an image with an IoU above 0.5, and count what is matched, false and missed.

    Void is not scored: the part of a prediction on it is not in the union. Crowds neither match nor are missed. A
    prediction without a match is not an error if more than half of it is on void or on the last crowd of its class.
    Pixels are counted: ``areas`` of a file may be wrong.

    Returns:
        Counts int64 (6, classes), see ``intervals.panoptic_scores``, and float64 (classes,), the sum of the IoU of
        matched segments.
    """
    number, num_found = len(truth.labels), len(found.labels)
    overlaps = count_overlaps(truth.places, found.places, number, num_found)
    matchable = np.where(truth.is_crowd, -1, truth.labels)
    true_rows, found_rows, ious = match_segments(overlaps, matchable, found.labels)
    is_missed, is_false = ~truth.is_crowd, ~_find_unscored(truth, found, overlaps)
    is_missed[true_rows], is_false[found_rows] = False, False
    matched = truth.labels[true_rows]
    counts = [np.bincount(labels, minlength=num_classes) for labels in (matched, found.labels[is_false])]
    counts.append(np.bincount(truth.labels[is_missed], minlength=num_classes))
    counts.extend(_count_pixels(truth, found, overlaps, num_classes))
    return np.stack(counts), np.bincount(matched, ious, minlength=num_classes)


def _find_unscored(truth: Segments, found: Segments, overlaps: Overlaps) -> np.ndarray:
    """Return which predicted segments are more than half on void or on the last crowd of their class, bool (found,)."""
    crowds = np.flatnonzero(truth.is_crowd)
    last_crowds = dict(zip(truth.labels[crowds].tolist(), crowds.tolist()))
    own_crowds = np.array([last_crowds.get(label, -1) for label in found.labels.tolist()], np.int64)  # -1: void
    true_rows, found_rows, shared = overlaps.select(overlaps.found_rows >= 0)
    is_unscored = (true_rows < 0) | (true_rows == own_crowds[found_rows])
    areas, unscored = (
        sum_by_row(found_rows[chosen], shared[chosen], len(found.labels)) for chosen in (slice(None), is_unscored)
    )
    return unscored > _MOST_UNSCORED * areas


def _count_pixels(truth: Segments, found: Segments, overlaps: Overlaps, num_classes: int) -> list[np.ndarray]:
    """Count the pixels with a true class that have it, that are of a class, and that are predicted as it."""
    true_rows, found_rows, shared = overlaps.select(overlaps.true_rows >= 0)
    true_labels, labels = truth.labels[true_rows], np.append(found.labels, -1)[found_rows]
    chosen = (true_labels, true_labels == labels), (true_labels, slice(None)), (labels, labels >= 0)
    return [sum_by_row(column[part], shared[part], num_classes) for column, part in chosen]
