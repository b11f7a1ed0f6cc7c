"""Which predicted instances find which true ones, scene by scene, as ScanNet's benchmark counts them.

Source: the rules of the benchmark's evaluation of instances (A. Dai et al., "ScanNet", CVPR 2017, arXiv 1702.04405, and
its documentation), with PointGroup's thresholds: IoU 0.5 to 0.9 in steps of 0.05, and 0.25.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence

import numpy as np

IOU_THRESHOLDS = np.append(np.arange(0.5, 0.95, 0.05), 0.25)
SMALLEST_INSTANCE = 100  # points; smaller predictions are dropped, smaller true instances neither found nor missed


class Prediction(NamedTuple):
    """One predicted instance.

    Attributes:
        class_number: from 0; what is outside the evaluated classes is left out.
        confidence: larger is surer.
        points: int64 (n,), the numbers of its points within the scene, each once.
    """

    class_number: int
    confidence: float
    points: np.ndarray


class MatchTable(NamedTuple):
    """What one scene, or several together, contribute to average precision.

    Attributes:
        class_numbers: int16 (M,), of each scored decision.
        thresholds: int8 (M,), position in ``IOU_THRESHOLDS``.
        scores: float64 (M,), confidence.
        is_right: bool (M,), an instance found, or a false alarm.
        missed: int64 (classes, thresholds), true instances that were not found.
        num_true: int64 (classes,), true instances that are large enough.
    """

    class_numbers: np.ndarray
    thresholds: np.ndarray
    scores: np.ndarray
    is_right: np.ndarray
    missed: np.ndarray
    num_true: np.ndarray

    @classmethod
    def empty(cls, num_classes: int) -> "MatchTable":
        decisions = [np.zeros(0, dtype) for dtype in (np.int16, np.int8, np.float64, bool)]
        return cls(*decisions, np.zeros((num_classes, len(IOU_THRESHOLDS)), np.int64), np.zeros(num_classes, np.int64))

    @classmethod
    def joined(cls, tables: Sequence["MatchTable"]) -> "MatchTable":
        """All decisions, and the sums of what is counted; at least one table."""
        columns = list(zip(*tables))
        return cls(*(np.concatenate(column) for column in columns[:4]), *(sum(column) for column in columns[4:]))


def match_scene(
    true_class: np.ndarray, true_instance: np.ndarray, predictions: Sequence[Prediction], num_classes: int
) -> MatchTable:
    """Compare the predictions of one scene with its true instances.

    Predictions are taken in the order given: of several that overlap a true instance enough, the first one finds it and
    the others are false alarms (the instance keeps the highest of their scores, the false alarm has the lower one).
    A prediction that overlaps nothing enough is a false alarm too, unless the share of its points that lie on void or
    on true instances of its class that are too small is above the threshold.

    Args:
        true_class: integers (N,), evaluated class of each point; anything outside 0 .. num_classes - 1 is void.
        true_instance: integers (N,); points of the same class and number are one instance.
    """
    truth = _Truth(true_class, true_instance, num_classes)
    table = MatchTable.empty(num_classes)
    candidates: List[List[_Candidate]] = [[] for _ in range(num_classes)]
    for prediction in predictions:
        if len(prediction.points) >= SMALLEST_INSTANCE and 0 <= prediction.class_number < num_classes:
            candidates[prediction.class_number].append(truth.compare(prediction))
    decisions: List[tuple] = []
    for number, found in enumerate(candidates):
        sizes = truth.sizes_of(number)
        table.num_true[number] = np.count_nonzero(sizes >= SMALLEST_INSTANCE)
        for position, threshold in enumerate(IOU_THRESHOLDS):
            scored, missed = _decide(found, sizes, threshold)
            decisions += [(number, position, *decision) for decision in scored]
            table.missed[number, position] = missed
    if not decisions:
        return table
    columns = [np.array(c, like.dtype) for c, like in zip(zip(*decisions), table[:4])]
    return MatchTable(*columns, *table[4:])


class _Candidate(NamedTuple):
    """A prediction beside the true instances of its class.

    Attributes:
        confidence: as predicted.
        iou: float64 (instances of the class,).
        ignored: share of its points on void or on instances of its class that are too small.
    """

    confidence: float
    iou: np.ndarray
    ignored: float


class _Truth:
    """The true instances of a scene, numbered by class and then by their own number."""

    def __init__(self, true_class: np.ndarray, true_instance: np.ndarray, num_classes: int) -> None:
        true_class = np.asarray(true_class, np.int64)
        self.is_void = (true_class < 0) | (true_class >= num_classes)
        valid = np.flatnonzero(~self.is_void)
        pairs = np.stack([true_class[valid], np.asarray(true_instance, np.int64)[valid]], axis=1)
        instances, number, self.sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        self.number_of_point = np.full(len(true_class), -1, np.int64)
        self.number_of_point[valid] = number.reshape(-1)
        self.first_of_class = np.searchsorted(instances[:, 0], np.arange(num_classes + 1))  # (classes + 1,)

    def sizes_of(self, class_number: int) -> np.ndarray:
        return self.sizes[self.first_of_class[class_number] : self.first_of_class[class_number + 1]]

    def compare(self, prediction: Prediction) -> _Candidate:
        first, end = self.first_of_class[prediction.class_number : prediction.class_number + 2]
        numbers = self.number_of_point[prediction.points]
        inside = numbers[(numbers >= first) & (numbers < end)]
        shared = np.bincount(inside - first, minlength=end - first)  # (instances of the class,)
        sizes, total = self.sizes[first:end], len(prediction.points)
        void = np.count_nonzero(self.is_void[prediction.points]) + shared[sizes < SMALLEST_INSTANCE].sum()
        return _Candidate(float(prediction.confidence), shared / (sizes + total - shared), float(void / total))


def _decide(candidates: Sequence[_Candidate], sizes: np.ndarray, threshold: float) -> "tuple[list, int]":
    """(score, is right) of each decision in one class at one threshold, and the number of instances missed."""
    decisions = []
    missed = 0
    is_taken = [False] * len(candidates)
    for instance in np.flatnonzero(sizes >= SMALLEST_INSTANCE):
        best = None
        for number, candidate in enumerate(candidates):
            if is_taken[number] or not candidate.iou[instance] > threshold:
                continue
            if best is None:
                best = candidate.confidence
                is_taken[number] = True  # a later instance cannot be found by it; a false alarm still may be
            else:
                decisions.append((min(best, candidate.confidence), False))
                best = max(best, candidate.confidence)
        if best is None:
            missed += 1
        else:
            decisions.append((best, True))
    for candidate in candidates:
        if not (candidate.iou > threshold).any() and candidate.ignored <= threshold:
            decisions.append((candidate.confidence, False))
    return decisions, missed
