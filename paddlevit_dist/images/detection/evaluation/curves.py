"""COCO's numbers, of all images or of weighted ones.

They are pycocotools' numbers up to rounding (1e-15). A draw may contain an image several times or not at all. The
numbers are exact: each equals what an annotation file with that many copies of each image would give.

A draw changes how often a detection counts, but neither the matches nor the order of the scores, so rows are sorted
once. Precision is computed at true positives only: they are few, and it falls between two of them. Copies of a
detection are consecutive.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ....core.runtime.compiled import compiled
from .match_tables import AREA_RANGES, IOU_THRESHOLDS, MAX_DETECTIONS, MatchTable

RECALLS = np.linspace(0.0, 1.0, 101)
_RECALL = "AR_"  # before a number of detections, or a range of areas
_AREAS, _STEPS = len(AREA_RANGES), len(IOU_THRESHOLDS)


class DetectionCurves(NamedTuple):
    """Detections and true positives of each class and area range, ordered by score.

    A group is ``class * areas + area``, a curve ``group * thresholds + threshold``.
    """

    images: np.ndarray  # int32 (n,), index of the image of each detection that counts at some threshold
    groups: np.ndarray  # int64 (groups + 1,), bounds of each group in ``images``
    places: np.ndarray  # int32 (m,), index in its group of each detection that is a true positive or is ignored
    kinds: np.ndarray  # int8 (m,), -1: ignored; else index of the first of ``max_detections`` that includes it
    curves: np.ndarray  # int64 (curves + 1,), bounds of each curve in ``places`` and ``kinds``
    annotated: np.ndarray  # int32 (t, 6), see ``MatchTable``
    num_classes: int  # number of classes
    max_detections: tuple[int, ...]  # limits on the detections per image and class

    @classmethod
    def from_table(cls, table: MatchTable, max_detections: Sequence[int] = MAX_DETECTIONS) -> "DetectionCurves":
        """Build the curves of all images of a table that was matched with these ``max_detections``."""
        num_classes = table.num_classes
        order = np.lexsort((-table.scores.astype(np.float64), table.labels))  # stable: ties by image
        bounds = np.searchsorted(table.labels[order], np.arange(num_classes + 1))
        images = table.image_positions()[order].astype(np.int32)
        limit = np.searchsorted(max_detections, compute_ranks(table)[order], side="right").astype(np.int8)
        true_positives, ignored = table.true_positives[order], table.ignored[order]
        rows = _SortedRows(true_positives, ignored, limit, bounds)
        counts = np.zeros(num_classes * _AREAS, np.int64), np.zeros(num_classes * _AREAS * _STEPS, np.int64)
        _add_rows(rows, *counts, np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int8))
        groups, curves = (np.append(0, np.cumsum(numbers)) for numbers in counts)
        chosen = np.empty(groups[-1], np.int64)
        places, kinds = np.empty(curves[-1], np.int32), np.empty(curves[-1], np.int8)
        _add_rows(rows, groups[:-1].copy(), curves[:-1].copy(), chosen, places, kinds)
        annotated, limits = table.annotated.astype(np.int32), tuple(int(most) for most in max_detections)
        return cls(images[chosen], groups, places, kinds, curves, annotated, num_classes, limits)

    def renumbered(self, positions: np.ndarray) -> "DetectionCurves":
        """Return the curves for weights that have image k at ``positions[k]``, int (images,)."""
        annotated = self.annotated.copy()
        annotated[:, 0] = positions[annotated[:, 0]]
        return self._replace(images=positions[self.images].astype(np.int32), annotated=annotated)

    def scores(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return COCO's numbers and AP of each class, see ``compute``."""
        return self.compute(weights)[:2]

    def compute(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute the numbers of draws; NaN where nothing is annotated.

        Args:
            weights: (draws, images), how often each image occurs in a draw.

        Returns:
            COCO's twelve numbers in pycocotools' order, float64 (draws, 12); over all areas, AP, AP50 and AP75 of each
            class, float64 (draws, classes, 3), and its recall at each of ``IOU_THRESHOLDS``, (draws, classes, 10).
        """
        stats = np.empty((len(weights), len(stat_names(self.max_detections))))
        class_ap = np.empty((len(weights), self.num_classes, 3))
        class_recalls = np.empty((len(weights), self.num_classes, len(IOU_THRESHOLDS)))
        for draw, image_weights in enumerate(weights):
            stats[draw], class_ap[draw], class_recalls[draw] = _score(self, image_weights.astype(np.int32))
        return stats, class_ap, class_recalls


def stat_names(max_detections: Sequence[int] = MAX_DETECTIONS) -> list[str]:
    """Return the names of COCO's twelve numbers, in pycocotools' order."""
    recalls = [name_recall(most) for most in max_detections]
    return ["AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", *recalls, "AR_small", "AR_medium", "AR_large"]


def name_recall(most: int) -> str:
    """Return the name of the recall of at most ``most`` detections per image and class, such as AR_100."""
    return f"{_RECALL}{most}"


def list_recalls(names: Iterable[str]) -> list[str]:
    """List the names of ``name_recall`` among other names, the one of the fewest detections first."""
    recalls = [name for name in names if name.startswith(_RECALL) and name[len(_RECALL) :].isdecimal()]
    return sorted(recalls, key=lambda name: int(name[len(_RECALL) :]))


def compute_ranks(table: MatchTable) -> np.ndarray:
    """Return the rank of each row among the rows of its image and class, from 0: int64 (rows,)."""
    images, labels = table.image_positions(), table.labels
    is_first = np.ones(len(labels), bool)
    is_first[1:] = (images[1:] != images[:-1]) | (labels[1:] != labels[:-1])
    first = np.flatnonzero(is_first)
    return np.arange(len(labels)) - np.repeat(first, np.diff(np.append(first, len(labels))))


class _SortedRows(NamedTuple):
    """The rows of a table by class, then falling score."""

    true_positives: np.ndarray  # uint64 (rows,), bits as in ``MatchTable``
    ignored: np.ndarray  # uint64 (rows,)
    limit: np.ndarray  # int8 (rows,), index of the first of ``max_detections`` that includes each
    bounds: np.ndarray  # int64 (classes + 1,), bounds of each class


@compiled(needs_numba=False)
def _add_rows(rows, group_ends, curve_ends, chosen, places, kinds):
    """Write the rows of each group and curve at their ends, which move on; without ``chosen`` the ends only count.

    ``rows`` are ``_SortedRows``; ``chosen`` gets the row of each detection of a group, ``places`` and ``kinds`` what
    ``DetectionCurves`` says.
    """
    bit_one = np.uint64(1)
    for label in range(len(rows.bounds) - 1):
        for area in range(_AREAS):
            group = label * _AREAS + area
            first = group_ends[group]
            all_bits = ((bit_one << np.uint64(_STEPS)) - bit_one) << np.uint64(area * _STEPS)
            for row in range(rows.bounds[label], rows.bounds[label + 1]):
                if rows.ignored[row] & all_bits == all_bits:
                    continue
                if len(chosen):
                    chosen[group_ends[group]] = row
                for step in range(_STEPS):
                    bit = bit_one << np.uint64(area * _STEPS + step)
                    if (rows.true_positives[row] | rows.ignored[row]) & bit:
                        curve = group * _STEPS + step
                        if len(chosen):
                            places[curve_ends[curve]] = group_ends[group] - first
                            kinds[curve_ends[curve]] = rows.limit[row] if rows.true_positives[row] & bit else -1
                        curve_ends[curve] += 1
                group_ends[group] += 1


@compiled(needs_numba=False, error_model="numpy")
def _score(found, weights):
    """Compute the numbers of one draw, see ``DetectionCurves.compute``.

    Args:
        found: ``DetectionCurves``; numba compiles the attributes of a named tuple, too.
        weights: int32 (images,), how often each image occurs in the draw.
    """
    images, groups, places, kinds, curves = found.images, found.groups, found.places, found.kinds, found.curves
    annotated, limits = found.annotated, len(found.max_detections)
    stats = np.full(9 + limits, np.nan)  # see ``stat_names``
    class_ap, class_recalls = np.full((found.num_classes, 3), np.nan), np.full((found.num_classes, _STEPS), np.nan)
    longest = 1
    for group in range(len(groups) - 1):  # no curve is longer than its group
        longest = max(longest, groups[group + 1] - groups[group] + 1)
    reached_rows, reached, precise = np.empty(longest, np.int64), np.empty(longest), np.empty(longest)
    tiny = np.spacing(1.0)
    totals = np.zeros((found.num_classes, _AREAS))
    for row in range(len(annotated)):
        weight = weights[annotated[row, 0]]
        if weight:
            for area in range(_AREAS):
                totals[annotated[row, 1], area] += weight * annotated[row, 2 + area]
    sums, counts = np.zeros(len(stats)), np.zeros(len(stats))
    right = np.zeros(limits + 2)  # in front, what is ignored
    for label in range(found.num_classes):
        for area in range(_AREAS):
            if totals[label, area] == 0:
                continue
            group = label * _AREAS + area
            first, total = groups[group], 0
            reached_rows[0] = 0  # how many rows there are before each
            for place in range(groups[group + 1] - first):
                total += weights[images[first + place]]
                reached_rows[place + 1] = total
            # The smallest number whose share of the total is at least each recall.
            needed = np.searchsorted(np.arange(totals[label, area] + 1.0) / totals[label, area], RECALLS)
            ap_sum = 0.0
            for step in range(_STEPS):
                curve = group * _STEPS + step
                right[:] = 0.0
                num_found, ignored, number = 0.0, 0.0, 0
                for event in range(curves[curve], curves[curve + 1]):  # without branches, which are hard to predict
                    before, reached_row = reached_rows[places[event]], reached_rows[places[event] + 1]
                    weight, is_right = reached_row - before, kinds[event] >= 0
                    right[kinds[event] + 1] += weight
                    num_found += weight * is_right
                    ignored += weight * (not is_right)
                    reached[number] = num_found
                    precise[number] = num_found / (reached_row - ignored + tiny)
                    number += is_right and weight > 0
                for place in range(number - 1, 0, -1):
                    precise[place - 1] = max(precise[place - 1], precise[place])
                place, area_below = 0, 0.0
                for point in range(len(RECALLS)):
                    while place < number and reached[place] < needed[point]:
                        place += 1
                    if place == number:
                        break
                    area_below += precise[place]
                ap = area_below / len(RECALLS)
                ap_sum += ap
                # AP, AP50, AP75 of all areas, AP of each other area; AR of each limit, of each other area.
                if area == 0:
                    class_recalls[label, step] = num_found / totals[label, 0]
                    sums[0] += ap
                    counts[0] += 1
                    if step == 0 or step == 5:
                        column = 1 if step == 0 else 2
                        class_ap[label, column] = ap
                        sums[column] += ap
                        counts[column] += 1
                    num_right = 0.0
                    for limit in range(limits):
                        num_right += right[limit + 1]
                        sums[6 + limit] += num_right / totals[label, 0]
                        counts[6 + limit] += 1
                else:
                    sums[2 + area] += ap
                    counts[2 + area] += 1
                    sums[6 + limits + area - 1] += num_found / totals[label, area]
                    counts[6 + limits + area - 1] += 1
            if area == 0:
                class_ap[label, 0] = ap_sum / _STEPS
    for number in range(len(stats)):
        if counts[number]:
            stats[number] = sums[number] / counts[number]
    return stats, class_ap, class_recalls
