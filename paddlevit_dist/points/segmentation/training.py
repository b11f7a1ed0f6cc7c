"""The losses of points, and what they are divided by."""

from typing import Any

import numpy as np
import paddle

from ...contracts.task import Term
from ...labelling.losses import adjusted_losses, dice_losses_of_scenes, lovasz_softmax, weights_of
from ..data.scene import IGNORED
from .metrics import semantic_terms


def loss_counts(points: Any, batch: dict[str, Any]) -> dict[str, float]:
    """Normalisers of a batch: of the cross-entropy the labelled points, or the weights of their classes; of the Dice
    loss the classes of each scene.

    Args:
        points: the POINTS keys.
        batch: ``labels`` int64 (P,) and ``offsets`` int (scenes + 1,), arrays.
    """
    labels, weights = batch["labels"], points.CLASS_WEIGHTS
    if weights is None:
        labelled = np.count_nonzero(labels != IGNORED)
    else:
        numbers = np.bincount(labels[labels != IGNORED], minlength=len(weights))
        labelled = float(np.dot(numbers, weights))
    counts = {"loss": labelled}
    if points.DICE_WEIGHT:
        parts = np.split(labels, batch["offsets"][1:-1])
        counts["dice"] = sum(len(np.unique(part[part != IGNORED])) for part in parts)
    return counts


def loss_terms(points: Any, logits: paddle.Tensor, batch: dict[str, Any]) -> dict[str, Term]:
    """The terms of a training step.

    Args:
        points: the POINTS keys.
        logits: float32 (P, classes), P at least 1.
        batch: as for ``loss_counts``, tensors.
    """
    labels, offsets = batch["labels"], batch["offsets"]
    terms = dict(zip(("loss", "accuracy"), semantic_terms(logits, labels)))
    weights = None if points.CLASS_WEIGHTS is None else tuple(points.CLASS_WEIGHTS)
    if weights is not None or points.LABEL_SMOOTHING or points.FOCAL_GAMMA:
        losses = adjusted_losses(logits, labels, IGNORED, weights, points.LABEL_SMOOTHING, points.FOCAL_GAMMA)
        count = terms["loss"].count if weights is None else weights_of(labels, IGNORED, weights).sum()
        terms["loss"] = Term(losses.sum(), count)
    if points.LOVASZ_WEIGHT:
        terms["lovasz"] = Term(*lovasz_softmax(logits, labels, IGNORED), weight=points.LOVASZ_WEIGHT)
    if points.DICE_WEIGHT:
        scenes = scenes_of(offsets, labels.shape[0])
        found = dice_losses_of_scenes(logits, labels, scenes, offsets.shape[0] - 1, IGNORED)
        terms["dice"] = Term(*found, weight=points.DICE_WEIGHT)
    return terms


def scenes_of(offsets: paddle.Tensor, num_points: int) -> paddle.Tensor:
    """The scene of each point, int64 (P,), from where the scenes begin, int (scenes + 1,)."""
    return paddle.searchsorted(offsets[1:].astype("int64"), paddle.arange(num_points), right=True)
