"""Sliding-window inference: blends the outputs (logits or heatmaps) of overlapping windows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..core.runtime.transfers import constant, to_device

_WINDOWS_AT_ONCE = 4


def predict(
    model: Callable[[paddle.Tensor], paddle.Tensor],
    volume: paddle.Tensor,
    window: Sequence[int],
    overlap: float,
    window_weighting: str = "linear",
) -> paddle.Tensor:
    """Blend outputs of all windows by a mean that weighs a voxel less the closer it is to a window's border.

    ``model`` takes (batch, channels, *window), returns (batch, outputs, *window). ``volume`` is (channels, depth,
    height, width), at least one voxel along each axis; zero-padded if smaller than ``window`` (depth, height, width),
    usually the size that the model was trained on. ``overlap`` is the fraction of a window that its neighbor also
    covers, below 1. ``window_weighting`` is "linear", or "gaussian" with a standard deviation of 1/8 of the window
    (nnU-Net's ``sigma_scale``). The result is (outputs, depth, height, width).
    """
    size = volume.shape[1:]
    missing = [max(0, side_length - extent) for side_length, extent in zip(window, size)]
    if any(missing):
        padding = [side for width in reversed(missing) for side in (0, width)]  # Paddle counts from the last axis
        volume = F.pad(volume.unsqueeze(0), padding, mode="constant", value=0.0, data_format="NCDHW").squeeze(0)
    starts = [window_starts(extent, side_length, overlap) for extent, side_length in zip(volume.shape[1:], window)]
    origins = [(z, y, x) for z in starts[0] for y in starts[1] for x in starts[2]]
    weight = _product([constant(line_weights, int(extent), window_weighting) for extent in window])
    total: Any = None  # (outputs, depth, height, width) from the first windows on
    for first in range(0, len(origins), _WINDOWS_AT_ONCE):
        group = origins[first : first + _WINDOWS_AT_ONCE]
        slices = [tuple(slice(s, s + extent) for s, extent in zip(origin, window)) for origin in group]
        outputs = model(paddle.stack([volume[(slice(None), *piece)] for piece in slices]))
        if total is None:
            total = paddle.zeros([outputs.shape[1], *volume.shape[1:]], dtype=outputs.dtype)
        for part, window_outputs in zip(slices, outputs):
            where = (slice(None), *part)
            total[where] = total[where] + window_outputs * weight
    # Windows form a grid, so the sum of their weights is a product: no second copy of all outputs is needed.
    for axis, (padded_length, length, axis_starts) in enumerate(zip(volume.shape[1:], window, starts)):
        line = np.zeros(padded_length, dtype=np.float32)
        for start in axis_starts:
            line[start : start + length] += line_weights(length, window_weighting)
        total.divide_(to_device(line).reshape([-1 if other == axis else 1 for other in range(3)]))
    return total[:, : size[0], : size[1], : size[2]]


def window_starts(length: int, window: int, overlap: float) -> list[int]:
    """Return the first voxels of the fewest evenly spread windows with at least this overlap that cover ``length``."""
    step = max(1, int(window * (1 - overlap)))
    count = max(0, -(-(length - window) // step)) + 1
    return [int(round(start)) for start in np.linspace(0, length - window, count)]


def line_weights(length: int, kind: str) -> np.ndarray:
    """Return window weights along one axis, float32 (length,): 1 at the center, small but above 0 at the ends.

    Source of "gaussian": F. Isensee et al., 2021, "nnU-Net", Nature Methods 18. The standard deviation is 1/8 of the
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
    """Average a model's outputs over its input and all mirror images of it, ``2 ** len(axes)`` in total.

    This is nnU-Net's mirroring, a test-time augmentation. Axis 0 is depth, 1 height, 2 width.
    """
    flips = [[axis + 2 for bit, axis in enumerate(axes) if bits >> bit & 1] for bits in range(2 ** len(axes))]

    def mean(windows: paddle.Tensor) -> paddle.Tensor:
        total = model(windows)
        for flipped in flips[1:]:
            total = total + paddle.flip(model(paddle.flip(windows, flipped)), flipped)
        return total / len(flips)

    return mean if axes else model


def _product(lines: Sequence[paddle.Tensor]) -> paddle.Tensor:
    depth, height, width = lines
    return depth.reshape([-1, 1, 1]) * height.reshape([-1, 1]) * width
