"""Tables from levels to levels, equal to what Pillow's operations do with each: (256,) integers from 0 to 255."""

from __future__ import annotations

import numpy as np

from .operations import SOLARIZE_THRESHOLD

LEVELS = np.arange(256)


def blended(factor: float, other: int) -> np.ndarray:
    """Pillow's blend of every level with the level ``other``: in float32, truncated, kept between 0 and 255."""
    return (np.float32(other) + np.float32(factor) * (LEVELS - other).astype(np.float32)).clip(0, 255).astype(np.uint8)


def stretched(histogram: np.ndarray) -> np.ndarray:
    """Levels that bring the darkest used one to 0 and the brightest to 255; ``histogram`` (256,)."""
    used = np.flatnonzero(histogram)
    low, high = int(used[0]), int(used[-1])
    if high <= low:
        return LEVELS
    scale = 255.0 / (high - low)
    return np.trunc(LEVELS * scale - low * scale).clip(0, 255)


def equalised(histogram: np.ndarray) -> np.ndarray:
    """Levels after which all are used about equally often; ``histogram`` (256,)."""
    used = histogram[histogram > 0]
    step = (int(used.sum()) - int(used[-1])) // 255
    if len(used) <= 1 or not step:
        return LEVELS
    before = np.concatenate([[0], np.cumsum(histogram)[:-1]])  # pixels at lower levels
    return ((step // 2 + before) // step).clip(0, 255)


def posterized(bits: int) -> np.ndarray:
    """Only the highest ``bits`` of each level; all 0 from 0 bits down."""
    return LEVELS & (256 - (1 << (8 - max(0, min(bits, 8)))))


def solarized(threshold: int) -> np.ndarray:
    """Levels from ``threshold`` on inverted."""
    return np.where(LEVELS < threshold, LEVELS, 255 - LEVELS)


def solarized_by_adding(addition: int) -> np.ndarray:
    """``addition`` more for the darker half."""
    return np.where(LEVELS < SOLARIZE_THRESHOLD, np.minimum(LEVELS + addition, 255), LEVELS)
