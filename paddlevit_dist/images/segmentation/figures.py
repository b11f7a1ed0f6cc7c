"""Figures of an evaluation of pictures with label maps: classes, what they are taken for, and which pictures go
wrong."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...contracts.figures import Colour, Figure, Gallery, class_colours
from ...intervals import mean_of_defined, quotient
from ...labelling.counts import statistics_of
from ...labelling.tables import class_tables, sample_table
from ...runtime.errors import UserError
from .data.segmentation_dataset import IGNORED

_SHOWN = 12  # pictures of the gallery
_CELL_PX = 320
_SHARE = 0.6  # of a class's colour in a pixel
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
        gap = np.full((_CELL_PX, 6, 3), 255, np.uint8)
        cells = [part for view in views for part in (in_cell(view), gap)]
        pictures.append((np.concatenate(cells[:-1], axis=1), f"{said}\n{samples.describe(index)}"))
    note = "Those with the lowest mean IoU of their own classes: truth, prediction, and what is wrong in red."
    return [Gallery("Hardest pictures", pictures, note)] if pictures else []


def palette_of(dataset: Any, number: int) -> np.ndarray:
    """uint8 (number, 3), the published colours of a dataset's classes, or others that are easy to tell apart."""
    colours = class_colours(number)
    published = getattr(dataset, "palette", None)
    if published is not None:
        colours[: len(published)] = published[:number]
    return colours


def overlaid(pixels: np.ndarray, labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """A picture under the colours of its classes, uint8 (height, width, 3); as it is where nothing is labelled.

    Args:
        pixels: uint8 (height, width, 3).
        labels: uint8 (height, width), or ``IGNORED``.
        palette: uint8 (classes, 3).
    """
    table = np.zeros((IGNORED + 1, 3), np.float32)
    table[: len(palette)] = _SHARE * palette
    weights = np.full(IGNORED + 1, 1 - _SHARE, np.float32)
    weights[IGNORED] = 1
    return np.rint(pixels * weights[labels][:, :, None] + table[labels]).astype(np.uint8)


def in_cell(picture: np.ndarray) -> np.ndarray:
    """A picture in a white square of 320 pixels, uint8 (320, 320, 3), so that pictures of all sizes go on one sheet."""
    scale = _CELL_PX / max(picture.shape[:2])
    width, height = (max(1, round(side * scale)) for side in picture.shape[1::-1])
    how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX
    square = np.full((_CELL_PX, _CELL_PX, 3), 255, np.uint8)
    square[:height, :width] = np.asarray(Image.fromarray(picture).resize((width, height), how))
    return square
