"""Losses between predicted heatmaps and those of landmarks, which stay factorised.

Everything that a loss needs of the target maps h is a sum of (field x power of h) over the voxels, and a power of a
Gaussian is a Gaussian: three small matrix products instead of maps as large as the prediction.
"""

import math
from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from ...runtime import autocast
from .heatmaps import HeatmapFactors, is_known

_FOCUS, _NEAR = 2, 4  # CornerNet's alpha and beta


def contract(field: paddle.Tensor, targets: Sequence[HeatmapFactors]) -> list[paddle.Tensor]:
    """Sums over the voxels of a field times each of several maps.

    Args:
        field: (batch, landmarks, depth, height, width).
        targets: maps as factors.
    Returns:
        One (batch, landmarks) for each of the targets.
    """
    batch, landmarks, depth, height, width = field.shape
    of_width = paddle.stack([target.width for target in targets], axis=-1)  # (batch, landmarks, width, maps)
    sums = []
    with autocast.off():  # sums over voxels, though they are products
        rows = paddle.matmul(field.reshape([batch, landmarks, depth * height, width]), of_width)
        rows = rows.reshape([batch, landmarks, depth, height, len(targets)])
        for number, target in enumerate(targets):
            planes = paddle.matmul(rows[..., number], target.height.unsqueeze(-1)).squeeze(-1)
            sums.append((planes * target.depth).sum(axis=-1))  # (batch, landmarks)
    return sums


def _total(field: paddle.Tensor) -> paddle.Tensor:
    """Sum over the voxels, (batch, landmarks)."""
    batch, landmarks = field.shape[:2]
    return field.reshape([batch, landmarks, -1]).sum(axis=-1)


def weighted_squared_error(maps: paddle.Tensor, target: HeatmapFactors, peak_weight: float) -> paddle.Tensor:
    """``sum of (1 + peak_weight * h) * (p - h)^2`` over the voxels of each map.

    Args:
        maps: predictions p, float32 (batch, landmarks, depth, height, width).
        target: maps h.
        peak_weight: how much more a voxel under a peak counts than one far away.
    Returns:
        (batch, landmarks).
    """
    second, third = target.power(2), target.power(3)
    squares = maps * maps
    (with_first,) = contract(maps, [target])
    loss = _total(squares) - 2.0 * with_first + second.integral()
    if peak_weight:
        (squares_with_first,) = contract(squares, [target])
        (with_second,) = contract(maps, [second])
        loss = loss + peak_weight * (squares_with_first - 2.0 * with_second + third.integral())
    return loss


def focal_loss(logits: paddle.Tensor, target: HeatmapFactors, points: paddle.Tensor) -> paddle.Tensor:
    """``-(1 - p)^2 log p`` at the landmark's voxel and ``-(1 - h)^4 p^2 log(1 - p)`` elsewhere, p = sigmoid(logits).

    Args:
        logits: float32 (batch, landmarks, depth, height, width).
        target: maps h.
        points: (batch, landmarks, 3), for the voxel of each landmark; outside or missing ones have none.
    Returns:
        (batch, landmarks).
    Source: H. Law and J. Deng, 2018, "CornerNet", arXiv 1808.01244, equation 1.
    """
    batch, landmarks = logits.shape[:2]
    share = F.sigmoid(logits)
    absent = share**_FOCUS * F.softplus(logits)  # -p^2 log(1 - p)
    powers = [target.power(k) for k in range(1, _NEAR + 1)]
    terms = [(-1) ** k * math.comb(_NEAR, k) * s for k, s in enumerate(contract(absent, powers), start=1)]
    loss = _total(absent) + paddle.add_n(terms)  # (1 - h)^4 by the binomial theorem
    place, is_inside = find_voxel(points, logits.shape[2:])  # (batch, landmarks)
    own = paddle.take_along_axis(logits.reshape([batch * landmarks, -1]), place.reshape([-1, 1]), axis=1)
    own = own.reshape([batch, landmarks])
    nearness = 1.0
    for factor, index in zip(target, _unravel(place, logits.shape[2:])):
        nearness = nearness * paddle.take_along_axis(factor, index.unsqueeze(-1), axis=-1).squeeze(-1)
    p = F.sigmoid(own)
    here = (1 - p) ** _FOCUS * F.softplus(-own)  # -(1 - p)^2 log p
    counted = (1 - nearness) ** _NEAR * p**_FOCUS * F.softplus(own)  # this voxel's part of the sum above
    return loss + is_inside * (here - counted)


def find_voxel(points: paddle.Tensor, shape: Sequence[int]):
    """Flat index of the voxel nearest to each point, 0 where there is none, and 1.0 or 0.0 for whether there is."""
    nearest = paddle.round(points)
    is_in_reach = [nearest[..., axis] < int(length) for axis, length in enumerate(shape)]
    is_inside = (is_known(points) & (nearest >= 0) & paddle.stack(is_in_reach, axis=-1)).all(axis=-1)
    safe = paddle.where(is_inside.unsqueeze(-1).expand_as(points), nearest, paddle.zeros_like(points)).astype("int64")
    place = (safe[..., 0] * shape[1] + safe[..., 1]) * shape[2] + safe[..., 2]
    return place, is_inside.astype(points.dtype)


def _unravel(place: paddle.Tensor, shape: Sequence[int]) -> list[paddle.Tensor]:
    plane = shape[1] * shape[2]
    return [place // plane, (place % plane) // shape[2], place % shape[2]]
