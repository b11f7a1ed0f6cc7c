"""Losses of images with several labels, summed over the known labels of a batch.

Sources: T. Ridnik et al., "Asymmetric Loss For Multi-Label Classification", arXiv 2009.14119, equations 3 to 5; label
smoothing: C. Szegedy et al., arXiv 1512.00567, section 7, for the two classes of each label.
"""

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.transfers import constant

_SMALLEST = 1e-8  # lower bound of probabilities before the logarithm, the authors'


def smooth_labels(targets: paddle.Tensor, smoothing: float) -> paddle.Tensor:
    """Move targets float (batch, classes) towards a half: 1 becomes 1 - ``smoothing`` / 2, and 0 the rest."""
    if not smoothing:
        return targets
    return targets * _scalar(1.0 - smoothing, targets) + _scalar(0.5 * smoothing, targets)


def _scalar(value: float, like: paddle.Tensor) -> paddle.Tensor:
    """Return a number as a tensor of another's dtype: Paddle 2.6 rounds Python's numbers to float32."""
    return constant(np.array, value, "float64" if like.dtype == paddle.float64 else "float32")


def binary_cross_entropy(
    logits: paddle.Tensor, targets: paddle.Tensor, known: paddle.Tensor, positive_weights: paddle.Tensor | None = None
) -> paddle.Tensor:
    """Sum the binary cross-entropy of known labels.

    Args:
        logits: float (batch, classes).
        targets: float (batch, classes), shares of the label from 0 to 1.
        known: float (batch, classes), 1 or 0: whether the label counts.
        positive_weights: float (classes,), factor of a positive's loss; None: 1.
    """
    # Twice as fast on a CPU as ``binary_cross_entropy_with_logits`` with a weight, and equal for soft targets.
    positive, negative = F.softplus(-logits), F.softplus(logits)
    if positive_weights is not None:
        positive = positive * positive_weights
    return ((targets * positive + (1.0 - targets) * negative) * known).sum()


def asymmetric_loss(
    logits: paddle.Tensor,
    targets: paddle.Tensor,
    known: paddle.Tensor,
    gamma_negative: float,
    gamma_positive: float,
    margin: float,
) -> paddle.Tensor:
    """Sum the asymmetric loss of known labels; the focusing weight has no gradient, as in the authors' code.

    Args:
        logits, targets, known: as for ``binary_cross_entropy``.
        gamma_negative, gamma_positive: exponents of the focusing weight of negatives and of positives.
        margin: negatives below this probability have no loss, and others that of a probability lower by this much.
    """
    positive = F.sigmoid(logits)  # probability of the label
    negative = paddle.clip(1.0 - positive + _scalar(margin, positive), max=1.0) if margin else 1.0 - positive
    log_shares = targets * paddle.log(paddle.clip(positive, min=_SMALLEST))
    losses = log_shares + (1.0 - targets) * paddle.log(paddle.clip(negative, min=_SMALLEST))
    if gamma_negative or gamma_positive:
        with paddle.no_grad():
            true = positive * targets + negative * (1.0 - targets)  # probability of what is true
            weights = (1.0 - true) ** (gamma_positive * targets + gamma_negative * (1.0 - targets))
        losses = losses * weights
    return -(losses * known).sum()


def teacher_loss(kind: str, student: paddle.Tensor, teacher: paddle.Tensor) -> paddle.Tensor:
    """Compute the loss against a teacher's logits, both float (batch, classes), summed over batch and classes.

    "soft": the divergence KL(teacher || student) of the two outcomes of each label; "hard": the cross-entropy with the
    teacher's decisions at a probability of a half.
    """
    if kind == "hard":
        targets = (teacher > 0).astype(student.dtype)
        return binary_cross_entropy(student, targets, paddle.ones_like(student))
    targets, ones = F.sigmoid(teacher), paddle.ones_like(student)
    entropy = binary_cross_entropy(teacher, targets, ones)
    return binary_cross_entropy(student, targets, ones) - entropy
