"""Figures of an evaluation of pictures with label maps: classes, what they are taken for, and which pictures go
wrong."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...contracts.figures import Colour, Figure, Gallery
from ...intervals import mean_of_defined, quotient
from ...labelling.counts import statistics_of
from ...labelling.tables import class_tables, sample_table
from ...runtime.errors import UserError
from ..drawing import in_cell, overlaid, palette_of, side_by_side
from .data.segmentation_dataset import IGNORED

_SHOWN = 12  # pictures of the gallery
_WRONG: Colour = (230, 30, 30)


class SegmentationRecord(NamedTuple):
    """What is kept of a picture: 8 bytes for each pair of classes that occurs in it, and 12 for each class.

    Attributes:
        pairs: int32 (pairs,), true class times the number of classes, plus the predicted class.
        counts: int32 (pairs,), pixels of each.
        boundaries: int32 (3, classes), see ``labelling.counts``.
    """

    pairs: np.ndarray
    counts: np.ndarray
    boundaries: np.ndarray

    @classmethod
    def of(cls, confusion: np.ndarray, boundaries: np.ndarray) -> "SegmentationRecord":
        """From the counts of one picture."""
        pairs = np.flatnonzero(confusion)
        return cls(*(np.asarray(one, np.int32) for one in (pairs, confusion.ravel()[pairs], boundaries)))

    def confusion(self) -> np.ndarray:
        """int64 (classes, classes)."""
        number = self.boundaries.shape[1]
        return np.bincount(self.pairs, self.counts, number**2).astype(np.int64).reshape(number, number)


def segmentation_figures(
    samples: Any,
    records: Sequence[tuple[int, SegmentationRecord]],
    class_names: Sequence[str],
    predict: Callable[[int], np.ndarray],
) -> list[Figure]:
    """All figures, most telling first.

    Args:
        samples: what was evaluated, with the ``dataset`` behind it.
        predict: the class map that the model finds in a sample.
    """
    statistics = np.stack([statistics_of(record.confusion()) for _, record in records])  # (pictures, 3, classes)
    confusion = sum(record.confusion() for _, record in records)
    boundaries = sum(record.boundaries.astype(np.int64) for _, record in records)
    right, true, taken = np.moveaxis(statistics, 1, 0)
    ious = mean_of_defined(quotient(right, true + taken - right))
    hardest = np.argsort(ious, kind="stable")[:_SHOWN]  # those without a label come last
    indices = [index for index, _ in records]
    said = [(indices[place], f"mIoU {100 * ious[place]:.1f} %") for place in hardest.tolist() if ious[place] < 1]
    names = [samples.name(index) for index in indices]
    return [
        *_hardest(samples, said, class_names, predict),
        *class_tables(confusion, class_names, "pixels", boundaries),
        sample_table("Pictures", "picture", names, statistics, "pixels"),
    ]


def _hardest(
    samples: Any, chosen: Sequence[tuple[int, str]], class_names: Sequence[str], predict: Callable[[int], np.ndarray]
) -> list[Figure]:
    pictures = []
    palette = palette_of(samples.dataset, len(class_names))
    for index, said in chosen:
        try:
            picture, labels = samples.dataset.read(index)
        except (UserError, OSError):  # it can no longer be read
            continue
        found, pixels = predict(index), np.asarray(picture)
        wrong = np.where(labels == IGNORED, IGNORED, np.where(found == labels, IGNORED, 0)).astype(np.uint8)
        views = [overlaid(pixels, labels, palette), overlaid(pixels, found, palette)]
        views.append(overlaid(pixels, wrong, np.array([_WRONG], np.uint8)))
        pictures.append((side_by_side(list(map(in_cell, views))), f"{said}\n{samples.describe(index)}"))
    note = "Those with the lowest mean IoU of their own classes: truth, prediction, and what is wrong in red."
    return [Gallery("Hardest pictures", pictures, note)] if pictures else []
