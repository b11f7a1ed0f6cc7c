"""Compare cross-entropy and softmax on a device with NumPy's."""

import numpy as np
import paddle
import paddle.nn.functional as F

from ..runtime.transfers import read, to_device
from .cross_entropy import summed_cross_entropy

_CHECKED_SHAPES = (4, 5), (2, 5, 7), (2, 5, 3, 4), (2, 5, 3, 2, 4)  # rows, elements of rows, pixels, voxels; 5 classes
_LARGEST_ERROR = 1e-4  # a wrong result was off by more than the loss itself


def check_on_device() -> list[str]:
    """Compare cross-entropy and softmax over axis 1, with gradients, with NumPy's on this device; return what is wrong.

    The lines are for the log. The host waits for the device.
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
    exponents = np.exp(logits)  # far from overflow
    probabilities = exponents / exponents.sum(axis=1, keepdims=True)
    truth = np.expand_dims(labels, 1) == np.arange(logits.shape[1]).reshape([-1] + [1] * (logits.ndim - 2))
    is_labeled = np.expand_dims(labels, 1) >= 0
    loss = -np.log((probabilities * truth).sum(axis=1)[labels >= 0]).sum()
    return loss, (probabilities - truth) * is_labeled, probabilities
