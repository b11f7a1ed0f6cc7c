"""Of boxes that overlap, the best."""

from __future__ import annotations

import paddle
from paddle.vision.ops import nms


def best_apart(boxes: paddle.Tensor, groups: paddle.Tensor, overlap: float, most: int) -> paddle.Tensor:
    """Greedy non-maximum suppression in each group: int64 (kept,), at most ``most``, best first over all groups.

    A box goes if its IoU with a better one that stays is larger than ``overlap``. On a GPU the host waits for the
    result: Paddle chooses there, from a table of overlaps.

    Args:
        boxes: (n, 4), finite, best first.
        groups: integers (n,), from 0.
    """
    if boxes.shape[0] == 0:  # Paddle 2.6 cannot
        return paddle.zeros([0], dtype="int64")
    boxes = boxes.detach().astype("float64")
    # Boxes of different groups are moved apart: in float64, by which no overlap changes beyond its 12th digit.
    side = boxes.max() - boxes.min() + 1.0
    return nms(boxes + (groups.astype("float64") * side).unsqueeze(1), overlap)[:most]
