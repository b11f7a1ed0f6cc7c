"""Of boxes that overlap, the best."""

from __future__ import annotations

import paddle
from paddle.vision.ops import nms


def best_apart(
    boxes: paddle.Tensor, scores: paddle.Tensor, groups: paddle.Tensor, overlap: float, most: int
) -> paddle.Tensor:
    """Greedy non-maximum suppression in each group: int64 (kept,), at most ``most``, best first over all groups.

    A box goes if its IoU with a better one that stays is larger than ``overlap``. On a GPU the host waits for the
    result: Paddle chooses there, from a table of overlaps.

    Args:
        boxes: (n, 4), finite.
        scores: (n,).
        groups: integers (n,), from 0.
    """
    if boxes.shape[0] == 0:  # Paddle 2.6 cannot
        return paddle.zeros([0], dtype="int64")
    order = paddle.argsort(scores, descending=True)
    sorted_boxes = boxes.detach()[order].astype("float64")
    # Boxes of different groups are moved apart: in float64, by which no overlap changes beyond its 12th digit.
    side = sorted_boxes.max() - sorted_boxes.min() + 1.0
    apart = sorted_boxes + (groups[order].astype("float64") * side).unsqueeze(1)
    return order[nms(apart, overlap)[:most]]
