"""Resize images with Pillow's bilinear filter, which averages when shrinking, or by interpolation as in OpenCV."""

import numpy as np
from PIL import Image

PILLOW, OPENCV = "pillow", "opencv"
Size = tuple[int, int]  # height, width


def interpolate_axis(pixels: np.ndarray, axis: int, side: int, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Resize an axis linearly to ``side`` pixels, centers at halves, or ``start`` to ``stop`` of them; float32."""
    before = pixels.shape[axis]
    targets = np.arange(start, side if stop is None else stop)
    places = np.maximum((targets + 0.5) * (before / side) - 0.5, 0)
    first = np.minimum(places.astype(np.int64), before - 1)
    share = (places - first).astype(np.float32).reshape([-1 if axis == other else 1 for other in range(pixels.ndim)])
    second = np.minimum(first + 1, before - 1)
    return pixels.take(first, axis) * (1 - share) + pixels.take(second, axis) * share


def fitted_scale(size: Size, shortest: int | None, longest: int | None) -> float:
    """Return the factor by which the shorter side becomes ``shortest``, as ``mmcv.imrescale``; 1 without ``shortest``.

    It is smaller if the longer side would exceed ``longest``.
    """
    if shortest is None:
        return 1.0
    scale = shortest / min(size)
    return scale if longest is None else min(scale, longest / max(size))


def scaled_size(size: Size, scale: float) -> Size:
    """Scale both sides and round them to the nearest pixel, at least 1."""
    return max(int(size[0] * scale + 0.5), 1), max(int(size[1] * scale + 0.5), 1)


def resize_image(
    image: Image.Image, size: Size, interpolation: str, part: tuple[int, int, int, int] | None = None
) -> np.ndarray:
    """Resize an RGB image to height and width ``size``, or compute a part (top, left, height, width); uint8.

    ``PILLOW`` averages when shrinking; else OpenCV's linear interpolation between the nearest four pixels, exact to one
    level.
    """
    top, left, height, width = part or (0, 0, *size)
    if interpolation == PILLOW:
        down, right = image.height / size[0], image.width / size[1]
        ends = min((left + width) * right, image.width), min((top + height) * down, image.height)
        box = (left * right, top * down, *ends)
        return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, box))
    rows = interpolate_axis(np.asarray(image), 0, size[0], top, top + height)
    return np.rint(interpolate_axis(rows, 1, size[1], left, left + width)).astype(np.uint8)


def find_nearest_pixels(stored: Size, size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Find the row and the column of a stored image nearest to each row and column of the resized image.

    Labels and pixels are therefore aligned. (In mmsegmentation, labels are up to half a pixel off.)
    """
    rows, columns = ((2 * np.arange(side) + 1) * stored_side // (2 * side) for side, stored_side in zip(size, stored))
    return rows, columns
