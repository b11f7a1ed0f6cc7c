"""Objects that are probably given in another form: corners as sides, shares as pixels; or are outside of the image."""

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count
from ..data.data_warnings import DataWarnings

_FRACTION_TOLERANCE, _SMALLEST_IMAGE = 0.05, 8  # boxes in an image of few pixels look like fractions
_MIN_OUTSIDE = 0.25  # fraction of boxes; randomly placed corners give 0.75
CLIPPED = "with a box that exceeds the image by more than a pixel, clipped for training"
POINT_OUTSIDE = "with a labeled point outside its image: scored as COCO's tools do, but not learned"


def require_sides(source: str, boxes: np.ndarray, sizes: np.ndarray, more_advice: str = "") -> None:
    """Check that boxes, float64 (n, 4), can be x, y, width, height in pixels; raise UserError if not.

    They cannot if all are fractions of an image, or if all are corners inside of their images and, read as sides, a
    quarter of them exceeds the image by a tenth.

    Args:
        source: begins the message, such as "a.json: bbox".
        boxes: x, y, width, height as given.
        sizes: int64 (n, 2), height and width of the images; 0 where unknown.
        more_advice: what else corrects corners.
    """
    is_known = (sizes > 0).all(axis=1)
    boxes, sizes = boxes[is_known], sizes[is_known, ::-1]  # width and height
    if not len(boxes):
        return
    message = f"{source} is x, y, width, height in pixels, and all of the {len(boxes):,}"
    if are_fractions(boxes, sizes):
        raise UserError(f"{message} are fractions of the images from 0 to 1: multiply by width and height")
    are_corners = (boxes[:, 2:] >= boxes[:, :2]).all() and (boxes[:, 2:] <= sizes * 1.02 + 1).all()
    is_outside = (boxes[:, :2] + boxes[:, 2:] > sizes * 1.1).any(axis=1)
    if are_corners and is_outside.mean() >= _MIN_OUTSIDE:
        reason = f"as sides {count(int(is_outside.sum()), 'box')} would exceed the image"
        advice = f"write x0, y0, x1 - x0, y1 - y0{more_advice}"
        raise UserError(f"{message} look like corners x0, y0, x1, y1 ({reason}): {advice}")


def require_pixels(source: str, boxes: np.ndarray, sizes: np.ndarray) -> None:
    """Raise UserError if all boxes, float64 (n, 4), are fractions of their images; ``sizes`` are int64 (n, 2)."""
    is_known = (sizes > 0).all(axis=1)
    if is_known.any() and are_fractions(boxes[is_known], sizes[is_known]):
        number = int(is_known.sum())
        raise UserError(
            f"{source}: all of the {count(number, 'box')} are fractions of the images from 0 to 1: multiply by width "
            "and height"
        )


def are_fractions(boxes: np.ndarray, sizes: np.ndarray) -> bool:
    """Return whether all numbers of boxes (n, 4) are from 0 to 1, in images of more than a few pixels."""
    is_small = boxes.min() >= -_FRACTION_TOLERANCE and boxes.max() <= 1 + _FRACTION_TOLERANCE
    return bool(is_small and sizes.min() > _SMALLEST_IMAGE)


def require_pixel_points(source: str, points: np.ndarray, sizes: np.ndarray) -> None:
    """Raise UserError if all labeled points, float64 (n, K, 3), are fractions of images; ``sizes``: int64 (n, 2)."""
    labeled = points[points[:, :, 2] > 0][:, :2]
    if len(labeled) and np.abs(labeled).max() <= 1 and sizes.max(initial=0) > _SMALLEST_IMAGE:
        raise UserError(
            f"{source}: all coordinates are fractions of the images from 0 to 1: multiply by width and height"
        )


def note_boxes(odd: DataWarnings, examples: np.ndarray, boxes: np.ndarray, sizes: np.ndarray) -> None:
    """Note boxes, float64 (n, 4) with an area, outside of their images of ``sizes`` int64 (n, 2), height and width."""
    low, sides = boxes[:, :2], boxes[:, 2:]
    high, limits = low + sides, sizes[:, ::-1]
    is_outside = (high <= 0).any(axis=1) | (low >= limits).any(axis=1)
    is_clipped = (low < -1).any(axis=1) | (high > limits + 1).any(axis=1)
    if is_clipped.any() and (sides > low).all() and (sides <= limits + 1).all():
        text = "with a box that fits as x0, y0, x1, y1, as all boxes do, although COCO has x, y, width, height"
        odd.note_all("object", text, examples)
    odd.note_all("object", "with a box outside the image, skipped in training", examples[is_outside])
    odd.note_all("object", CLIPPED, examples[is_clipped & ~is_outside])


def find_outside(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return which objects have a labeled point outside of their image, bool (objects,).

    Args:
        points: float64 (objects, K, 3).
        sizes: int64 (objects, 2), height and width of each object's image.
    """
    places = points[:, :, :2]
    is_inside = ((places >= 0) & (places <= sizes[:, None, ::-1])).all(axis=2)
    return (~is_inside & (points[:, :, 2] > 0)).any(axis=1)
