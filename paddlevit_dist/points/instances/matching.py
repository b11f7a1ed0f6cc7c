"""Matches of predicted and true instances of a scene, by the rules of ScanNet's benchmark. Needs no Paddle."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.tasks.score_kind import Arrays

IOU_THRESHOLDS = np.append(np.arange(0.5, 0.95, 0.05), 0.25)
MIN_INSTANCE_POINTS = 100  # in the benchmark, smaller predictions are dropped, smaller true instances are not counted


class InstancePrediction(NamedTuple):
    """One predicted instance."""

    class_number: int  # from 0; predictions outside the evaluated classes are ignored
    confidence: float  # higher is more confident
    points: np.ndarray  # int64 (n,), unique indices of its points within the scene


class InstanceMatchTable(NamedTuple):
    """Contribution of a scene to average precision."""

    class_numbers: np.ndarray  # int16 (M,), class of each decision, a true or false positive
    thresholds: np.ndarray  # int8 (M,), index into ``IOU_THRESHOLDS``
    scores: np.ndarray  # float64 (M,), confidence
    is_right: np.ndarray  # bool (M,), true for a true positive
    missed: np.ndarray  # int64 (classes, thresholds), true instances that were not found
    num_true: np.ndarray  # int64 (classes,), sufficiently large true instances


_DECISION = np.dtype([("class_numbers", "i2"), ("thresholds", "i1"), ("scores", "f8"), ("is_right", "?")])
DECISIONS = InstanceMatchTable._fields[:4]  #: names of the arrays with a row for each decision, not for each scene


def match_scene(
    true_class: np.ndarray,
    true_instance: np.ndarray,
    predictions: Sequence[InstancePrediction],
    num_classes: int,
    min_points: int = MIN_INSTANCE_POINTS,
) -> InstanceMatchTable:
    """Match the predictions of one scene with its true instances. Predictions are processed in the given order.

    If several overlap a true instance sufficiently, the first one finds it and the others are false positives (the
    instance keeps the highest of their scores, the false positive gets the lower one). A prediction without sufficient
    overlap is also a false positive, unless the fraction of its points on void or on true instances of its class that
    are too small exceeds the threshold.

    ``true_class`` (N,) is the evaluated class of each point, negative for void. Points of the same class and number in
    ``true_instance`` (N,) form one instance. Instances of fewer than ``min_points`` are too small.
    """
    true_class = np.asarray(true_class, np.int64)
    valid = np.flatnonzero(true_class >= 0)
    pairs = np.stack([true_class[valid], np.asarray(true_instance, np.int64)[valid]], axis=1)
    instances, indices, sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)  # ordered by class
    point_instances = np.full(len(true_class), len(sizes), np.int64)  # the last number is void
    point_instances[valid] = indices.reshape(-1)
    starts = np.searchsorted(instances[:, 0], np.arange(num_classes + 1))
    decisions: list[tuple] = []
    missed, num_true = np.zeros((num_classes, len(IOU_THRESHOLDS)), np.int64), np.zeros(num_classes, np.int64)
    for number, (first, end) in enumerate(zip(starts[:-1], starts[1:])):
        class_sizes, candidates = sizes[first:end], []
        for prediction in predictions:
            total = len(prediction.points)
            if prediction.class_number == number and total >= min_points:
                counts = np.bincount(point_instances[prediction.points], minlength=len(sizes) + 1)
                shared = counts[first:end]
                void = counts[-1] + shared[class_sizes < min_points].sum()
                iou = shared / (class_sizes + total - shared)
                candidates.append(_CandidateMatch(float(prediction.confidence), iou, float(void / total)))
        is_large = class_sizes >= min_points
        num_true[number] = np.count_nonzero(is_large)
        for position, threshold in enumerate(IOU_THRESHOLDS):
            scored, missed[number, position] = _match_at_threshold(candidates, is_large, threshold)
            decisions += [(number, position, *decision) for decision in scored]
    rows = np.array(decisions, _DECISION)
    return InstanceMatchTable(**{name: rows[name] for name in DECISIONS}, missed=missed, num_true=num_true)


class _CandidateMatch(NamedTuple):
    """A prediction compared with the true instances of its class."""

    confidence: float
    iou: np.ndarray  # float64 (instances of the class,)
    ignored: float  # fraction of its points on void or on instances of its class that are too small


def _match_at_threshold(
    candidates: Sequence[_CandidateMatch], is_large: np.ndarray, threshold: float
) -> tuple[list, int]:
    """Return (score, is right) of each decision for one class and threshold, and the number of missed instances."""
    decisions = []
    missed = 0
    is_matched = [False] * len(candidates)
    for instance in np.flatnonzero(is_large):
        best_confidence = None
        for number, candidate in enumerate(candidates):
            if is_matched[number] or not candidate.iou[instance] > threshold:
                continue
            if best_confidence is None:
                best_confidence = candidate.confidence
                is_matched[number] = True  # it cannot match a later instance; it may still be a false positive
            else:
                decisions.append((min(best_confidence, candidate.confidence), False))
                best_confidence = max(best_confidence, candidate.confidence)
        if best_confidence is None:
            missed += 1
        else:
            decisions.append((best_confidence, True))
    for candidate in candidates:
        if not (candidate.iou > threshold).any() and candidate.ignored <= threshold:
            decisions.append((candidate.confidence, False))
    return decisions, missed


def map_instance_classes(true_class: np.ndarray, true_instance: np.ndarray, position: dict[int, int]) -> np.ndarray:
    """Return the index of each point's class among the instance classes, -1 for void; int64 (N,)."""
    indices = np.full(len(true_class), -1, np.int64)
    members = np.flatnonzero(true_instance >= 0)
    _, first, inverse = np.unique(true_instance[members], return_index=True, return_inverse=True)
    class_positions = [position.get(int(number), -1) for number in true_class[members[first]]]
    indices[members] = np.array(class_positions)[inverse.reshape(-1)]
    return indices


def find_largest(true_class: np.ndarray, true_instance: np.ndarray, classes: Sequence[int]) -> int:
    """Return the points of the largest instance of these classes in a scene, 0 without any."""
    members = map_instance_classes(true_class, true_instance, {number: number for number in classes}) >= 0
    return int(np.bincount(true_instance[members]).max(initial=0))


def flatten_tables(tables: Sequence[InstanceMatchTable]) -> Arrays:
    """Flatten the tables of one or more scenes to arrays by name, which ``InstanceScores`` reads.

    "rows", int (scenes,), is the number of decisions of each scene. The arrays of decisions follow one another in the
    order of scenes; "missed" and "num_true" are stacked.
    """
    decisions = {name: np.concatenate([table[column] for table in tables]) for column, name in enumerate(DECISIONS)}
    counts = {name: np.stack([getattr(table, name) for table in tables]) for name in InstanceMatchTable._fields[4:]}
    return {"rows": np.array([len(table.scores) for table in tables]), **decisions, **counts}
