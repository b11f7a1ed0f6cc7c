"""Figures of images: grids of equal cells, and images overlaid with the colors of their classes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from ..core.runtime.errors import UserError
from ..core.runtime.text_rendering import LINE_PX, legend
from ..core.tasks.figures import Color, Figure, Gallery, class_colors

if TYPE_CHECKING:
    from ..core.tasks.dataset import TransformedDataset

CELL_PX = 320  # side of one cell
_SHARE = 0.6  # weight of a class's color in a pixel
_GAP_PX = 6
_MOST_NAMED = 90  # classes in a legend


def fit_image(image: np.ndarray) -> np.ndarray:
    """Resize an image, uint8 (height, width, 3), so that its longer side is ``CELL_PX``."""
    scale = CELL_PX / max(image.shape[:2])
    width, height = (max(1, round(side * scale)) for side in image.shape[1::-1])
    filter_ = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(image).resize((width, height), filter_))


def paste_in_square(image: np.ndarray) -> np.ndarray:
    """Paste an image of at most ``CELL_PX`` x ``CELL_PX`` into the upper left corner of a white square cell."""
    square = np.full((CELL_PX, CELL_PX, 3), 255, np.uint8)
    square[: image.shape[0], : image.shape[1]] = image
    return square


def fit_in_cell(image: np.ndarray) -> np.ndarray:
    """Resize an image of any size and paste it into a white square cell of ``CELL_PX``."""
    return paste_in_square(fit_image(image))


def join_cells(cells: Sequence[np.ndarray], gap_px: int = _GAP_PX) -> np.ndarray:
    """Join cells, uint8 (height, width[, 3]), from left to right on white, with gaps."""
    height = max(map(len, cells))
    parts = []
    for cell in cells:
        around = [(0, height - len(cell)), (0, gap_px), *[(0, 0)] * (cell.ndim - 2)]
        parts.append(np.pad(cell, around, constant_values=255))
    joined = np.concatenate(parts, axis=1)
    return joined[:, : joined.shape[1] - gap_px]


def build_gallery(
    dataset: "TransformedDataset",
    chosen: Sequence[tuple[int, str]],
    draw_cells: Callable[[int, np.ndarray, Any], Sequence[np.ndarray]],
    note: str,
    folded: str = "",
) -> list[Figure]:
    """Build the gallery of an evaluation's hardest images; images that can no longer be read are skipped.

    Args:
        dataset: evaluated samples, with their ``dataset``.
        chosen: index and caption of each image.
        draw_cells: returns the cells of an image, given its index, pixels, uint8 (height, width, 3), and ground truth.
        note: text below the gallery.
        folded: why it is folded away.
    """
    images = []
    for index, caption in chosen:
        try:
            image, truth = dataset.dataset.read(index)
        except (UserError, OSError):
            continue
        cells = draw_cells(index, np.asarray(image), truth)
        images.append((join_cells(cells), f"{caption}\n{dataset.describe(index)}"))
    return [Gallery("Hardest images", images, note, folded)] if images else []


def get_palette(dataset: object, number: int) -> np.ndarray:
    """Return the published colors of a dataset's classes, or clearly different ones: uint8 (number, 3)."""
    colors = class_colors(number)
    published = getattr(dataset, "palette", None)
    if published is not None:
        colors[: len(published)] = published[:number]
    return colors


def overlay_labels(pixels: np.ndarray, labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """Blend pixels, uint8 (height, width, 3), with labels' colors, uint8 (classes, 3); others stay unchanged."""
    colored = np.zeros((256, 3), np.float32)
    colored[: len(palette)] = _SHARE * palette
    image_weights = np.where(np.arange(256) < len(palette), np.float32(1 - _SHARE), np.float32(1))
    return np.rint(pixels * image_weights[labels][:, :, None] + colored[labels]).astype(np.uint8)


def build_legend(class_names: Sequence[str], colors: Sequence[Color]) -> list[tuple[str, Color]]:
    """Return the names and colors of the first classes, and an entry with the number of other classes."""
    shown = class_names[:_MOST_NAMED]
    others = len(class_names) - len(shown)
    return [*zip(shown, colors), *([(f"and {others} more", (255, 255, 255))] if others else [])]


def add_legend(image: np.ndarray, entries: Sequence[tuple[str, Color]]) -> Image.Image:
    """Add a legend of names and colors at the right side of an image, uint8 (height, width, 3)."""
    height, width = image.shape[:2]
    names = legend(entries, max(height, LINE_PX))
    canvas = Image.new("RGB", (width + names.width, max(height, names.height)), "white")
    canvas.paste(Image.fromarray(image))
    canvas.paste(names, (width, 0))
    return canvas
