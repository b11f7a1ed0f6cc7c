"""Which object a box learns to be."""

from __future__ import annotations

from typing import NamedTuple, Optional

import paddle

POSITIVE, NEGATIVE, NEITHER = 1, 0, -1


class Matches(NamedTuple):
    """Of n boxes.

    Attributes:
        objects: int64 (n,), the object that each overlaps most, the first where several are equal.
        states: int32 (n,), ``POSITIVE``, ``NEGATIVE`` or ``NEITHER``.
    """

    objects: paddle.Tensor
    states: paddle.Tensor


def match(overlap: paddle.Tensor, positive: float, negative: float, lowest: Optional[float] = None) -> Matches:
    """Match boxes to objects by their IoU.

    Args:
        overlap: (M, n) of M objects, at least 1, with n boxes.
        positive: a box with at least this is positive.
        negative: a box with less than this is negative.
        lowest: the boxes that overlap an object most, all of them where several are equal, are positive if they have
            at least this, though another object may be theirs; None: none are. An object that overlaps no box has
            none: in torchvision it makes all boxes positive that overlap nothing.

    Source: Ren et al., Faster R-CNN, 2015, section 3.1.2.
    """
    best, objects = overlap.max(axis=0), overlap.argmax(axis=0)  # (n,)
    states = paddle.full(best.shape, NEITHER, dtype="int32")
    states = paddle.where(best < negative, paddle.full_like(states, NEGATIVE), states)
    is_positive = best >= positive
    if lowest is not None:
        most = overlap.max(axis=1, keepdim=True)  # (M, 1)
        wanted = paddle.logical_and(most > 0, most >= lowest)
        closest = paddle.logical_and(overlap == most, wanted)  # (M, n)
        is_positive = paddle.logical_or(is_positive, closest.any(axis=0))
    return Matches(objects, paddle.where(is_positive, paddle.full_like(states, POSITIVE), states))
