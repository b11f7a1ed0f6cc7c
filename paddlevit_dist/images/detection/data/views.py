"""A picture with its boxes, resized, cropped and mirrored together.

Masks follow from where each row and column of the view comes from: cutting and nearest-neighbour resizing treat rows
and columns apart, so any number of steps is one choice of rows and one of columns, made once at the end.
"""

from __future__ import annotations

from typing import NamedTuple, Tuple

import numpy as np
from PIL import Image

Size = Tuple[int, int]  # height, width


class View(NamedTuple):
    """Part of a picture, and the n objects seen in it.

    Attributes:
        picture: of Pillow, mode "RGB".
        boxes: float64 (n, 4), x0, y0, x1, y1 in its pixels; none is empty.
        objects: int64 (n,), which of the stored picture's annotations each is.
        rows: int64 (height,), the row of the stored picture that each row of a mask comes from.
        columns: int64 (width,), the same for columns.
    """

    picture: Image.Image
    boxes: np.ndarray
    objects: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.picture.size[1], self.picture.size[0]

    def mask(self, stored: np.ndarray) -> np.ndarray:
        """The mask of an object in this view, from that in the stored picture: (height, width) of any type."""
        return stored.take(self.columns, axis=1).take(self.rows, axis=0)  # whole rows are copied at once


def whole_view(picture: Image.Image, boxes: np.ndarray, objects: np.ndarray) -> View:
    """The picture as it is stored, with boxes cut off at its edges and without those that lie outside.

    Args:
        boxes: float64 (n, 4), x, y, width, height.
        objects: int64 (n,), which annotations these are.
    """
    corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)  # (n, 4)
    width, height = picture.size
    return _inside(View(picture, corners, objects, np.arange(height), np.arange(width)))


def flip(view: View) -> View:
    """Mirrored left to right."""
    width = view.picture.size[0]
    boxes = view.boxes[:, [2, 1, 0, 3]] * (-1, 1, -1, 1) + (width, 0, width, 0)
    picture = view.picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return view._replace(picture=picture, boxes=boxes, columns=view.columns[::-1])


def resize(view: View, size: Size) -> View:
    """Scaled to ``size``: the picture with Pillow's bilinear filter as torchvision does, masks by nearest neighbours as
    torch does."""
    if size == view.size:
        return view
    (height, width), (new_height, new_width) = view.size, size
    scale = np.array([new_width / width, new_height / height] * 2)
    return View(
        view.picture.resize((new_width, new_height), Image.Resampling.BILINEAR),
        view.boxes * scale,
        view.objects,
        view.rows[np.arange(new_height) * height // new_height],
        view.columns[np.arange(new_width) * width // new_width],
    )


def crop(view: View, top: int, left: int, size: Size) -> View:
    """The part of ``size`` with this upper left corner, which lies inside; boxes are cut off at its edges and those
    outside are left out."""
    height, width = size
    return _inside(
        View(
            view.picture.crop((left, top, left + width, top + height)),
            view.boxes - (left, top, left, top),
            view.objects,
            view.rows[top : top + height],
            view.columns[left : left + width],
        )
    )


def _inside(view: View) -> View:
    height, width = view.size
    boxes = np.clip(view.boxes, 0, (width, height, width, height))
    is_seen = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return view._replace(boxes=boxes[is_seen], objects=view.objects[is_seen])


def fitted_size(size: Size, shortest: int, longest: int) -> Size:
    """The size at which the shorter side is ``shortest``, or less where the longer one would pass ``longest``; sides
    are rounded as DETR's authors do (facebookresearch/detr, datasets/transforms.py), which passes ``longest`` by a
    pixel at times. Strips, of which a rounded side would be much too long, are squeezed; no side becomes 0."""
    height, width = size
    low, high = min(size), max(size)
    if high / low * shortest > longest:
        shortest = max(round(longest * low / high), 1)
    long = int(shortest * high / low)
    if long > 1.01 * longest:
        long = longest
    return (long, shortest) if width < height else (shortest, long)
