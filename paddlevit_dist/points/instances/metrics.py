"""Average precision of instances, from matching predictions with the ground truth in each scene; IoU of classes.

The rules follow ScanNet's benchmark. Scenes of all ranks are pooled before any division.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...distributed import all_gather
from ...intervals import nanmean, weighted_sums
from ...runtime.compiled import compiled
from ...tasks.metrics import PerSampleMetrics, SampleTable
from ..segmentation.metrics import SemanticMetrics

IOU_THRESHOLDS = np.append(np.arange(0.5, 0.95, 0.05), 0.25)
MIN_INSTANCE_POINTS = 100  # smaller predictions are dropped, smaller true instances are not counted
_AT_50, _AT_25 = (int(np.argmin(np.abs(IOU_THRESHOLDS - iou))) for iou in (0.5, 0.25))
_MEAN_POSITIONS = [position for position in range(len(IOU_THRESHOLDS)) if position != _AT_25]


class InstancePrediction(NamedTuple):
    """One predicted instance."""

    class_number: int  # from 0; predictions outside the evaluated classes are ignored
    confidence: float  # higher is more confident
    points: np.ndarray  # int64 (n,), unique indices of its points within the scene


class InstanceMatchTable(NamedTuple):
    """Contribution of one or more scenes to average precision."""

    class_numbers: np.ndarray  # int16 (M,), class of each decision, a true or false positive
    thresholds: np.ndarray  # int8 (M,), index into ``IOU_THRESHOLDS``
    scores: np.ndarray  # float64 (M,), confidence
    is_right: np.ndarray  # bool (M,), true for a true positive
    missed: np.ndarray  # int64 (classes, thresholds), true instances that were not found
    num_true: np.ndarray  # int64 (classes,), sufficiently large true instances

    @classmethod
    def empty(cls, num_classes: int) -> "InstanceMatchTable":
        """Return a table without decisions."""
        return cls(
            class_numbers=np.zeros(0, np.int16),
            thresholds=np.zeros(0, np.int8),
            scores=np.zeros(0, np.float64),
            is_right=np.zeros(0, bool),
            missed=np.zeros((num_classes, len(IOU_THRESHOLDS)), np.int64),
            num_true=np.zeros(num_classes, np.int64),
        )

    @classmethod
    def concat(cls, tables: "Sequence[InstanceMatchTable]") -> "InstanceMatchTable":
        """Concatenate the decisions and sum the counts of one or more tables."""
        columns = list(zip(*tables))
        return cls(*(np.concatenate(column) for column in columns[:4]), *(sum(column) for column in columns[4:]))


def match_scene(
    true_class: np.ndarray, true_instance: np.ndarray, predictions: Sequence[InstancePrediction], num_classes: int
) -> InstanceMatchTable:
    """Match the predictions of one scene with its true instances. Predictions are processed in the given order.

    If several overlap a true instance sufficiently, the first one finds it and the others are false positives (the
    instance keeps the highest of their scores, the false positive gets the lower one). A prediction without sufficient
    overlap is also a false positive, unless the fraction of its points on void or on true instances of its class that
    are too small exceeds the threshold.

    ``true_class`` (N,) is the evaluated class of each point; anything outside 0 .. num_classes - 1 is void. Points of
    the same class and number in ``true_instance`` (N,) form one instance.
    """
    truth = _InstanceGroundTruth(true_class, true_instance, num_classes)
    table = InstanceMatchTable.empty(num_classes)
    candidates: list[list[_CandidateMatch]] = [[] for _ in range(num_classes)]
    for prediction in predictions:
        if len(prediction.points) >= MIN_INSTANCE_POINTS and 0 <= prediction.class_number < num_classes:
            candidates[prediction.class_number].append(truth.compare(prediction))
    decisions: list[tuple] = []
    for number, matches in enumerate(candidates):
        sizes = truth.get_sizes(number)
        table.num_true[number] = np.count_nonzero(sizes >= MIN_INSTANCE_POINTS)
        for position, threshold in enumerate(IOU_THRESHOLDS):
            scored, missed = _match_at_threshold(matches, sizes, threshold)
            decisions += [(number, position, *decision) for decision in scored]
            table.missed[number, position] = missed
    if not decisions:
        return table
    class_numbers, thresholds, scores, is_right = (
        np.array(column, template.dtype) for column, template in zip(zip(*decisions), table[:4])
    )
    return InstanceMatchTable(class_numbers, thresholds, scores, is_right, table.missed, table.num_true)


class _CandidateMatch(NamedTuple):
    """A prediction compared with the true instances of its class."""

    confidence: float
    iou: np.ndarray  # float64 (instances of the class,)
    ignored: float  # fraction of its points on void or on instances of its class that are too small


class _InstanceGroundTruth:
    """The true instances of a scene, sorted by class, then by number."""

    def __init__(self, true_class: np.ndarray, true_instance: np.ndarray, num_classes: int) -> None:
        true_class = np.asarray(true_class, np.int64)
        self.is_void = (true_class < 0) | (true_class >= num_classes)
        valid = np.flatnonzero(~self.is_void)
        pairs = np.stack([true_class[valid], np.asarray(true_instance, np.int64)[valid]], axis=1)
        instances, number, self.sizes = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        self.instance_rows = np.full(len(true_class), -1, np.int64)
        self.instance_rows[valid] = number.reshape(-1)
        self.class_starts = np.searchsorted(instances[:, 0], np.arange(num_classes + 1))  # (classes + 1,)

    def get_sizes(self, class_number: int) -> np.ndarray:
        """Return the number of points of each instance of a class."""
        return self.sizes[self.class_starts[class_number] : self.class_starts[class_number + 1]]

    def compare(self, prediction: InstancePrediction) -> _CandidateMatch:
        """Compute the overlap of a prediction with the instances of its class."""
        first, end = self.class_starts[prediction.class_number : prediction.class_number + 2]
        numbers = self.instance_rows[prediction.points]
        inside = numbers[(numbers >= first) & (numbers < end)]
        shared = np.bincount(inside - first, minlength=end - first)  # (instances of the class,)
        sizes, total = self.sizes[first:end], len(prediction.points)
        void = np.count_nonzero(self.is_void[prediction.points]) + shared[sizes < MIN_INSTANCE_POINTS].sum()
        return _CandidateMatch(float(prediction.confidence), shared / (sizes + total - shared), float(void / total))


def _match_at_threshold(candidates: Sequence[_CandidateMatch], sizes: np.ndarray, threshold: float) -> tuple[list, int]:
    """Return (score, is right) of each decision for one class and threshold, and the number of missed instances."""
    decisions = []
    missed = 0
    is_matched = [False] * len(candidates)
    for instance in np.flatnonzero(sizes >= MIN_INSTANCE_POINTS):
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


def average_precisions(table: InstanceMatchTable) -> np.ndarray:
    """Compute the average precision of each class and threshold, float64 (classes, thresholds).

    It is NaN for a class without a sufficiently large true instance, and 0 for one without predictions.
    """
    result = np.full(table.missed.shape, np.nan)
    for number, position in np.ndindex(*result.shape):
        if table.num_true[number] == 0:
            continue
        selected = (table.class_numbers == number) & (table.thresholds == position)
        missed = int(table.missed[number, position])
        result[number, position] = _average_precision(table.scores[selected], table.is_right[selected], missed)
    return result


def ap(precisions: np.ndarray) -> np.ndarray:
    """Return the mean of ``average_precisions`` (..., classes, thresholds) over 0.5 to 0.9, (..., classes)."""
    return precisions[..., _MEAN_POSITIONS].mean(axis=-1)


def ap50(precisions: np.ndarray) -> np.ndarray:
    """Return the average precision at an IoU of 0.5, (..., classes)."""
    return precisions[..., _AT_50]


def ap25(precisions: np.ndarray) -> np.ndarray:
    """Return the average precision at an IoU of 0.25, (..., classes)."""
    return precisions[..., _AT_25]


def mean_over_classes(per_class: np.ndarray) -> float:
    """Return the mean over the classes that have a value, 0 if none do."""
    values: list[float] = per_class[~np.isnan(per_class)].tolist()
    return float(np.mean(values)) if values else 0.0


def _average_precision(scores: np.ndarray, is_right: np.ndarray, missed: int) -> float:
    """Compute the area under the precision-recall curve by the benchmark's rule.

    It sums the precision at each distinct score times half the difference between the recalls of its two neighbors,
    with an extra last point of precision 1, recall 0.
    """
    if not len(scores):
        return 0.0
    order = np.argsort(scores, kind="stable")
    _, first = np.unique(scores[order], return_index=True)  # all decisions from this index on have at least that score
    below = np.concatenate([[0], np.cumsum(is_right[order])])[first]  # true positives below the score
    true_positives = np.count_nonzero(is_right) - below
    precision = np.append(true_positives / (len(scores) - first), 1.0)
    recall = np.append(true_positives / (np.count_nonzero(is_right) + missed), 0.0)
    padded = np.concatenate([recall[:1], recall, [0.0]])
    return float(precision @ (padded[:-2] - padded[2:]) / 2)


class InstanceRecord(NamedTuple):
    """Evaluation record of a scene: its points' confusion, int64 (classes, classes), and its contribution to AP."""

    confusion: np.ndarray
    matches: InstanceMatchTable


class InstanceMetrics(PerSampleMetrics):
    """Match tables of scenes, gathered from all ranks by ``compute``, and the counts of the semantic metrics.

    Classes that are not in ``instance_classes`` are void for matching.
    """

    num_arrays = 3  #: number of arrays that ``per_sample`` of this class returns; a derived class may append others

    def __init__(self, class_names: list[str], instance_classes: Sequence[int]) -> None:
        super().__init__()
        self.class_names = class_names
        self.instance_classes = list(instance_classes)
        self.semantic = SemanticMetrics(class_names)
        self.tables: list[InstanceMatchTable] = [InstanceMatchTable.empty(len(self.instance_classes))]

    def update_instances(
        self, true_class: np.ndarray, true_instance: np.ndarray, predictions: Sequence[InstancePrediction]
    ) -> None:
        """Add one scene: true class, integers (N,), any other number for none, and instance (N,), negative for none.

        All points of an instance are assigned the class of its first point, as in the ground truth that PointGroup
        writes. Predictions have semantic classes.
        """
        position = {number: index for index, number in enumerate(self.instance_classes)}
        instance_class = _map_instance_classes(np.asarray(true_class), np.asarray(true_instance), position)  # (N,)
        renumbered = [p._replace(class_number=position.get(p.class_number, -1)) for p in predictions]
        self.tables.append(match_scene(instance_class, true_instance, renumbered, len(self.instance_classes)))

    def update_semantic(
        self,
        predictions: paddle.Tensor,
        labels: paddle.Tensor,
        loss: paddle.Tensor | None,
        offsets: paddle.Tensor | None = None,
    ) -> None:
        """Add points, see ``SemanticMetrics.update``."""
        self.semantic.update(predictions, labels, loss, offsets)

    def merge(self, other: "InstanceMetrics") -> None:
        """Add the scenes of other metrics."""
        self.semantic.merge(other.semantic)
        self.tables += other.tables[1:]

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Return AP, AP50 and AP25 as fractions, mean and per class that occurs, and the semantic metrics.

        Every rank must call this.
        """
        gathered = all_gather(InstanceMatchTable.concat(self.tables))
        precisions = average_precisions(InstanceMatchTable.concat(gathered))  # (instance classes, thresholds)
        kinds = _by_kind(precisions)
        values = {key: mean_over_classes(class_values) for key, class_values in kinds.items()}
        values.update(self.semantic.compute({}))
        for index, number in enumerate(self.instance_classes):
            for kind, per_class in kinds.items():
                if not np.isnan(per_class[index]):  # a class without true instances has no value
                    values[f"{kind} {self.class_names[number]}"] = float(per_class[index])
        return values

    def per_sample(self) -> list[np.ndarray]:
        """Return the per-sample arrays of the semantic metrics, and an ``InstanceMatchTable`` for each scene."""
        tables = np.empty(len(self.tables) - 1, object)
        tables[:] = self.tables[1:]
        return [*self.semantic.per_sample(), tables]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Return the value of each metric in each bootstrap draw, (draws,)."""
        points = {"statistics": table[0], "losses": table[1]}
        values = dict(self.semantic.scores.compute(points, weights))
        for kind, per_class in _by_kind(resample_precisions(table[2], weights)).items():  # (draws, classes) each
            values[kind] = np.nan_to_num(nanmean(per_class))  # 0 without any true instance, as in ``compute``
            for index, number in enumerate(self.instance_classes):
                values[f"{kind} {self.class_names[number]}"] = per_class[:, index]
        return values

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Return the per-sample arrays as a table that can be saved."""
        statistics, losses, tables = table[: self.num_arrays]
        decisions = {
            name: np.concatenate([scene[column] for scene in tables])
            for column, name in enumerate(InstanceMatchTable._fields[:4])
        }
        counts = {name: np.stack([getattr(scene, name) for scene in tables]) for name in InstanceMatchTable._fields[4:]}
        rows = np.array([len(scene.scores) for scene in tables])
        arrays = {"statistics": statistics, "losses": losses, "rows": rows, **decisions, **counts}
        return SampleTable(
            "instances", self.class_names, {**arrays, "instance_classes": np.array(self.instance_classes)}
        )

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Return counts of true, found, false and missed instances at an IoU of 0.5, AP, and semantic metrics by scene.

        AP of a scene is NaN if it has no true instances.
        """
        tables = table[2]
        values = {"points": table[0][:, 1].sum(axis=1), **super().columns(table)}
        number = np.array([scene.num_true.sum() for scene in tables])
        at_50 = [scene.is_right[scene.thresholds == _AT_50] for scene in tables]
        return {
            "instances": number,
            "true positives": [int(decisions.sum()) for decisions in at_50],
            "false positives": [int((~decisions).sum()) for decisions in at_50],
            "missed": [int(scene.missed[:, _AT_50].sum()) for scene in tables],
            **{kind: np.where(number > 0, values.pop(kind), np.nan) for kind in ("AP", "AP50", "AP25")},
            **values,
        }

    def summary(self, values: dict[str, float]) -> str:
        """Return the main metrics as one line for the log."""
        text = " ".join(f"{kind} {values[kind]:.4f}" for kind in ("AP50", "AP25", "mIoU"))
        text = f"AP {values['AP']:.4f}{self.format_interval('AP', 3)} {text}"
        return f"{text} loss {values.get('loss', np.nan):.4f}"


def _by_kind(precisions: np.ndarray) -> dict[str, np.ndarray]:
    """Return AP, AP50 and AP25 of each class (..., classes), for precisions (..., classes, thresholds)."""
    return {"AP": ap(precisions), "AP50": ap50(precisions), "AP25": ap25(precisions)}


def _map_instance_classes(true_class: np.ndarray, true_instance: np.ndarray, position: dict[int, int]) -> np.ndarray:
    """Return the index of each point's class among the instance classes, -1 for void; int64 (N,)."""
    indices = np.full(len(true_class), -1, np.int64)
    members = np.flatnonzero(true_instance >= 0)
    if len(members):
        _, first, inverse = np.unique(true_instance[members], return_index=True, return_inverse=True)
        class_positions = [position.get(int(number), -1) for number in true_class[members[first]]]
        indices[members] = np.array(class_positions)[inverse.reshape(-1)]
    return indices


def resample_precisions(tables: Sequence[Any], weights: np.ndarray) -> np.ndarray:
    """Compute ``average_precisions`` of the scenes of each bootstrap draw, float64 (draws, classes, thresholds).

    ``weights`` (draws, scenes) is how often each scene, of at least one, is drawn.
    """
    classes, thresholds = tables[0].missed.shape
    class_numbers, threshold_indices, scores, is_right = (
        np.concatenate([table[column] for table in tables]) for column in range(4)
    )
    scenes = np.repeat(np.arange(len(tables)), [len(table.scores) for table in tables])
    curves = class_numbers.astype(np.int64) * thresholds + threshold_indices  # a curve for each class and threshold
    order = np.lexsort((-scores, curves))
    curves, scores = curves[order], scores[order]
    # Decisions with the same score count together: the benchmark uses distinct scores.
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


@compiled(needs_numba=False, error_model="numpy")
def _areas(weights, scenes, is_right, is_last, bounds, missed, areas):
    """Compute areas under precision-recall curves by trapezoids from precision 1, recall 0: the benchmark's sum."""
    for draw in range(len(weights)):
        for curve in range(len(bounds) - 1):
            num_true = missed[draw, curve]
            for row in range(bounds[curve], bounds[curve + 1]):
                if is_right[row]:
                    num_true += weights[draw, scenes[row]]
            right, number, area = 0.0, 0.0, 0.0
            recall_before, precision_before = 0.0, 1.0
            for row in range(bounds[curve], bounds[curve + 1]):
                weight = weights[draw, scenes[row]]
                number += weight
                if is_right[row]:
                    right += weight
                if is_last[row] and number > 0.0 and num_true > 0.0:
                    recall, precision = right / num_true, right / number
                    area += (recall - recall_before) * (precision + precision_before) / 2
                    recall_before, precision_before = recall, precision
            areas[draw, curve] = area
