"""Logits of the mean probability of several views, for each image of a batch."""

import math
from collections.abc import Callable, Sequence

import paddle
import paddle.nn.functional as F

from ..core.losses import log_softmax


def compute_logits(
    compute: Callable[[paddle.Tensor], paddle.Tensor],
    images: paddle.Tensor,
    join: Callable[[Sequence[paddle.Tensor]], paddle.Tensor],
) -> paddle.Tensor:
    """Compute logits (batch, classes) of images (batch[, views], channels, height, width).

    One view of the whole batch is computed after the other: activations take the memory of one view, and each view has
    the logits that it has alone.
    """
    if images.ndim == 4:
        return compute(images)
    return join([compute(images[:, view]) for view in range(images.shape[1])])


def join_softmax(logits: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """Return the logarithm of the views' mean softmax, float32 (batch, classes): its softmax is that mean."""
    wide = [view.astype("float32") for view in logits]
    return _log_mean_exp([log_softmax(view) for view in wide])


def join_sigmoid(logits: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """Return the logits of the views' mean sigmoid, float32 (batch, classes): their sigmoid is that mean."""
    wide = [view.astype("float32") for view in logits]
    positive, negative = ([F.log_sigmoid(sign * view) for view in wide] for sign in (1, -1))
    return _log_mean_exp(positive) - _log_mean_exp(negative)


def _log_mean_exp(values: Sequence[paddle.Tensor]) -> paddle.Tensor:
    return paddle.logsumexp(paddle.stack(list(values)), axis=0) - math.log(len(values))
