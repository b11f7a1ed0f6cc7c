"""Masks of a picture from the small ones of its boxes."""

from __future__ import annotations

import numpy as np

_CERTAIN = 0.5  # a pixel belongs to the object above this


def paste(mask: np.ndarray, box: np.ndarray, size: "tuple[int, int]") -> np.ndarray:
    """uint8 (height, width) of the picture, 1 on the object.

    As torchvision does: the mask gets a border of zeros, the box grows by as much and is cut to whole pixels, the mask
    is resized to it (bilinear) and laid into the picture.

    Args:
        mask: (side, side), probabilities.
        box: (4,), x0, y0, x1, y1 in pixels of the picture.
        size: height and width of the picture.
    """
    side = len(mask)
    padded = np.pad(np.asarray(mask, dtype=np.float32), 1)
    centre, half = (box[2:] + box[:2]) * 0.5, (box[2:] - box[:2]) * 0.5 * ((side + 2) / side)
    x0, y0, x1, y1 = (int(value) for value in np.concatenate([centre - half, centre + half]))
    width, height = max(x1 - x0 + 1, 1), max(y1 - y0 + 1, 1)
    rows = np.arange(max(y0, 0), min(y0 + height, size[0]))
    columns = np.arange(max(x0, 0), min(x0 + width, size[1]))
    result = np.zeros(size, dtype=np.uint8)
    if len(rows) and len(columns):
        down = _weights(rows - y0, height, side + 2)
        across = _weights(columns - x0, width, side + 2)
        values = down @ padded @ across.T
        result[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] = values > _CERTAIN
    return result


def _weights(positions: np.ndarray, length: int, side: int) -> np.ndarray:
    """float32 (positions, side): how much of each of ``side`` values is in positions of ``length`` resized ones."""
    place = np.clip((positions + 0.5) * (side / length) - 0.5, 0, None)
    low = np.minimum(place.astype(np.int64), side - 1)
    high = np.minimum(low + 1, side - 1)
    share = (place - low).astype(np.float32)
    weights = np.zeros((len(positions), side), dtype=np.float32)
    each = np.arange(len(positions))
    weights[each, low] += 1 - share
    weights[each, high] += share
    return weights
