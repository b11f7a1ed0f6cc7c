"""Losses over points, some of which may be unlabelled."""

from __future__ import annotations

from typing import Tuple

import paddle
import paddle.nn.functional as F

from ...contracts.task import Term
from ..data.scene import IGNORED


def summed_cross_entropy(logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy summed over the labelled points: 0, with zero gradients, if there are none.

    Args:
        logits: float32 (P, classes), P at least 1.
        labels: int64 (P,), -100 for none.
    """
    return F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")


def semantic_terms(logits: paddle.Tensor, labels: paddle.Tensor, weight: float = 1.0) -> Tuple[Term, Term]:
    """The cross-entropy with its loss weight, and the accuracy, for display only; both over labelled points.

    Args:
        logits, labels: as in ``summed_cross_entropy``.
    """
    with paddle.no_grad():
        valid = (labels != IGNORED).astype("float32").sum()
        correct = (logits.argmax(axis=-1) == labels).astype("float32").sum()
    return Term(summed_cross_entropy(logits, labels), valid, weight), Term(correct, valid, weight=0.0)


def lovasz_softmax(logits: paddle.Tensor, labels: paddle.Tensor) -> Tuple[paddle.Tensor, paddle.Tensor]:
    """The Lovasz extension of 1 - IoU of each class: (sum over the classes present, their number).

    Source: M. Berman et al., "The Lovasz-Softmax loss", CVPR 2018, arXiv 1705.08790, equations 8 to 11.

    Args:
        logits: float32 (P, classes), P at least 1.
        labels: int64 (P,), -100 for none.
    """
    classes = logits.shape[1]
    valid = (labels != IGNORED).astype("float32").unsqueeze(-1)  # (P, 1)
    truth = F.one_hot(paddle.clip(labels, min=0), classes) * valid  # (P, classes)
    # An unlabelled point has no error, so it sorts last and adds nothing.
    errors = (truth - F.softmax(logits, axis=-1)).abs() * valid
    order = paddle.argsort(errors.detach(), axis=0, descending=True)  # over points, for each class
    errors = paddle.take_along_axis(errors, order, axis=0)
    truth = paddle.take_along_axis(truth, order, axis=0)
    # Intersection and union if all points up to this one are wrong.
    intersection = truth.sum(axis=0) - truth.cumsum(axis=0)
    union = truth.sum(axis=0) + (paddle.take_along_axis(valid.expand_as(truth), order, axis=0) - truth).cumsum(axis=0)
    loss_at = 1.0 - intersection / paddle.clip(union, min=1.0)
    steps = paddle.concat([loss_at[:1], loss_at[1:] - loss_at[:-1]], axis=0)
    present = (truth.sum(axis=0) > 0).astype("float32")  # (classes,)
    return ((errors * steps).sum(axis=0) * present).sum(), present.sum()
