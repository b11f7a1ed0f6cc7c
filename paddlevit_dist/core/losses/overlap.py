"""Losses of the overlap of a class and its prediction: Dice and Lovasz softmax."""

from collections.abc import Sequence

import paddle
import paddle.nn.functional as F

from ..runtime.autocast import as_dtype, widen_for_sum
from .cross_entropy import replace_missing


def dice_losses(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, first: int = 0
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute the Dice loss of each class that occurs in a row, summed over rows and classes.

    The loss is 1 - 2 sum(p t) / (sum(p) + sum(t)) over the labeled elements of a row. Here p is the probability of the
    class, and t is 1 where the class is the label. A class that does not occur has no loss: cross-entropy penalizes its
    prediction. Source: C. Sudre et al., "Generalized Dice overlap as a deep learning loss function", 2017, arXiv
    1707.03237, section 2.3, for one class.

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
    indices, mask = replace_missing(labels, valid), valid.astype("float32")  # (rows, elements)
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
    indices, mask = replace_missing(labels, valid), valid.astype("float32")  # (P,)
    probabilities = F.softmax(logits)
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

    Source: M. Berman et al., "The Lovasz-Softmax loss", CVPR 2018, arXiv 1705.08790, equations 8 to 11. Logits are
    float32 or float64 (P, classes), P at least 1, labels int64 (P,).

    Returns:
        The sum, and the number of classes in it, () each, in the logits' dtype.
    """
    classes = logits.shape[1]
    is_valid = labels != ignored
    valid = is_valid.astype(logits.dtype).unsqueeze(1)  # (P, 1)
    truth = as_dtype(F.one_hot(replace_missing(labels, is_valid), classes), logits.dtype) * valid  # (P, classes)
    # Unlabeled elements have no error, so they sort last and add nothing.
    errors = (truth - F.softmax(logits)).abs() * valid
    order = paddle.argsort(errors.detach(), axis=0, descending=True)  # over elements, for each class
    errors = paddle.take_along_axis(errors, order, axis=0)
    truth = paddle.take_along_axis(truth, order, axis=0)
    # Intersection and union if all elements up to this one are wrong.
    intersection = truth.sum(axis=0) - truth.cumsum(axis=0)
    union = truth.sum(axis=0) + (paddle.take_along_axis(valid.expand_as(truth), order, axis=0) - truth).cumsum(axis=0)
    loss_at = 1.0 - intersection / paddle.clip(union, min=1.0)
    steps = paddle.concat([loss_at[:1], loss_at[1:] - loss_at[:-1]])
    present = (truth.sum(axis=0) > 0).astype(logits.dtype)  # (classes,)
    products = errors * steps
    sums = as_dtype(widen_for_sum(products, products.shape[0]).sum(axis=0), products.dtype)
    return (sums * present).sum(), present.sum()


def row_lovasz_softmax(
    logits: paddle.Tensor, labels: paddle.Tensor, ignored: int
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute ``lovasz_softmax`` of each row, summed over the rows, for float32 logits (rows, classes, elements).

    Computed over all rows together, the loss would depend on the composition of the batch.
    """
    losses = [lovasz_softmax(row.t(), row_labels, ignored) for row, row_labels in zip(logits.unbind(), labels.unbind())]
    total, present = (paddle.stack(parts).sum() for parts in zip(*losses))
    return total, present
