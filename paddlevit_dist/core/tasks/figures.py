"""Figures that tasks give to a report: tables, images and point sets as plain values, without layout. Needs no Paddle.

A task need not check its figures: the report logs a figure that it cannot lay out and shows the others. All text is
shown literally; the report escapes markup.
"""

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Color = tuple[int, int, int]  # red, green, blue, each 0 to 255


def class_colors(number: int) -> np.ndarray:
    """Return well-separated colors, uint8 (number, 3). The color of a class does not depend on ``number``."""
    golden = (5**0.5 - 1) / 2  # its multiples modulo 1 cover the circle of hues evenly
    colors = [colorsys.hsv_to_rgb(i * golden % 1, (0.9, 0.55, 0.75)[i % 3], (0.95, 0.8)[i % 2]) for i in range(number)]
    return np.rint(255 * np.array(colors).reshape(number, 3)).astype(np.uint8)


class FigureTable(NamedTuple):
    """A table that the reader can sort by any column; the ``note`` of a figure is a sentence below its title."""

    title: str
    columns: Sequence[str]  # the first column names the row
    #: a cell per column: text, whole number, float (in equal decimals, four digits of the largest), None (empty)
    rows: Sequence[Sequence[Any]]
    note: str = ""
    folded: str = ""  # why it is folded away until the reader unfolds it; empty: it is not
    #: columns of shares from 0 to 1, drawn as bars, as those in percent are, whose names end in "%"
    shares: Sequence[str] = ()


class FilledCells(NamedTuple):
    """Cells of a matrix of counts that are not 0, each once: row and column, from 0, and count, int (cells,) each."""

    rows: np.ndarray
    columns: np.ndarray
    counts: np.ndarray


def count_cells(true: np.ndarray, predicted: np.ndarray, num_classes: int) -> FilledCells:
    """Count samples by true and predicted class, integers (samples,).

    The whole matrix of 20,000 classes would have 400 million cells.
    """
    keys, counts = np.unique(true.astype(np.int64) * num_classes + predicted, return_counts=True)
    return FilledCells(keys // num_classes, keys % num_classes, counts)


def find_confused(cells: FilledCells) -> FilledCells:
    """Return the cells off the diagonal, the most frequent ones first, then in the order of rows and columns."""
    order = np.lexsort((cells.columns, cells.rows, -cells.counts))
    order = order[cells.rows[order] != cells.columns[order]]
    return FilledCells(*(part[order] for part in cells))


def find_most_confused(confused: FilledCells) -> dict[int, int]:
    """Return the class that each confused class is most often taken for, from ``find_confused``."""
    labels, places = np.unique(confused.rows, return_index=True)
    return dict(zip(labels.tolist(), confused.columns[places].tolist()))


class ConfusionMatrix(NamedTuple):
    """Counts of predicted classes by true class, or of samples that have both of two classes."""

    title: str
    names: Sequence[str]  # of the n classes
    #: whole numbers (n, n), at least 0, or of many classes their filled cells: rows are true, columns predicted classes
    values: np.ndarray | FilledCells
    note: str = ""
    is_confusion: bool = True  # False: a cell counts the samples that have both classes, and none is a mistake


class Chart(NamedTuple):
    """Lines, or bars, over one axis."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]  # x and y by name; a bar at x extends from 0 to y
    kind: str = "line"  # or "bar"
    note: str = ""


class Gallery(NamedTuple):
    """Images, uint8 (height, width[, 3]), with captions; small images are enlarged without smoothing."""

    title: str
    images: Sequence[tuple[np.ndarray, str]]
    note: str = ""
    folded: str = ""  # as of a table


class SliceStack(NamedTuple):
    """Images in order, such as slices through volumes: the reader sees one of each stack at a time."""

    title: str
    stacks: Sequence[tuple[Sequence[np.ndarray], str]]  # images of one size, uint8 (height, width[, 3]), and a caption
    note: str = ""


class PointSet(NamedTuple):
    """Points that turn with the mouse, in the colors of one layer at a time."""

    title: str
    xyz: np.ndarray  # float32 (points, 3), meters, the third axis up; more than a million are thinned out evenly
    colors: Mapping[str, np.ndarray]  # uint8 (points, 3) by name of the layer, such as "truth"
    legends: Mapping[str, Sequence[tuple[str, Color]]]  # names with their colors, by name of the layer
    note: str = ""


Figure = FigureTable | ConfusionMatrix | Chart | Gallery | SliceStack | PointSet
