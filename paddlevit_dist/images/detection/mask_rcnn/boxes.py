"""Boxes as tensors (..., 4) of x0, y0, x1, y1 in pixels: overlap, and distance from one to another as four numbers."""

from __future__ import annotations

import math
from typing import Optional, Sequence

import numpy as np
import paddle

from ....transfers import constant

_LARGEST_GROWTH = math.log(1000.0 / 16)  # of a side, in one step, as the authors have it: exp cannot overflow


def overlaps(boxes: paddle.Tensor, others: paddle.Tensor) -> paddle.Tensor:
    """Intersection over union, (M, n), of boxes (M, 4) with others (n, 4); 0 between boxes without area."""
    boxes = boxes.unsqueeze(1)  # (M, 1, 4)
    low = paddle.maximum(boxes[:, :, :2], others[:, :2])  # (M, n, 2)
    high = paddle.minimum(boxes[:, :, 2:], others[:, 2:])
    common = paddle.clip(high - low, min=0.0).prod(axis=-1)  # (M, n)
    joint = areas(boxes) + areas(others) - common
    return paddle.where(common > 0, common / joint, paddle.zeros_like(common))


def areas(boxes: paddle.Tensor) -> paddle.Tensor:
    """(...) of boxes (..., 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def offsets(
    boxes: paddle.Tensor, references: paddle.Tensor, weights: Optional[Sequence[float]] = None
) -> paddle.Tensor:
    """How boxes (n, 4) differ from their references (n, 4), (n, 4): the centre's distance in sides of the reference,
    and the logarithm of each side's growth, times ``weights`` if there are any. All sides must be positive.

    Source: Girshick et al., R-CNN, 2014, appendix C.
    """
    size = references[:, 2:] - references[:, :2]  # (n, 2): width, height
    of_box = boxes[:, 2:] - boxes[:, :2]
    moved = (boxes[:, :2] + 0.5 * of_box - references[:, :2] - 0.5 * size) / size
    result = paddle.concat([moved, paddle.log(of_box / size)], axis=1)
    return result if weights is None else result * _on_device(weights, result)


def moved_boxes(
    changes: paddle.Tensor, references: paddle.Tensor, weights: Optional[Sequence[float]] = None
) -> paddle.Tensor:
    """The boxes (..., 4) that differ from ``references`` by ``changes``: the inverse of ``offsets``. A side grows by
    62.5 at most."""
    if weights is not None:
        changes = changes / _on_device(weights, changes)
    size = references[..., 2:] - references[..., :2]
    centre = references[..., :2] + 0.5 * size + changes[..., :2] * size
    half = 0.5 * size * paddle.exp(paddle.clip(changes[..., 2:], max=_LARGEST_GROWTH))
    return paddle.concat([centre - half, centre + half], axis=-1)


def _on_device(weights: Sequence[float], like: paddle.Tensor) -> paddle.Tensor:
    return constant(np.array, tuple(weights), "float64").astype(like.dtype)


def inside(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Boxes (N, ..., 4), cut at the borders of their pictures, of which ``sizes`` (N, 2) are height and width."""
    limits = paddle.concat([sizes.flip(axis=1)] * 2, axis=1).astype(boxes.dtype)  # (N, 4): x, y, x, y
    limits = limits.reshape([limits.shape[0], *[1] * (boxes.ndim - 2), 4])
    return paddle.minimum(paddle.clip(boxes, min=0.0), limits)
