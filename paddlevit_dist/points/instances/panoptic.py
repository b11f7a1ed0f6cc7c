"""Panoptic quality of points: one segment for each point, of a class with instances (things) or without (stuff).

Sources: A. Kirillov et al., "Panoptic Segmentation", CVPR 2019, arXiv 1801.00868 (quality; how segments are combined);
J. Behley et al., "A Benchmark for LiDAR-based Panoptic Segmentation based on KITTI", ICRA 2021, arXiv 2003.02371, and
its program, semantic-kitti-api (least size of segments); L. Porzi et al., "Seamless Scene Segmentation", CVPR 2019,
arXiv 1905.01220 (PQ dagger).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.metrics.segments import count_overlaps, match_segments
from ..data.scene import IGNORED
from .matching import InstancePrediction

_LEAST_FREE = 0.5  # share of an instance outside of better ones below which it is dropped


class _Segments(NamedTuple):
    segment_ids: np.ndarray  # int64 (points,), index of the segment of each point, -1 for none
    classes: np.ndarray  # int64 (segments,)
    sizes: np.ndarray  # int64 (segments,), in points


def combine_segments(
    classes: np.ndarray, predictions: Sequence[InstancePrediction], is_thing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Combine classes of points and overlapping instances to class and instance of each point, int64, -100 for none.

    Instances take the points that no better one has, best first; one with less than half of its points left is dropped,
    and instances of stuff are skipped. Points in no instance keep their class if it is stuff, and else have none.
    ``is_thing`` is bool (classes,).
    """
    combined = np.where(is_thing[classes], IGNORED, classes).astype(np.int64)
    instances = np.full(len(classes), IGNORED, np.int64)
    best_first = sorted(enumerate(predictions), key=lambda pair: -pair[1].confidence)
    for number, prediction in best_first:
        free = prediction.points[instances[prediction.points] < 0]
        if is_thing[prediction.class_number] and len(free) >= _LEAST_FREE * len(prediction.points):
            combined[free], instances[free] = prediction.class_number, number
    return combined, instances


def count_segments(
    true_class: np.ndarray,
    true_instance: np.ndarray,
    classes: np.ndarray,
    instances: np.ndarray,
    is_thing: np.ndarray,
    min_points: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Match the segments of one scene with an IoU above 0.5, as semantic-kitti-api does.

    Points of a class are one segment for each instance; those without an instance, and all of stuff, are one together.
    Points without a true class do not count. A segment without a match is an error if it has at least ``min_points``
    points. Classes and instances are integers (points,), negative for none, ``is_thing`` bool (classes,).

    Returns:
        Counts int64 (6, classes): matched segments, false ones, missed ones; correct points, points of the class,
        points predicted as it. And float64 (classes,), the sum of the IoU of matched segments.
    """
    number = len(is_thing)
    labeled = np.flatnonzero(true_class >= 0)
    truth, predicted = (
        _find_segments(kinds[labeled], numbers[labeled], is_thing)
        for kinds, numbers in ((true_class, true_instance), (classes, instances))
    )
    true_class, classes = true_class[labeled], classes[labeled]
    overlaps = count_overlaps(truth.segment_ids, predicted.segment_ids, len(truth.sizes), len(predicted.sizes))
    true_rows, found_rows, ious = match_segments(overlaps, truth.classes, predicted.classes)
    matched_classes, same = truth.classes[true_rows], true_class == classes
    counts = [matched_classes]
    for segments, rows in ((predicted, found_rows), (truth, true_rows)):
        is_error = segments.sizes >= min_points
        is_error[rows] = False
        counts.append(segments.classes[is_error])
    counts += [classes[same], true_class, classes[classes >= 0]]
    sums = np.bincount(matched_classes, ious, minlength=number)
    return np.stack([np.bincount(labels, minlength=number) for labels in counts]), sums


def _find_segments(classes: np.ndarray, instances: np.ndarray, is_thing: np.ndarray) -> _Segments:
    valid = np.flatnonzero(classes >= 0)
    kinds = classes[valid].astype(np.int64)
    numbers = np.where(is_thing[kinds], np.maximum(instances[valid], -1).astype(np.int64) + 1, 0)
    step = int(numbers.max(initial=0)) + 1
    keys, inverse, sizes = np.unique(kinds * step + numbers, return_inverse=True, return_counts=True)
    segment_ids = np.full(len(classes), -1, np.int64)
    segment_ids[valid] = inverse.reshape(-1)
    return _Segments(segment_ids, keys // step, sizes)
