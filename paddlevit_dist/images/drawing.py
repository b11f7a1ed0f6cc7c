"""Images in cells of one size, and under the colors of the classes of their pixels."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ..runtime.errors import UserError
from ..runtime.text_rendering import LINE_PX, legend
from ..tasks.figures import Color, Figure, Gallery, class_colors

CELL_PX = 320  # of one image on a sheet of many
_SHARE = 0.6  # of a class's color in a pixel
_GAP_PX = 6


def fit_image(image: np.ndarray) -> np.ndarray:
    """An image, uint8 (height, width, 3), whose longer side becomes ``CELL_PX``."""
    scale = CELL_PX / max(image.shape[:2])
    width, height = (max(1, round(side * scale)) for side in image.shape[1::-1])
    how = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(image).resize((width, height), how))


def in_square(drawn: np.ndarray) -> np.ndarray:
    """Draw what is at most ``CELL_PX`` high and wide in a white square of this size."""
    square = np.full((CELL_PX, CELL_PX, 3), 255, np.uint8)
    square[: drawn.shape[0], : drawn.shape[1]] = drawn
    return square


def in_cell(image: np.ndarray) -> np.ndarray:
    """An image of any size in a white square of ``CELL_PX``, so that all go on one sheet."""
    return in_square(fit_image(image))


def side_by_side(cells: Sequence[np.ndarray]) -> np.ndarray:
    """Cells from left to right, with gaps."""
    gap = np.full((CELL_PX, _GAP_PX, 3), 255, np.uint8)
    return np.concatenate([part for cell in cells for part in (cell, gap)][:-1], axis=1)


def build_gallery(
    samples: Any,
    chosen: Sequence[tuple[int, str]],
    drawn: Callable[[int, np.ndarray, Any], Sequence[np.ndarray]],
    note: str,
) -> list[Figure]:
    """The hardest images of an evaluation; without those that can no longer be read.

    Args:
        samples: what was evaluated, with the ``dataset`` behind it.
        chosen: index of each image, and what is said of it.
        drawn: makes the cells of an image, of its index, its pixels uint8 (height, width, 3) and its truth.
    """
    images = []
    for index, said in chosen:
        try:
            image, truth = samples.dataset.read(index)
        except (UserError, OSError):
            continue
        cells = drawn(index, np.asarray(image), truth)
        images.append((side_by_side(cells), f"{said}\n{samples.describe(index)}"))
    return [Gallery("Hardest images", images, note)] if images else []


def get_palette(dataset: Any, number: int) -> np.ndarray:
    """uint8 (number, 3), the published colors of a dataset's classes, or others that are easy to tell apart."""
    colors = class_colors(number)
    published = getattr(dataset, "palette", None)
    if published is not None:
        colors[: len(published)] = published[:number]
    return colors


def overlaid(pixels: np.ndarray, labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """An image under the colors of its classes, uint8 (height, width, 3); as it is where the palette has no color.

    Args:
        pixels: uint8 (height, width, 3).
        labels: uint8 (height, width).
        palette: uint8 (classes, 3).
    """
    colored = np.zeros((256, 3), np.float32)
    colored[: len(palette)] = _SHARE * palette
    kept = np.where(np.arange(256) < len(palette), np.float32(1 - _SHARE), np.float32(1))
    return np.rint(pixels * kept[labels][:, :, None] + colored[labels]).astype(np.uint8)


def with_legend(image: np.ndarray, entries: Sequence[tuple[str, Color]]) -> Image.Image:
    """An image, uint8 (height, width, 3), with names and their colors at its right side."""
    height, width = image.shape[:2]
    names = legend(entries, max(height, LINE_PX))
    drawn = Image.new("RGB", (width + names.width, max(height, names.height)), "white")
    drawn.paste(Image.fromarray(image))
    drawn.paste(names, (width, 0))
    return drawn
