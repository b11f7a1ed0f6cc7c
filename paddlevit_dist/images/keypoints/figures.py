"""Figures of an evaluation of keypoints: the hardest images, the error of each point, curves, categories."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...core.intervals import quotient
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.class_names import name_all
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Chart, Figure, FigureTable
from ...core.tasks.protocols import Reportable, predict_again
from ..detection.data.image_annotations import ImageAnnotations
from ..detection.evaluation.curves import RECALLS, DetectionCurves
from ..detection.evaluation.images import ImageQuality, compute_image_quality
from ..detection.evaluation.match_tables import IOU_THRESHOLDS, MatchTable
from ..detection.evaluation.operating_points import split_by_class
from ..detection.figures import AP_COLUMNS, chart_thresholds, join_tables
from ..drawing import build_gallery
from .data.keypoint_dataset import KeypointDataset
from .detected_keypoints import DetectedKeypoints
from .drawing import DrawnObjects, fit_in_cell
from .evaluation.matching import MAX_DETECTIONS
from .evaluation.point_scores import PCK_SHARE
from .evaluation.score_kind import name_points
from .keypoint_set import KeypointSet
from .records import POINT_ERRORS, KeypointRecord, PointRecord

_SHOWN = 12  # images of the gallery
_MOST_LINES = 7  # points in a chart, limited by the colors; the table has all
_MOST_STEPS = 200  # of a curve
_CURVES = (0, 5, 8)  # thresholds with a curve: OKS 0.5, 0.75 and 0.9


class ShownImages(NamedTuple):
    """Draws evaluated images again: their annotations next to objects that a network finds."""

    dataset: TransformedDataset
    keypoint_sets: Sequence[KeypointSet]
    names: Sequence[str]  # of the categories
    predict: Callable[[int], DetectedKeypoints]  # objects of a sample

    def build_gallery(
        self,
        chosen: Sequence[tuple[int, str]],
        note: str,
        choose: Callable[[DetectedKeypoints], DetectedKeypoints],
        folded: str = "",
    ) -> list[Figure]:
        """Draw annotations and found objects of each image next to each other.

        Args:
            chosen: index and caption of each image.
            note: text below the gallery.
            choose: returns the objects to draw of those that are found.
            folded: why it is folded away.
        """

        def draw(index: int, pixels: np.ndarray, truth: ImageAnnotations) -> list[np.ndarray]:
            found = DrawnObjects.from_detected(choose(self.predict(index).finite()))
            both = DrawnObjects.from_annotations(truth), found
            return [fit_in_cell(pixels, objects, self.keypoint_sets, self.names) for objects in both]

        return build_gallery(self.dataset, chosen, draw, note, folded)


class KeypointFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation, of several objects an image (AP) or of one (PCK)."""

    task: Any  # with ``class_names`` and ``keypoint_sets``

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation, most informative first."""
        if not records or not isinstance(getattr(dataset, "dataset", None), KeypointDataset):
            return []
        task = self.task
        images = ShownImages(
            dataset,
            task.keypoint_sets,
            task.class_names,
            lambda index: predict_again(task, dataset, index, model),
        )
        if isinstance(records[0][1], PointRecord):
            return build_error_figures(images, records)
        return build_keypoint_figures(images, records, task.config.DETECTION.SCORE_THRESHOLD)


def build_keypoint_figures(
    images: ShownImages, records: Sequence[tuple[int, KeypointRecord]], least_score: float
) -> list[Figure]:
    """Return the figures of objects, with index and record of each sample; objects below the score are not counted."""
    names = list(images.names)
    # It reads the columns that the records of objects and of boxes share.
    table = join_tables([record for _, record in records], len(names))  # type: ignore[misc]
    quality, indices = compute_image_quality(table, least_score), [index for index, _ in records]
    errors = {name: np.concatenate([getattr(record, name) for _, record in records]) for name in POINT_ERRORS}
    labeled = np.sum([record.labeled.astype(np.int64) for _, record in records], axis=0)
    points, size = name_points(names, images.keypoint_sets), "the square root of the object's area"
    return [
        *_show_hardest(images, indices, quality, least_score),
        tabulate_points(points, labeled, **errors),  # the names in POINT_ERRORS are its parameters
        *chart_errors(points, errors["points"], 100 * errors["shares"], f"error, % of {size}"),
        *_chart_precision(table),
        _chart_similarities(table),
        *_tabulate_categories(table, names, least_score),
        *chart_thresholds(table, least_score, ("an object", "objects"), "an OKS"),
    ]


def _show_hardest(
    images: ShownImages, indices: Sequence[int], quality: ImageQuality, least_score: float
) -> list[Figure]:
    places = quality.find_hardest(_SHOWN).tolist()
    chosen = [(indices[place], quality.caption(place)) for place in places]
    note = (
        "Images with the lowest F1 of their objects at an OKS of 0.5, then with the most mistakes. Left: annotations, "
        f"hidden points hollow; right: objects with a score of at least {least_score:g}, uncertain points hollow."
    )
    why = quality.explain_empty(places, least_score)
    return images.build_gallery(chosen, note, lambda found: found.only(found.scores >= least_score), why)


def tabulate_points(
    names: Sequence[str],
    labeled: np.ndarray,
    points: np.ndarray,
    distances: np.ndarray,
    shares: np.ndarray,
    similarities: np.ndarray,
    is_exchanged: np.ndarray,
) -> FigureTable:
    """Return the table of errors of each point.

    Args:
        names: names of the points.
        labeled: int (points,), labeled points of all annotations.
        points: int (m,), number of each point of an object that is found.
        distances: float (m,), its error in pixels.
        shares: float (m,), its error as a share of the square root of the object's area.
        similarities: float (m,), its part of OKS.
        is_exchanged: bool (m,), whether it is nearer to its mirrored point.
    """
    rows = []
    for number, name in enumerate(names):
        own = points == number
        values: list[float | None] = [None] * 6
        if own.any():
            statistics = (
                similarities[own].mean(),
                distances[own].mean(),
                np.median(distances[own]),
                np.percentile(distances[own], 95),
                100 * shares[own].mean(),
                100 * is_exchanged[own].mean(),
            )
            values = list(map(float, statistics))
        rows.append((name, *values, int(labeled[number]), int(own.sum())))
    columns = (
        "point",
        "OKS",
        "mean px",
        "median px",
        "95 % below px",
        "mean % of size",
        "exchanged %",
        "labeled",
        "found",
    )
    note = (
        "Errors of labeled points of the objects found at an OKS of 0.5. OKS: the point's part of it, 1 without an "
        "error. Size: the square root of the object's area. Exchanged: nearer to the point's mirrored one."
    )
    return FigureTable("Points", columns, rows, note)


def chart_errors(names: Sequence[str], points: np.ndarray, errors: np.ndarray, label: str) -> list[Figure]:
    """Return the chart of the distribution of errors (m,) of all points (m,), and of those with the largest mean."""
    if not len(errors):
        return []
    numbers = np.bincount(points, minlength=len(names))
    means = quotient(np.bincount(points, errors, len(names)), numbers)
    worst = [number for number in np.argsort(-means, kind="stable").tolist() if numbers[number]][:_MOST_LINES]
    lines = {
        name_all(names): _accumulate(errors),
        **{names[number]: _accumulate(errors[points == number]) for number in worst},
    }
    scope = f", of the {_MOST_LINES} worst of {len(names)} points and of all" if len(names) > _MOST_LINES else ""
    note = f"Percent of points with an error up to a value{scope}."
    return [Chart("Distribution of the errors", label, "points, %", lines, note=note)]


def _accumulate(errors: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the distribution function of errors from 0, at most 200 steps."""
    ordered = np.sort(errors)
    chosen = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _MOST_STEPS)).astype(int))
    shares = 100 * (chosen + 1) / len(ordered)
    return [0.0, *map(float, ordered[chosen])], [0.0, *map(float, shares)]


def _chart_precision(table: MatchTable) -> list[Figure]:
    lines = {}
    for step in _CURVES:
        classes = [own for own in split_by_class(table, 0, step) if own.annotated.any()]
        if classes:
            precision = np.mean([own.sample_precision() for own in classes], axis=0)
            lines[f"OKS {IOU_THRESHOLDS[step]:.2f}"] = (RECALLS, precision)
    note = "Means over categories."
    return [Chart("Precision and recall", "recall", "precision", lines, note=note)] if lines else []


def _chart_similarities(table: MatchTable) -> Figure:
    """Return the chart of AP and recall by the OKS that a match needs, of all categories."""
    recalls = DetectionCurves.from_table(table, [MAX_DETECTIONS]).compute(np.ones((1, len(table.image_ids))))[2][0]
    ap = []
    for step in range(len(IOU_THRESHOLDS)):
        own = [part.sample_precision().mean() for part in split_by_class(table, 0, step) if part.annotated.any()]
        ap.append(float(np.mean(own)) if own else np.nan)
    known = ~np.isnan(recalls).all(axis=1)
    mean = recalls[known].mean(axis=0) if known.any() else np.full(len(IOU_THRESHOLDS), np.nan)
    lines = {"AP": (IOU_THRESHOLDS, ap), "recall": (IOU_THRESHOLDS, mean)}
    note = "The mean of each line is AP and AR. Imprecise points lower the right end, missed objects all of it."
    return Chart("Scores by similarity", "OKS that a match needs", "score", lines, note=note)


def _tabulate_categories(table: MatchTable, names: Sequence[str], least_score: float) -> list[Figure]:
    if len(names) < 2:
        return []
    _, class_ap = DetectionCurves.from_table(table, [MAX_DETECTIONS]).scores(np.ones((1, len(table.image_ids))))
    is_found = (table.true_positives & np.uint64(1)).astype(bool) & (table.scores >= least_score)
    found = np.bincount(table.labels[is_found], minlength=len(names))
    annotated = np.bincount(table.annotated[:, 1], table.annotated[:, 2], len(names)).astype(int)
    rows = []
    for name, scores, *counts in zip(names, class_ap[0].tolist(), annotated.tolist(), found.tolist()):
        rows.append((name, *(None if np.isnan(score) else round(score, 4) for score in scores), *counts))
    note = f"Empty: no annotations. Found: at an OKS of 0.5 with a score of at least {least_score:g}."
    columns = ("category", *AP_COLUMNS, "annotated", "found")
    return [FigureTable("Categories", columns, rows, note, shares=AP_COLUMNS)]


def build_error_figures(images: ShownImages, records: Sequence[tuple[int, PointRecord]]) -> list[Figure]:
    """Return the figures of one object an image, with index and record of each sample; in millimeters if known."""
    names = list(images.keypoint_sets[0].names)
    sides = np.array([record.side for _, record in records])
    errors = np.stack([record.errors for _, record in records])  # (images, K)
    errors_mm = np.stack([record.errors_mm for _, record in records])
    shares = errors / np.maximum(sides, 1e-9)[:, None]
    is_known = not np.isnan(errors_mm).all()
    unit, shown = ("mm", errors_mm) if is_known else ("px", errors)
    rows, points = np.nonzero(np.isfinite(shown))
    values = shown[rows, points]
    means = quotient(np.where(np.isfinite(shown), shown, 0.0).sum(axis=1), np.isfinite(shown).sum(axis=1))
    means = np.where(np.isinf(shown).any(axis=1), np.inf, means)
    order = np.argsort(np.where(np.isnan(means), np.inf, -means), kind="stable")[:_SHOWN].tolist()
    chosen = [(records[place][0], _caption(shown[place], names, unit)) for place in order if not np.isnan(means[place])]
    note = "Images with the largest mean error. Left: annotations; right: predictions, uncertain points hollow."
    return [
        *images.build_gallery(chosen, note, lambda found: found.only(np.argsort(-found.scores, kind="stable")[:1])),
        _tabulate_errors(names, shown, shares, unit),
        *chart_errors(names, points, values, f"error, {unit}"),
    ]


def _caption(errors: np.ndarray, names: Sequence[str], unit: str) -> str:
    if np.isinf(errors).any():
        return "nothing is detected"
    worst = int(np.nanargmax(errors))
    return f"mean {np.nanmean(errors):.2f} {unit}, worst {names[worst]} {errors[worst]:.2f} {unit}"


def _tabulate_errors(names: Sequence[str], errors: np.ndarray, shares: np.ndarray, unit: str) -> FigureTable:
    rows: list[tuple[Any, ...]] = []
    for name, own, share in zip([*names, name_all(names)], [*errors.T, errors.ravel()], [*shares.T, shares.ravel()]):
        finite, is_labeled = own[np.isfinite(own)], ~np.isnan(share)
        values: list[float | None] = [None] * 5
        if len(finite):
            statistics = (finite.mean(), finite.std(), np.median(finite), np.percentile(finite, 95), finite.max())
            values = [float(value) for value in statistics]
        pck = 100 * float((share[is_labeled] <= PCK_SHARE).mean()) if is_labeled.any() else None
        rows.append((name, *values, pck, int(is_labeled.sum())))
    statistics_names = (f"mean {unit}", f"deviation {unit}", f"median {unit}", f"95 % below {unit}", f"largest {unit}")
    note = f"PCK: percent of points within {PCK_SHARE:g} of the object's size, the longer side of its points' extent."
    return FigureTable("Points", ("point", *statistics_names, "PCK %", "labeled"), rows, note)
