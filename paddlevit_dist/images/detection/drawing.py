"""Draws boxes on images, with their names and scores."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ...core.runtime.text_rendering import printable_or, render_text
from ...core.tasks.figures import Color, class_colors
from ..drawing import CELL_PX, fit_image, paste_in_square
from ..run_lengths import decode
from .data.image_annotations import ImageAnnotations
from .detections import boxes_to_corners

_ENLARGED_TO_PX = CELL_PX  # the longer side of a small image at least, so that names fit
_TEXT_SCALE, _SMALLEST_TEXT_PX, _LARGEST_TEXT_PX = 1 / 45, 12, 40  # of the longer side
_LINE_SCALE = 1 / 350
_MARGIN_PX = 2  # around a name
_MASK_OPACITY = 0.45
_LONGEST_NAME = 30

CROWD: Color = (150, 150, 150)  # a group of objects

_Plate = tuple[int, int, int, int]  # left, top, right, bottom of a name's background


def draw_boxes(
    image: np.ndarray,
    boxes: np.ndarray,
    labels: np.ndarray,
    names: Sequence[str],
    scores: np.ndarray | None = None,
    masks: Sequence[Any] | None = None,
) -> np.ndarray:
    """Draw boxes on an image in the colors of their classes, the most certain in front; uint8 (height, width, 3).

    A small image is enlarged by an integer factor so that names are readable.

    Args:
        image: uint8 (height, width, 3).
        boxes: (n, 4), x0, y0, x1, y1 in its pixels; parts outside and boxes that are not finite are not drawn.
        labels: int (n,); below 0: a gray box without a name.
        names: names of the classes.
        scores: (n,); None: only names are drawn.
        masks: None, or for each box polygons or run lengths as in COCO's JSON, or an array (height, width).
    """
    factor = enlargement_factor(image.shape[:2])
    pixels = np.repeat(np.repeat(image, factor, axis=0), factor, axis=1)
    colors = get_label_colors(labels, len(names))
    order = np.arange(len(boxes)) if scores is None else np.argsort(np.asarray(scores), kind="stable")
    if masks is not None:
        for place in order.tolist():
            mask = masks[place]
            array = mask if isinstance(mask, np.ndarray) else decode(mask, *image.shape[:2])
            inside = np.repeat(np.repeat(array.astype(bool), factor, axis=0), factor, axis=1)
            blended = (1 - _MASK_OPACITY) * pixels[inside] + _MASK_OPACITY * np.array(colors[place])
            pixels[inside] = np.rint(blended).astype(np.uint8)
    canvas = Image.fromarray(pixels)
    pen = CanvasPen(canvas)
    for place in order.tolist():
        pen.frame(np.asarray(boxes[place], np.float64) * factor, colors[place])
    plates: list[_Plate] = []
    for place in order[::-1].tolist():  # names of the most certain boxes are placed first
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
    masks: Sequence[Any] | None = None,
    scores: np.ndarray | None = None,
) -> np.ndarray:
    """Draw boxes on an image resized into a white square of ``CELL_PX``, with the arguments of ``draw_boxes``."""
    cell = fit_image(image)
    height, width = cell.shape[:2]
    if masks is not None:
        arrays = (mask if isinstance(mask, np.ndarray) else decode(mask, *image.shape[:2]) for mask in masks)
        masks = [np.asarray(Image.fromarray(mask).resize((width, height), Image.Resampling.NEAREST)) for mask in arrays]
    return paste_in_square(draw_boxes(cell, boxes * (CELL_PX / max(image.shape[:2])), labels, names, scores, masks))


def draw_batch(
    batch: Mapping[str, Any], sizes: np.ndarray, box_counts: np.ndarray, names: Sequence[str]
) -> list[tuple[np.ndarray, str]]:
    """Draw the images of a collated training batch with their boxes, and return captions with them.

    ``sizes`` are int64 (N, 2), without padding, ``box_counts`` int64 (N,).
    """
    drawings = []
    for row, ((height, width), number) in enumerate(zip(sizes.tolist(), box_counts.tolist())):
        pixels = batch["images"][row, :, :height, :width].transpose(1, 2, 0)
        masks = batch["masks"][row, :number, :height, :width] if "masks" in batch else None
        boxes, labels = batch["boxes"][row, :number], batch["labels"][row, :number]
        caption = f"{width} x {height}, {number} box{'' if number == 1 else 'es'}"
        drawings.append((fit_in_cell(np.ascontiguousarray(pixels), boxes, labels, names, masks), caption))
    return drawings


def draw_annotations(
    image: np.ndarray, stored_size: tuple[int, int], annotations: ImageAnnotations, names: Sequence[str]
) -> tuple[np.ndarray, str]:
    """Draw all annotations on an image, crowds in gray, and return a caption with it.

    ``image`` is (3, height, width), levels 0 to 255, after the transform; ``stored_size`` width and height before.
    """
    _, height, width = image.shape
    boxes = boxes_to_corners(annotations.boxes) * np.array([width / stored_size[0], height / stored_size[1]] * 2)
    labels = np.where(annotations.is_crowd, -1, annotations.labels)
    pixels = np.ascontiguousarray(np.rint(image.transpose(1, 2, 0)).astype(np.uint8))
    return fit_in_cell(pixels, boxes, labels, names), f"{width} x {height}, {len(boxes)} annotated"


def enlargement_factor(size: Sequence[int]) -> int:
    """Return the integer factor by which an image of this height and width is enlarged."""
    return max(1, -(-_ENLARGED_TO_PX // max(size)))


def get_label_colors(labels: np.ndarray, number: int) -> list[Color]:
    """Return the color of each label, int (n,), of ``number`` classes; gray below 0."""
    palette = class_colors(max(number, int(np.max(labels, initial=-1)) + 1)).tolist()
    return [tuple(palette[label]) if label >= 0 else CROWD for label in np.asarray(labels).tolist()]


def short_name(names: Sequence[str], label: int) -> str:
    """Return the name of a class for drawing, with "?" for characters without a glyph, or else its number."""
    return printable_or(names[label] if label < len(names) else str(label), f"class {label}")[:_LONGEST_NAME]


class CanvasPen:
    """Draws boxes and names on a canvas."""

    def __init__(self, canvas: Image.Image) -> None:
        longest = max(canvas.size)
        self.canvas, self.draw, self.size = canvas, ImageDraw.Draw(canvas), canvas.size  # width, height
        self.text_px = int(min(max(longest * _TEXT_SCALE, _SMALLEST_TEXT_PX), _LARGEST_TEXT_PX))
        self.line_px = max(2, round(longest * _LINE_SCALE))

    def frame(self, box: np.ndarray, color: Color) -> None:
        """Draw a box."""
        if not np.isfinite(box).all():
            return
        width, height = self.size
        left, right = sorted(np.clip(box[[0, 2]], 0, width - 1).astype(int).tolist())
        top, bottom = sorted(np.clip(box[[1, 3]], 0, height - 1).astype(int).tolist())
        rim = "white" if is_dark(color) else "black"  # visible on a background of the box's color
        self.draw.rectangle([left - 1, top - 1, right + 1, bottom + 1], outline=rim, width=self.line_px + 2)
        self.draw.rectangle([left, top, right, bottom], outline=color, width=self.line_px)

    def name(self, box: np.ndarray, text: str, color: Color, plates: list[_Plate]) -> None:
        """Draw a name above the box, else in its upper corner or below it, away from other names."""
        if not np.isfinite(box).all():
            return
        mask = render_text(text, self.text_px)
        wide, high = mask.width + 2 * _MARGIN_PX, mask.height
        left = int(np.clip(min(box[0], box[2]), 0, max(self.size[0] - wide, 0)))
        first, last = sorted((box[1], box[3]))
        choices = [int(first) - high, int(first) + self.line_px, int(last), int(last) - high]
        tops = [min(max(top, 0), max(self.size[1] - high, 0)) for top in choices]
        places = [(left, top, left + wide, top + high) for top in tops]
        place = next((free for free in places if not any(intersect(free, other) for other in plates)), places[0])
        plates.append(place)
        self.draw.rectangle([place[0], place[1], place[2] - 1, place[3] - 1], fill=color)
        self.canvas.paste("white" if is_dark(color) else "black", (place[0] + _MARGIN_PX, place[1]), mask)


def is_dark(color: Color) -> bool:
    """Return whether white text is readable on a color."""
    return 0.3 * color[0] + 0.6 * color[1] + 0.1 * color[2] < 140


def intersect(first: _Plate, second: _Plate) -> bool:
    """Return whether two plates have a common area."""
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]
