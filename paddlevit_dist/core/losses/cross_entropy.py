"""Cross-entropies over elements with or without a class label."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import paddle
import paddle.nn.functional as F

from ..registry.extension_points import RESIZED_CROSS_ENTROPY
from ..runtime.autocast import as_dtype
from ..runtime.transfers import constant, is_on_gpu


def log_softmax(x: paddle.Tensor) -> paddle.Tensor:
    """Return the logarithm of the softmax along the last axis of ``x``, float32 or float64, of its shape.

    On a CPU, the time of Paddle's operation grows with the square of the axis, and its results are never below -64.
    """
    if is_on_gpu():
        return F.log_softmax(x, axis=-1)
    shifted = x - x.detach().max(axis=-1, keepdim=True)  # so that no power overflows
    return shifted - paddle.log(paddle.exp(shifted).sum(axis=-1, keepdim=True))


def summed_cross_entropy(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int = -1, weights: tuple[float, ...] | None = None
) -> paddle.Tensor:
    """Sum the cross-entropy over the labeled elements: 0, with zero gradients, if there are none.

    Args:
        logits: float32 (..., classes, ...), at least one element.
        labels: int64, the same shape without ``axis``.
        ignored: the value of missing labels.
        axis: the axis of the classes.
        weights: a factor for each class; None: 1.
    """
    losses = cross_entropies(logits, labels, ignored, axis)
    return (losses if weights is None else losses * look_up_weights(labels, ignored, weights)).sum()


def resized_cross_entropy(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None = None
) -> paddle.Tensor:
    """Resize maps bilinearly, with aligned pixel centers, to the labels and sum their cross-entropy.

    Logits are float32 (N, classes, height, width), labels int64 (N, rows, columns). See ``summed_cross_entropy``.
    """
    compiled = RESIZED_CROSS_ENTROPY.find()
    fast = None if compiled is None else compiled(logits, labels, ignored, weights)
    if fast is not None:
        return fast
    size = list(labels.shape[1:])
    if list(logits.shape[2:]) != size:
        logits = F.interpolate(logits, size=size, mode="bilinear")
    return summed_cross_entropy(logits, labels, ignored, 1, weights)


def cross_entropies(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int = -1) -> paddle.Tensor:
    """Compute the cross-entropy of each element: float32 of the labels' shape, 0 without a label.

    For the arguments see ``summed_cross_entropy``. It is Paddle's own operation, or what a run on a GPU has chosen
    instead at its start (``choose_cross_entropy``).
    """
    wide = logits if logits.dtype == paddle.float64 else as_dtype(logits, paddle.float32)
    compute = _in_use.get(paddle.get_device(), _by_paddle)
    return compute(wide, labels, ignored, axis % logits.ndim)


def _by_paddle(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int) -> paddle.Tensor:
    losses = F.cross_entropy(logits, labels, ignore_index=ignored, reduction="none", axis=axis)
    return losses.reshape(labels.shape)


def _by_plain_operations(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int) -> paddle.Tensor:
    shape = list(logits.shape)
    before, classes, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    rows = logits.reshape([before, classes, after])  # Paddle's logsumexp takes at most four axes
    indices = labels.reshape([before, 1, after])
    valid = indices != ignored
    chosen = paddle.take_along_axis(rows, replace_missing(indices, valid), axis=1)  # (before, 1, after)
    losses = (paddle.logsumexp(rows, axis=1, keepdim=True) - chosen) * valid.astype("float32")
    return losses.reshape(labels.shape)


def _over_last_axis(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int) -> paddle.Tensor:
    others = [other for other in range(logits.ndim) if other != axis]
    return _by_paddle(logits.transpose([*others, axis]), labels, ignored, logits.ndim - 1)


CrossEntropy = Callable[[paddle.Tensor, paddle.Tensor, int, int], paddle.Tensor]  # as ``cross_entropies``, axis >= 0
#: The ways to compute it, by name. Which of them is right depends on the device and its libraries.
CANDIDATES: Mapping[str, CrossEntropy] = {
    "Paddle's cross-entropy": _by_paddle,
    "plain operations": _by_plain_operations,
    "Paddle's cross-entropy over the last axis": _over_last_axis,
}
_in_use: dict[str, CrossEntropy] = {}  # by Paddle's name of the device, as it and its libraries decide what is right


def use(candidate: CrossEntropy) -> None:
    """Compute cross-entropies on this process's present device in this way from now on."""
    _in_use[paddle.get_device()] = candidate


def adjusted_losses(
    logits: paddle.Tensor,
    labels: paddle.Tensor,
    ignored: int,
    weights: tuple[float, ...] | None = None,
    smoothing: float = 0.0,
    focus: float = 0.0,
) -> paddle.Tensor:
    """Compute cross-entropies with class weights, smoothed labels and a focus on hard elements (focal loss).

    The loss is (1 - p)^focus ((1 - smoothing) w log(1 / p) + smoothing / classes sum_c w_c log(1 / p_c)). Here p is the
    probability of the label and w the weight of its class. Without a focus this is PyTorch's loss with ``weight`` and
    ``label_smoothing``, which divides by the sum of w for a mean. The focus is T.-Y. Lin et al., "Focal Loss for Dense
    Object Detection", 2017, arXiv 1708.02002, equation 4, with the softmax's p.

    Args:
        logits: float32 (P, classes), P at least 1.
        labels: int64 (P,).
        ignored: the value of missing labels.
        weights: w of each class; None: 1.
        smoothing: label smoothing, from 0 to 1.
        focus: the exponent; 0: no focus.

    Returns:
        The loss of each element, float32 (P,), 0 without a label.
    """
    plain = cross_entropies(logits, labels, ignored)  # (P,)
    losses = plain if weights is None else plain * look_up_weights(labels, ignored, weights)
    if smoothing:
        others = -log_softmax(logits)  # (P, classes)
        if weights is not None:
            others = others * constant(np.array, weights, "float32")
        losses = (1.0 - smoothing) * losses + smoothing * others.mean(axis=1) * (labels != ignored).astype("float32")
    if focus:
        # The limit keeps the slope of powers below 1 finite.
        losses = losses * paddle.clip(1.0 - paddle.exp(-plain), min=1e-7) ** focus
    return losses


def look_up_weights(labels: paddle.Tensor, ignored: int, weights: tuple[float, ...]) -> paddle.Tensor:
    """Return the weight of each element's class: float32 of the labels' shape, 0 without a label."""
    valid = labels != ignored
    class_weights = constant(np.array, weights, "float32")
    chosen = paddle.gather(class_weights, replace_missing(labels, valid).reshape([-1])).reshape(labels.shape)
    return chosen * valid.astype("float32")


def mark_hardest(
    losses: paddle.Tensor, labels: paddle.Tensor, ignored: int, threshold: float, min_kept: int
) -> paddle.Tensor:
    """Mark the hard elements of each row: float32 of the labels' shape, 1 for a hard element and else 0.

    Hard elements are labeled elements whose class has a probability below ``threshold``, above 0. At least the
    ``min_kept`` (from 1) elements with the smallest probability are hard, and all elements of equal loss. ``losses``
    are the cross-entropies, float32 (rows, ...), 0 without a label; ``labels`` int64 (rows, ...).

    This is online hard example mining, introduced for boxes by A. Shrivastava et al., 2016, arXiv 1604.03540. It
    differs from mmsegmentation's ``OHEMPixelSampler``, which chooses from all rows together and divides the sum of the
    losses by all pixels. A caller here divides by the number of marked elements, like HRNet's authors.
    """
    rows = losses.flatten(1)  # (rows, elements)
    largest = paddle.topk(rows, min(min_kept, rows.shape[1]))[0]  # a whole sort would wait on a GPU
    limits = paddle.clip(largest[:, -1:], max=-math.log(threshold))  # (rows, 1)
    return (rows >= limits).reshape(labels.shape).astype("float32") * (labels != ignored).astype("float32")


def replace_missing(labels: paddle.Tensor, valid: paddle.Tensor) -> paddle.Tensor:
    """Replace missing labels by class 0, where an index is required."""
    return paddle.where(valid, labels, paddle.zeros_like(labels))
