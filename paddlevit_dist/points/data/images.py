"""Images of points viewed obliquely from above, and colors for classes and instances."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ...core.runtime.files import atomic_file
from ...core.runtime.text_rendering import LINE_PX, legend, render_text
from ...core.tasks.figures import Color, class_colors
from .scannet_classes import CLASS_NAMES, COLORS

UNLABELED_PIXELS = (205, 205, 205)  # color of points without a class or instance
WIDTH_PX = 720
CELL_PX = 240  # width of a scene on a sheet of many scenes
_ROOM = ("wall", "floor", "ceiling")  # classes that would hide the furniture
_MAX_ASPECT = 4  # height over width: taller scenes are drawn smaller
_YAW, _TILT = math.radians(30.0), math.radians(55.0)  # of the view


def get_palette(class_names: Sequence[str]) -> np.ndarray:
    """Return uint8 (classes, 3): ScanNet's colors for its twenty classes, else ``class_colors``."""
    if tuple(class_names) == CLASS_NAMES:
        return np.array(COLORS, np.uint8)
    return class_colors(len(class_names))


def color(labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """Return the palette's color of each label (P,), uint8 (P, 3), ``UNLABELED_PIXELS`` for negative labels."""
    return np.concatenate([palette, [UNLABELED_PIXELS]]).astype(np.uint8)[np.where(labels < 0, len(palette), labels)]


def draw_classes(
    xyz: np.ndarray, classes: np.ndarray, class_names: Sequence[str], width_px: int = WIDTH_PX
) -> np.ndarray:
    """Draw points (P, 3) in the colors of their classes (P,), negative for none; walls, floors and ceilings behind."""
    room = [number for number, name in enumerate(class_names) if name.lower() in _ROOM]
    return draw(xyz, color(classes, get_palette(class_names)), (classes >= 0) & ~np.isin(classes, room), width_px)


def build_legend(classes: np.ndarray, class_names: Sequence[str]) -> list[tuple[str, Color]]:
    """Return name and color of each class that occurs among labels of any shape, ordered by number."""
    palette = get_palette(class_names)
    return [(class_names[number], tuple(palette[number].tolist())) for number in np.unique(classes[classes >= 0])]


def draw(xyz: np.ndarray, colors: np.ndarray, is_foreground: np.ndarray, width_px: int = WIDTH_PX) -> np.ndarray:
    """Draw points, float32 (P >= 1, 3), meters, viewed obliquely from above on white, uint8 (height, width_px, 3).

    Points in the foreground, bool (P,), are drawn over all others, so that no wall hides them; nearer ones over farther
    ones. Colors are uint8 (P, 3).
    """
    x = xyz[:, 0] * math.cos(_YAW) - xyz[:, 1] * math.sin(_YAW)
    away = xyz[:, 0] * math.sin(_YAW) + xyz[:, 1] * math.cos(_YAW)
    y = away * math.sin(_TILT) + xyz[:, 2] * math.cos(_TILT)  # upwards in the image
    nearness = xyz[:, 2] * math.sin(_TILT) - away * math.cos(_TILT)
    wide, high = float(np.ptp(x)), float(np.ptp(y))
    scale = (width_px - 4) / max(wide, high / _MAX_ASPECT, 1e-3)
    height = int(high * scale) + 4
    column = ((x - x.min()) * scale).astype(np.int64)
    row = ((y.max() - y) * scale).astype(np.int64)
    order = np.lexsort((nearness, is_foreground))
    image = np.full((height, width_px, 3), 255, np.uint8)
    for down in range(3):  # a point is three pixels wide
        for right in range(3):
            image[row[order] + down, column[order] + right] = colors[order]
    return image


def fit_in_cell(image: np.ndarray) -> np.ndarray:
    """Return an image of width ``CELL_PX`` on a white square, uint8 (CELL_PX, CELL_PX, 3), cropped at the bottom."""
    cell = np.full((CELL_PX, CELL_PX, 3), 255, np.uint8)
    cell[: len(image)] = image[:CELL_PX]
    return cell


_TITLE_PX, _GAP_PX = 26, 12


def sheet(views: Sequence[tuple[str, np.ndarray]], entries: Sequence[tuple[str, Color]]) -> np.ndarray:
    """Arrange titled images, uint8 (height, width, 3), and a legend, in columns, on white, uint8 (height, width, 3)."""
    height = max(*(picture.shape[0] for _, picture in views), LINE_PX * min(len(entries), 20))
    names = legend(entries, height)
    width = sum(picture.shape[1] + _GAP_PX for _, picture in views)
    canvas = Image.new("RGB", (width + names.width, _TITLE_PX + height), "white")
    left = 0
    for title, image in views:
        canvas.paste("black", (left + 4, 4), render_text(title))
        canvas.paste(Image.fromarray(image), (left, _TITLE_PX))
        left += image.shape[1] + _GAP_PX
    canvas.paste(names, (left, _TITLE_PX))
    return np.asarray(canvas)


def write_png(path: Path, image: np.ndarray) -> None:
    """Write an image atomically."""
    with atomic_file(path) as file:
        Image.fromarray(image).save(file, "PNG")
