"""The boxes that proposals start from, at each position of each map."""

from __future__ import annotations

from typing import Sequence, Tuple

import numpy as np


def anchors_at_origin(size: float, ratios: Sequence[float], rounds: bool) -> np.ndarray:
    """float64 (ratios, 4), x0, y0, x1, y1 around (0, 0), of area ``size`` squared, with ``ratios`` of height to width.

    Source: Ren et al., Faster R-CNN, 2015, section 3.1.1; torchvision rounds the corners.
    """
    root = np.sqrt(np.asarray(ratios, dtype=np.float64))
    half = 0.5 * size * np.stack([1 / root, root], axis=1)  # (ratios, 2): width, height
    boxes = np.concatenate([-half, half], axis=1)
    return np.round(boxes) if rounds else boxes


def anchors_of_level(
    grid: Tuple[int, int], stride: int, size: float, ratios: Tuple[float, ...], rounds: bool
) -> np.ndarray:
    """float32 (height * width * ratios, 4), row by row, position by position.

    Args:
        grid: height and width of the map.
        stride: pixels from one position to the next; the first one's anchors are around (0, 0).
    """
    around = anchors_at_origin(size, ratios, rounds)
    rows, columns = np.meshgrid(np.arange(grid[0]) * stride, np.arange(grid[1]) * stride, indexing="ij")
    centres = np.stack([columns, rows, columns, rows], axis=-1)  # (height, width, 4)
    return (centres[:, :, None, :] + around).reshape(-1, 4).astype(np.float32)
