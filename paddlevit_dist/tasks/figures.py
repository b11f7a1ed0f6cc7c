"""Figures that tasks hand to a report: tables, images and point sets as plain values, without any layout.

Without Paddle. Whoever makes a figure checks nothing: the report tells of one that it cannot lay out, and lays out the
others. All text is taken as it is; markup in it is shown, not obeyed.
"""

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Color = tuple[int, int, int]  # red, green, blue, each 0 to 255


def class_colors(number: int) -> np.ndarray:
    """uint8 (number, 3): well-separated colors; a class keeps its color whatever the number."""
    golden = (5**0.5 - 1) / 2  # multiples of it, modulo 1, fill the circle of hues evenly
    colors = [colorsys.hsv_to_rgb(i * golden % 1, (0.9, 0.55, 0.75)[i % 3], (0.95, 0.8)[i % 2]) for i in range(number)]
    return np.rint(255 * np.array(colors).reshape(number, 3)).astype(np.uint8)


class FigureTable(NamedTuple):
    """Rows that a reader can sort by any column.

    Attributes:
        columns: names of the columns; the first one names the row.
        rows: of as many cells as there are columns: text, whole numbers, floats (shown with four digits), None (empty).
        note: a sentence under the title, such as what was left out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


class ConfusionMatrix(NamedTuple):
    """Which class was taken for which.

    Attributes:
        names: of the n classes.
        values: whole numbers (n, n), at least 0: rows are true classes, columns are predicted ones.
    """

    title: str
    names: Sequence[str]
    values: np.ndarray
    note: str = ""


class Chart(NamedTuple):
    """Lines, or bars, over one axis.

    Attributes:
        lines: by name, numbers x and y of equal length; bars stand at x, from 0 to y.
        kind: "line" or "bar".
    """

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    kind: str = "line"
    note: str = ""


class Gallery(NamedTuple):
    """Images with captions.

    Attributes:
        images: each uint8 (height, width[, 3]) with its caption; small ones are shown enlarged, pixel for pixel.
    """

    title: str
    images: Sequence[tuple[np.ndarray, str]]
    note: str = ""


class PointSet(NamedTuple):
    """Points that turn with the mouse, in the colors of one layer at a time.

    Attributes:
        xyz: float32 (points, 3), meters, the third axis up. Of more than a million, every so-manieth is shown.
        colors: by name of the layer, such as "truth", uint8 (points, 3).
        legends: by name of the layer, names with their colors.
    """

    title: str
    xyz: np.ndarray
    colors: Mapping[str, np.ndarray]
    legends: Mapping[str, Sequence[tuple[str, Color]]]
    note: str = ""


Figure = FigureTable | ConfusionMatrix | Chart | Gallery | PointSet
