"""What a run does to its images: their stored size and colors, those that the network sees, and what is lost."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..image_size import ImageSize, as_pair

_GRAY_MODES = ("1", "L", "I", "F")  # how Pillow's modes without colors begin; "LA" has transparency, "LAB" has colors


class SeenImages(NamedTuple):
    """What a network sees of an image.

    Attributes:
        text: size, width first, such as "16 x 16" or "shorter side 480 to 800".
        pixels: that it sees of a whole image; None if this follows from each image's own size.
        is_gray: whether it sees no colors.
    """

    text: str
    pixels: int | None = None
    is_gray: bool = False


def see_whole(size: ImageSize, channels: int = 3) -> SeenImages:
    """Return what a network sees of images that are resized to pixels, or (height, width)."""
    height, width = as_pair(size)
    return SeenImages(f"{width} x {height}", height * width, channels == 1)


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
    share = 1.0 if seen.pixels is None else seen.pixels / float(np.median(areas))
    if share < 1:
        lost.append(f"{100 * (1 - share):.3g} % of the pixels")
    loss = f"; lost: {', '.join(lost)}" if lost else ""
    return f"images of {split}: {stored} {colors} -> {seen.text} {'gray' if seen.is_gray else 'color'}{loss}"


def _format(size: tuple[int, int]) -> str:
    height, width = size
    return f"{width} x {height}"
