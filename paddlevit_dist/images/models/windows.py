"""Cutting a picture of tokens into windows, and what attention inside them needs to know of positions."""

from __future__ import annotations

from typing import Tuple

import numpy as np
from paddle.nn import functional as F

Size = Tuple[int, int]
_MASKED = -100.0  # the value of the authors' code: exp(-100) is 3.7e-44


def split_into_windows(x, grid: Size, window: Size):
    """Windows of a picture, filled with zeros below and at the right where they do not divide it.

    Args:
        x: (batch, height, width, channels), ``grid`` is (height, width).

    Returns:
        (batch * windows, window height * window width, channels) and the padded (height, width).
    """
    missing = tuple(-side % part for side, part in zip(grid, window))
    if any(missing):
        x = F.pad(x, [0, missing[1], 0, missing[0]], data_format="NHWC")
    padded = (grid[0] + missing[0], grid[1] + missing[1])
    rows, columns, channels = padded[0] // window[0], padded[1] // window[1], x.shape[-1]
    x = x.reshape([-1, rows, window[0], columns, window[1], channels]).transpose([0, 1, 3, 2, 4, 5])
    return x.reshape([-1, window[0] * window[1], channels]), padded


def merge_windows(x, grid: Size, padded: Size, window: Size):
    """The inverse of ``split_into_windows``: (batch, height, width, channels) without the padding."""
    rows, columns, channels = padded[0] // window[0], padded[1] // window[1], x.shape[-1]
    x = x.reshape([-1, rows, columns, window[0], window[1], channels]).transpose([0, 1, 3, 2, 4, 5])
    x = x.reshape([-1, padded[0], padded[1], channels])
    return x if padded == grid else x[:, : grid[0], : grid[1]]


def relative_position_index(height: int, width: int) -> np.ndarray:
    """int64 (tokens, tokens): row of the bias table for each pair of tokens, by the offset of their positions."""
    rows, columns = np.divmod(np.arange(height * width), width)
    down = rows[:, None] - rows[None, :] + height - 1
    across = columns[:, None] - columns[None, :] + width - 1
    return down * (2 * width - 1) + across


def attention_mask(grid: Size, window: Size, shift: Size) -> np.ndarray:
    """float32 (windows, tokens, tokens): 0 where two tokens of a shifted picture were neighbours before, else -100.

    Source: section 3.2, "Efficient batch computation for shifted configuration"; padded positions belong to the last
    region, as in timm.
    """
    sides = []
    for length, part, moved in zip(grid, window, shift):
        padded = length + -length % part
        regions = np.zeros(padded, dtype=np.int64)
        regions[padded - part :] = 1
        if moved:
            regions[padded - moved :] = 2
        sides.append(regions.reshape(-1, part))
    down, across = sides
    region = 3 * down[:, None, :, None] + across[None, :, None, :]  # (rows, columns, window height, window width)
    region = region.reshape(-1, window[0] * window[1])
    return np.where(region[:, :, None] == region[:, None, :], 0.0, _MASKED).astype(np.float32)
