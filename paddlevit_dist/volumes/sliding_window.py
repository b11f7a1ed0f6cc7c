"""Maps of a whole volume from overlapping windows of the size that the model was trained on."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..runtime.transfers import constant, to_device

_WINDOWS_AT_ONCE = 4


def predict(
    model: Callable[[paddle.Tensor], paddle.Tensor],
    volume: paddle.Tensor,
    window: Sequence[int],
    overlap: float,
    weights: str = "linear",
) -> paddle.Tensor:
    """Compute the weighted mean of the maps of all windows.

    A voxel counts less the closer it is to its window's border.

    Args:
        model: maps (batch, channels, *window) to (batch, maps, *window).
        volume: (channels, depth, height, width), at least one voxel along each axis; zero-padded if smaller than a
            window.
        window: (depth, height, width).
        overlap: fraction of a window that its neighbor also covers, below 1.
        weights: "linear", or "gaussian" with a deviation of an eighth of the window.

    Returns:
        (maps, depth, height, width).
    """
    size = volume.shape[1:]
    missing = [max(0, side_length - length) for side_length, length in zip(window, size)]
    if any(missing):
        padding = [side for width in reversed(missing) for side in (0, width)]  # Paddle counts from the last axis
        volume = F.pad(volume.unsqueeze(0), padding, mode="constant", value=0.0, data_format="NCDHW").squeeze(0)
    starts = [window_starts(length, side_length, overlap) for length, side_length in zip(volume.shape[1:], window)]
    places = [(z, y, x) for z in starts[0] for y in starts[1] for x in starts[2]]
    weight = _product([constant(line_weights, int(length), weights) for length in window])
    total: Any = None  # (maps, depth, height, width) from the first windows on
    for first in range(0, len(places), _WINDOWS_AT_ONCE):
        group = places[first : first + _WINDOWS_AT_ONCE]
        slices = [tuple(slice(s, s + length) for s, length in zip(place, window)) for place in group]
        maps = model(paddle.stack([volume[(slice(None), *part)] for part in slices]))
        if total is None:
            total = paddle.zeros([maps.shape[1], *volume.shape[1:]], dtype=maps.dtype)
        for part, window_maps in zip(slices, maps):
            where = (slice(None), *part)
            total[where] = total[where] + window_maps * weight
    # Windows form a grid, so the sum of their weights is a product: no second copy of all maps is needed.
    for axis, (padded_length, length, axis_starts) in enumerate(zip(volume.shape[1:], window, starts)):
        line = np.zeros(padded_length, dtype=np.float32)
        for start in axis_starts:
            line[start : start + length] += line_weights(length, weights)
        total.divide_(to_device(line).reshape([-1 if other == axis else 1 for other in range(3)]))
    return total[:, : size[0], : size[1], : size[2]]


def window_starts(length: int, window: int, overlap: float) -> list[int]:
    """Return the first voxels of the fewest evenly spread windows that cover ``length`` voxels with this overlap."""
    step = max(1, int(window * (1 - overlap)))
    count = max(0, -(-(length - window) // step)) + 1
    return [int(round(start)) for start in np.linspace(0, length - window, count)]


def line_weights(length: int, kind: str) -> np.ndarray:
    """Return window weights along one axis, float32 (length,): 1 at the center, small but above 0 at the ends.

    Source of "gaussian": F. Isensee et al., 2021, "nnU-Net", Nature Methods 18. The deviation is an eighth of the
    window; here it is centered exactly.
    """
    if kind == "gaussian":
        steps = (np.arange(length) - (length - 1) / 2) / (length / 8)
        return np.exp(-(steps**2) / 2).astype(np.float32)
    ends = np.minimum(np.arange(length) + 1, np.arange(length, 0, -1))
    return (ends / ends.max()).astype(np.float32)


def mirror_model(
    model: Callable[[paddle.Tensor], paddle.Tensor], axes: Sequence[int]
) -> Callable[[paddle.Tensor], paddle.Tensor]:
    """Average a model's maps over its input and all mirror images of it, 2 ** axes in total.

    Args:
        axes: 0 depth, 1 height, 2 width.
    """
    flips = [[axis + 2 for place, axis in enumerate(axes) if bits >> place & 1] for bits in range(2 ** len(axes))]

    def mean(windows: paddle.Tensor) -> paddle.Tensor:
        total = model(windows)
        for flipped in flips[1:]:
            total = total + paddle.flip(model(paddle.flip(windows, flipped)), flipped)
        return total / len(flips)

    return mean if axes else model


def _product(lines: Sequence[paddle.Tensor]) -> paddle.Tensor:
    depth, height, width = lines
    return depth.reshape([-1, 1, 1]) * height.reshape([-1, 1]) * width
