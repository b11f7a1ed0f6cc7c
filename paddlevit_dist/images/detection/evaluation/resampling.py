"""COCO's numbers for images that are drawn several times or not at all: exact for each draw, as if the annotation
file had each image so often.

What is drawn changes how often a detection counts, and neither how detections are matched nor their order. So rows are
sorted once. In a draw, precision is needed at true positives alone, of which there are few: between two of them it
falls. An image that is there several times has its copies of a detection one after the other.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....runtime.compiled import compiled
from .accumulation import AREA_RANGES, IOU_THRESHOLDS, MAX_DETECTIONS, RECALLS, MatchTable, compute_ranks, stat_names


class DetectionCurves(NamedTuple):
    """Detections and true positives in the order of their scores, for each class and range of areas. A group is
    ``class * areas + area``, a curve ``group * thresholds + threshold``.

    Attributes:
        images: int32 (n,), position of the image of each detection that counts at some threshold.
        groups: int64 (groups + 1,), bounds of each group in it.
        places: int32 (m,), place in its group of each detection that is a true positive or does not count.
        kinds: int8 (m,), -1 of what does not count; else the first of ``max_detections`` that takes it in.
        curves: int64 (curves + 1,), bounds of each curve in them.
        annotated: int32 (t, 6), see ``MatchTable``.
        num_images, num_classes: how many there are.
        max_detections: how many of an image and class count.
    """

    images: np.ndarray
    groups: np.ndarray
    places: np.ndarray
    kinds: np.ndarray
    curves: np.ndarray
    annotated: np.ndarray
    num_images: int
    num_classes: int
    max_detections: tuple[int, ...]

    @classmethod
    def of(cls, table: MatchTable, max_detections: Sequence[int] = MAX_DETECTIONS) -> "DetectionCurves":
        """Those of all images of a table that was matched with these ``max_detections``."""
        num_classes, areas, steps = len(table.totals), len(AREA_RANGES), len(IOU_THRESHOLDS)
        order = np.lexsort((-table.scores.astype(np.float64), table.labels))  # stable: ties by image
        bounds = np.searchsorted(table.labels[order], np.arange(num_classes + 1))
        images = table.image_of_rows()[order].astype(np.int32)
        limit = np.searchsorted(max_detections, compute_ranks(table)[order], side="right").astype(np.int8)
        found, ignored = table.found[order], table.ignored[order]
        groups = np.zeros(num_classes * areas + 1, np.int64)
        curves = np.zeros(num_classes * areas * steps + 1, np.int64)
        _count(found, ignored, bounds, areas, steps, groups, curves)
        chosen = np.empty(groups[-1], np.int64)
        places, kinds = np.empty(curves[-1], np.int32), np.empty(curves[-1], np.int8)
        _fill(found, ignored, limit, bounds, areas, steps, groups, curves, chosen, places, kinds)
        annotated = table.annotated.astype(np.int32)
        numbers = len(table.image_ids), num_classes
        return cls(images[chosen], groups, places, kinds, curves, annotated, *numbers, tuple(max_detections))

    def names(self) -> list[str]:
        """Name the columns of ``scores``."""
        return stat_names(self.max_detections)

    def scores(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """COCO's twelve numbers, float64 (draws, 12), and AP of each class (draws, classes); not a number where one is
        not defined.

        Args:
            weights: (draws, images), how often a draw has each image.
        """
        stats, class_ap = np.empty((len(weights), len(self.names()))), np.empty((len(weights), self.num_classes))
        room = int(np.diff(self.groups).max(initial=0)), int(np.diff(self.curves).max(initial=0))
        for draw, own in enumerate(weights):
            _score(
                own.astype(np.int32), self.images, self.groups, self.places, self.kinds, self.curves, self.annotated,
                RECALLS, np.empty(room[0]), np.empty(room[1]), np.empty(room[1]), stats[draw], class_ap[draw],
            )  # fmt: skip
        return stats, class_ap


def named_scores(
    curves: Mapping[str, tuple[DetectionCurves, np.ndarray]], class_names: Sequence[str], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """``DetectionCurves.scores`` by name, (draws,) each: COCO's numbers, and AP of each class.

    Args:
        curves: what is before the names -> the curves, and the position in them of each sample's image, int
            (samples,).
        weights: (draws, samples), how often a draw has each sample.
    """
    values: dict[str, np.ndarray] = {}
    for prefix, (of_all, places) in curves.items():
        own = np.zeros((len(weights), of_all.num_images))
        own[:, places] = weights
        stats, class_ap = of_all.scores(own)
        values.update({f"{prefix}{name}": column for name, column in zip(of_all.names(), stats.T)})
        values.update({f"{prefix}AP {name}": column for name, column in zip(class_names, class_ap.T)})
    return values


@compiled(needs_numba=False)
def _count(found, ignored, bounds, areas, steps, groups, curves):
    """Bounds of groups and curves."""
    one = np.uint64(1)
    for label in range(len(bounds) - 1):
        for area in range(areas):
            group = label * areas + area
            whole = ((one << np.uint64(steps)) - one) << np.uint64(area * steps)
            number = 0
            for row in range(bounds[label], bounds[label + 1]):
                if ignored[row] & whole == whole:
                    continue
                number += 1
                for step in range(steps):
                    if (found[row] | ignored[row]) & (one << np.uint64(area * steps + step)):
                        curves[group * steps + step + 1] += 1
            groups[group + 1] = number
    for group in range(len(groups) - 1):
        groups[group + 1] += groups[group]
    for curve in range(len(curves) - 1):
        curves[curve + 1] += curves[curve]


@compiled(needs_numba=False)
def _fill(found, ignored, limit, bounds, areas, steps, groups, curves, chosen, places, kinds):
    """Rows of each group, places and kinds of each curve."""
    one = np.uint64(1)
    ends = curves[:-1].copy()
    for label in range(len(bounds) - 1):
        for area in range(areas):
            group = label * areas + area
            whole = ((one << np.uint64(steps)) - one) << np.uint64(area * steps)
            place = 0
            for row in range(bounds[label], bounds[label + 1]):
                if ignored[row] & whole == whole:
                    continue
                chosen[groups[group] + place] = row
                for step in range(steps):
                    bit = one << np.uint64(area * steps + step)
                    if (found[row] | ignored[row]) & bit:
                        curve = group * steps + step
                        places[ends[curve]] = place
                        kinds[ends[curve]] = limit[row] if found[row] & bit else -1
                        ends[curve] += 1
                place += 1


@compiled(needs_numba=False, error_model="numpy")
def _score(
    weights,
    images,
    groups,
    places,
    kinds,
    curves,
    annotated,
    recalls,
    reached_rows,
    reached,
    precise,
    stats,
    class_ap,
):
    """The numbers of one draw, written to ``stats`` and ``class_ap``."""
    num_classes, areas = len(class_ap), (len(groups) - 1) // len(class_ap)
    steps, limits = (len(curves) - 1) // (len(groups) - 1), len(stats) - 9
    tiny = np.spacing(1.0)
    totals = np.zeros((num_classes, areas))
    for row in range(len(annotated)):
        weight = weights[annotated[row, 0]]
        if weight:
            for area in range(areas):
                totals[annotated[row, 1], area] += weight * annotated[row, 2 + area]
    sums, counts = np.zeros(len(stats)), np.zeros(len(stats))
    right = np.zeros(limits + 1)
    class_ap[:] = np.nan
    for label in range(num_classes):
        for area in range(areas):
            if totals[label, area] == 0:
                continue
            group = label * areas + area
            first, total = groups[group], 0.0
            for place in range(groups[group + 1] - first):
                total += weights[images[first + place]]
                reached_rows[place] = total
            of_class = 0.0
            for step in range(steps):
                curve = group * steps + step
                right[:] = 0.0
                found, ignored, number = 0.0, 0.0, 0
                for event in range(curves[curve], curves[curve + 1]):
                    weight = weights[images[first + places[event]]]
                    if weight == 0:
                        continue
                    if kinds[event] < 0:
                        ignored += weight
                        continue
                    right[kinds[event]] += weight
                    found += weight
                    reached[number] = found / totals[label, area]
                    precise[number] = found / (reached_rows[places[event]] - ignored + tiny)
                    number += 1
                for place in range(number - 1, 0, -1):
                    precise[place - 1] = max(precise[place - 1], precise[place])
                place, area_below = 0, 0.0
                for point in range(len(recalls)):
                    while place < number and reached[place] < recalls[point]:
                        place += 1
                    if place == number:
                        break
                    area_below += precise[place]
                ap = area_below / len(recalls)
                of_class += ap
                # AP, AP50, AP75 of all areas, AP of each other area; AR of each limit, of each other area.
                if area == 0:
                    sums[0] += ap
                    counts[0] += 1
                    if step == 0 or step == 5:
                        at = 1 if step == 0 else 2
                        sums[at] += ap
                        counts[at] += 1
                    taken = 0.0
                    for which in range(limits):
                        taken += right[which]
                        sums[6 + which] += taken / totals[label, 0]
                        counts[6 + which] += 1
                else:
                    sums[2 + area] += ap
                    counts[2 + area] += 1
                    sums[6 + limits + area - 1] += found / totals[label, area]
                    counts[6 + limits + area - 1] += 1
            if area == 0:
                class_ap[label] = of_class / steps
    for which in range(len(stats)):
        stats[which] = sums[which] / counts[which] if counts[which] else np.nan
