"""Figures of a detector's evaluation: curves, scores of each category, what it confuses, which images go wrong."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...tasks.figures import Chart, ConfusionMatrix, Figure, FigureTable
from ..drawing import build_gallery
from .detections import DetectedObjects, as_written, boxes_to_corners
from .drawing import fit_in_cell
from .evaluation.accumulation import (
    AREA_RANGES,
    IOU_THRESHOLDS,
    MAX_DETECTIONS,
    RECALLS,
    UNDEFINED,
    AccumulatedResults,
    MatchTable,
    accumulate,
)
from .evaluation.images import ImageQuality, quality

_SHOWN = 12  # images of the gallery
_MOST_CURVES = 8
_MOST_NAMES = 100  # of a confusion; more cannot be read
_IN_ALL_AREAS = np.uint64((1 << len(IOU_THRESHOLDS)) - 1)
_NOTHING = "nothing"
_THRESHOLDS = np.linspace(0.05, 0.95, 19)
_AT_50 = 0
_OVERLAP = 0.5


class DetectionRecord(NamedTuple):
    """The record of an image: about 9 bytes for each detection, and 700 besides, without areas.

    Attributes:
        labels: uint16 (d,).
        scores: float32 (d,).
        found, ignored: uint16 (d,), bits of the IoU thresholds, as in ``MatchTable``.
        true_labels: uint16 (n,), of the annotations without crowds.
        pairs: uint16 (m, 2), what was taken for what, see ``mistakes.pairs``.
    """

    labels: np.ndarray
    scores: np.ndarray
    found: np.ndarray
    ignored: np.ndarray
    true_labels: np.ndarray
    pairs: np.ndarray

    @classmethod
    def of(cls, table: MatchTable, truth: Any, detections: DetectedObjects, least_score: float) -> "DetectionRecord":
        """Return what is kept of one image.

        Args:
            table: of this image alone.
            truth: its annotations.
            least_score: detections with a lower score are confused with nothing.
        """
        found, ignored = ((bits & _IN_ALL_AREAS).astype(np.uint16) for bits in (table.found, table.ignored))
        true_labels = truth.labels[~truth.is_crowd].astype(np.uint16)
        taken = pairs(truth, detections, len(table.totals), least_score)
        return cls(table.labels, table.scores.astype(np.float32), found, ignored, true_labels, taken)


def join_tables(records: Sequence[DetectionRecord], num_classes: int) -> MatchTable:
    """The table of all images, in all areas alone, without ``annotated``; their ids are places among the records."""
    labels, scores, found, ignored, true, _ = (np.concatenate(column) for column in zip(*records))
    totals = np.zeros((num_classes, len(AREA_RANGES)), np.int64)
    totals[:, 0] = np.bincount(true, minlength=num_classes)[:num_classes]
    counts = np.array([len(record.labels) for record in records], np.int32)
    num_true = np.array([len(record.true_labels) for record in records], np.int32)
    bits = (found.astype(np.uint64), ignored.astype(np.uint64))
    nothing = MatchTable.empty(num_classes).annotated
    return MatchTable(np.arange(len(records)), counts, num_true, labels, scores, *bits, totals, nothing)


def detection_figures(
    samples: Any,
    records: Sequence[tuple[int, DetectionRecord]],
    names: Sequence[str],
    least_score: float,
    predict: Callable[[int], DetectedObjects],
    max_detections: Sequence[int] = MAX_DETECTIONS,
) -> list[Figure]:
    """All figures, most telling first.

    Args:
        samples: what was evaluated, with the ``dataset`` behind it.
        names: of the categories.
        least_score: of a box that counts where boxes are counted.
        predict: what the model finds in a sample.
        max_detections: with which they were matched.
    """
    table = join_tables([record for _, record in records], len(names))
    accumulated = accumulate(table, max_detections)
    went = quality(table, least_score)
    matrix = confusion([record.pairs for _, record in records], len(names))
    indices = [index for index, _ in records]
    return [
        *_hardest(
            samples, [(indices[place], place) for place in went.hardest(_SHOWN)], went, names, least_score, predict
        ),
        *_curves(accumulated, table, names),
        _categories(accumulated, table, matrix, names, least_score),
        *_confusion(matrix, names, least_score),
        *_choice(table, least_score),
    ]


def _hardest(
    samples: Any,
    chosen: Sequence[tuple[int, int]],
    went: ImageQuality,
    names: Sequence[str],
    least_score: float,
    predict: Callable[[int], DetectedObjects],
) -> list[Figure]:
    def draw(index: int, pixels: np.ndarray, truth: Any) -> list[np.ndarray]:
        found = predict(index)
        found = found.only(found.scores >= least_score)
        true_labels = np.where(truth.is_crowd, -1, truth.labels)
        left = fit_in_cell(pixels, boxes_to_corners(truth.boxes), true_labels, names)
        return [left, fit_in_cell(pixels, found.boxes, found.labels, names, scores=found.scores)]

    said = [f"{went.right[place]} right, {went.wrong[place]} wrong, {went.missed[place]} missed" for _, place in chosen]
    note = "Those with the lowest F1 of their boxes at an IoU of 0.5, and of equal ones with the most mistakes. "
    note += f"Annotated on the left, found with a score of at least {least_score:g} on the right."
    return build_gallery(samples, [(index, one) for (index, _), one in zip(chosen, said)], draw, note)


def _curves(accumulated: AccumulatedResults, table: MatchTable, names: Sequence[str]) -> list[Figure]:
    numbers = table.totals[:, 0]
    if not numbers.any():
        return []
    annotated = np.flatnonzero(numbers)
    lines = {"all categories": (RECALLS, accumulated.curve(annotated))}
    for label in np.argsort(-numbers, kind="stable")[:_MOST_CURVES].tolist():
        if numbers[label] and len(annotated) > 1:
            lines[names[label]] = (RECALLS, accumulated.curve([label]))
    more = f"; the {_MOST_CURVES} most frequent categories" if len(annotated) > _MOST_CURVES else ""
    return [Chart("Precision and recall", "recall", "precision", lines, note=f"At an IoU of 0.5{more}.")]


def _categories(
    accumulated: AccumulatedResults, table: MatchTable, matrix: np.ndarray, names: Sequence[str], least_score: float
) -> Figure:
    rows = []
    shown = matrix[:, :-1].sum(axis=0)  # found with a sufficient score
    for label, (name, scores) in enumerate(zip(names, accumulated.class_ap().tolist())):
        percent: list[float | None] = [None if score == UNDEFINED else round(100 * score, 2) for score in scores]
        wrong = matrix[label].copy()
        wrong[label] = 0
        other = None if not wrong.any() else [*names, _NOTHING][int(wrong.argmax())]
        rows.append((name, *percent, int(table.totals[label, 0]), int(shown[label]), int(matrix[label, label]), other))
    columns = ("category", "AP %", "AP50 %", "AP75 %", "annotated", "found", "of these right", "most often taken for")
    note = (
        f"Empty: nothing is annotated. Found: with a score of at least {least_score:g}; right: at an IoU of 0.5 and of "
        f'the right category; taken for "{_NOTHING}": missed.'
    )
    return FigureTable("Categories", columns, rows, note)


def _confusion(matrix: np.ndarray, names: Sequence[str], least_score: float) -> list[Figure]:
    if len(names) >= _MOST_NAMES:
        return []
    note = (
        f"Boxes that overlap with an IoU of at least 0.5, with a score of at least {least_score:g}. The last row is "
        "what was found where nothing is annotated, the last column what was missed."
    )
    return [ConfusionMatrix("Confusion", [*names, _NOTHING], matrix, note)]


def _choice(table: MatchTable, least_score: float) -> list[Figure]:
    """Say what another least score would give."""
    lines: list[tuple[float, float, float]] = []
    for score in _THRESHOLDS:
        went = quality(table, float(score))
        right, wrong, missed = (int(part.sum()) for part in went[:3])
        if right + missed == 0:
            return []
        recall, f1 = right / (right + missed), 2 * right / (2 * right + wrong + missed)
        lines.append((right / (right + wrong) if right + wrong else 1.0, recall, f1))
    precision, recalls, f1s = (list(column) for column in zip(*lines))
    best = int(np.argmax(f1s))
    said = f"F1 is highest, {f1s[best]:.3f}, with boxes from a score of {_THRESHOLDS[best]:.2f} on"
    return [
        Chart(
            "Which score to ask for",
            "least score of a box",
            "share",
            {"precision": (_THRESHOLDS, precision), "recall": (_THRESHOLDS, recalls), "F1": (_THRESHOLDS, f1s)},
            note=f"{said}; shown are those from {least_score:g} on (DETECTION.SCORE_THRESHOLD). At an IoU of 0.5.",
        )
    ]


def pairs(truth: Any, detections: DetectedObjects, num_classes: int, least_score: float) -> np.ndarray:
    """Find what was taken for what in one image, whatever the classes: of all annotations and detections that overlap
    enough those with the largest IoU belong together, then those with the next, and so on.

    Args:
        truth: as ``matching.BoxGroundTruth``. Crowds count as neither missed nor found; detections that lie in one, and
            belong to nothing else, are left out.
        least_score: detections with a lower score are left out.

    Returns:
        uint16 (pairs, 2), label of the annotation and of the detection; ``num_classes`` for the annotation of what is
        nothing, and for the detection of what was missed.
    """
    chosen = np.asarray(detections.scores) >= least_score
    boxes, labels = as_written(detections.boxes)[chosen], np.asarray(detections.labels)[chosen]
    is_crowd = np.asarray(truth.is_crowd, bool)
    true_boxes, true_labels = np.asarray(truth.boxes, np.float64).reshape(-1, 4), np.asarray(truth.labels)
    shared, areas, true_areas = _compute_shared(boxes, true_boxes)
    with np.errstate(divide="ignore", invalid="ignore"):
        overlaps = np.nan_to_num(shared / (areas[:, None] + true_areas - shared))[:, ~is_crowd]
        inside = np.nan_to_num(shared / areas[:, None])[:, is_crowd]
    true_labels = true_labels[~is_crowd]
    is_found, is_used = np.zeros(len(true_labels), bool), np.zeros(len(labels), bool)
    result = []
    for place in np.argsort(-overlaps, axis=None, kind="stable")[: np.count_nonzero(overlaps >= _OVERLAP)]:
        row, true_row = np.unravel_index(place, overlaps.shape)
        if not is_used[row] and not is_found[true_row]:
            is_used[row] = is_found[true_row] = True
            result.append((true_labels[true_row], labels[row]))
    is_used |= (inside >= _OVERLAP).any(axis=1)
    result += [(label, num_classes) for label in true_labels[~is_found]]
    result += [(num_classes, label) for label in labels[~is_used]]
    return np.array(result, np.uint16).reshape(-1, 2)


def _compute_shared(boxes: np.ndarray, true_boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shared areas (n, m), and areas (n,) and (m,), of boxes x, y, width, height."""
    ends, true_ends = boxes[:, :2] + boxes[:, 2:], true_boxes[:, :2] + true_boxes[:, 2:]
    sides = np.minimum(ends[:, None], true_ends) - np.maximum(boxes[:, None, :2], true_boxes[:, :2])  # (n, m, 2)
    return np.maximum(sides, 0).prod(axis=2), boxes[:, 2:].prod(axis=1), true_boxes[:, 2:].prod(axis=1)


def confusion(all_pairs: Iterable[np.ndarray], num_classes: int) -> np.ndarray:
    """How often each was taken for each: int64 (num_classes + 1, num_classes + 1), annotated classes down, found ones
    across, "nothing" last.

    Args:
        all_pairs: of ``pairs``, of any number of images.
    """
    matrix = np.zeros((num_classes + 1) ** 2, np.int64)
    for some in all_pairs:
        np.add.at(matrix, some[:, 0].astype(np.int64) * (num_classes + 1) + some[:, 1], 1)
    return matrix.reshape(num_classes + 1, num_classes + 1)
