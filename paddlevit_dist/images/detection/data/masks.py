"""Masks of COCO's JSON as arrays of pixels."""

from __future__ import annotations

from typing import Any

import numpy as np


def mask_array(mask: Any, height: int, width: int) -> np.ndarray:
    """uint8 (height, width), 1 inside.

    Args:
        mask: run lengths, ``{"size": [height, width], "counts": [...]}``.
    """
    counts = np.asarray(mask["counts"], dtype=np.int64)
    values = np.arange(len(counts)) % 2  # of each run
    return np.repeat(values.astype(np.uint8), counts).reshape(width, height).T
