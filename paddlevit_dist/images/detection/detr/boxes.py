"""Boxes as tensors, in any unit."""

from __future__ import annotations

from typing import Any, Tuple

import paddle

_LEAST_AREA = 1e-12  # a box without area, which a sigmoid that underflows can give, must not divide by zero


def corners(boxes: Any) -> Any:
    """x0, y0, x1, y1 of boxes (..., 4) given by centre, width and height."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return paddle.concat([centre - half, centre + half], axis=-1)


def centred(boxes: paddle.Tensor) -> paddle.Tensor:
    """Centre, width and height of boxes (..., 4) given by their corners."""
    first, last = boxes[..., :2], boxes[..., 2:]
    return paddle.concat([(first + last) / 2, last - first], axis=-1)


def relative(boxes: paddle.Tensor, sizes: paddle.Tensor) -> paddle.Tensor:
    """Centre, width and height of boxes (N, M, 4) given by their corners in pixels, as shares of their pictures.

    Args:
        sizes: (N, 2), height and width of each picture in pixels.
    """
    height, width = sizes[:, 0:1], sizes[:, 1:2]
    scale = paddle.concat([width, height, width, height], axis=1).unsqueeze(1)  # (N, 1, 4)
    return centred(boxes) / scale.astype(boxes.dtype)


def areas(boxes: paddle.Tensor) -> paddle.Tensor:
    """(...) of boxes (..., 4) given by their corners."""
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def generalised_iou(first: paddle.Tensor, second: paddle.Tensor) -> paddle.Tensor:
    """Generalised intersection over union, (...), of boxes (..., 4) given by their corners, whose shapes broadcast.

    Source: Rezatofighi et al., Generalized Intersection over Union, CVPR 2019, arXiv 1902.09630, algorithm 1.
    """
    inside, around = _intersection_and_hull(first, second)
    union = areas(first) + areas(second) - inside
    iou = inside / paddle.clip(union, min=_LEAST_AREA)
    return iou - (around - union) / paddle.clip(around, min=_LEAST_AREA)


def _intersection_and_hull(first: paddle.Tensor, second: paddle.Tensor) -> Tuple[paddle.Tensor, paddle.Tensor]:
    left, right = paddle.maximum(first[..., :2], second[..., :2]), paddle.minimum(first[..., 2:], second[..., 2:])
    common = paddle.clip(right - left, min=0.0)  # (..., 2)
    left, right = paddle.minimum(first[..., :2], second[..., :2]), paddle.maximum(first[..., 2:], second[..., 2:])
    hull = paddle.clip(right - left, min=0.0)
    return common[..., 0] * common[..., 1], hull[..., 0] * hull[..., 1]
