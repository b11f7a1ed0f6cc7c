"""Pictures side by side under their titles, with a legend to their right."""

from __future__ import annotations

import io
from pathlib import Path
from typing import List, Sequence, Tuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ...files import atomic_file
from .pictures import Colour

_TITLE_PX, _LINE_PX, _GAP_PX, _SQUARE_PX = 26, 20, 12, 12
_TEXT_PX = 15
_LONGEST_NAME = 40


def sheet(views: Sequence[Tuple[str, np.ndarray]], legend: Sequence[Tuple[str, Colour]]) -> np.ndarray:
    """One picture, uint8 (height, width, 3), on white.

    Args:
        views: title and picture, uint8 (height, width, 3), from left to right.
        legend: name and colour of what is shown, from top to bottom; it goes on in a further column.
    """
    font = _font()
    height = _TITLE_PX + max(picture.shape[0] for _, picture in views)
    height = max(height, _TITLE_PX + _LINE_PX * min(len(legend), 20))
    columns = _columns(legend, (height - _TITLE_PX) // _LINE_PX)
    widths = [picture.shape[1] for _, picture in views]
    places = np.cumsum([0, *(width + _GAP_PX for width in widths)]).tolist()
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    text_widths = [int(max(ruler.textlength(name, font=font) for name, _ in column)) for column in columns]
    whole = places[-1] + sum(width + _SQUARE_PX + 3 * _GAP_PX for width in text_widths)
    canvas = Image.new("RGB", (whole, height), "white")
    pen = ImageDraw.Draw(canvas)
    for (title, picture), left in zip(views, places):
        pen.text((left + 4, 4), title, fill="black", font=font)
        canvas.paste(Image.fromarray(picture), (left, _TITLE_PX))
    left = places[-1] + _GAP_PX
    for column, width in zip(columns, text_widths):
        for row, (name, colour) in enumerate(column):
            top = _TITLE_PX + row * _LINE_PX
            pen.rectangle([left, top + 4, left + _SQUARE_PX, top + 4 + _SQUARE_PX], fill=tuple(colour), outline="black")
            pen.text((left + _SQUARE_PX + 6, top + 1), name, fill="black", font=font)
        left += width + _SQUARE_PX + 3 * _GAP_PX
    return np.asarray(canvas)


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write a picture atomically."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    with atomic_file(path) as file:
        file.write(stream.getvalue())


def _columns(legend: Sequence[Tuple[str, Colour]], rows: int) -> List[List[Tuple[str, Colour]]]:
    shown = [(_drawable(name, number), colour) for number, (name, colour) in enumerate(legend)]
    return [shown[first : first + rows] for first in range(0, len(shown), max(rows, 1))]


def _drawable(name: str, number: int) -> str:
    """The name as far as Pillow's own font has its letters."""
    kept = name.encode("latin-1", "ignore").decode("latin-1")
    return (kept if kept.strip() else f"number {number}")[:_LONGEST_NAME]


def _font() -> ImageFont.ImageFont:
    try:
        return ImageFont.load_default(_TEXT_PX)
    except TypeError:  # before Pillow 10.1 it has one size
        return ImageFont.load_default()
