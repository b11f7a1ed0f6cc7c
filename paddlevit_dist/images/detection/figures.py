"""Figures of a detector's evaluation: curves, scores per category, confusion, and the hardest images."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import (
    Chart,
    ConfusionMatrix,
    Figure,
    FigureTable,
    FilledCells,
    count_cells,
    find_confused,
    find_most_confused,
)
from ...core.tasks.protocols import Reportable, predict_again
from ..drawing import build_gallery
from .data.image_annotations import ImageAnnotations
from .data.samples import DetectionSamples
from .detections import DetectedObjects, boxes_to_corners
from .drawing import fit_in_cell
from .evaluation.curves import RECALLS, DetectionCurves
from .evaluation.images import ImageQuality, compute_image_quality
from .evaluation.match_tables import AREA_RANGES, MAX_DETECTIONS, MatchTable, resolve_detection_limits
from .evaluation.operating_points import (
    NO_WISHES,
    ClassDetections,
    ThresholdCurve,
    WishedRates,
    find_thresholds,
    shorten_threshold,
    split_by_class,
)
from .records import DetectionRecord
from .suspicious_labels import build_suspect_table, list_suspects, write_suspects
from .task import Detection

_SHOWN = 12  # images of the gallery
_MOST_CURVES = 8
_MOST_NAMES = 100  # of a confusion matrix; more are not readable
_NOTHING = "nothing"
_GRID = np.arange(1, 100) / 100  # thresholds that a chart shows
AP_COLUMNS = ("AP", "AP50", "AP75")  # of tables of categories, in the unit of the scores
_AT_50 = 0


class BoxFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation."""

    task: Detection

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation, and write the table of suspicious labels into the folder of the run."""
        if not records or not isinstance(dataset, DetectionSamples):
            return []

        def predict(index: int) -> DetectedObjects:
            return predict_again(self.task, dataset, index, model).finite()

        config, class_names = self.task.config, self.task.class_names
        keys, names = config.DETECTION, [dataset.name(index) for index, _ in records]
        rows = list_suspects([record.suspects for _, record in records], names, class_names)
        file = Path(config.SAVE) / ("eval_suspicious_labels.csv" if config.EVAL else "suspicious_labels.csv")
        write_suspects(file, rows)
        limits = resolve_detection_limits(keys.MAX_DETECTIONS)
        wished = WishedRates(keys.WISHED_PRECISION, keys.WISHED_RECALL)
        figures = detection_figures(dataset, records, class_names, keys.SCORE_THRESHOLD, predict, limits, wished)
        return [*figures, *build_suspect_table(rows, file.name)]


def join_tables(records: Sequence[DetectionRecord], num_classes: int) -> MatchTable:
    """Return the table of all images, over all areas only; image ids are positions in ``records``."""
    columns = list(zip(*records))[:5]
    labels, scores, true_positives, ignored, true_labels = (np.concatenate(column) for column in columns)
    counts = np.array([len(record.labels) for record in records], np.int32)
    num_true = np.array([len(record.true_labels) for record in records], np.int32)
    bits = (true_positives.astype(np.uint64), ignored.astype(np.uint64))
    images = np.repeat(np.arange(len(records)), num_true)
    keys, numbers = np.unique(images * num_classes + true_labels, return_counts=True)
    annotated = np.zeros((len(keys), 2 + len(AREA_RANGES)), np.int32)
    annotated[:, :3] = np.column_stack([*np.divmod(keys, num_classes), numbers])
    return MatchTable(np.arange(len(records)), counts, num_true, labels, scores, *bits, annotated, num_classes)


def detection_figures(
    dataset: DetectionSamples,
    records: Sequence[tuple[int, DetectionRecord]],
    names: Sequence[str],
    least_score: float,
    predict: Callable[[int], DetectedObjects],
    max_detections: Sequence[int] = MAX_DETECTIONS,
    wished: WishedRates = NO_WISHES,
) -> list[Figure]:
    """Return all figures, most informative first.

    Args:
        records: index and record of each sample.
        least_score: lowest score of the boxes counted.
        predict: returns the model's detections in a sample.
        max_detections: limits used in matching.
        wished: precision and recall for which thresholds are listed.
    """
    table = join_tables([record for _, record in records], len(names))
    _, class_ap = DetectionCurves.from_table(table, max_detections).scores(np.ones((1, len(records))))
    quality = compute_image_quality(table, least_score)
    cells = count_pairs([record.pairs for _, record in records], len(names))
    classes, indices = split_by_class(table), [index for index, _ in records]
    return [
        *show_hardest(
            dataset,
            [(indices[place], place) for place in quality.find_hardest(_SHOWN)],
            quality,
            names,
            least_score,
            predict,
        ),
        *chart_precision(classes, names),
        tabulate_categories(class_ap[0], classes, cells, names, least_score),
        *show_confusion(cells, names, least_score),
        *chart_best_thresholds(classes, len(records), names, wished),
        *chart_thresholds(table, least_score),
    ]


def show_hardest(
    dataset: DetectionSamples,
    chosen: Sequence[tuple[int, int]],
    quality: ImageQuality,
    names: Sequence[str],
    least_score: float,
    predict: Callable[[int], DetectedObjects],
) -> list[Figure]:
    """Return a gallery of the ``chosen`` images, (index, row of ``quality``), with what is detected in them."""

    def draw(index: int, pixels: np.ndarray, truth: ImageAnnotations) -> list[np.ndarray]:
        detections = predict(index)
        detections = detections.only(detections.scores >= least_score)
        true_labels = np.where(truth.is_crowd, -1, truth.labels)
        true_masks = None if detections.masks is None else truth.masks
        left = fit_in_cell(pixels, boxes_to_corners(truth.boxes), true_labels, names, true_masks)
        found = detections.boxes, detections.labels, names, detections.masks, detections.scores
        return [left, fit_in_cell(pixels, *found)]

    note = "Images with the lowest F1 of their boxes at an IoU of 0.5, then with the most mistakes. "
    note += f"Left: annotations; right: detections with a score of at least {least_score:g}."
    why = quality.explain_empty([place for _, place in chosen], least_score)
    captioned = [(index, quality.caption(place)) for index, place in chosen]
    return build_gallery(dataset, captioned, draw, note, why)


def chart_precision(classes: Sequence[ClassDetections], names: Sequence[str]) -> list[Figure]:
    """Return precision by recall at an IoU of 0.5, of all and of frequent categories; none without annotations."""
    numbers = np.array([detections.annotated.sum() for detections in classes])
    curves = {label: classes[label].sample_precision() for label in np.flatnonzero(numbers).tolist()}
    if not curves:
        return []
    lines = {"all categories": (RECALLS, np.mean([*curves.values()], axis=0))}
    for label in np.argsort(-numbers, kind="stable")[:_MOST_CURVES].tolist():
        if label in curves and len(curves) > 1:
            lines[names[label]] = (RECALLS, curves[label])
    more = f"; the {_MOST_CURVES} most frequent categories" if len(curves) > _MOST_CURVES else ""
    return [Chart("Precision and recall", "recall", "precision", lines, note=f"At an IoU of 0.5{more}.")]


def tabulate_categories(
    class_ap: np.ndarray,
    classes: Sequence[ClassDetections],
    cells: FilledCells,
    names: Sequence[str],
    least_score: float,
) -> Figure:
    """Return the table of categories: average precision, objects, and detections with at least ``least_score``."""
    others, rows = find_most_confused(find_confused(cells)), []
    is_right = cells.rows == cells.columns
    num_found, num_right = (  # with a sufficient score
        np.bincount(cells.columns[chosen], cells.counts[chosen], len(names) + 1).astype(np.int64)
        for chosen in (slice(None), is_right)
    )
    for label, (name, scores) in enumerate(zip(names, class_ap.tolist())):
        shares = [None if np.isnan(score) else round(score, 4) for score in scores]
        other = [*names, _NOTHING][others[label]] if label in others else None
        annotated = int(classes[label].annotated.sum())
        rows.append((name, *shares, annotated, int(num_found[label]), int(num_right[label]), other))
    columns = ("category", *AP_COLUMNS, "annotated", "found", "correct", "most often taken for")
    note = (
        f"Empty: no annotations. Found: with a score of at least {least_score:g}; correct: at an IoU of 0.5 with the "
        f'right category; taken for "{_NOTHING}": missed.'
    )
    return FigureTable("Categories", columns, rows, note, shares=AP_COLUMNS)


def show_confusion(cells: FilledCells, names: Sequence[str], least_score: float) -> list[Figure]:
    """Return the confusion matrix (categories + 1, categories + 1) as a figure; none if it would not be readable."""
    if len(names) >= _MOST_NAMES:
        return []
    note = (
        f"Boxes that overlap with an IoU of at least 0.5, with a score of at least {least_score:g}. The last row "
        "counts detections without an annotation, the last column missed annotations."
    )
    return [ConfusionMatrix("Confusion", [*names, _NOTHING], cells, note)]


def chart_best_thresholds(
    classes: Sequence[ClassDetections], images: int, names: Sequence[str], wished: WishedRates
) -> list[Figure]:
    """Return a table of the score threshold of each category for the wished precision and recall."""
    if not any(wished):
        return []
    thresholds, rows = find_thresholds(classes, names, wished, np.ones((1, images))), []
    kinds = [kind for kind in WishedRates._fields if getattr(wished, kind) is not None]
    for name, detections in zip(names, classes):
        values = [float(thresholds[wished.name(kind, name)][0]) for kind in kinds]
        shown = [None if np.isnan(value) else shorten_threshold(value, detections.scores) for value in values]
        rows.append([name, *shown])
    columns = ["category", *(f"{kind} {getattr(wished, kind):g}" for kind in kinds)]
    note = (
        "Lowest score from which on the boxes have the wished precision, and highest score from which on they have the "
        "wished recall, at an IoU of 0.5. Empty: no score reaches it. The evaluation's file has their intervals."
    )
    return [FigureTable("Score thresholds", columns, rows, note)]


def chart_thresholds(
    table: MatchTable, least_score: float, nouns: tuple[str, str] = ("a box", "boxes"), overlap: str = "an IoU"
) -> list[Figure]:
    """Return a chart of precision, recall and F1 by score threshold, with the best of all scores in its note.

    ``nouns`` are what is detected, one and several, and ``overlap`` what matches have 0.5 of.
    """
    curve = ThresholdCurve.from_table(table)
    if not curve.annotated:
        return []
    message, best = "nothing is found: no detection matches an annotation", []
    if curve.right.any():
        best = [curve.find_best()]
        (f1,) = curve.compute_rates(np.array(best))[2]
        message = f"F1 is highest, {f1:.3f}, with {nouns[1]} from a score of {best[0]:.10g} on"
    thresholds = np.unique([*_GRID, *best, least_score])
    precision, recall, f1s = curve.compute_rates(thresholds)
    shown = f"{nouns[1]} from {least_score:g} on are shown (DETECTION.SCORE_THRESHOLD)"
    return [
        Chart(
            "Choice of the score threshold",
            f"lowest score of {nouns[0]}",
            "fraction",
            {"precision": (thresholds, precision), "recall": (thresholds, recall), "F1": (thresholds, f1s)},
            note=f"{message}; {shown}. At {overlap} of 0.5.",
        )
    ]


def count_pairs(all_pairs: Sequence[np.ndarray], num_classes: int) -> FilledCells:
    """Count results of ``match_across_classes`` by annotated class (rows) and detected class, with "nothing" last."""
    pairs = np.concatenate([np.empty((0, 2), np.int64), *all_pairs])
    return count_cells(pairs[:, 0], pairs[:, 1], num_classes + 1)
