"""Figures of an evaluation of pictures with label maps: classes, what they are taken for, and which pictures go
wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...contracts.figures import Figure
from ...intervals import mean_of_defined, quotient
from ...labelling.counts import Packed, statistics_of, unpacked
from ...labelling.tables import class_tables, sample_table
from ..drawing import gallery_of, in_cell, overlaid, palette_of
from .data.segmentation_dataset import IGNORED

_SHOWN = 12  # pictures of the gallery
_WRONG = np.array([(230, 30, 30)], np.uint8)


def segmentation_figures(
    samples: Any,
    records: Sequence[tuple[int, Packed]],
    class_names: Sequence[str],
    predict: Callable[[int], np.ndarray],
) -> list[Figure]:
    """All figures, most telling first.

    Args:
        samples: what was evaluated, with the ``dataset`` behind it.
        records: index of each picture, and its counts.
        predict: the class map that the model finds in a sample.
    """
    confusion, boundaries = map(sum, zip(*(unpacked(counts) for _, counts in records)))
    statistics = np.stack([statistics_of(unpacked(counts)[0]) for _, counts in records])  # (pictures, 3, classes)
    right, true, taken = np.moveaxis(statistics, 1, 0)
    ious = mean_of_defined(quotient(right, true + taken - right))
    hardest = [place for place in np.argsort(ious, kind="stable")[:_SHOWN].tolist() if ious[place] < 1]
    palette = palette_of(samples.dataset, len(class_names))

    def drawn(index: int, pixels: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
        found = predict(index)
        wrong = np.where((labels == IGNORED) | (found == labels), np.uint8(IGNORED), np.uint8(0))
        grey = pixels.mean(axis=2, keepdims=True).repeat(3, axis=2)
        shown = (pixels, labels, palette), (pixels, found, palette), (grey, wrong, _WRONG)
        return [in_cell(overlaid(*one)) for one in shown]

    indices = [index for index, _ in records]
    chosen = [(indices[place], f"mIoU {100 * ious[place]:.1f} %") for place in hardest]
    note = "Those with the lowest mean IoU of their own classes: truth, prediction, and what is wrong in red."
    return [
        *gallery_of(samples, chosen, drawn, note),
        *class_tables(confusion, class_names, "pixels", boundaries),
        sample_table("Pictures", "picture", [samples.name(index) for index in indices], statistics, "pixels"),
    ]
