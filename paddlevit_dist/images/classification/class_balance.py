"""Two ways to compensate for rare classes: sampling them more often, or weighting them more in the loss."""

from collections.abc import Sequence

import numpy as np
import paddle

from ...core.losses import log_softmax
from ...core.runtime.errors import UserError
from ..data.reading import count_labels

_UNBALANCED = 5  # ratio of the numbers of images in two classes


def format_imbalance(labels: np.ndarray, names: Sequence[str] | None, is_corrected: bool) -> list[str]:
    """Return a line if a training class has many times the samples of another, and this is not corrected."""
    counts = count_labels(np.asarray(labels), 0)
    classes = np.flatnonzero(counts)
    numbers = counts[classes]
    if is_corrected or numbers.max() < _UNBALANCED * numbers.min():
        return []
    most, fewest = (
        f"{numbers[row]:,} of {names[classes[row]] if names else classes[row]}"
        for row in (numbers.argmax(), numbers.argmin())
    )
    return [f"note: classes differ in size, {most}, {fewest}; DATA.CLASS_BALANCED true reads them equally often"]


def draw_balanced_order(labels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draw an epoch in which every class occurs equally often: int64 indices, one per label, int (samples,).

    Small classes are repeated, reshuffled each time, and large ones randomly subsampled. Two samples of the same class
    are drawn equally often, give or take one.
    """
    by_class = np.argsort(labels, kind="stable")
    sizes = np.unique(labels, return_counts=True)[1]
    quotas = np.full(len(sizes), len(labels) // len(sizes))
    quotas[generator.permutation(len(sizes))[: len(labels) % len(sizes)]] += 1
    ends = np.cumsum(sizes)
    chosen = []
    for end, size, quota in zip(ends.tolist(), sizes.tolist(), quotas.tolist()):
        members = by_class[end - size : end]
        rounds = [generator.permutation(members) for _ in range(-(-quota // size))]
        chosen.append(np.concatenate(rounds)[:quota] if rounds else members[:0])
    return generator.permutation(np.concatenate(chosen))


def compute_class_weights(
    setting: None | str | Sequence[float], labels: np.ndarray, num_classes: int
) -> np.ndarray | None:
    """Compute the weight of each class, float32 (num_classes,), with a mean of 1 over the training samples.

    ``setting`` is "balanced" (inverse to the frequency), a weight for each class, or None for no weights. A
    ``UserError`` says that there are more or fewer weights than classes, or that all samples have weight 0.
    """
    if setting is None:
        return None
    frequencies = count_labels(np.asarray(labels), num_classes)
    if setting == "balanced":
        weights = np.where(frequencies > 0, 1.0 / np.maximum(frequencies, 1), 0.0)
    else:
        weights = np.asarray(setting, np.float64)
        if len(weights) != num_classes:
            raise UserError(f"TRAIN.CLASS_WEIGHTS has {len(weights)} weights, expected {num_classes}, one per class")
    mean = (weights * frequencies).sum() / frequencies.sum()
    if mean == 0:
        raise UserError(
            "TRAIN.CLASS_WEIGHTS gives all training samples weight 0; raise the weight of a class with samples"
        )
    return (weights / mean).astype(np.float32)


def weighted_cross_entropy(
    logits: paddle.Tensor, unsmoothed_targets: paddle.Tensor, targets: paddle.Tensor, weights: paddle.Tensor
) -> paddle.Tensor:
    """Sum each sample's weight times its loss over the batch; logits and targets (batch, classes), weights (classes,).

    The engine divides by the number of samples, not by the sum of the weights: their mean over the training set is 1,
    so the scale of a batch's gradient does not depend on its classes. ``unsmoothed_targets`` weight the sample: 1 for
    its label, or two shares for a mixed image; ``targets`` are these with label smoothing.
    """
    losses = -(targets * log_softmax(logits)).sum(axis=-1)  # (batch,)
    return (losses * (unsmoothed_targets * weights).sum(axis=-1)).sum()
