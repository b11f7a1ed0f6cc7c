"""D-FINE's losses of sides of boxes, which its heads predict as distributions over bins of distances.

Source: Peng et al., D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement, ICLR 2025,
equations 3 to 8 and appendix, with the authors' ``dfine_utils.py`` and ``loss_local``. (transformers' criterion pairs
other layers.)
"""

from typing import NamedTuple

import numpy as np
import paddle
from paddle.nn import functional as F

from ....core.losses import log_softmax
from ....core.runtime.transfers import constant
from ..boxes import center_to_corners

_TEMPERATURE = 5.0
_LEAST_SIZE = 1e-16  # of a reference box


class DistanceBins(NamedTuple):
    """Distances of the bins of a side, W(n) in equation 3."""

    number: int = 32  # number of steps, one less than bins
    up: float = 0.5  # the second largest distance, as a fraction of the box's side
    reg_scale: float = 4.0  # larger values flatten the steps in the middle

    def distances(self) -> np.ndarray:
        """Return the distances, float64 (number + 1,), in sides / ``reg_scale``, ascending."""
        bound = abs(self.up) * abs(self.reg_scale)
        steps = (bound + 1) ** (2 / (self.number - 2) * np.arange(1, self.number // 2)) - 1
        return np.concatenate([[-2 * bound], -steps[::-1], [0.0], steps, [2 * bound]])

    def expected(self, logits: paddle.Tensor) -> paddle.Tensor:
        """Return the mean distance (...) of distributions (..., number + 1), given before the softmax."""
        probabilities = F.softmax(logits, axis=-1)
        return (probabilities * constant(DistanceBins.distances, self).astype(probabilities.dtype)).sum(-1)

    def target(self, references: paddle.Tensor, boxes: paddle.Tensor) -> paddle.Tensor:
        """Return the target distribution of each side, (..., 4, number + 1), from boxes (..., 4), center and sides.

        It has weight on two neighboring bins whose mean is the distance, or on the last bin for distances beyond it.
        """
        middle, size = references[..., :2], references[..., 2:] / self.reg_scale + _LEAST_SIZE
        ends = center_to_corners(boxes)
        distance = paddle.concat([middle - ends[..., :2], ends[..., 2:] - middle], axis=-1)  # left, top, right, bottom
        distance = distance / paddle.concat([size, size], axis=-1) - 0.5 * self.reg_scale
        return self._between(distance.unsqueeze(-1))

    def _between(self, distance: paddle.Tensor) -> paddle.Tensor:
        """Interpolate distances (..., 1) linearly: each bin's weight falls to 0 at both neighbors."""
        table = self.distances()
        low, center, high = (constant(_shifted, self, shift).astype(distance.dtype) for shift in (-1, 0, 1))
        distance = paddle.clip(distance, float(table[0]), float(table[-1]))
        rising, falling = (distance - low) / (center - low), (high - distance) / (high - center)
        return paddle.clip(paddle.minimum(rising, falling), min=0.0)


def _shifted(bins: DistanceBins, shift: int) -> np.ndarray:
    """Return the neighbors of the bins, extended by the last step beyond the ends."""
    table = bins.distances()
    padded = np.concatenate([[2 * table[0] - table[1]], table, [2 * table[-1] - table[-2]]])
    return padded[1 + shift : len(padded) - 1 + shift]


def bin_entropy(logits: paddle.Tensor, target: paddle.Tensor) -> paddle.Tensor:
    """Return the fine-grained localization loss of each query before its weight, (L, N, Q): cross-entropy over sides.

    ``logits`` are (L, N, Q, 4, bins), ``target`` (N, Q, 4, bins).
    """
    return -(log_softmax(logits) * target).sum(axis=[-1, -2])


def softened_divergence(logits: paddle.Tensor, teacher: paddle.Tensor) -> paddle.Tensor:
    """Return the mean divergence of sides' distributions from the last layer's, both softened, (L, N, Q).

    ``logits`` are (L, N, Q, 4, bins), ``teacher`` (N, Q, 4, bins), without gradient.
    """
    with paddle.no_grad():
        log_target = log_softmax(teacher / _TEMPERATURE)
        target = paddle.exp(log_target)
    divergence = target * (log_target - log_softmax(logits / _TEMPERATURE))
    return divergence.sum(axis=-1).mean(axis=-1) * _TEMPERATURE**2
