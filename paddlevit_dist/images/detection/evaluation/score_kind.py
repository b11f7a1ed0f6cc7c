"""Scores of tables of detections, which ``DetectionMetrics`` writes."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.intervals.recompute import Recompute
from ....core.intervals.score_ranges import SHARE_RANGE, ScoreRange
from ....core.runtime.errors import UserError
from ....core.tasks.score import Score, split_names
from ....core.tasks.score_kind import Arrays, FormatInterval, ScoreKind, are_below
from .curves import DetectionCurves, list_recalls, stat_names
from .images import build_image_columns
from .match_tables import AREA_RANGES, MAX_DETECTIONS, MatchTable
from .operating_points import WishedRates, find_thresholds, split_by_class

PREFIXES = ("", "mask ")  # of the names of arrays and scores, of boxes and of masks


class BoxScores(ScoreKind):
    """COCO's scores of boxes, and of masks if there are some.

    Arrays are a ``MatchTable`` of all images; "ids", int64 (samples,), the id of each sample's image; and "limits",
    COCO's maxDets. An evaluation also has "wished", ``WishedRates`` of boxes, NaN for none, and
    "least_score", the lowest score of the detections that ``columns`` counts.
    """

    class_score = "AP {}"
    other_class_scores: Sequence[str] = (f"{PREFIXES[1]}AP {{}}",)
    class_means = {f"{prefix}{name}": f"{prefix}AP {{}}" for prefix in PREFIXES for name in ("AP", "AP50", "AP75")}
    swaps = 1_000
    settings: Sequence[str] = ("limits", "wished", "least_score")
    unsaved: Sequence[str] = ("wished", "least_score")

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes COCO's scores; raise UserError if detections' limits differ in the tables."""
        joined = JoinedMatches.from_parts(parts)
        samples, curves = joined.samples, joined.curves
        wished = _read_wishes(parts[0])
        detections = split_by_class(joined.tables[""]) if any(wished) else []

        def compute_scores(weights: np.ndarray) -> dict[str, np.ndarray]:
            values: dict[str, np.ndarray] = {}
            for prefix, own in curves.items():
                stats, class_ap = own.scores(weights)
                values.update(
                    {f"{prefix}{name}": column for name, column in zip(stat_names(own.max_detections), stats.T)}
                )
                values.update({f"{prefix}AP {name}": column for name, column in zip(classes, class_ap[..., 0].T)})
            return values | find_thresholds(detections, classes, wished, weights[:, samples])

        return self.declare(compute_scores, parts[0], classes)

    def list_class_scores(self, arrays: Arrays) -> Sequence[str]:
        """Return the names of the AP of boxes and of masks, and of the thresholds."""
        return (*super().list_class_scores(arrays), *_list_thresholds(arrays))

    def describe(self, names: Iterable[str], arrays: Arrays, classes: Sequence[str]) -> dict[str, Score]:
        """Describe the values; of a threshold neither more nor less is better."""
        scores, thresholds = super().describe(names, arrays, classes), split_names(_list_thresholds(arrays), classes)
        undirected = {name: dataclasses.replace(scores[name], better="") for name in thresholds if name in scores}
        return {**scores, **undirected}

    def join(self, parts: Sequence[Arrays]) -> Arrays:
        """Join the arrays of tables: images are numbered over all of them, and matches are in this order."""
        joined = JoinedMatches.from_parts(parts)
        ids = np.argsort(joined.samples)
        matches = {key: array for name, own in joined.tables.items() for key, array in own.to_arrays(name).items()}
        return {**super().join(parts), **matches, "ids": ids}

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the range of fractions: COCO's numbers, the AP of each class, and its thresholds."""
        limits = np.asarray(arrays.get("limits", MAX_DETECTIONS)).tolist()
        names = [*stat_names(limits), *(self.class_score.format(name) for name in classes)]
        thresholds = [threshold.format(name) for threshold in _list_thresholds(arrays) for name in classes]
        return dict.fromkeys([*(f"{prefix}{name}" for prefix in PREFIXES for name in names), *thresholds], SHARE_RANGE)

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the images."""
        return {"images": len(arrays["ids"])}

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return the columns of a table with one row per image, see ``build_image_columns``."""
        values: dict[str, Sequence[Any]] = {}
        for prefix in PREFIXES:
            if f"{prefix}image_ids" in arrays:
                table = MatchTable.from_arrays(arrays, prefix)
                curves = DetectionCurves.from_table(table, arrays["limits"])
                columns = build_image_columns(table, curves, self.classes, float(arrays["least_score"]))
                places = np.searchsorted(table.image_ids, arrays["ids"])
                values.update({f"{prefix}{name}": [column[at] for at in places] for name, column in columns.items()})
        return values

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the most important scores."""
        names = ["AP", "AP50", "AP75", *list_recalls(values)[-1:], *(f"{PREFIXES[1]}{name}" for name in ("AP", "AP50"))]
        parts = [f"{name} {values[name]:.4f}" for name in names if name in values]
        if "AP" not in values:
            return " ".join(["AP not defined", *parts])
        parts[0] += format_interval("AP", 3)
        return " ".join(parts)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether the matches fit the images; compiled loops do not check bounds."""
        limits = arrays.get("limits", np.array(MAX_DETECTIONS))
        has_limits = limits.shape == (3,) and are_below(limits, 1 << 31) and bool((np.diff(limits) >= 0).all())
        return has_limits and all(
            is_valid_match_table(arrays, prefix, classes) and len(arrays["ids"]) == samples
            for prefix in PREFIXES
            if f"{prefix}image_ids" in arrays or not prefix
        )

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Count the annotations of each image by class and range of areas: int (images, classes, areas)."""
        counts = np.zeros((len(arrays["image_ids"]), *arrays["totals"].shape), np.int64)
        image, label, *area_counts = arrays["annotated"].T
        counts[image, label] = np.stack(area_counts, axis=1)
        return counts[np.searchsorted(arrays["image_ids"], arrays["ids"])]

    def count_objects(self, arrays: Arrays) -> np.ndarray:
        """Count the annotations of each image: int (images,)."""
        return self.truth(arrays)[:, :, 0].sum(axis=1)  # the first range of areas has all


def _read_wishes(arrays: Arrays) -> WishedRates:
    return WishedRates(*(None if np.isnan(rate) else rate for rate in arrays.get("wished", ())))


def _list_thresholds(arrays: Arrays) -> list[str]:
    """Return the names of the thresholds of a class, with "{}" for the class."""
    wished = _read_wishes(arrays)
    return [wished.name(kind, "{}") for kind in WishedRates._fields if getattr(wished, kind) is not None]


class JoinedMatches(NamedTuple):
    """The matches of the images of several tables, by their prefix in ``PREFIXES``."""

    samples: np.ndarray  # int64 (images,), sample of each image, counted over all tables
    tables: dict[str, MatchTable]  # image ids are counted over all tables
    curves: dict[str, DetectionCurves]  # of the samples

    @classmethod
    def from_parts(cls, parts: Sequence[Arrays]) -> "JoinedMatches":
        """Join the arrays of tables; raise UserError if detections' limits differ in them."""
        limits = [tuple(part.get("limits", MAX_DETECTIONS)) for part in parts]
        if len(set(limits)) > 1:
            numbers = " and ".join(str(most) for most in sorted({table_limits[-1] for table_limits in limits}))
            raise UserError(
                f"results with {numbers} detections per image and category cannot be compared: evaluate all with one "
                "number"
            )
        sizes = [len(part["ids"]) for part in parts]
        starts = np.cumsum(sizes) - sizes
        samples = np.concatenate([start + np.argsort(part["ids"]) for start, part in zip(starts, parts)])
        tables = {}
        for prefix in PREFIXES:
            if all(f"{prefix}image_ids" in part for part in parts):
                own = [MatchTable.from_arrays(part, prefix) for part in parts]
                tables[prefix] = MatchTable.joined(
                    [
                        table._replace(image_ids=start + np.arange(len(table.counts)))
                        for start, table in zip(starts, own)
                    ]
                )
        curves = {name: DetectionCurves.from_table(table, limits[0]) for name, table in tables.items()}
        return cls(samples, tables, {name: own.renumbered(samples) for name, own in curves.items()})


def is_valid_match_table(arrays: Arrays, prefix: str, classes: int) -> bool:
    """Return whether the arrays of a prefix fit the ids, and each other."""
    ids, table = arrays["ids"], {name: arrays[f"{prefix}{name}"] for name in (*MatchTable._fields[:-1], "totals")}
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
