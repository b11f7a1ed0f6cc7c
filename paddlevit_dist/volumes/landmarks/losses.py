"""Losses between predicted and target heatmaps, with targets as factors.

Everything that a loss needs from the target maps h is a sum of (field x power of h) over the voxels, and a power of a
Gaussian is a Gaussian. Three small matrix products replace maps as large as the prediction.
"""

import math
from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from ...core.runtime import autocast
from .heatmaps import HeatmapFactors, is_known

_FOCUS, _NEAR = 2, 4  # CornerNet's alpha and beta


def contract(field: paddle.Tensor, targets: Sequence[HeatmapFactors]) -> list[paddle.Tensor]:
    """Sum a field (batch, landmarks, depth, height, width) times each of several maps: (batch, landmarks) each."""
    batch, landmarks, depth, height, width = field.shape
    widths = paddle.stack([head.width for head in targets], axis=-1)  # (batch, landmarks, width, maps)
    sums = []
    with autocast.off():  # these matrix products are sums over voxels
        rows = paddle.matmul(field.reshape([batch, landmarks, depth * height, width]), widths)
        rows = rows.reshape([batch, landmarks, depth, height, len(targets)])
        for number, target in enumerate(targets):
            planes = paddle.matmul(rows[..., number], target.height.unsqueeze(-1)).squeeze(-1)
            sums.append((planes * target.depth).sum(axis=-1))  # (batch, landmarks)
    return sums


def _total(field: paddle.Tensor) -> paddle.Tensor:
    """Sum over the voxels, (batch, landmarks)."""
    batch, landmarks = field.shape[:2]
    flat = field.reshape([batch, landmarks, -1])
    return autocast.as_dtype(autocast.widen_for_sum(flat, flat.shape[2]).sum(axis=-1), field.dtype)


def weighted_squared_error(maps: paddle.Tensor, target: HeatmapFactors, peak_weight: float) -> paddle.Tensor:
    """Compute ``sum of (1 + peak_weight * h) * (p - h)^2`` over the voxels of each map, (batch, landmarks).

    The predictions p are float32 (batch, landmarks, depth, height, width), h is the target.
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
    """Compute CornerNet's focal loss of each map, (batch, landmarks).

    With p = sigmoid(logits), a voxel costs ``-(1 - p)^2 log p`` at the landmark and ``-(1 - h)^4 p^2 log(1 - p)``
    elsewhere; h is the target. Logits are float32 (batch, landmarks, depth, height, width), points (batch, landmarks,
    3); landmarks outside or missing have no voxel. Source: H. Law and J. Deng, 2018, "CornerNet", arXiv 1808.01244,
    equation 1.
    """
    batch, landmarks = logits.shape[:2]
    share = F.sigmoid(logits)
    absent = share**_FOCUS * F.softplus(logits)  # -p^2 log(1 - p)
    powers = [target.power(k) for k in range(1, _NEAR + 1)]
    terms = [(-1) ** k * math.comb(_NEAR, k) * s for k, s in enumerate(contract(absent, powers), start=1)]
    loss = sum(terms, _total(absent))  # (1 - h)^4 by the binomial theorem
    index, is_inside = find_voxel(points, logits.shape[2:])  # (batch, landmarks)
    peak_logits = paddle.take_along_axis(logits.reshape([batch * landmarks, -1]), index.reshape([-1, 1]), axis=1)
    peak_logits = peak_logits.reshape([batch, landmarks])
    nearness = 1.0
    for factor, axis_index in zip(target, _unravel(index, logits.shape[2:])):
        nearness = nearness * paddle.take_along_axis(factor, axis_index.unsqueeze(-1), axis=-1).squeeze(-1)
    p = F.sigmoid(peak_logits)
    peak_loss = (1 - p) ** _FOCUS * F.softplus(-peak_logits)  # -(1 - p)^2 log p
    counted = (1 - nearness) ** _NEAR * p**_FOCUS * F.softplus(peak_logits)  # this voxel's part of the sum above
    return loss + is_inside * (peak_loss - counted)


def find_voxel(points: paddle.Tensor, shape: Sequence[int]):
    """Find the flat index of the voxel nearest to each point, 0 if outside, and a mask of 1.0 or 0.0."""
    nearest = paddle.round(points)
    is_in_reach = [nearest[..., axis] < int(length) for axis, length in enumerate(shape)]
    is_inside = (is_known(points) & (nearest >= 0) & paddle.stack(is_in_reach, axis=-1)).all(axis=-1)
    safe = paddle.where(is_inside.unsqueeze(-1).expand_as(points), nearest, paddle.zeros_like(points)).astype("int64")
    index = (safe[..., 0] * shape[1] + safe[..., 1]) * shape[2] + safe[..., 2]
    return index, is_inside.astype(points.dtype)


def _unravel(index: paddle.Tensor, shape: Sequence[int]) -> list[paddle.Tensor]:
    plane = shape[1] * shape[2]
    return [index // plane, (index % plane) // shape[2], index % shape[2]]
