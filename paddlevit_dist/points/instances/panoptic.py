"""Panoptic quality of points: one segment for each point, of a class with instances (things) or without (stuff).

Sources: A. Kirillov et al., "Panoptic Segmentation", CVPR 2019, arXiv 1801.00868 (quality; how segments are combined);
J. Behley et al., "A Benchmark for LiDAR-based Panoptic Segmentation based on KITTI", ICRA 2021, arXiv 2003.02371, and
its program, semantic-kitti-api (least size of segments); L. Porzi et al., "Seamless Scene Segmentation", CVPR 2019,
arXiv 1905.01220 (PQ dagger).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...distributed import all_gather
from ...intervals import panoptic_scores
from ...tasks.metrics import PerSampleMetrics
from ..data.scene import IGNORED
from .metrics import InstanceMetrics, InstancePrediction

_LEAST_FREE = 0.5  # share of an instance outside of better ones below which it is dropped
_MEANS = ("PQ", "SQ", "RQ", "PQ dagger")  # of all classes: a run needs them to choose its best checkpoint


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
    same = true_class == classes
    pairs, shared = np.unique(
        truth.segment_ids[same] * max(len(predicted.sizes), 1) + predicted.segment_ids[same], return_counts=True
    )
    true_ids, predicted_ids = np.divmod(pairs, max(len(predicted.sizes), 1))
    iou = shared / (truth.sizes[true_ids] + predicted.sizes[predicted_ids] - shared)
    is_match = iou > 0.5  # at most one for each segment
    matched_classes = truth.classes[true_ids[is_match]]
    counts = [matched_classes]
    for segments, paired_ids in ((predicted, predicted_ids), (truth, true_ids)):
        is_error = segments.sizes >= min_points
        is_error[paired_ids[is_match]] = False
        counts.append(segments.classes[is_error])
    counts += [classes[same], true_class, classes[classes >= 0]]
    sums = np.bincount(matched_classes, iou[is_match], minlength=number)
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


class PanopticMetrics(PerSampleMetrics):
    """Counts of matched, false and missed segments of scenes.

    It keeps no ``state``: ``compute`` gathers the tables of scenes from all ranks. Means are over the classes that have
    a segment, or for PQ dagger a point; semantic-kitti-api counts others as 0.
    """

    lists = ("_counts", "_ious")

    def __init__(self, class_names: Sequence[str], thing_classes: Sequence[int], min_points: int) -> None:
        super().__init__()
        self.class_names, self.min_points = list(class_names), min_points
        self.is_thing = np.isin(np.arange(len(self.class_names)), list(thing_classes))
        self._counts: list[np.ndarray] = []
        self._ious: list[np.ndarray] = []

    def update(
        self, true_class: np.ndarray, true_instance: np.ndarray, classes: np.ndarray, instances: np.ndarray
    ) -> None:
        """Add one scene: integers (points,) each, negative for none."""
        counts, ious = count_segments(true_class, true_instance, classes, instances, self.is_thing, self.min_points)
        self._counts.append(counts)
        self._ious.append(ious)

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Return the values of ``intervals.panoptic_scores`` as fractions; those without a segment are omitted.

        Means over all classes are 0 if there is no segment at all. Every rank must call this. Sums of IoU are rounded
        once, so that the order of scenes does not matter.
        """
        gathered = all_gather(self.per_sample())  # counts and IoU of each rank's scenes
        counts = np.concatenate([rank_counts for rank_counts, _ in gathered]).sum(axis=0)
        ious = np.concatenate([rank_ious for _, rank_ious in gathered])  # (scenes, classes)
        sums = np.array([math.fsum(column) for column in ious.T.tolist()])
        scores = panoptic_scores(counts[None], sums[None], self.class_names, self.is_thing)(np.ones((1, 1)))
        values = {name: float(column[0]) for name, column in scores.items()}
        values.update({name: 0.0 for name in _MEANS if np.isnan(values[name])})
        return {name: value for name, value in values.items() if not np.isnan(value)}

    def per_sample(self) -> list[np.ndarray]:
        """Return the two results of ``count_segments`` for each scene."""
        number = len(self.class_names)
        empty = np.zeros((0, 6, number), np.int64), np.zeros((0, number))
        return [np.stack(rows) if rows else none for rows, none in zip((self._counts, self._ious), empty)]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Return the value of each metric in each bootstrap draw, (draws,)."""
        return panoptic_scores(table[0], table[1], self.class_names, self.is_thing)(weights)

    def summary(self, values: dict[str, float]) -> str:
        """Return the main metrics as one line for the log."""
        text = " ".join(f"{kind} {values[kind]:.4f}" for kind in ("SQ", "RQ", "PQ dagger"))
        return f"PQ {values['PQ']:.4f}{self.format_interval('PQ', 3)} {text}"


class InstanceAndPanopticMetrics(InstanceMetrics):
    """``InstanceMetrics`` and ``PanopticMetrics`` of the same scenes."""

    def __init__(self, class_names: list[str], instance_classes: Sequence[int], min_points: int) -> None:
        super().__init__(class_names, instance_classes)
        self.panoptic = PanopticMetrics(class_names, instance_classes, min_points)

    def update_panoptic(
        self,
        true_class: np.ndarray,
        true_instance: np.ndarray,
        classes: np.ndarray,
        predictions: Sequence[InstancePrediction],
    ) -> None:
        """Add one scene, see ``combine_segments`` and ``count_segments``."""
        combined = combine_segments(classes, predictions, self.panoptic.is_thing)
        self.panoptic.update(true_class, true_instance, *combined)

    def merge(self, other: InstanceMetrics) -> None:
        """Add the scenes of other metrics of this class."""
        super().merge(other)
        if isinstance(other, InstanceAndPanopticMetrics):
            self.panoptic.merge(other.panoptic)

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Return the values of both; every rank must call this."""
        return {**super().compute(state), **self.panoptic.compute({})}

    def per_sample(self) -> list[np.ndarray]:
        """Return the arrays of both."""
        return [*super().per_sample(), *self.panoptic.per_sample()]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Return the value of each metric in each bootstrap draw, (draws,)."""
        segments = table[self.num_arrays :]
        return {**super().bootstrap_values(table, weights), **self.panoptic.bootstrap_values(segments, weights)}

    def to_sample_table(self, table: Sequence[np.ndarray]) -> Any:
        """Return the per-sample arrays as a table that can be saved."""
        samples = super().to_sample_table(table)
        segments = dict(zip(("segment_counts", "segment_ious"), table[self.num_arrays :]))
        return samples._replace(arrays={**samples.arrays, **segments})

    def summary(self, values: dict[str, float]) -> str:
        """Return the main metrics as one line for the log."""
        self.panoptic.intervals = self.intervals
        return f"{self.panoptic.summary(values)} {super().summary(values)}"
