"""A picture with its boxes, resized, cropped and mirrored together.

Masks follow from where each row and column of the view comes from: cutting and nearest-neighbour resizing treat rows
and columns apart, so any number of steps is one choice of rows and one of columns, made once at the end.
"""

from typing import Any, NamedTuple

import numpy as np
from PIL import Image

Size = tuple[int, int]  # height, width


class View(NamedTuple):
    """Part of a picture, and the n objects seen in it.

    Attributes:
        picture: of Pillow, mode "RGB"; after ``resize_as_torchvision`` float32 (height, width, 3), levels 0 to 255.
        boxes: float64 (n, 4), x0, y0, x1, y1 in its pixels; none is empty.
        objects: int64 (n,), which of the stored picture's annotations each is.
        rows: int64 (height,), the row of the stored picture that each row of a mask comes from.
        columns: int64 (width,), the same for columns.
    """

    picture: Any
    boxes: np.ndarray
    objects: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    @property
    def size(self) -> Size:
        """Height and width."""
        return len(self.rows), len(self.columns)

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
    return _scaled(view, size, view.picture.resize(size[::-1], Image.Resampling.BILINEAR))


def resize_as_torchvision(view: View, size: Size) -> View:
    """Scaled as torchvision's detectors scale their input: between the four nearest pixels, however small the result,
    and without rounding to whole levels."""
    pixels = np.asarray(view.picture, np.float32)
    for axis, side in enumerate(size):
        pixels = _between_two(pixels, axis, side)
    return _scaled(view, size, pixels)


def _between_two(pixels: np.ndarray, axis: int, side: int) -> np.ndarray:
    """One axis of float32 pixels resized linearly; centres of pixels lie at halves."""
    before = pixels.shape[axis]
    places = np.maximum((np.arange(side) + 0.5) * (before / side) - 0.5, 0)
    first = np.minimum(places.astype(np.int64), before - 1)
    share = (places - first).astype(np.float32).reshape([-1 if axis == own else 1 for own in range(pixels.ndim)])
    second = np.minimum(first + 1, before - 1)
    return pixels.take(first, axis) * (1 - share) + pixels.take(second, axis) * share


def _scaled(view: View, size: Size, picture: Any) -> View:
    (height, width), (new_height, new_width) = view.size, size
    scale = np.array([new_width / width, new_height / height] * 2)
    return View(
        picture,
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


def fitted_size_of_torchvision(size: Size, shortest: int, longest: int) -> Size:
    """The size as torchvision's detectors have it (GeneralizedRCNNTransform): one scale, both sides rounded down."""
    scale = min(shortest / min(size), longest / max(size))
    return max(int(size[0] * scale), 1), max(int(size[1] * scale), 1)
