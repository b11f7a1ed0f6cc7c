"""Scores of tables of detections, which ``DetectionMetrics`` writes."""

import functools
from collections.abc import Sequence

import numpy as np

from ....intervals.resampling import Recompute
from ....runtime.errors import UserError
from ....tasks.score_kind import Arrays, ScoreKind, are_below
from .accumulation import AREA_RANGES, MAX_DETECTIONS, MatchTable
from .resampling import DetectionCurves, named_scores

_PREFIXES = ("", "mask ")


class BoxScores(ScoreKind):
    """COCO's scores of boxes, and of masks if there are some."""

    class_score = "AP {}"
    swaps = 1_000

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes COCO's scores; raise UserError if detections' limits differ in the tables."""
        curves = {}
        limits = [tuple(piece.get("limits", MAX_DETECTIONS)) for piece in parts]
        if len(set(limits)) > 1:
            numbers = " and ".join(str(most) for most in sorted({table_limits[-1] for table_limits in limits}))
            raise UserError(
                f"results with {numbers} detections per image and category cannot be compared: evaluate all with one "
                "number"
            )
        for prefix in _PREFIXES:
            if all(f"{prefix}image_ids" in piece for piece in parts):
                tables, places, before = [], [], 0
                for part in parts:
                    table = MatchTable(*(part[f"{prefix}{name}"] for name in MatchTable._fields))
                    places.append(before + np.searchsorted(table.image_ids, part["ids"]))
                    tables.append(table._replace(image_ids=np.arange(before, before + len(table.image_ids))))
                    before += len(table.image_ids)
                joined = DetectionCurves.from_table(MatchTable.joined(tables), limits[0])
                curves[prefix] = joined, np.concatenate(places)
        return functools.partial(named_scores, curves, classes)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether the matches fit the images; compiled loops do not check bounds."""
        limits = arrays.get("limits", np.array(MAX_DETECTIONS))
        has_limits = limits.shape == (3,) and are_below(limits, 1 << 31) and bool((np.diff(limits) >= 0).all())
        return has_limits and all(
            _is_valid_match_table(
                {name: arrays[f"{prefix}{name}"] for name in MatchTable._fields}, arrays["ids"], classes
            )
            and len(arrays["ids"]) == samples
            for prefix in _PREFIXES
            if f"{prefix}image_ids" in arrays or not prefix
        )

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Count the annotations of each image by class and range of areas: int (images, classes, areas)."""
        counts = np.zeros((len(arrays["image_ids"]), *arrays["totals"].shape), np.int64)
        image, label, *area_counts = arrays["annotated"].T
        counts[image, label] = np.stack(area_counts, axis=1)
        return counts[np.searchsorted(arrays["image_ids"], arrays["ids"])]


def _is_valid_match_table(table: Arrays, ids: np.ndarray, classes: int) -> bool:
    counts, rows = table["counts"], [table[name] for name in ("labels", "scores", "true_positives", "ignored")]
    annotated, areas = table["annotated"], len(AREA_RANGES)
    return (
        np.array_equal(np.sort(ids), table["image_ids"])
        and bool((np.diff(table["image_ids"]) > 0).all())
        and counts.shape == ids.shape == table["num_true"].shape
        and are_below(counts, 1 << 31)
        and all(column.shape == (int(counts.sum()),) for column in rows)
        and all(table[name].dtype == np.uint64 for name in ("true_positives", "ignored"))
        and are_below(table["labels"], classes)
        and table["totals"].shape == (classes, areas)
        and annotated.shape == (len(annotated), 2 + areas)
        and are_below(annotated[:, 0], len(ids))
        and are_below(annotated[:, 1], classes)
    )
