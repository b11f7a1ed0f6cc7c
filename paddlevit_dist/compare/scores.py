"""Scores of tables of samples, for each kind of task.

Classes, confusions and boxes do not need Paddle. Volumes and instances use their metrics, which import it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..intervals import ClassificationCounts, ProportionRecompute, confusion_scores, means, panoptic_scores
from ..intervals.resampling import Recompute
from ..runtime.errors import UserError
from ..tasks.metrics import Arrays


class ScoreKind(NamedTuple):
    """Functions that compute the scores of one kind of table.

    Attributes:
        recompute: takes the arrays of one or more tables and the names of their classes, and returns a function from
            weights of the samples of all tables, one table after the other, to scores.
        is_valid: checks the arrays of a table for a number of samples and classes, before anything is computed.
        class_score: name of the score of a class, with "{}" for the class.
        decimals: number of decimals shown.
        swaps: number of swaps in a permutation test.
        hits: takes the arrays of a table and the names of classes, and returns the decisions whose share is a rate,
            bool (decisions,) by name.
    """

    recompute: Callable[[Sequence[Arrays], Sequence[str]], Recompute]
    is_valid: Callable[[Arrays, int, int], bool]
    class_score: str
    decimals: int = 4
    swaps: int = 10_000
    hits: Callable[[Arrays, Sequence[str]], Mapping[str, np.ndarray]] = lambda arrays, names: {}


def _join(parts: Sequence[Arrays], name: str) -> np.ndarray:
    return np.concatenate([part[name] for part in parts])


def _classes(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    labels, places = _join(parts, "labels"), _join(parts, "places")
    classified = ClassificationCounts(labels, places, len(names), names, parts[0]["top"].tolist())
    loss = means({"loss": _join(parts, "losses")})
    return ProportionRecompute(lambda weights: {**classified(weights), **loss(weights)}, classified.rates())


def _confusions(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    boundaries = _join(parts, "boundaries") if all("boundaries" in part for part in parts) else None
    return confusion_scores(_join(parts, "statistics"), names, _join(parts, "losses"), boundaries)


def _landmarks(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    from ..volumes.landmarks.metrics import LandmarkMetrics

    metrics, sums = LandmarkMetrics(names), _join(parts, "sums")
    return ProportionRecompute(lambda weights: metrics.bootstrap_values([sums], weights), metrics.proportions([sums]))


def _class_hits(arrays: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
    places, labels = arrays["places"], arrays["labels"]
    recalls = {f"recall {name}": places[labels == label] == 0 for label, name in enumerate(names)}
    return {**{f"top-{k}": places < k for k in arrays["top"].tolist()}, **recalls}


def _landmark_hits(arrays: Arrays, names: Sequence[str]) -> dict[str, np.ndarray]:
    from ..volumes.landmarks.metrics import RADII_MM, rate_name

    sums, rates = arrays["sums"], {}
    for place, radius in enumerate(RADII_MM, sums.shape[-1] - len(RADII_MM)):
        hits = sums[..., place] > 0  # (volumes, landmarks)
        rates[rate_name(radius)] = hits[sums[..., 0] > 0]
        for name, landmark_hits, is_annotated in zip(names, hits.T, sums[..., 0].T > 0):
            rates[f"{name} {rate_name(radius)}"] = landmark_hits[is_annotated]
    return rates


def _volume_classes(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    from ..volumes.segmentation.metrics import VolumeMetrics

    sums = _join(parts, "sums")
    metrics = VolumeMetrics(["background", *names], bool(sums[..., 9].any()))
    return lambda weights: metrics.bootstrap_values([sums], weights)


def _boxes(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    from ..images.detection.evaluation import accumulation, resampling

    fields, curves = accumulation.MatchTable._fields, {}
    limits = [tuple(part.get("limits", accumulation.MAX_DETECTIONS)) for part in parts]
    if len(set(limits)) > 1:
        numbers = " and ".join(str(most) for most in sorted({table_limits[-1] for table_limits in limits}))
        raise UserError(
            f"results with {numbers} detections per image and category cannot be compared: evaluate all with one number"
        )
    for prefix in ("", "mask "):
        if all(f"{prefix}image_ids" in part for part in parts):
            tables, places, before = [], [], 0
            for part in parts:
                table = accumulation.MatchTable(*(part[f"{prefix}{name}"] for name in fields))
                places.append(before + np.searchsorted(table.image_ids, part["ids"]))
                tables.append(table._replace(image_ids=np.arange(before, before + len(table.image_ids))))
                before += len(table.image_ids)
            joined = accumulation.MatchTable.joined(tables)
            curves[prefix] = resampling.DetectionCurves.from_table(joined, limits[0]), np.concatenate(places)
    return functools.partial(resampling.named_scores, curves, names)


def _instances(parts: Sequence[Arrays], names: Sequence[str]) -> Recompute:
    from ..points.instances.metrics import InstanceMatchTable, InstanceMetrics

    scenes = []
    for part in parts:
        ends = np.cumsum(part["rows"])
        for number, (first, end) in enumerate(zip(ends - part["rows"], ends)):
            decisions = (part[name][first:end] for name in InstanceMatchTable._fields[:4])
            scenes.append(InstanceMatchTable._make([*decisions, part["missed"][number], part["num_true"][number]]))
    statistics, losses = (_join(parts, name) for name in ("statistics", "losses"))
    metrics = InstanceMetrics(list(names), parts[0]["instance_classes"].tolist())
    tables = np.empty(len(scenes), object)
    tables[:] = scenes
    if not all("segment_counts" in part for part in parts):
        return lambda weights: metrics.bootstrap_values([statistics, losses, tables], weights)
    is_thing = np.isin(np.arange(len(names)), parts[0]["instance_classes"])
    panoptic = panoptic_scores(_join(parts, "segment_counts"), _join(parts, "segment_ious"), names, is_thing)
    return lambda weights: {**metrics.bootstrap_values([statistics, losses, tables], weights), **panoptic(weights)}


# ---- validity of arrays: a file may be damaged, and compiled loops do not check bounds -----------------------------


def _are_valid_classes(arrays: Arrays, samples: int, classes: int) -> bool:
    columns = [arrays[name] for name in ("labels", "places", "losses")]
    predictions = arrays.get("predictions", np.zeros(samples, int))  # results of other programs have none
    is_valid = all(column.shape == (samples,) for column in [*columns, predictions])
    return is_valid and _below(arrays["labels"], classes) and _below(predictions + 1, classes + 1)


def _below(numbers: np.ndarray, limit: int) -> bool:
    """Return whether all are integers from 0 up to, but not including, the limit."""
    return numbers.dtype.kind in "iu" and bool(((numbers >= 0) & (numbers < limit)).all())


def _are_valid_boxes(arrays: Arrays, samples: int, classes: int) -> bool:
    from ..images.detection.evaluation.accumulation import MAX_DETECTIONS, MatchTable

    limits = arrays.get("limits", np.array(MAX_DETECTIONS))
    return (limits.shape == (3,) and _below(limits, 1 << 31) and bool((np.diff(limits) >= 0).all())) and all(
        _is_valid_match_table({name: arrays[f"{prefix}{name}"] for name in MatchTable._fields}, arrays["ids"], classes)
        and len(arrays["ids"]) == samples
        for prefix in ("", "mask ")
        if f"{prefix}image_ids" in arrays or not prefix
    )


def _is_valid_match_table(table: Arrays, ids: np.ndarray, classes: int) -> bool:
    from ..images.detection.evaluation.accumulation import AREA_RANGES

    counts, rows = table["counts"], [table[name] for name in ("labels", "scores", "true_positives", "ignored")]
    annotated, areas = table["annotated"], len(AREA_RANGES)
    return (
        np.array_equal(np.sort(ids), table["image_ids"])
        and bool((np.diff(table["image_ids"]) > 0).all())
        and counts.shape == ids.shape == table["num_true"].shape
        and _below(counts, 1 << 31)
        and all(column.shape == (int(counts.sum()),) for column in rows)
        and all(table[name].dtype == np.uint64 for name in ("true_positives", "ignored"))
        and _below(table["labels"], classes)
        and table["totals"].shape == (classes, areas)
        and annotated.shape == (len(annotated), 2 + areas)
        and _below(annotated[:, 0], len(ids))
        and _below(annotated[:, 1], classes)
    )


def _are_valid_confusions(arrays: Arrays, samples: int, classes: int) -> bool:
    tables = [arrays[name] for name in ("statistics", "boundaries") if name in arrays or name == "statistics"]
    return all(table.shape == (samples, 3, classes) for table in tables) and arrays["losses"].shape == (samples,)


def _are_valid_instances(arrays: Arrays, samples: int, classes: int) -> bool:
    rows, chosen, thresholds = arrays["rows"], arrays["instance_classes"], arrays["missed"].shape[-1]
    decisions = [arrays[name] for name in ("class_numbers", "thresholds", "scores", "is_right")]
    shapes = {"segment_counts": (samples, 6, classes), "segment_ious": (samples, classes)}
    return (
        all(arrays[name].shape == shape for name, shape in shapes.items() if "segment_counts" in arrays)
        and _are_valid_confusions(arrays, samples, classes)
        and rows.shape == (samples,)
        and _below(rows, 1 << 31)
        and all(column.shape == (int(rows.sum()),) for column in decisions)
        and _below(chosen, classes)
        and arrays["missed"].shape == (samples, len(chosen), thresholds)
        and arrays["num_true"].shape == (samples, len(chosen))
        and _below(arrays["class_numbers"], len(chosen))
        and _below(arrays["thresholds"], thresholds)
    )


SCORE_KINDS = {
    "classes": ScoreKind(_classes, _are_valid_classes, "recall {}", 2, hits=_class_hits),
    "confusions": ScoreKind(_confusions, _are_valid_confusions, "IoU {}"),
    "landmarks": ScoreKind(
        _landmarks,
        lambda arrays, samples, classes: arrays["sums"].shape == (samples, classes, 7),
        "{} mre_mm",
        hits=_landmark_hits,
    ),
    "volume classes": ScoreKind(
        _volume_classes, lambda arrays, samples, classes: arrays["sums"].shape == (samples, classes, 11), "Dice {}"
    ),
    "boxes": ScoreKind(_boxes, _are_valid_boxes, "AP {}", swaps=1_000),
    "instances": ScoreKind(_instances, _are_valid_instances, "AP {}", swaps=1_000),
}
