"""Choose the cross-entropy that a device computes as NumPy does."""

from collections.abc import Mapping

import numpy as np
import paddle
import paddle.nn.functional as F

from ..distributed import all_gather
from ..runtime.errors import UserError
from ..runtime.transfers import read, to_device
from .cross_entropy import CANDIDATES, CrossEntropy, use

_CHECKED_SHAPES = (4, 5), (2, 5, 7), (2, 5, 3, 4), (2, 5, 3, 2, 4)  # rows, elements of rows, pixels, voxels; 5 classes
_LARGEST_ERROR = 1e-4  # of 1 + the value; a wrong result was off by more than the loss itself


def choose_cross_entropy(candidates: Mapping[str, CrossEntropy] = CANDIDATES) -> list[str]:
    """Use the first candidate that equals NumPy's cross-entropy on the devices of all ranks. Every rank must call this.

    The host waits for the device.

    Returns:
        Log lines; none if the first candidate is used.

    Raises:
        UserError: no candidate is right.
    """
    of_ranks = all_gather({name: _measure(candidate) for name, candidate in candidates.items()})
    errors = {name: max(of_rank[name] for of_rank in of_ranks) for name in candidates}
    measured = ", ".join(f"{name} is off by {error:.1e}" for name, error in errors.items())
    right = [name for name, error in errors.items() if error <= _LARGEST_ERROR]
    if not right:
        raise UserError(
            "this device computes no cross-entropy as NumPy does (losses over axis 1 of 2 to 5 axes before and after "
            f"their gradients, gradients, softmax): {measured}; use another build of Paddle, or train with -device=cpu"
        )
    use(candidates[right[0]])
    return [] if right[0] == next(iter(candidates)) else [f"cross-entropy on this device: {right[0]}; {measured}"]


def _measure(candidate: CrossEntropy) -> float:
    """Return the largest difference from NumPy's, over 1 + the size of the value; infinity if one is not finite."""
    generator, worst = np.random.default_rng(0), 0.0
    for shape in _CHECKED_SHAPES:
        array = generator.standard_normal(shape).astype("float32") * 3
        label_array = generator.integers(-1, shape[1], (shape[0], *shape[2:]))
        logits, labels = to_device(array), to_device(label_array)
        logits.stop_gradient = False
        (early,) = read(candidate(logits, labels, -1, 1))
        losses = candidate(logits, labels, -1, 1)  # in a step, nothing reads a loss before its gradients
        total = losses.sum()
        (gradient,) = paddle.grad(total, [logits])
        found = early, *read(losses, total, gradient, F.softmax(logits.detach(), axis=1))
        for values, right in zip(found, _compute_reference(array.astype("float64"), label_array)):
            error = (np.abs(values - right) / (1 + np.abs(right))).max()
            worst = max(worst, float(error) if np.isfinite(error) else np.inf)
    return worst


def _compute_reference(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compute losses, twice, their sum, its gradient, and softmax over axis 1; a label below 0 is missing."""
    exponents = np.exp(logits)  # far from overflow
    shares = exponents / exponents.sum(axis=1, keepdims=True)
    truth = np.expand_dims(labels, 1) == np.arange(logits.shape[1]).reshape([-1] + [1] * (logits.ndim - 2))
    losses = -np.log((shares * truth).sum(axis=1) + (labels < 0))  # 0 without a label
    return losses, losses, losses.sum(), (shares - truth) * np.expand_dims(labels >= 0, 1), shares
