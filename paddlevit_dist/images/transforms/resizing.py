"""Images at another size: by Pillow's bilinear filter, which averages over what becomes smaller, or between the four
nearest pixels, as OpenCV and torch have it."""

import numpy as np
from PIL import Image

PILLOW, OPENCV = "pillow", "opencv"
Size = tuple[int, int]  # height, width


def between_two(pixels: np.ndarray, axis: int, side: int, start: int = 0, stop: int | None = None) -> np.ndarray:
    """One axis resized linearly to ``side`` pixels, whose centers lie at halves; float32.

    Args:
        start, stop: which of these pixels are wanted; all.
    """
    before = pixels.shape[axis]
    wanted = np.arange(start, side if stop is None else stop)
    places = np.maximum((wanted + 0.5) * (before / side) - 0.5, 0)
    first = np.minimum(places.astype(np.int64), before - 1)
    share = (places - first).astype(np.float32).reshape([-1 if axis == own else 1 for own in range(pixels.ndim)])
    second = np.minimum(first + 1, before - 1)
    return pixels.take(first, axis) * (1 - share) + pixels.take(second, axis) * share


def fitted_scale(size: Size, shortest: int | None, longest: int | None) -> float:
    """The factor by which the shorter side becomes ``shortest``, or less where the longer one would pass ``longest``;
    1 without them. As ``mmcv.imrescale`` has it."""
    if shortest is None:
        return 1.0
    scale = shortest / min(size)
    return scale if longest is None else min(scale, longest / max(size))


def scaled_size(size: Size, scale: float) -> Size:
    """Both sides rounded to the nearest pixel, none to 0."""
    return max(int(size[0] * scale + 0.5), 1), max(int(size[1] * scale + 0.5), 1)


def resize_image(image: Image.Image, size: Size, how: str, part: tuple[int, int, int, int] | None = None) -> np.ndarray:
    """An image at another size, uint8 (height, width, 3).

    Args:
        how: ``PILLOW``, whose filter averages over what becomes smaller, or OpenCV's linear interpolation between the
            nearest four pixels, up to a level.
        part: top, left, height and width of what is wanted of the resized image; None: all.
    """
    top, left, height, width = part or (0, 0, *size)
    if how == PILLOW:
        down, right = image.height / size[0], image.width / size[1]
        ends = min((left + width) * right, image.width), min((top + height) * down, image.height)
        box = (left * right, top * down, *ends)
        return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR, box))
    rows = between_two(np.asarray(image), 0, size[0], top, top + height)
    return np.rint(between_two(rows, 1, size[1], left, left + width)).astype(np.uint8)


def nearest(stored: Size, size: Size) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of a stored image whose center is nearest to that of each one of the resized image, so
    that labels lie where pixels do. (mmsegmentation's lie up to half a pixel beside them.)"""
    rows, columns = ((2 * np.arange(side) + 1) * whole // (2 * side) for side, whole in zip(size, stored))
    return rows, columns
