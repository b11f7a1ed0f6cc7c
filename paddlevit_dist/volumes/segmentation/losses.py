"""Losses of networks with an output for each region."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.autocast import as_dtype, widen_for_sum
from ...core.runtime.transfers import constant
from .dataset import IGNORED

_SMOOTHING = 1e-5  # nnU-Net's


class RegionLosses(NamedTuple):
    """Sums of the losses of a batch of crops, float32 () each."""

    cross_entropy: paddle.Tensor  # binary cross-entropy, over labeled voxels and regions
    labeled: paddle.Tensor  # number of labeled voxels
    dice: paddle.Tensor  # Dice loss, over crops and regions


def region_losses(logits: paddle.Tensor, labels: paddle.Tensor, regions: Sequence[tuple[int, ...]]) -> RegionLosses:
    """Compute the losses of nnU-Net's region-based training.

    A region's Dice loss in a crop is 1 - (2 sum(p t) + e) / (sum(p) + sum(t) + e) over the labeled voxels. Here p is
    the sigmoid of its output, t is 1 in the region, and e is 1e-5; a region that does not occur counts too. This is
    ``DC_and_BCE_loss`` of nnU-Net 2 with ``do_bg`` and without ``batch_dice``, which is its default unless it also
    plans a low resolution; nnU-Net's mean over voxels is a sum over regions if there is a label to ignore. Logits are
    float32 (crops, regions, voxels), labels int64 (crops, voxels), a label or ``IGNORED``; ``regions`` has the labels
    of each.
    """
    crops, number, voxels = logits.shape
    table = constant(_membership, tuple(regions))
    targets = paddle.gather(table, labels.reshape([-1])).reshape([crops, voxels, number]).transpose([0, 2, 1])
    mask = (labels != IGNORED).astype("float32")  # (crops, voxels)
    entropies = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    probabilities = F.sigmoid(logits)
    wide, targets, mask = (widen_for_sum(values, voxels) for values in (probabilities, targets, mask))
    overlap, true = (wide * targets).sum(axis=2), targets.sum(axis=2)  # (crops, regions)
    predicted = paddle.matmul(wide, mask.unsqueeze(2)).squeeze(2)
    overlap, true, predicted, mask = (as_dtype(values, logits.dtype) for values in (overlap, true, predicted, mask))
    dice = 1.0 - (2.0 * overlap + _SMOOTHING) / (predicted + true + _SMOOTHING)
    return RegionLosses((entropies * mask.unsqueeze(1)).sum(), mask.sum(), dice.sum())


def _membership(regions: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return 1 where a label (rows, also ``IGNORED``) belongs to a region (columns), float32."""
    table = np.zeros((IGNORED + 1, len(regions)), np.float32)
    for index, labels in enumerate(regions):
        table[list(labels), index] = 1.0
    return table
