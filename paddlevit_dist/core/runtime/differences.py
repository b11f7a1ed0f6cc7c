"""How far a device's own function is from Paddle's operations, in results and gradients."""

from collections.abc import Callable, Sequence

import numpy as np
import paddle

Function = Callable[..., Sequence[paddle.Tensor]]


def measure_difference(
    found: Function, expected: Function, inputs: Sequence[paddle.Tensor], gradients: Sequence[paddle.Tensor]
) -> float:
    """Compute the largest difference of two functions in their results and in the gradients of all inputs.

    Args:
        found, expected: the function in question and its reference; they return as many tensors as ``gradients`` has.
        inputs: of both.
        gradients: of the results.

    Returns:
        The largest difference as a share of the largest value of the reference; inf if a value is not finite.
    """
    worst = 0.0
    pairs = zip(_compute(expected, inputs, gradients), _compute(found, inputs, gradients), strict=True)
    for right, actual in pairs:
        difference = np.abs(right - actual).max() / np.abs(right).max()
        worst = max(worst, float(difference)) if np.isfinite(difference) else np.inf
    return worst


def _compute(
    function: Function, inputs: Sequence[paddle.Tensor], gradients: Sequence[paddle.Tensor]
) -> list[np.ndarray]:
    """Return the results and the gradients of the inputs as float32 arrays."""
    inputs = [tensor.detach() for tensor in inputs]
    for one in inputs:
        one.stop_gradient = False
    with paddle.enable_grad():
        results = list(function(*inputs))
        found = paddle.grad(results, inputs, list(gradients))
    return [tensor.astype("float32").numpy() for tensor in (*results, *found)]
