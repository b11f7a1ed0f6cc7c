"""Which object a box learns to be, and which boxes of a picture learn, in a fixed proportion."""

from __future__ import annotations

from typing import NamedTuple, Optional

import paddle

POSITIVE, NEGATIVE, NEITHER = 1, 0, -1
_GOLDEN_RATIO = 0.6180339887498949  # its multiples, without their whole parts, are evenly distributed
_BELOW_1 = 1 - 2.0**-20  # in float32 they may be rounded to 1


class Matches(NamedTuple):
    """What n boxes are to learn.

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


class Sampled(NamedTuple):
    """k = min(number, n) of n boxes, the positive ones first.

    Attributes:
        boxes: int64 (k,), distinct.
        is_positive: bool (k,).
        is_used: bool (k,); False for the last ones, where there are fewer positive and negative boxes than wanted.
    """

    boxes: paddle.Tensor
    is_positive: paddle.Tensor
    is_used: paddle.Tensor


def sample(states: paddle.Tensor, number: int, share: float, at_random: bool = True) -> Sampled:
    """Draw positive boxes, up to ``share`` of ``number``, and fill up with negative ones, each equally likely.

    The draw comes from Paddle's generator, which the engine seeds for each micro-batch. Shapes depend on nothing but n:
    the host does not wait.

    Args:
        states: int32 (n,), of ``match``; n is at least 1.
        at_random: False: always the same boxes for the same states, evenly distributed, whichever rank has the picture.
    """
    total = states.shape[0]
    number, most = min(number, total), min(int(number * share), total)
    if at_random:
        chances = paddle.rand([total], dtype="float32")  # below 1
    else:
        chances = ((paddle.arange(total, dtype="float64") * _GOLDEN_RATIO) % 1.0).astype("float32") * _BELOW_1
    excluded = paddle.full_like(chances, -1.0)
    order = paddle.where(states == NEGATIVE, chances, excluded)
    if most > 0:
        value, place = paddle.topk(paddle.where(states == POSITIVE, chances, excluded), most)
        order = paddle.scatter(order, place, paddle.where(value >= 0, value + 2.0, order[place]))
    value, place = paddle.topk(order, number)
    return Sampled(place, value >= 2.0, value >= 0)
