"""Boxes as tensors (..., 4): x0, y0, x1, y1, in pixels or in any other unit."""

import math
from collections.abc import Sequence

import numpy as np
import paddle

from ...runtime.transfers import constant

_LEAST_AREA = 1e-12  # a box without area, which a sigmoid that underflows can give, must not divide by zero
_LARGEST_GROWTH = math.log(1000.0 / 16)  # of a side, in one step, as the authors have it: exp cannot overflow


def corners(boxes: paddle.Tensor) -> paddle.Tensor:
    """x0, y0, x1, y1 of boxes (..., 4) given by center, width and height; sides below 0 count as none."""
    center, half = boxes[..., :2], paddle.clip(boxes[..., 2:], min=0.0) / 2
    return paddle.concat([center - half, center + half], axis=-1)


def relative(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Center, width and height of boxes (N, M, 4) in pixels, as shares of their images.

    Args:
        sizes: (N, 2), height and width of each image in pixels.
    """
    first, last = boxes[..., :2], boxes[..., 2:]
    centered = paddle.concat([(first + last) / 2, last - first], axis=-1)
    return centered / _farthest_corners(sizes, boxes).unsqueeze(1)


def areas(boxes: paddle.Tensor) -> paddle.Tensor:
    """(...) of boxes (..., 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def overlaps(boxes: paddle.Tensor, others: paddle.Tensor) -> paddle.Tensor:
    """Intersection over union, (M, n), of boxes (M, 4) with others (n, 4); 0 between boxes without area."""
    boxes = boxes.unsqueeze(1)  # (M, 1, 4)
    common = _intersection(boxes, others)  # (M, n)
    joint = areas(boxes) + areas(others) - common
    return paddle.where(common > 0, common / joint, paddle.zeros_like(common))


def generalized_iou(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    """Generalized intersection over union, (...), of boxes (..., 4) whose shapes broadcast.

    Source: Rezatofighi et al., Generalized Intersection over Union, CVPR 2019, arXiv 1902.09630, algorithm 1.
    """
    low, high = paddle.minimum(first[..., :2], second[..., :2]), paddle.maximum(first[..., 2:], second[..., 2:])
    hull = _area(high - low)
    overlap, union = _iou_and_union(first, second)
    return overlap - (hull - union) / paddle.clip(hull, min=_LEAST_AREA)


def iou(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    """Intersection over union, (...), of boxes (..., 4) whose shapes broadcast."""
    return _iou_and_union(first, second)[0]


def _iou_and_union(first: paddle.Tensor, second: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    inside = _intersection(first, second)
    union = areas(first) + areas(second) - inside
    return inside / paddle.clip(union, min=_LEAST_AREA), union


def _intersection(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    return _area(paddle.minimum(first[..., 2:], second[..., 2:]) - paddle.maximum(first[..., :2], second[..., :2]))


def _area(sides: paddle.Tensor) -> paddle.Tensor:
    """(...) of sides (..., 2), of which negative ones count as none."""
    sides = paddle.clip(sides, min=0.0)
    return sides[..., 0] * sides[..., 1]


def offsets(boxes: paddle.Tensor, references: paddle.Tensor, weights: Sequence[float] | None = None) -> paddle.Tensor:
    """How boxes (n, 4) differ from their references (n, 4), (n, 4): the center's distance in sides of the reference,
    and the logarithm of each side's growth, times ``weights`` if there are any. All sides must be positive.

    Source: Girshick et al., R-CNN, 2014, appendix C.
    """
    size = references[:, 2:] - references[:, :2]  # (n, 2): width, height
    of_box = boxes[:, 2:] - boxes[:, :2]
    moved = (boxes[:, :2] + 0.5 * of_box - references[:, :2] - 0.5 * size) / size
    result = paddle.concat([moved, paddle.log(of_box / size)], axis=1)
    return result if weights is None else result * _on_device(weights, result)


def move_boxes(
    changes: paddle.Tensor, references: paddle.Tensor, weights: Sequence[float] | None = None
) -> paddle.Tensor:
    """The boxes (..., 4) that differ from ``references`` by ``changes``: the inverse of ``offsets``. A side grows by
    62.5 at most."""
    if weights is not None:
        changes = changes / _on_device(weights, changes)
    size = references[..., 2:] - references[..., :2]
    center = references[..., :2] + 0.5 * size + changes[..., :2] * size
    half = 0.5 * size * paddle.exp(paddle.clip(changes[..., 2:], max=_LARGEST_GROWTH))
    return paddle.concat([center - half, center + half], axis=-1)


def _on_device(weights: Sequence[float], like: paddle.Tensor) -> paddle.Tensor:
    return constant(np.array, tuple(weights), "float64").astype(like.dtype)


def inside(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Boxes (N, ..., 4), cut at the borders of their images, of which ``sizes`` (N, 2) are height and width."""
    limits = _farthest_corners(sizes, boxes).reshape([boxes.shape[0], *[1] * (boxes.ndim - 2), 4])
    return paddle.minimum(paddle.clip(boxes, min=0.0), limits)


def _farthest_corners(sizes: paddle.Tensor, like: paddle.Tensor) -> paddle.Tensor:
    """x, y, x, y of the lower right corner of each image, (N, 4)."""
    return paddle.concat([sizes.flip(axis=1)] * 2, axis=1).astype(like.dtype)
