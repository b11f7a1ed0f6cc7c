"""Losses over elements with or without a class label: points of a scene, pixels of images.

Sums and their divisors are returned separately, as the engine divides by counts over all ranks and micro-batches.
Nothing here makes the host wait for the device.
"""

import math
from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F

from . import extension
from .runtime.autocast import as_dtype, widen_for_sum
from .runtime.transfers import constant, is_on_gpu, read, to_device


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
    if weights is None and not is_on_gpu():
        return F.cross_entropy(logits, labels, ignore_index=ignored, reduction="sum", axis=axis)
    if weights is None:
        return cross_entropies(logits, labels, ignored, axis).sum()
    return (cross_entropies(logits, labels, ignored, axis) * look_up_weights(labels, ignored, weights)).sum()


def resized_cross_entropy(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None = None
) -> paddle.Tensor:
    """Resize maps to the labels and sum their cross-entropy; see ``summed_cross_entropy``.

    Maps are resized bilinearly with aligned pixel centers.

    Args:
        logits: float32 (N, classes, height, width).
        labels: int64 (N, rows, columns).
        ignored: the value of missing labels.
        weights: a factor for each class; None: 1.
    """
    if extension.has("cpu_kernels"):
        fast = extension.resized_cross_entropy(logits, labels, ignored, weights)
        if fast is not None:
            return fast
    size = list(labels.shape[1:])
    if list(logits.shape[2:]) != size:
        logits = F.interpolate(logits, size=size, mode="bilinear", align_corners=False)
    return summed_cross_entropy(logits, labels, ignored, 1, weights)


def cross_entropies(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int = -1) -> paddle.Tensor:
    """Compute the cross-entropy of each element: float32 of the labels' shape, 0 without a label.

    On a GPU it is the logarithm of the sum of exponents minus the label's logit: over an axis that is not the last,
    Paddle's operation gave wrong losses there in some processes.

    For the arguments see ``summed_cross_entropy``.
    """
    if is_on_gpu():
        return _plain_cross_entropies(as_dtype(logits, paddle.float32), labels, ignored, axis % logits.ndim)
    losses = F.cross_entropy(logits, labels, ignore_index=ignored, reduction="none", axis=axis)
    return losses.reshape(labels.shape)


def _plain_cross_entropies(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, axis: int) -> paddle.Tensor:
    shape = list(logits.shape)
    before, classes, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    rows = logits.reshape([before, classes, after])  # Paddle's logsumexp takes at most four axes
    indices = labels.reshape([before, 1, after])
    valid = indices != ignored
    chosen = paddle.take_along_axis(rows, _replace_none(indices, valid), axis=1)  # (before, 1, after)
    losses = (paddle.logsumexp(rows, axis=1, keepdim=True) - chosen) * valid.astype("float32")
    return losses.reshape(labels.shape)


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
    probability of the label and w the weight of its class.

    Without a focus this is PyTorch's loss with ``weight`` and ``label_smoothing``, which divides by the sum of w for a
    mean. The focus is T.-Y. Lin et al., "Focal Loss for Dense Object Detection", 2017, arXiv 1708.02002, equation 4,
    with the softmax's p.

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
        others = -F.log_softmax(logits, axis=-1)  # (P, classes)
        if weights is not None:
            others = others * constant(np.array, weights, "float32")
        losses = (1.0 - smoothing) * losses + smoothing * others.mean(axis=-1) * (labels != ignored).astype("float32")
    if focus:
        # The limit keeps the slope of powers below 1 finite.
        losses = losses * paddle.clip(1.0 - paddle.exp(-plain), min=1e-7) ** focus
    return losses


def look_up_weights(labels: paddle.Tensor, ignored: int, weights: tuple[float, ...]) -> paddle.Tensor:
    """Return the weight of each element's class: float32 of the labels' shape, 0 without a label."""
    valid = labels != ignored
    class_weights = constant(np.array, weights, "float32")
    chosen = paddle.gather(class_weights, _replace_none(labels, valid).reshape([-1])).reshape(labels.shape)
    return chosen * valid.astype("float32")


def mark_hardest(
    losses: paddle.Tensor, labels: paddle.Tensor, ignored: int, threshold: float, min_kept: int
) -> paddle.Tensor:
    """Mark the hard elements of each row.

    Hard elements are labeled elements whose class has a probability below ``threshold``. At least the ``min_kept``
    elements with the smallest probability are hard, and all elements of equal loss.

    This is online hard example mining, introduced for boxes by A. Shrivastava et al., 2016, arXiv 1604.03540. It
    differs from mmsegmentation's ``OHEMPixelSampler``, which chooses from all rows together and divides the sum of the
    losses by all pixels. A caller here divides by the number of marked elements, like HRNet's authors.

    Args:
        losses: float32 (rows, ...), cross-entropy of each element, 0 without a label.
        labels: int64 (rows, ...).
        ignored: the value of missing labels.
        threshold: a probability, above 0.
        min_kept: at least 1.

    Returns:
        float32 of the labels' shape, 1 for a hard element and else 0.
    """
    rows = losses.detach().flatten(1)  # (rows, elements)
    largest = paddle.topk(rows, min(min_kept, rows.shape[1]), axis=1)[0]  # a whole sort would wait on a GPU
    limits = paddle.clip(largest[:, -1:], max=-math.log(threshold))  # (rows, 1)
    return (rows >= limits).reshape(labels.shape).astype("float32") * (labels != ignored).astype("float32")


def dice_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, first: int = 0
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute the Dice loss of each class that occurs in a row, summed over rows and classes.

    The loss is 1 - 2 sum(p t) / (sum(p) + sum(t)) over the labeled elements of a row. Here p is the probability of the
    class, and t is 1 where the class is the label. A class that does not occur has no loss: cross-entropy penalizes its
    prediction.

    Source: C. Sudre et al., "Generalized Dice overlap as a deep learning loss function", 2017, arXiv 1707.03237,
    section 2.3, for one class.

    Args:
        logits: float32 (rows, classes, elements), at least one element.
        labels: int64 (rows, elements).
        ignored: the value of missing labels.
        first: first class with a loss; 1 excludes a background class.

    Returns:
        The sum, and the number of losses in it, float32 () each.
    """
    rows, classes, _ = logits.shape
    valid = labels != ignored
    indices, mask = _replace_none(labels, valid), valid.astype("float32")  # (rows, elements)
    probabilities = F.softmax(logits, axis=1)
    correct = paddle.take_along_axis(probabilities, indices.unsqueeze(1), axis=1).squeeze(1) * mask  # of the label
    places = indices + classes * paddle.arange(rows).unsqueeze(1)
    overlap, truth = _sum_by_class(places, (correct, mask), rows, classes)
    factors = widen_for_sum(mask, mask.shape[1])
    predicted = paddle.matmul(as_dtype(probabilities, factors.dtype), factors.unsqueeze(2)).squeeze(2)
    predicted = as_dtype(predicted, mask.dtype)  # (rows, classes)
    return _dice(overlap[:, first:], truth[:, first:], predicted[:, first:])


def scene_dice_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, scenes: paddle.Tensor, num_scenes: int, ignored: int
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute ``dice_losses`` for scenes, which are rows of different lengths.

    Args:
        logits: float32 (P, classes), P at least 1.
        labels: int64 (P,).
        scenes: int64 (P,), the scene of each element; any for a missing label.
        num_scenes: at least 1.
        ignored: the value of missing labels.
    """
    classes = logits.shape[1]
    valid = labels != ignored
    indices, mask = _replace_none(labels, valid), valid.astype("float32")  # (P,)
    probabilities = F.softmax(logits, axis=1)
    correct = paddle.take_along_axis(probabilities, indices.unsqueeze(1), axis=1).squeeze(1) * mask
    places = paddle.where(valid, indices + classes * scenes, paddle.zeros_like(indices))
    overlap, truth = _sum_by_class(places, (correct, mask), num_scenes, classes)
    membership = (scenes.unsqueeze(0) == paddle.arange(num_scenes).unsqueeze(1)).astype("float32") * mask
    membership = widen_for_sum(membership, membership.shape[1])
    predicted = paddle.matmul(membership, as_dtype(probabilities, membership.dtype))
    return _dice(overlap, truth, as_dtype(predicted, mask.dtype))


def _sum_by_class(
    places: paddle.Tensor, columns: Sequence[paddle.Tensor], rows: int, classes: int
) -> list[paddle.Tensor]:
    """Sum each column by row and class, (rows, classes); ``places`` are row * classes + class."""
    flat, indices = [column.reshape([-1]) for column in columns], places.reshape([-1, 1])
    wide = [widen_for_sum(column, column.shape[0]) for column in flat]
    sums = [paddle.scatter_nd_add(paddle.zeros([rows * classes], column.dtype), indices, column) for column in wide]
    return [total.reshape([rows, classes]).astype(flat[0].dtype) for total in sums]


def _dice(
    overlap: paddle.Tensor, truth: paddle.Tensor, predicted: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    present = (truth > 0).astype("float32")
    losses = 1.0 - 2.0 * overlap / paddle.clip(predicted + truth, min=1.0)  # at least 1 if the class occurs
    return (losses * present).sum(), present.sum()


def lovasz_softmax(logits: paddle.Tensor, labels: paddle.Tensor, ignored: int) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute the Lovasz extension of 1 - IoU of each class, summed over the classes that occur.

    Source: M. Berman et al., "The Lovasz-Softmax loss", CVPR 2018, arXiv 1705.08790, equations 8 to 11.

    Args:
        logits: float32 (P, classes), P at least 1.
        labels: int64 (P,).
        ignored: the value of missing labels.

    Returns:
        The sum, and the number of classes in it, float32 () each.
    """
    classes = logits.shape[1]
    is_valid = labels != ignored
    valid = is_valid.astype("float32").unsqueeze(-1)  # (P, 1)
    truth = F.one_hot(_replace_none(labels, is_valid), classes) * valid  # (P, classes)
    # Unlabeled elements have no error, so they sort last and add nothing.
    errors = (truth - F.softmax(logits, axis=-1)).abs() * valid
    order = paddle.argsort(errors.detach(), axis=0, descending=True)  # over elements, for each class
    errors = paddle.take_along_axis(errors, order, axis=0)
    truth = paddle.take_along_axis(truth, order, axis=0)
    # Intersection and union if all elements up to this one are wrong.
    intersection = truth.sum(axis=0) - truth.cumsum(axis=0)
    union = truth.sum(axis=0) + (paddle.take_along_axis(valid.expand_as(truth), order, axis=0) - truth).cumsum(axis=0)
    loss_at = 1.0 - intersection / paddle.clip(union, min=1.0)
    steps = paddle.concat([loss_at[:1], loss_at[1:] - loss_at[:-1]], axis=0)
    present = (truth.sum(axis=0) > 0).astype("float32")  # (classes,)
    products = errors * steps
    sums = as_dtype(widen_for_sum(products, products.shape[0]).sum(axis=0), products.dtype)
    return (sums * present).sum(), present.sum()


def row_lovasz_softmax(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute ``lovasz_softmax`` of each row, summed over the rows.

    Computed over all rows together, the loss would depend on the composition of the batch.

    Args:
        logits: float32 (rows, classes, elements), at least one element.
        labels: int64 (rows, elements).
        ignored: the value of missing labels.
    """
    losses = [lovasz_softmax(row.t(), row_labels, ignored) for row, row_labels in zip(logits.unbind(), labels.unbind())]
    total, present = (paddle.add_n(list(parts)) for parts in zip(*losses))
    return total, present


def _replace_none(labels: paddle.Tensor, valid: paddle.Tensor) -> paddle.Tensor:
    """Replace missing labels by class 0, where an index is required."""
    return paddle.where(valid, labels, paddle.zeros_like(labels))


_CHECKED_SHAPES = (4, 5), (2, 5, 7), (2, 5, 3, 4), (2, 5, 3, 2, 4)  # rows, elements of rows, pixels, voxels; 5 classes
_LARGEST_ERROR = 1e-4  # a wrong result was off by more than the loss itself


def check_on_device() -> list[str]:
    """Compare cross-entropy and softmax over axis 1, with gradients, with NumPy's on this process's device.

    Returns:
        Log lines: what is wrong here. The host waits for the device.
    """
    generator = np.random.default_rng(0)
    lines = []
    for shape in _CHECKED_SHAPES:
        array = generator.standard_normal(shape).astype("float32") * 3
        label_array = generator.integers(-1, shape[1], (shape[0], *shape[2:]))
        logits, labels = to_device(array), to_device(label_array)
        logits.stop_gradient = False
        loss = summed_cross_entropy(logits, labels, -1, axis=1)
        values = read(loss, paddle.grad(loss, [logits])[0], F.softmax(logits.detach(), axis=1))
        expected = _compute_reference(array.astype("float64"), label_array)
        names = ("cross-entropy", "the gradient of cross-entropy", "softmax")
        for name, actual, right in zip(names, values, expected):
            if not np.allclose(actual, right, rtol=_LARGEST_ERROR, atol=_LARGEST_ERROR):
                error = np.abs(actual - right).max()
                lines.append(
                    f"WARNING: {name} over axis 1 of {len(shape)} axes is wrong on this device, by {error:.1e}: its "
                    "libraries do not fit this Paddle, and training runs may be wrong: see docs/guides/devices.md"
                )
    return lines


def _compute_reference(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the summed loss, its gradient and the softmax over axis 1 in float64; a label below 0 is missing."""
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponents / exponents.sum(axis=1, keepdims=True)
    truth = np.expand_dims(labels, 1) == np.arange(logits.shape[1]).reshape([-1] + [1] * (logits.ndim - 2))
    is_labeled = np.expand_dims(labels, 1) >= 0
    loss = -np.log((probabilities * truth).sum(axis=1)[labels >= 0]).sum()
    return loss, (probabilities - truth) * is_labeled, probabilities
