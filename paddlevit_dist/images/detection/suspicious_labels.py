"""Annotations that confident predictions disagree with: paired by IoU, at least 0.5, largest first, in any class."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.runtime.files import write_csv
from ...core.tasks.figures import FigureTable
from .detections import DetectedObjects, corners_to_boxes

if TYPE_CHECKING:
    from .data.image_annotations import ImageAnnotations

MISSING, OTHER_CLASS, OTHER_PLACE, NOT_FOUND = range(4)
_KINDS = ("no label here", "another class", "another place", "not found")
COLUMNS = (
    *("image", "disagreement", "suspicion", "label", "predicted", "score", "overlap"),
    *("x", "y", "width", "height"),
)
_OVERLAP = 0.5
_GOOD_OVERLAP = 0.75
_MOST_OF_IMAGE = 20
_MOST_SHOWN = 100  # rows of the report
_NOT_FOUND_WEIGHT = 0.5  # that a model misses an object says less about its label than a confident box
NOTE = (
    "Suspicion: the score of a box without a label, or of another class than the label; for a box at another place "
    "(IoU below 0.75) its score times 1 minus the IoU; for a label that is not found half of 1 minus the highest score "
    "of a box on it. A box without a label: the model's; otherwise the label's."
)


def find_suspects(truth: "ImageAnnotations", detections: DetectedObjects, least_score: float) -> np.ndarray:
    """Find the most suspicious annotations of an image, and places where one may be missing, among finite detections.

    Crowds are not suspicious, and boxes inside a crowd, or below ``least_score``, need no label.

    Returns:
        float32 (k, 10), most suspicious first, at most 20: kind, suspicion, label or -1, predicted class or -1, score
        or 0, IoU, and x, y, width and height of the box.
    """
    scores, labels = np.asarray(detections.scores, np.float64), np.asarray(detections.labels)
    boxes = corners_to_boxes(detections.boxes)
    overlaps, crowd_shares, true_boxes, true_labels = compute_overlaps(boxes, truth)
    is_counted = scores >= least_score
    suspects: list[tuple[Any, ...]] = []
    is_used, is_found = ~is_counted, np.zeros(len(true_labels), bool)
    candidates = np.where(is_counted[:, None], overlaps, 0.0)
    for place in np.argsort(-candidates, axis=None, kind="stable")[: np.count_nonzero(candidates >= _OVERLAP)]:
        row, true = np.unravel_index(place, candidates.shape)
        if is_used[row] or is_found[true]:
            continue
        is_used[row] = is_found[true] = True
        overlap, score = overlaps[row, true], scores[row]
        fields = true_labels[true], labels[row], score, overlap, *true_boxes[true]
        if labels[row] != true_labels[true]:
            suspects.append((OTHER_CLASS, score, *fields))
        elif overlap < _GOOD_OVERLAP:
            suspects.append((OTHER_PLACE, score * (1 - overlap), *fields))
    nearest = overlaps.max(axis=1, initial=0.0)
    is_free = ~is_used & (nearest < _OVERLAP) & ~(crowd_shares >= _OVERLAP).any(axis=1)
    for row in np.flatnonzero(is_free).tolist():
        suspects.append((MISSING, scores[row], -1, labels[row], scores[row], nearest[row], *boxes[row]))
    for true in np.flatnonzero(~is_found).tolist():
        near = np.flatnonzero(overlaps[:, true] >= _OVERLAP)
        best = near[np.argmax(scores[near])] if len(near) else None
        fields = (-1, 0.0, 0.0) if best is None else (labels[best], scores[best], overlaps[best, true])
        suspicion = _NOT_FOUND_WEIGHT * (1 - fields[1])
        suspects.append((NOT_FOUND, suspicion, true_labels[true], *fields, *true_boxes[true]))
    suspects.sort(key=lambda one: -one[1])  # stable
    return np.array(suspects[:_MOST_OF_IMAGE], np.float32).reshape(-1, 10)


def compute_overlaps(boxes: np.ndarray, truth: "ImageAnnotations") -> tuple[np.ndarray, ...]:
    """Return the IoU of boxes x, y, width, height with m annotations, (n, m), their share in crowds, (n, crowds).

    The m annotations are those that are not crowds; their boxes (m, 4) and labels (m,) are returned too.
    """
    is_crowd, true_boxes = np.asarray(truth.is_crowd, bool), np.asarray(truth.boxes, np.float64).reshape(-1, 4)
    ends, true_ends = boxes[:, :2] + boxes[:, 2:], true_boxes[:, :2] + true_boxes[:, 2:]
    sides = np.minimum(ends[:, None], true_ends) - np.maximum(boxes[:, None, :2], true_boxes[:, :2])  # (n, all, 2)
    shared, areas = np.maximum(sides, 0).prod(axis=2), boxes[:, None, 2:].prod(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        overlaps = np.nan_to_num(shared / (areas + true_boxes[:, 2:].prod(axis=1) - shared))[:, ~is_crowd]
        crowd_shares = np.nan_to_num(shared / areas)[:, is_crowd]
    return overlaps, crowd_shares, true_boxes[~is_crowd], np.asarray(truth.labels)[~is_crowd]


def list_suspects(
    suspects: Sequence[np.ndarray], images: Sequence[str], class_names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return the rows of all images, most suspicious first, see ``COLUMNS``, from ``find_suspects`` of each image."""
    names = {-1: None, **dict(enumerate(class_names))}
    rows = []
    for image, found in zip(images, suspects):
        for kind, suspicion, label, predicted, score, overlap, *box in found.tolist():
            values = (round(value, 4) for value in (score, overlap))
            where = (round(value, 2) for value in box)
            row = _KINDS[int(kind)], round(suspicion, 4), names[int(label)], names[int(predicted)], *values, *where
            rows.append((image, *row))
    return sorted(rows, key=lambda row: -row[2])  # stable


def write_suspects(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Write the rows of ``list_suspects`` as a CSV file."""
    write_csv(path, [COLUMNS, *rows])


def build_suspect_table(rows: Sequence[Sequence[Any]], file: str) -> list[FigureTable]:
    """Return the table of the report; empty without rows."""
    if not rows:
        return []
    more = f"The first {_MOST_SHOWN} of {len(rows):,}; all: {file}." if len(rows) > _MOST_SHOWN else f"Also in {file}."
    are_equal = all(row[1] == _KINDS[NOT_FOUND] for row in rows)
    why = "none stands out, since the model finds none of these objects" if are_equal else ""
    return [FigureTable("Suspicious labels", COLUMNS, rows[:_MOST_SHOWN], f"{NOTE} {more}", why)]
