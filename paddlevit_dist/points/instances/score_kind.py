"""Scores of instances of points from their matches with the truth in each scene. Needs no Paddle.

Average precision follows the rules of ScanNet's benchmark.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.intervals import ScoreRange, nanmean, panoptic_scores, weighted_sums
from ...core.intervals.score_ranges import SHARE_RANGE
from ...core.metrics.confusion import ConfusionScores
from ...core.runtime.compiled import compiled
from ...core.tasks.score_kind import Arrays, FormatInterval, are_below, format_losses
from .matching import DECISIONS, IOU_THRESHOLDS

_AT_50, _AT_25 = (int(np.argmin(np.abs(IOU_THRESHOLDS - iou))) for iou in (0.5, 0.25))
_MEAN_POSITIONS = [position for position in range(len(IOU_THRESHOLDS)) if position != _AT_25]
_KINDS = ("AP", "AP50", "AP25")


class InstanceScores(ConfusionScores):
    """AP of instances, scores of the classes of points, and panoptic quality if segments are counted, as fractions.

    It reads the arrays of ``ConfusionScores`` and of ``matching.flatten_tables``. "instance_classes", int, are the
    classes that the matches number from 0. With "segment_counts" and "segment_ious", the counts and ious of
    ``intervals.panoptic_scores``, there is panoptic quality. Its things are the instance classes.
    """

    class_score = "AP {}"
    other_class_scores = ("AP50 {}", "AP25 {}", "IoU {}", "PQ {}")
    class_means = {
        **dict.fromkeys(ConfusionScores.class_means, "IoU {}"),
        **{kind: f"{kind} {{}}" for kind in _KINDS},
        **dict.fromkeys(("PQ", "SQ", "RQ", "PQ_dagger"), "PQ {}"),
    }
    swaps = 1_000
    is_ranking = True
    settings = ("instance_classes",)

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute AP, which is NaN without any true instance that is large enough, and the other scores."""
        chosen = arrays["instance_classes"]
        precisions = class_precisions(arrays, weights)
        values = {kind: nanmean(per_class) for kind, per_class in precisions.items()}
        values |= super().compute(arrays, weights)
        for kind, per_class in precisions.items():
            values |= {f"{kind} {self.classes[number]}": column for number, column in zip(chosen, per_class.T)}
        if "segment_counts" in arrays:
            is_thing = np.isin(np.arange(len(self.classes)), chosen)
            counts, ious = arrays["segment_counts"], arrays["segment_ious"]
            values |= panoptic_scores(counts, ious, self.classes, is_thing)(weights)
        return values

    def count_objects(self, arrays: Arrays) -> np.ndarray:
        """Count the true instances of each scene: (scenes,)."""
        return arrays["num_true"].sum(axis=1)

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of the loss and of fractions."""
        names = [*_KINDS, "PQ", "SQ", "RQ", "PQ_dagger", "PQ_things", "PQ_stuff"]
        names += [f"{kind} {name}" for kind in (*_KINDS, "PQ") for name in classes]
        return {**super().find_ranges(arrays, classes), **dict.fromkeys(names, SHARE_RANGE)}

    def select(self, arrays: Arrays, row: int) -> Arrays:
        """Return the arrays of one scene."""
        end = int(arrays["rows"][: row + 1].sum())
        decisions = slice(end - int(arrays["rows"][row]), end)
        return {**super().select(arrays, row), **{name: arrays[name][decisions] for name in DECISIONS}}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return counts of true, found, false and missed instances at an IoU of 0.5, AP, and other scores by scene.

        AP of a scene is NaN if it has no true instances.
        """
        values, number = super().columns(arrays), arrays["num_true"].sum(axis=1)
        scenes = np.repeat(np.arange(len(number)), arrays["rows"])
        is_right, at_50 = arrays["is_right"], arrays["thresholds"] == _AT_50
        right, wrong = (np.bincount(scenes[at_50 & part], minlength=len(number)) for part in (is_right, ~is_right))
        return {
            "instances": number,
            "true positives": right,
            "false positives": wrong,
            "missed": arrays["missed"][:, :, _AT_50].sum(axis=1),
            **{kind: np.where(number > 0, values.pop(kind), np.nan) for kind in _KINDS},
            **values,
        }

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with."""
        text = "AP not defined (no instance is large enough)"
        if "AP" in values:
            text = (
                f"AP {values['AP']:.4f}{format_interval('AP', 3)} AP50 {values['AP50']:.4f} AP25 {values['AP25']:.4f}"
            )
        text = f"{text} mIoU {values['mIoU']:.4f} {format_losses(values)}"
        if "PQ" not in values:
            return text
        segments = " ".join(f"{kind} {values[kind]:.4f}" for kind in ("SQ", "RQ", "PQ_dagger"))
        return f"PQ {values['PQ']:.4f}{format_interval('PQ', 3)} {segments} {text}"

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether the decisions fit the scenes and classes; compiled loops do not check bounds."""
        rows, chosen = arrays["rows"], arrays["instance_classes"]
        decisions = [arrays[name] for name in DECISIONS]
        shapes = {"segment_counts": (samples, 6, classes), "segment_ious": (samples, classes)}
        return (
            all(arrays[name].shape == shape for name, shape in shapes.items() if "segment_counts" in arrays)
            and super().is_valid(arrays, samples, classes)
            and rows.shape == (samples,)
            and are_below(rows, 1 << 31)
            and all(column.shape == (int(rows.sum()),) for column in decisions)
            and are_below(chosen, classes)
            and arrays["missed"].shape == (samples, len(chosen), len(IOU_THRESHOLDS))
            and arrays["num_true"].shape == (samples, len(chosen))
            and are_below(arrays["class_numbers"], len(chosen))
            and are_below(arrays["thresholds"], len(IOU_THRESHOLDS))
        )


def class_precisions(arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Compute AP (the mean for IoU from 0.5 to 0.9), AP50 and AP25 of each class, float64 (draws, classes)."""
    precisions = average_precisions(arrays, weights)
    means = precisions[:, :, _MEAN_POSITIONS].mean(axis=2), precisions[:, :, _AT_50], precisions[:, :, _AT_25]
    return dict(zip(_KINDS, means))


def average_precisions(arrays: Arrays, weights: np.ndarray) -> np.ndarray:
    """Compute the average precision of each class and IoU, float64 (draws, classes, thresholds).

    It is NaN for a class without a sufficiently large true instance, and 0 for one without predictions. There is at
    least one scene.
    """
    scenes, classes, thresholds = arrays["missed"].shape
    scene_rows = np.repeat(np.arange(scenes), arrays["rows"])
    # a curve for each class and threshold
    curves = arrays["class_numbers"].astype(np.int64) * thresholds + arrays["thresholds"]
    order = np.lexsort((-arrays["scores"], curves))
    curves, scores = curves[order], arrays["scores"][order]
    # Decisions with the same score count together: the benchmark uses distinct scores.
    is_last = np.ones(len(order), bool)
    is_last[:-1] = (curves[1:] != curves[:-1]) | (scores[1:] != scores[:-1])
    bounds = np.searchsorted(curves, np.arange(classes * thresholds + 1))
    missed = weighted_sums(weights, arrays["missed"]).reshape(len(weights), -1)  # (draws, curves)
    areas = np.empty(missed.shape)
    _areas(weights, scene_rows[order], arrays["is_right"][order], is_last, bounds, missed, areas)
    areas = areas.reshape(-1, classes, thresholds)
    areas[weighted_sums(weights, arrays["num_true"]) == 0] = np.nan
    return areas


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
