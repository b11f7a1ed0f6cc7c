"""Boxes drawn on images, with their names and scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ...runtime.text_rendering import printable_or, render_text
from ...tasks.figures import Color, class_colors
from ..drawing import CELL_PX, fit_image, paste_in_square
from ..run_lengths import decode

_ENLARGED_TO_PX = CELL_PX  # the longer side of a small image, or up to twice as much: names must fit in
_TEXT_SHARE, _SMALLEST_TEXT_PX, _LARGEST_TEXT_PX = 1 / 45, 12, 40  # of the longer side
_LINE_SHARE = 1 / 350
_MARGIN_PX = 2  # around a name
_MASK_SHARE = 0.45  # of its color in a pixel
_LONGEST_NAME = 30

CROWD: Color = (150, 150, 150)  # what stands for a group of objects

_Plate = tuple[int, int, int, int]  # left, top, right, bottom of a name's background


def draw_boxes(
    image: np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    scores: np.ndarray | None = None,
    masks: Sequence[Any] | None = None,
) -> np.ndarray:
    """The image with boxes in the colors of their classes, the most certain in front; uint8 (height, width, 3). A
    small image is enlarged by a whole number, so that names can be read.

    Args:
        image: uint8 (height, width, 3).
        boxes: (n, 4), x0, y0, x1, y1 in its pixels; what lies outside of it, or is not finite, is not shown.
        labels: int (n,); below 0: a gray box without a name.
        names: of the classes.
        scores: (n,); None: names alone are shown.
        masks: None, or for each box polygons or run lengths as in COCO's JSON, or an array (height, width).
    """
    factor = enlargement(image.shape[:2])
    pixels = np.repeat(np.repeat(image, factor, axis=0), factor, axis=1)
    colors = get_label_colors(labels, len(names))
    order = np.arange(len(boxes)) if scores is None else np.argsort(np.asarray(scores), kind="stable")
    if masks is not None:
        for place in order.tolist():
            _tint(pixels, _as_array(masks[place], image.shape[:2]), factor, colors[place])
    canvas = Image.fromarray(pixels)
    pen = _CanvasPen(canvas)
    for place in order.tolist():
        pen.frame(np.asarray(boxes[place], np.float64) * factor, colors[place])
    plates: list[_Plate] = []
    for place in order[::-1].tolist():  # the most certain has the first choice of a place for its name
        if labels[place] >= 0:
            text = short_name(names, int(labels[place]))
            text = text if scores is None else f"{text} {scores[place]:.2f}"
            pen.name(np.asarray(boxes[place], np.float64) * factor, text, colors[place], plates)
    return np.asarray(canvas)


def fit_in_cell(
    image: np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    masks: Any | None = None,
    scores: np.ndarray | None = None,
) -> np.ndarray:
    """Draw what ``draw_boxes`` draws, in a white square of ``CELL_PX``, so that images of all sizes go on one sheet.

    Args:
        masks: None, or uint8 (n, height, width).
    """
    cell = fit_image(image)
    height, width = cell.shape[:2]
    if masks is not None:
        masks = [np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)) for mask in masks]
    return paste_in_square(draw_boxes(cell, boxes * (CELL_PX / max(image.shape[:2])), labels, names, scores, masks))


def enlargement(size: Sequence[int]) -> int:
    """By what whole number an image of this height and width is enlarged."""
    return max(1, -(-_ENLARGED_TO_PX // max(size)))


def get_label_colors(labels: np.ndarray, number: int) -> list[Color]:
    """The color of each label, int (n,), of so many classes; gray below 0."""
    palette = class_colors(max(number, int(np.max(labels, initial=-1)) + 1)).tolist()
    return [tuple(palette[label]) if label >= 0 else CROWD for label in np.asarray(labels).tolist()]


def short_name(names: Sequence[str], label: int) -> str:
    """The name of a class, with "?" for what no font has letters for; its number where nothing is left."""
    return printable_or(names[label] if label < len(names) else str(label), f"class {label}")[:_LONGEST_NAME]


class _CanvasPen:
    """Draws on one canvas."""

    def __init__(self, canvas: Image.Image) -> None:
        longest = max(canvas.size)
        self.canvas, self.draw, self.size = canvas, ImageDraw.Draw(canvas), canvas.size  # width, height
        self.text_px = int(min(max(longest * _TEXT_SHARE, _SMALLEST_TEXT_PX), _LARGEST_TEXT_PX))
        self.line_px = max(2, round(longest * _LINE_SHARE))

    def frame(self, box: np.ndarray, color: Color) -> None:
        if not np.isfinite(box).all():
            return
        width, height = self.size
        left, right = sorted(np.clip(box[[0, 2]], 0, width - 1).astype(int).tolist())
        top, bottom = sorted(np.clip(box[[1, 3]], 0, height - 1).astype(int).tolist())
        rim = "white" if _is_dark(color) else "black"  # visible on a background of the box's own color
        self.draw.rectangle([left - 1, top - 1, right + 1, bottom + 1], outline=rim, width=self.line_px + 2)
        self.draw.rectangle([left, top, right, bottom], outline=color, width=self.line_px)

    def name(self, box: np.ndarray, text: str, color: Color, plates: list[_Plate]) -> None:
        """Above the box, else in its upper corner or below it, where no other name is."""
        if not np.isfinite(box).all():
            return
        mask = render_text(text, self.text_px)
        wide, high = mask.width + 2 * _MARGIN_PX, mask.height
        left = int(np.clip(min(box[0], box[2]), 0, max(self.size[0] - wide, 0)))
        first, last = sorted((box[1], box[3]))
        choices = [int(first) - high, int(first) + self.line_px, int(last), int(last) - high]
        tops = [min(max(top, 0), max(self.size[1] - high, 0)) for top in choices]
        places = [(left, top, left + wide, top + high) for top in tops]
        place = next((one for one in places if not any(_meet(one, other) for other in plates)), places[0])
        plates.append(place)
        self.draw.rectangle([place[0], place[1], place[2] - 1, place[3] - 1], fill=color)
        self.canvas.paste("white" if _is_dark(color) else "black", (place[0] + _MARGIN_PX, place[1]), mask)


def _is_dark(color: Color) -> bool:
    return 0.3 * color[0] + 0.6 * color[1] + 0.1 * color[2] < 140


def _meet(one: _Plate, other: _Plate) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _as_array(mask: Any, size: Sequence[int]) -> np.ndarray:
    return np.asarray(mask) if isinstance(mask, np.ndarray) else decode(mask, *size)


def _tint(pixels: np.ndarray, mask: np.ndarray, factor: int, color: Color) -> None:
    inside = np.repeat(np.repeat(mask.astype(bool), factor, axis=0), factor, axis=1)
    pixels[inside] = np.rint((1 - _MASK_SHARE) * pixels[inside] + _MASK_SHARE * np.array(color)).astype(np.uint8)
