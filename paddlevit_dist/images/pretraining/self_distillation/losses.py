"""Loss of self-distillation, temperatures of the teacher, and the course of its momentum.

Source: M. Caron et al., Emerging Properties in Self-Supervised Vision Transformers, 2021, arXiv 2104.14294,
section 3.1 and algorithm 1.
"""

import math

import paddle
from paddle.nn import functional as F

from ....core.losses import log_softmax

LARGE_VIEWS = 2  # the teacher sees these alone
STUDENT_TEMPERATURE = 0.1


def teacher_temperature(first: float, last: float, warmup_epochs: int, epoch: int) -> float:
    """Return the temperature of an epoch, from 0: ``warmup_epochs`` equal steps from ``first`` to ``last``."""
    if epoch >= warmup_epochs:
        return last
    return first + (last - first) * epoch / max(1, warmup_epochs - 1)


def teacher_momentum(first: float, update: int, total_updates: int) -> float:
    """Return the share of the teacher's weights that a step keeps: half a cosine from ``first`` to 1."""
    progress = min(1.0, update / max(1, total_updates))
    return 1.0 + (first - 1.0) * (1.0 + math.cos(math.pi * progress)) / 2.0


def sharpen(outputs: paddle.Tensor, center: paddle.Tensor, temperature: float | paddle.Tensor) -> paddle.Tensor:
    """Return the teacher's probabilities, of the shape of its ``outputs`` (rows, outputs); ``center``: (outputs,)."""
    return F.softmax((outputs - center) / temperature, axis=-1)


def distillation_losses(
    student: paddle.Tensor, targets: paddle.Tensor, views: int, temperature: float
) -> paddle.Tensor:
    """Compute the loss of each image, (batch,), the mean over all pairs of two different views.

    Args:
        student: outputs for all views, the large ones first, (views * batch, outputs), view by view.
        targets: probabilities for the large views, (2 * batch, outputs), view by view, without a gradient.
        views: number of views.
        temperature: of the student.
    """
    logs = log_softmax(student / temperature).reshape([views, -1, student.shape[-1]])
    shares = targets.reshape([LARGE_VIEWS, -1, targets.shape[-1]])  # (2, batch, outputs)
    # A target meets all views but its own: the sum over views is taken once, as outputs are many.
    total = logs.sum(axis=0)  # (batch, outputs)
    losses = paddle.add_n([(shares[view] * (logs[view] - total)).sum(axis=-1) for view in range(LARGE_VIEWS)])
    return losses / (LARGE_VIEWS * (views - 1))


def entropies(shares: paddle.Tensor) -> paddle.Tensor:
    """Compute the entropy of each row of probabilities, (rows, outputs), in nats: (rows,)."""
    return -(shares * paddle.log(paddle.clip(shares, min=1e-30))).sum(axis=-1)


def deviation(features: paddle.Tensor) -> paddle.Tensor:
    """Compute how much directions of features, (rows, channels), differ: about 1 if they are spread evenly, 0 if equal.

    It is the mean deviation of a channel of unit vectors, times the root of the number of channels.
    """
    directions = F.normalize(features, axis=-1)
    variance = (directions - directions.mean(axis=0, keepdim=True)).square().mean(axis=0)  # (channels,)
    return variance.sqrt().mean() * math.sqrt(features.shape[-1])
