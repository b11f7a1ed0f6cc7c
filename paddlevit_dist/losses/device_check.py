"""Choose the cross-entropy that a device computes as NumPy does."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ..distributed import all_gather
from ..runtime.errors import UserError
from ..runtime.transfers import read, to_device
from .cross_entropy import CANDIDATES, CrossEntropy, use

_CHECKED_SHAPES = (4, 5), (2, 5, 7), (2, 5, 3, 4), (2, 5, 3, 2, 4)  # rows, elements of rows, pixels, voxels; 5 classes
_LARGEST_ERROR = 1e-4  # of 1 + the value; a wrong result was off by more than the loss itself
_SOFTMAX = "softmax"


def choose_cross_entropy(candidates: Mapping[str, CrossEntropy] = CANDIDATES) -> list[str]:
    """Use the first candidate that equals NumPy's cross-entropy on the devices of all ranks. Every rank must call this.

    The host waits for the device.

    Returns:
        Log lines; none if the first candidate is used.

    Raises:
        UserError: no candidate is right, or softmax is wrong.
    """
    measures = {name: _measure(functools.partial(_compare_losses, each)) for name, each in candidates.items()}
    of_ranks = all_gather({**measures, _SOFTMAX: _measure(_compare_softmax)})
    errors = {name: max(of_rank[name] for of_rank in of_ranks) for name in of_ranks[0]}
    measured = ", ".join(f"{name} is off by {error:.1e}" for name, error in errors.items())
    right = [name for name in candidates if errors[name] <= _LARGEST_ERROR]
    if not right or errors[_SOFTMAX] > _LARGEST_ERROR:
        raise UserError(
            "this device does not compute losses as NumPy does (over axis 1 of 2 to 5 axes, read before and after the "
            f"gradients, and the gradients): {measured}; use another build of Paddle, or train on CPUs with -device=cpu"
        )
    use(candidates[right[0]])
    return [] if right[0] == next(iter(candidates)) else [f"cross-entropy on this device: {right[0]}; {measured}"]


def _measure(compare: Callable[..., list[tuple[np.ndarray, np.ndarray]]]) -> float:
    """Return the largest difference from NumPy's, over 1 + its size; infinity if a value is not finite."""
    generator, errors = np.random.default_rng(0), []
    for shape in _CHECKED_SHAPES:
        array = generator.standard_normal(shape).astype("float32") * 3
        labels = generator.integers(-1, shape[1], (shape[0], *shape[2:]))
        reference = _compute_reference(array.astype("float64"), labels)
        try:
            pairs = compare(to_device(array), to_device(labels), *reference)
        except Exception:  # Paddle raises several types for a device without this kernel
            return np.inf
        errors += [np.abs((found - right) / (1 + np.abs(right))).max() for found, right in pairs]
    return float(max(errors)) if np.isfinite(errors).all() else np.inf


def _compare_losses(
    candidate: CrossEntropy,
    logits: paddle.Tensor,
    labels: paddle.Tensor,
    losses: np.ndarray,
    slopes: np.ndarray,
    *_: Any,
) -> list[tuple[np.ndarray, np.ndarray]]:
    logits.stop_gradient = False
    (early,) = read(candidate(logits, labels, -1, 1))
    again = candidate(logits, labels, -1, 1)  # in a step, nothing reads a loss before its gradients
    total = again.sum()
    late, late_total, gradient = read(again, total, paddle.grad(total, [logits])[0])
    return [(early, losses), (late, losses), (late_total, losses.sum()), (gradient, slopes)]


def _compare_softmax(logits: paddle.Tensor, *expected: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(*read(F.softmax(logits, axis=1)), expected[-1])]


def _compute_reference(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute losses, the gradient of their sum, and softmax over axis 1 in float64; a label below 0 is missing."""
    exponents = np.exp(logits)  # far from overflow
    shares = exponents / exponents.sum(axis=1, keepdims=True)
    truth = np.expand_dims(labels, 1) == np.arange(logits.shape[1]).reshape([-1] + [1] * (logits.ndim - 2))
    is_labeled = labels >= 0
    losses = -np.log((shares * truth).sum(axis=1) + ~is_labeled)  # 0 without a label
    return losses, (shares - truth) * np.expand_dims(is_labeled, 1), shares
