"""Pictures side by side under their titles, with a legend to their right."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Sequence, Tuple

import numpy as np
from PIL import Image

from ...files import atomic_file
from ...lettering import LINE_PX, legend, letters
from .pictures import Colour

_TITLE_PX, _GAP_PX = 26, 12


def sheet(views: Sequence[Tuple[str, np.ndarray]], entries: Sequence[Tuple[str, Colour]]) -> np.ndarray:
    """One picture, uint8 (height, width, 3), on white.

    Args:
        views: title and picture, uint8 (height, width, 3), from left to right.
        entries: name and colour of what is shown, from top to bottom; the legend goes on in a further column.
    """
    height = max(*(picture.shape[0] for _, picture in views), LINE_PX * min(len(entries), 20), 1)
    names = legend(entries, height)
    width = sum(picture.shape[1] + _GAP_PX for _, picture in views)
    canvas = Image.new("RGB", (width + names.width, _TITLE_PX + height), "white")
    left = 0
    for title, picture in views:
        canvas.paste("black", (left + 4, 4), letters(title))
        canvas.paste(Image.fromarray(picture), (left, _TITLE_PX))
        left += picture.shape[1] + _GAP_PX
    canvas.paste(names, (left, _TITLE_PX))
    return np.asarray(canvas)


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write a picture atomically."""
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, "PNG")
    with atomic_file(path) as file:
        file.write(stream.getvalue())
