"""Per-image results: objects found and missed, and the AP of each image alone."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .curves import DetectionCurves, name_recall, stat_names
from .match_tables import MatchTable

_AT_50 = 0
_IMAGE_STATS = ("AP", "AP50", "AP75")
_CHUNK = 256  # images whose scores are computed at once


class ImageQuality(NamedTuple):
    """Correct and wrong detections of each image of a table, at an IoU of 0.5."""

    right: np.ndarray  # int64 (images,), number of true positives
    wrong: np.ndarray  # int64 (images,), number of false positives
    missed: np.ndarray  # int64 (images,), number of annotations without a detection
    f1: np.ndarray  # float64 (images,), 1 for an image without annotations and detections

    def find_hardest(self, most: int) -> np.ndarray:
        """Return the positions of the images with mistakes, worst first: by F1, then by the number of mistakes."""
        mistakes = self.wrong + self.missed
        order = np.lexsort((-mistakes, self.f1))  # stable
        return order[mistakes[order] > 0][:most]

    def caption(self, place: int) -> str:
        """Describe the image at this position."""
        return f"{self.right[place]} right, {self.wrong[place]} wrong, {self.missed[place]} missed"

    def explain_empty(self, places: Sequence[int], least_score: float) -> str:
        """Explain why nothing is detected in any of the images at these positions; empty if something is."""
        is_empty = not (self.right + self.wrong)[list(places)].any()
        return f"nothing in them is detected with a score of at least {least_score:g}" if is_empty else ""


def compute_image_quality(table: MatchTable, least_score: float) -> ImageQuality:
    """Count the correct and wrong detections of each image, among detections of at least this score."""
    bit = np.uint64(1) << np.uint64(_AT_50)
    is_counted = table.scores >= least_score
    is_right = is_counted & ((table.true_positives & bit) != 0)
    is_wrong = is_counted & ((table.true_positives & bit) == 0) & ((table.ignored & bit) == 0)
    images, number = table.image_positions(), len(table.image_ids)
    right, wrong = (np.bincount(images[selected], minlength=number) for selected in (is_right, is_wrong))
    missed = np.maximum(table.num_true - right, 0)
    total = 2 * right + wrong + missed
    return ImageQuality(right, wrong, missed, np.where(total > 0, 2 * right / np.maximum(total, 1), 1.0))


def build_image_columns(
    table: MatchTable, curves: DetectionCurves, class_names: Sequence[str], least_score: float
) -> dict[str, Sequence[Any]]:
    """Return the columns of a table with one row per image.

    They contain the annotated and detected classes, as "cat 2, dog 1"; the highest score; COCO's numbers of this image
    alone, NaN where nothing is annotated; true positives, false positives and missed annotations at an IoU of 0.5.
    Detections below ``least_score`` are neither named nor counted; AP takes all.
    """
    quality, num_images = compute_image_quality(table, least_score), len(table.image_ids)
    images = table.image_positions()
    is_counted = table.scores >= least_score
    highest = np.full(num_images, -np.inf)
    np.maximum.at(highest, images, table.scores)
    stats = np.concatenate(
        [
            curves.scores(np.eye(min(_CHUNK, num_images - first), num_images, first))[0]
            for first in range(0, num_images, _CHUNK)
        ]
    )
    names = stat_names(curves.max_detections)
    return {
        "truth": _list_classes(num_images, class_names, *table.annotated[:, :3].T),
        "prediction": _list_classes(
            num_images, class_names, images[is_counted], table.labels[is_counted], np.ones(is_counted.sum(), int)
        ),
        "highest score": np.where(np.isfinite(highest), highest, np.nan),
        **{name: stats[:, names.index(name)] for name in (*_IMAGE_STATS, name_recall(curves.max_detections[-1]))},
        "true positives": quality.right,
        "false positives": quality.wrong,
        "missed": quality.missed,
    }


def _list_classes(
    images: int, class_names: Sequence[str], rows: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> list[str]:
    """Format the classes of each image with their counts; ``counts`` of ``labels`` are in the images ``rows``."""
    numbers = np.zeros((images, len(class_names)), np.int64)
    np.add.at(numbers, (rows, labels), counts)
    return [", ".join(f"{class_names[label]} {row[label]}" for label in np.flatnonzero(row)) for row in numbers]
