"""Functions of boxes as tensors (..., 4): x0, y0, x1, y1, in pixels or any other unit."""

import math
from collections.abc import Sequence

import numpy as np
import paddle

from ...core.runtime.transfers import constant

_EPSILON = 1e-12  # avoids division by zero for boxes without area, which a sigmoid that underflows gives
_MAX_LOG_SCALE = math.log(1000.0 / 16)  # of a side, as in the authors' code, so that exp cannot overflow


def center_to_corners(boxes: paddle.Tensor) -> paddle.Tensor:
    """Convert boxes (..., 4) of center, width and height to x0, y0, x1, y1; negative sides count as 0."""
    center, half = boxes[..., :2], paddle.clip(boxes[..., 2:], min=0.0) / 2
    return paddle.concat([center - half, center + half], axis=-1)


def to_relative(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Convert boxes (N, M, 4) in pixels to center, width and height as fractions of images of ``sizes`` (N, 2)."""
    first, last = boxes[..., :2], boxes[..., 2:]
    centered = paddle.concat([(first + last) / 2, last - first], axis=-1)
    return centered / _image_limits(sizes, boxes).unsqueeze(1)


def box_areas(boxes: paddle.Tensor) -> paddle.Tensor:
    """Compute the areas (...) of boxes (..., 4)."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def box_iou(boxes: paddle.Tensor, others: paddle.Tensor) -> paddle.Tensor:
    """Compute the IoU (M, n) of boxes (M, 4) with others (n, 4); 0 between boxes without area."""
    boxes = boxes.unsqueeze(1)  # (M, 1, 4)
    intersection = _intersection(boxes, others)  # (M, n)
    union = box_areas(boxes) + box_areas(others) - intersection
    return paddle.where(intersection > 0, intersection / union, paddle.zeros_like(intersection))


def generalized_paired_iou(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    """Compute the generalized IoU (...) of boxes (..., 4) of broadcastable shapes (arXiv 1902.09630, algorithm 1)."""
    low, high = paddle.minimum(first[..., :2], second[..., :2]), paddle.maximum(first[..., 2:], second[..., 2:])
    hull = _area(high - low)
    overlap, union = _iou_and_union(first, second)
    return overlap - (hull - union) / paddle.clip(hull, min=_EPSILON)


def paired_iou(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    """Compute the IoU (...) of boxes (..., 4) whose shapes broadcast."""
    return _iou_and_union(first, second)[0]


def _iou_and_union(first: paddle.Tensor, second: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    intersection = _intersection(first, second)
    union = box_areas(first) + box_areas(second) - intersection
    return intersection / paddle.clip(union, min=_EPSILON), union


def _intersection(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    return _area(paddle.minimum(first[..., 2:], second[..., 2:]) - paddle.maximum(first[..., :2], second[..., :2]))


def _area(sides: paddle.Tensor) -> paddle.Tensor:
    """Compute the areas (...) of sides (..., 2); negative sides count as 0."""
    sides = paddle.clip(sides, min=0.0)
    return sides[..., 0] * sides[..., 1]


def encode_boxes(
    boxes: paddle.Tensor, references: paddle.Tensor, weights: Sequence[float] | None = None
) -> paddle.Tensor:
    """Encode boxes (n, 4) relative to their references (n, 4), as (n, 4); all sides must be positive.

    They are the shift of the center in sides of the reference, and the logarithm of each side's scale, times
    ``weights``. Source: Girshick et al., R-CNN, 2014, appendix C.
    """
    size = references[:, 2:] - references[:, :2]  # (n, 2): width, height
    box_size = boxes[:, 2:] - boxes[:, :2]
    shifts = (boxes[:, :2] + 0.5 * box_size - references[:, :2] - 0.5 * size) / size
    result = paddle.concat([shifts, paddle.log(box_size / size)], axis=1)
    return result if weights is None else result * _on_device(weights, result)


def decode_boxes(
    encoded: paddle.Tensor, references: paddle.Tensor, weights: Sequence[float] | None = None
) -> paddle.Tensor:
    """Invert ``encode_boxes``, for (..., 4); a side grows by a factor of at most 62.5."""
    if weights is not None:
        encoded = encoded / _on_device(weights, encoded)
    size = references[..., 2:] - references[..., :2]
    center = references[..., :2] + 0.5 * size + encoded[..., :2] * size
    half = 0.5 * size * paddle.exp(paddle.clip(encoded[..., 2:], max=_MAX_LOG_SCALE))
    return paddle.concat([center - half, center + half], axis=-1)


def _on_device(weights: Sequence[float], like: paddle.Tensor) -> paddle.Tensor:
    return constant(np.array, tuple(weights), "float64").astype(like.dtype)


def clip_boxes(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Clip boxes (N, ..., 4) to their images, whose height and width are ``sizes`` (N, 2)."""
    limits = _image_limits(sizes, boxes).reshape([boxes.shape[0], *[1] * (boxes.ndim - 2), 4])
    return paddle.minimum(paddle.clip(boxes, min=0.0), limits)


def _image_limits(sizes: paddle.Tensor, like: paddle.Tensor) -> paddle.Tensor:
    """Return x, y, x, y of the lower right corner of each image, (N, 4)."""
    return paddle.concat([sizes.flip(axis=1)] * 2, axis=1).astype(like.dtype)
