"""PointGroup's losses, as sums over points.

Source: L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658, equations 1, 2 and 4.
"""

from __future__ import annotations

from typing import Tuple

import paddle
import paddle.nn.functional as F

_SMALL = 1e-8
_SHORTEST_M = 1e-3


def offset_losses(
    offsets: paddle.Tensor, xyz: paddle.Tensor, centres: paddle.Tensor, instances: paddle.Tensor
) -> Tuple[paddle.Tensor, paddle.Tensor]:
    """L1 distance of the offsets to the true ones, and minus the cosine of the angle between both; summed over the
    points that belong to an instance.

    The direction of an offset shorter than a millimetre is scaled by its length. The original always divides by the
    length, so that a single point with all-zero features can send a gradient of 1e8 through the network.

    Args:
        offsets: float32 (P, 3), metres, predicted.
        xyz: float32 (P, 3), metres.
        centres: float32 (P, 3), metres, mean of the point's instance.
        instances: integers (P,), negative for points without one.
    """
    valid = (instances >= 0).astype("float32")  # (P,)
    truth = centres - xyz
    distance = ((offsets - truth).abs().sum(axis=-1) * valid).sum()
    direction = offsets / paddle.clip(_length(offsets), min=_SHORTEST_M)
    cosine = (truth / (_length(truth) + _SMALL) * direction).sum(axis=-1)
    return distance, -(cosine * valid).sum()


def _length(vectors: paddle.Tensor) -> paddle.Tensor:
    """(P, 1); the epsilon keeps the gradient of a zero vector finite and is rounded away in any other."""
    return paddle.sqrt((vectors * vectors).sum(axis=-1, keepdim=True) + 1e-20)


def score_loss(scores: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Binary cross-entropy of logits (clusters,) with targets (clusters,) from 0 to 1, summed."""
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
