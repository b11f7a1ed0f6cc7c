"""Batches of pictures of different sizes: how far they are padded, and which go through the network together."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...runtime.transfers import to_device
from .settings import EQUAL_SHAPES, PADDED, SINGLE

# How an evaluation's log names its scores.
EVALUATED_AS = {
    SINGLE: "one picture per forward pass: no score depends on the batches",
    EQUAL_SHAPES: "pictures of equal shapes together, without padding: no score depends on the batches",
    PADDED: "padded batches, whose padding stays zero in the backbone (MODEL.MASK_PADDING)",
}


def largest_side(data: Any, sizes: np.ndarray) -> int:
    """No training picture has a longer side in pixels.

    Args:
        data: the configuration's DATA.
        sizes: int64 (samples, 2), of the stored pictures.
    """
    if data.CROP_PROBABILITY or not len(sizes):  # a crop may have any proportions
        return int(data.LONGEST_SIDE)
    widest = float((sizes.max(axis=1) / np.maximum(sizes.min(axis=1), 1)).max())
    return min(int(data.LONGEST_SIDE), int(np.ceil(max(data.SHORTEST_SIDES) * widest)))


def passes(sizes: np.ndarray, how: str) -> list[list[int]]:
    """Which pictures of a batch go through the network together: positions in the batch, each once.

    Args:
        sizes: int64 (N, 2), of the pictures without padding.
        how: one of DETECTION.EVALUATE_AS.
    """
    if how == PADDED:
        return [list(range(len(sizes)))]
    if how == SINGLE:
        return [[row] for row in range(len(sizes))]
    groups: dict[Any, list[int]] = {}
    for row, size in enumerate(sizes.tolist()):
        groups.setdefault(tuple(size), []).append(row)
    return list(groups.values())


def chosen_pictures(images: paddle.Tensor, rows: Sequence[int], sizes: np.ndarray) -> paddle.Tensor:
    """The pictures ``rows`` of a batch (N, 3, H, W), with no more padding than these need.

    Args:
        sizes: int64 (rows, 2), of these pictures.
    """
    if len(rows) < images.shape[0]:
        first = rows[0]
        is_run = list(rows) == list(range(first, first + len(rows)))
        images = (
            images[first : first + len(rows)] if is_run else paddle.gather(images, to_device(np.array(rows)), axis=0)
        )
    height, width = sizes.max(axis=0).tolist()
    return images if [height, width] == images.shape[2:] else images[:, :, :height, :width]


def zero_padding(images: paddle.Tensor, sizes: np.ndarray, on_device: paddle.Tensor | None = None) -> paddle.Tensor:
    """Normalised pictures (N, 3, H, W) with zeros outside of their sizes, int64 (N, 2), as DETR's authors have it.

    Args:
        on_device: the same sizes where the images are, if they are there.
    """
    height, width = images.shape[2:]
    if (sizes == (height, width)).all():
        return images
    limits = to_device(sizes) if on_device is None else on_device
    rows = (paddle.arange(height) < limits[:, :1]).astype("float32")  # (N, H)
    columns = (paddle.arange(width) < limits[:, 1:]).astype("float32")  # (N, W)
    return images * (rows.unsqueeze(2) * columns.unsqueeze(1)).unsqueeze(1)  # (N, 1, H, W)
