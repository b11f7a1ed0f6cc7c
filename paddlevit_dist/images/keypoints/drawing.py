"""Draws skeletons on images: points and the lines between them, in colors of the left, the right and the middle."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from ...core.tasks.figures import Color
from ..detection.data.image_annotations import ImageAnnotations
from ..detection.detections import boxes_to_corners
from ..detection.drawing import CROWD, CanvasPen, enlargement_factor, get_label_colors, short_name
from ..drawing import CELL_PX, fit_image, paste_in_square
from .detected_keypoints import DetectedKeypoints
from .keypoint_set import KeypointSet

#: score from which on a detected point counts as seen; it is filled in drawings, and labeled in data sets
POINT_SCORE = 0.3
FIRST: Color = (255, 150, 30)  # points that are the first of a mirrored pair, such as the left ones of COCO
SECOND: Color = (60, 160, 255)
MIDDLE: Color = (80, 220, 90)  # and lines between points of different colors
NOT_DRAWN, HOLLOW, FILLED = range(3)  # marks of points, as COCO's visibility
_RADIUS_SCALE, _LINE_SCALE = 1 / 110, 1 / 220  # of the longer side
_FARTHEST_PX = 30_000


class DrawnObjects(NamedTuple):
    """Objects with points to draw on an image."""

    places: np.ndarray  # float64 (n, K, 2), x, y in pixels
    marks: np.ndarray  # numbers (n, K), NOT_DRAWN, HOLLOW or FILLED
    labels: np.ndarray  # int (n,), categories from 0; below 0: a crowd
    boxes: np.ndarray  # float64 (n, 4), x0, y0, x1, y1, drawn for crowds, and the place of names for others
    scores: np.ndarray | None = None  # float (n,)

    @classmethod
    def from_annotations(cls, truth: ImageAnnotations) -> "DrawnObjects":
        """Return the annotations of an image: visible points are filled, hidden ones are hollow."""
        labels = np.where(truth.is_crowd, -1, truth.labels)
        points = np.zeros((len(labels), 0, 3)) if truth.points is None else truth.points
        return cls(points[..., :2], points[..., 2], labels, boxes_to_corners(truth.boxes))

    @classmethod
    def from_detected(cls, detected: DetectedKeypoints) -> "DrawnObjects":
        """Return the finite objects of an image; points below ``POINT_SCORE`` are hollow."""
        detected = detected.finite()
        marks = np.where(detected.points[..., 2] >= POINT_SCORE, FILLED, HOLLOW)
        places = detected.points[..., :2].astype(np.float64)
        return cls(places, marks, detected.labels, detected.span_boxes().astype(np.float64), detected.scores)

    def scaled(self, factor: float) -> "DrawnObjects":
        """Return the objects for an image that is larger by a factor."""
        return self._replace(places=self.places * factor, boxes=self.boxes * factor)


def draw_keypoints(
    image: np.ndarray, objects: DrawnObjects, keypoint_sets: Sequence[KeypointSet], names: Sequence[str]
) -> np.ndarray:
    """Draw objects on an image, the most certain in front, and their names and scores; uint8 (height, width, 3).

    A small image is enlarged by an integer factor. Names are drawn if there are several categories or scores. Points
    of a mirrored pair have two colors, so that a skeleton with its left and right exchanged is seen.

    Args:
        image: uint8 (height, width, 3).
        objects: what to draw; points that are not finite are not drawn.
        keypoint_sets: points of each category.
        names: names of the categories.
    """
    factor = enlargement_factor(image.shape[:2])
    canvas = Image.fromarray(np.repeat(np.repeat(image, factor, axis=0), factor, axis=1))
    objects, pen = objects.scaled(factor), CanvasPen(canvas)
    scores = objects.scores
    order = np.arange(len(objects.labels)) if scores is None else np.argsort(scores, kind="stable")
    for place in order.tolist():
        label = int(objects.labels[place])
        if label < 0:
            pen.frame(objects.boxes[place], CROWD)
        elif label < len(keypoint_sets):
            _draw_skeleton(canvas, objects.places[place], objects.marks[place], keypoint_sets[label])
    plates: list[tuple[int, int, int, int]] = []
    colors = get_label_colors(objects.labels, len(names))
    for place in order[::-1].tolist():  # names of the most certain objects are placed first
        text = [short_name(names, int(objects.labels[place]))] if len(names) > 1 and objects.labels[place] >= 0 else []
        text += [] if scores is None else [f"{scores[place]:.2f}"]
        if text:
            pen.name(objects.boxes[place], " ".join(text), colors[place], plates)
    return np.asarray(canvas)


def fit_in_cell(
    image: np.ndarray, objects: DrawnObjects, keypoint_sets: Sequence[KeypointSet], names: Sequence[str]
) -> np.ndarray:
    """Draw objects on an image resized into a white square of ``CELL_PX``, with the arguments of ``draw_keypoints``."""
    scaled = objects.scaled(CELL_PX / max(image.shape[:2]))
    return paste_in_square(draw_keypoints(fit_image(image), scaled, keypoint_sets, names))


def list_colors(keypoint_sets: Sequence[KeypointSet]) -> list[tuple[str, Color]]:
    """Return what the colors of points mean: names with red, green and blue."""
    pairs = [(points.names[one], points.names[other]) for points in keypoint_sets for one, other in points.pairs]
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    if not pairs:
        return [("points", MIDDLE), ("a crowd", CROWD)]
    first, second = pairs[0]
    return [
        (f"{first} and so on", FIRST),
        (f"{second} and so on", SECOND),
        ("other points, and lines between colors", MIDDLE),
        ("a crowd", CROWD),
    ]


def color_points(points: KeypointSet) -> list[Color]:
    """Return the color of each point of a category."""
    colors = [MIDDLE] * len(points.names)
    for one, other in points.pairs:
        if one != other:
            colors[one], colors[other] = FIRST, SECOND
    return colors


def _draw_skeleton(canvas: Image.Image, places: np.ndarray, marks: np.ndarray, points: KeypointSet) -> None:
    """Draw the points and lines of an object: places (K, 2) and marks (K,)."""
    draw, longest = ImageDraw.Draw(canvas), max(canvas.size)
    radius, width = max(4, round(longest * _RADIUS_SCALE)), max(2, round(longest * _LINE_SCALE))
    is_drawn = (marks != NOT_DRAWN) & (np.abs(places) < _FARTHEST_PX).all(axis=1)
    spots, colors = np.where(is_drawn[:, None], places, 0.0).round().astype(int).tolist(), color_points(points)
    for one, other in points.skeleton:
        if max(one, other) < len(marks) and is_drawn[one] and is_drawn[other]:
            ends = [tuple(spots[one]), tuple(spots[other])]
            draw.line(ends, fill="black", width=width + 2)  # visible on a background of the line's color
            draw.line(ends, fill=colors[one] if colors[one] == colors[other] else MIDDLE, width=width)
    for number in np.flatnonzero(is_drawn[: len(colors)]).tolist():
        x, y = spots[number]
        around = [x - radius, y - radius, x + radius, y + radius]
        if marks[number] == FILLED:
            draw.ellipse(around, fill=colors[number], outline="black")
        else:
            draw.ellipse(around, outline=colors[number], width=max(1, radius // 3))
