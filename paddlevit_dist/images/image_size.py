"""Sizes of images in pixels: one number for a square, or height and width."""

from collections.abc import Sequence
from typing import Any

ImageSize = int | Sequence[int]


def as_pair(size: ImageSize) -> tuple[int, int]:
    """Return (height, width) of a size."""
    if isinstance(size, int):
        return size, size
    height, width = size
    return int(height), int(width)


def as_setting(size: ImageSize) -> Any:
    """Return a size as its key stores it: a square as one number, else the list [height, width]."""
    height, width = as_pair(size)
    return height if height == width else [height, width]


def format_size(size: ImageSize) -> str:
    """Format a size for messages: "224 pixels" or "96 x 64 pixels", height first."""
    height, width = as_pair(size)
    return f"{height} pixels" if height == width else f"{height} x {width} pixels"
