"""Words on each image of a table for itself: how many objects were found and missed, and its own AP."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .accumulation import MatchTable
from .resampling import DetectionCurves

_AT_50 = 0
_OF_ONE = ("AP", "AP50", "AP75")
_AT_ONCE = 256  # images whose scores are computed


class ImageQuality(NamedTuple):
    """How well each image of a table went, at an IoU of 0.5.

    Attributes:
        right, wrong, missed: int64 (images,), true and false detections, and annotations that none finds.
        f1: float64 (images,), 1 for an image in which nothing is annotated and nothing was found.
    """

    right: np.ndarray
    wrong: np.ndarray
    missed: np.ndarray
    f1: np.ndarray

    def hardest(self, most: int) -> np.ndarray:
        """Positions of the images that went worst, by F1 and then by the number of mistakes; those without mistakes
        are not among them."""
        mistakes = self.wrong + self.missed
        order = np.lexsort((-mistakes, self.f1))  # stable
        return order[mistakes[order] > 0][:most]


def quality(table: MatchTable, least_score: float) -> ImageQuality:
    """How each image of a table went, by its detections that have at least this score."""
    bit = np.uint64(1) << np.uint64(_AT_50)
    counts = table.scores >= least_score
    found = counts & ((table.found & bit) != 0)
    false = counts & ((table.found & bit) == 0) & ((table.ignored & bit) == 0)
    images, number = table.image_of_rows(), len(table.image_ids)
    right, wrong = (np.bincount(images[which], minlength=number).astype(np.int64) for which in (found, false))
    missed = np.maximum(table.num_true - right, 0)
    total = 2 * right + wrong + missed
    return ImageQuality(right, wrong, missed, np.where(total > 0, 2 * right / np.maximum(total, 1), 1.0))


def image_columns(
    table: MatchTable, curves: DetectionCurves, class_names: Sequence[str], least_score: float
) -> dict[str, Sequence[Any]]:
    """Columns of a table with a row for each image: what is annotated and what is found, as "cat 2, dog 1"; the
    highest score; COCO's numbers of this image alone, not a number where nothing is annotated; true and false
    detections and annotations that are missed, at an IoU of 0.5.

    Args:
        curves: of ``table``.
        least_score: of detections that are named and counted; AP is of all.
    """
    went, number = quality(table, least_score), len(table.image_ids)
    images = table.image_of_rows()
    counts = table.scores >= least_score
    highest = np.full(number, -np.inf)
    np.maximum.at(highest, images, table.scores)
    stats = np.concatenate(
        [curves.scores(np.eye(min(_AT_ONCE, number - first), number, first))[0] for first in range(0, number, _AT_ONCE)]
    )
    names = curves.names()
    return {
        "truth": _list_classes(number, class_names, *table.annotated[:, :3].T),
        "prediction": _list_classes(
            number, class_names, images[counts], table.labels[counts], np.ones(counts.sum(), int)
        ),
        "highest score": np.where(np.isfinite(highest), highest, np.nan),
        **{name: stats[:, names.index(name)] for name in (*_OF_ONE, f"AR_{curves.max_detections[-1]}")},
        "true positives": went.right,
        "false positives": went.wrong,
        "missed": went.missed,
    }


def _list_classes(
    images: int, class_names: Sequence[str], rows: np.ndarray, labels: np.ndarray, counts: np.ndarray
) -> list[str]:
    """Of each image its classes with their counts; ``counts`` of ``labels`` are in the images ``rows``."""
    numbers = np.zeros((images, len(class_names)), np.int64)
    np.add.at(numbers, (rows, labels), counts)
    return [", ".join(f"{class_names[label]} {row[label]}" for label in np.flatnonzero(row)) for row in numbers]
