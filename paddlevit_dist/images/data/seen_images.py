"""What a run does to its images: their stored size and colors, those that the network sees, and what is lost."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ..image_size import ImageSize, as_pair

_GRAY_MODES = ("1", "L", "I", "F")  # how Pillow's modes without colors begin; "LA" has transparency, "LAB" has colors


class CroppingTransform(Protocol):
    """A transform that resizes an image and crops it to its middle."""

    def resized(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (width, height) before the crop of an image of (width, height)."""


class SeenImages(NamedTuple):
    """What a network sees of an image.

    Attributes:
        text: size, width first, such as "16 x 16" or "shorter side 480 to 800".
        pixels: that it sees of a whole image; None if this follows from each image's own size.
        is_gray: whether it sees no colors.
        size: (height, width) of ``pixels``; None if they are not of one crop.
        cropping: the transform that crops to this size; None if none does.
    """

    text: str
    pixels: int | None = None
    is_gray: bool = False
    size: tuple[int, int] | None = None
    cropping: CroppingTransform | None = None

    def measure_crop(self, height: int, width: int) -> float:
        """Return the share of a stored image that the crop keeps, 0 to 1."""
        if self.size is None or self.cropping is None:
            return 1.0
        columns, rows = self.cropping.resized((width, height))
        return min(self.size[0] / rows, 1.0) * min(self.size[1] / columns, 1.0)


def see_whole(size: ImageSize, channels: int = 3, cropping: CroppingTransform | None = None) -> SeenImages:
    """Return what a network sees of images that are resized, or cropped, to a square or to (height, width)."""
    height, width = as_pair(size)
    return SeenImages(f"{width} x {height}", height * width, channels == 1, (height, width), cropping)


def see_sides(shortest: Sequence[int], longest: int | None, is_square: bool = False) -> SeenImages:
    """Return what a network sees of images that are resized to one of the ``shortest`` sides, up to the ``longest``."""
    if not shortest:
        return SeenImages(f"longer side at most {longest}")
    low, high = min(shortest), max(shortest)
    sides = f"{low}" if low == high else f"{low} to {high}"
    if is_square:
        return SeenImages(f"squares of {sides}", high * high)
    return SeenImages(f"shorter side {sides}" + (f", longer side at most {longest}" if longest else ""))


def describe_change(sizes: Sequence[tuple[int, int]], modes: Sequence[str], seen: SeenImages, split: str) -> str:
    """Return a line such as "images of train: 640 x 480 color -> 16 x 16 gray; lost: colors, 99.9 % of the pixels".

    ``sizes`` are (height, width) of the opened images of a split, and ``modes`` the ones of Pillow.
    """
    areas = np.array(sizes, np.int64).prod(axis=1)
    order = np.argsort(areas, kind="stable")
    small, middle, large = (sizes[order[place]] for place in (0, len(order) // 2, -1))
    stored = _format(large) if small == large else f"{_format(small)} to {_format(large)}, typically {_format(middle)},"
    num_gray = sum(mode.startswith(_GRAY_MODES) and mode != "LAB" for mode in modes)
    has_colors = num_gray < len(modes)
    colors = "color" if not num_gray else "gray" if not has_colors else "color and gray"
    lost = ["colors"] if has_colors and seen.is_gray else []
    crops = np.array([seen.measure_crop(*size) for size in sizes])
    shares = crops if seen.pixels is None else np.minimum(crops, seen.pixels / areas)
    share, crop = float(np.median(shares)), float(np.median(crops))
    if share < 1:
        cut = f" (an evaluation crops to the middle {100 * crop:.3g} %)" if crop < 1 else ""
        lost.append(f"{100 * (1 - share):.3g} % of the pixels{cut}")
    loss = f"; lost: {', '.join(lost)}" if lost else ""
    return f"images of {split}: {stored} {colors} -> {seen.text} {'gray' if seen.is_gray else 'color'}{loss}"


def _format(size: tuple[int, int]) -> str:
    height, width = size
    return f"{width} x {height}"
