"""Scores of tables of objects with keypoints, which ``KeypointMetrics`` writes. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....core.intervals import nanmean, quotient, weighted_sums
from ....core.intervals.recompute import Recompute
from ....core.intervals.score_ranges import SHARE_RANGE, ScoreRange
from ....core.runtime.json_format import format_json
from ....core.runtime.text_files import parse_json
from ....core.tasks.class_names import make_unique
from ....core.tasks.score import split_names
from ....core.tasks.score_kind import Arrays, FormatInterval, are_below
from ...detection.evaluation.curves import DetectionCurves
from ...detection.evaluation.images import build_image_columns
from ...detection.evaluation.match_tables import MatchTable
from ...detection.evaluation.score_kind import BoxScores, JoinedMatches, is_valid_match_table
from ..keypoint_set import KeypointSet
from .matching import DISTANCE, FOUND, MAX_DETECTIONS, SIMILARITY
from .point_scores import TASKS

KIND = "keypoints"
#: COCO's numbers of keypoints, in pycocotools' order
TEN = ("AP", "AP50", "AP75", "AP_medium", "AP_large", "AR", "AR50", "AR75", "AR_medium", "AR_large")
POINT_SCORE = "OKS {}"
_AT = {"AR50": 0, "AR75": 5}  # indices of ``IOU_THRESHOLDS``
_SUMS = 4  # columns of ``KeypointMatches.sums``


class KeypointScores(BoxScores):
    """COCO's ten numbers of keypoints, the AP of each category, and the mean similarity of each point.

    The similarity of a point, its part of OKS, is of the annotations that a result matches at an OKS of 0.5: recall
    says how many are not found. Each category is scored alone, with its own points and sigmas, and the ten numbers are
    means over categories.

    Arrays are a ``MatchTable`` of all images; "ids", int64 (samples,), the id of each sample's image; "points", float64
    (samples, points, 4), see ``KeypointMatches.sums``; "limits", COCO's maxDets, int (1,); and "point_names", see
    ``encode_names``. An evaluation also has "least_score", the lowest score of the results that ``columns`` counts.
    """

    other_class_scores = ()
    tasks = TASKS
    settings = ("limits", "least_score", "point_names")
    unsaved = ("least_score",)

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes the scores; raise UserError if results' limits differ in the tables."""
        curves = JoinedMatches.from_parts(parts).curves[""]
        points, names = np.concatenate([part["points"] for part in parts]), decode_names(parts[0])

        def compute_scores(weights: np.ndarray) -> dict[str, np.ndarray]:
            values, class_ap = compute_numbers(curves, weights)
            values.update({self.class_score.format(name): column for name, column in zip(classes, class_ap[..., 0].T)})
            sums = weighted_sums(weights, points[:, :, [FOUND, SIMILARITY]])
            similarities = quotient(sums[:, :, 1], sums[:, :, 0])  # (draws, points)
            return {**values, **{POINT_SCORE.format(name): own for name, own in zip(names, similarities.T)}}

        return self.declare(compute_scores, parts[0], classes)

    def split_names(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return quantity and class of the AP of categories, and of the similarity of points."""
        return {**super().split_names(arrays, classes), **split_names([POINT_SCORE], decode_names(arrays))}

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the range of fractions: COCO's ten numbers, the AP of each category, similarities of points."""
        of_classes = [self.class_score.format(name) for name in classes]
        of_points = [POINT_SCORE.format(name) for name in decode_names(arrays)]
        return dict.fromkeys([*TEN, *of_classes, *of_points], SHARE_RANGE)

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the columns of a table with one row per image, see ``build_image_columns``.

        For each point it has the mean distance in pixels and the mean similarity, of the annotations found at 0.5.
        """
        table = MatchTable.from_arrays(arrays)
        curves = DetectionCurves.from_table(table, arrays["limits"])
        columns = build_image_columns(table, curves, self.classes, float(arrays["least_score"]))
        places = np.searchsorted(table.image_ids, arrays["ids"])
        values: dict[str, Sequence[Any]] = {}
        for name, column in columns.items():
            values[name.partition("_")[0]] = [column[at] for at in places]
        found = arrays["points"][:, :, FOUND]
        distances, similarities = (quotient(arrays["points"][:, :, at], found) for at in (DISTANCE, SIMILARITY))
        for number, name in enumerate(decode_names(arrays)):
            values[f"{name} error_px"] = distances[:, number]
            values[POINT_SCORE.format(name)] = similarities[:, number]
        return values

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the ten numbers."""
        parts = [f"{name} {values[name]:.4f}" for name in TEN if name in values]
        if "AP" not in values:
            return " ".join(["AP not defined", *parts])
        parts[0] += format_interval("AP", 3)
        return " ".join(parts)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether the matches fit the images; compiled loops do not check bounds."""
        limits, points = arrays.get("limits", np.array([MAX_DETECTIONS])), arrays["points"]
        return (
            limits.shape == (1,)
            and are_below(limits, 1 << 31)
            and is_valid_match_table(arrays, "", classes)
            and len(arrays["ids"]) == samples
            and points.shape == (samples, len(decode_names(arrays)), _SUMS)
        )


def compute_numbers(curves: DetectionCurves, weights: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Compute COCO's ten numbers of draws by name, (draws,), and of categories AP, AP50, AP75, (draws, n, 3)."""
    stats, class_ap, recalls = curves.compute(weights)
    ap, ap50, ap75, _, ap_medium, ap_large, ar, _, ar_medium, ar_large = stats.T
    ar50, ar75 = (nanmean(recalls[:, :, step]) for step in _AT.values())
    columns = (ap, ap50, ap75, ap_medium, ap_large, ar, ar50, ar75, ar_medium, ar_large)
    return dict(zip(TEN, columns)), class_ap


def score_table(table: MatchTable, most: int, weights: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Compute ``compute_numbers`` of a table that was matched with at most this number of results."""
    return compute_numbers(DetectionCurves.from_table(table, [most]), weights)


def name_points(class_names: Sequence[str], keypoint_sets: Sequence[KeypointSet]) -> list[str]:
    """Return the names of the points of all categories, with the category in front if there are several."""
    if len(keypoint_sets) == 1:
        return list(keypoint_sets[0].names)
    names = [f"{name} {point}" for name, points in zip(class_names, keypoint_sets) for point in points.names]
    # "left hand" and "x" are joined as "left" and "hand x" are.
    return make_unique(names, [f"point {number}" for number in range(len(names))])


def encode_names(names: Sequence[str]) -> np.ndarray:
    """Return names as an array of a table: the bytes of a JSON list, uint8 (bytes,)."""
    return np.frombuffer(format_json(list(names)).encode(), np.uint8)


def decode_names(arrays: Arrays) -> list[str]:
    """Return the names of the points in a table; raise ValueError if they are not a JSON list."""
    names = parse_json(arrays["point_names"].tobytes())
    if not isinstance(names, list):
        raise ValueError("expected a list of names")
    return [str(name) for name in names]
