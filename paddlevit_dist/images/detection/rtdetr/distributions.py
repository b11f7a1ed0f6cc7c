"""D-FINE's losses of the sides of boxes, which its heads give as distributions over bins of distances.

Source: Peng et al., D-FINE: Redefine Regression Task in DETRs as Fine-grained Distribution Refinement, ICLR 2025,
equations 3 to 8 and appendix, with the authors' ``dfine_utils.py`` and ``loss_local``. (transformers' criterion pairs
other layers.)
"""

from typing import NamedTuple

import numpy as np
import paddle

from ....runtime.transfers import constant
from ..boxes import corners

_TEMPERATURE = 5.0
_LEAST_SIZE = 1e-16  # of a reference box


class DistanceBins(NamedTuple):
    """The distances that the bins of a side stand for, W(n) in equation 3.

    Attributes:
        number: of steps; there is one bin more.
        up: the farthest but one, a share of the box's side.
        reg_scale: the larger, the flatter the steps in the middle.
    """

    number: int = 32
    up: float = 0.5
    reg_scale: float = 4.0

    def distances(self) -> np.ndarray:
        """float64 (number + 1,), in sides / ``reg_scale``, ascending."""
        bound = abs(self.up) * abs(self.reg_scale)
        steps = (bound + 1) ** (2 / (self.number - 2) * np.arange(1, self.number // 2)) - 1
        return np.concatenate([[-2 * bound], -steps[::-1], [0.0], steps, [2 * bound]])

    def target(self, references: paddle.Tensor, wanted: paddle.Tensor) -> paddle.Tensor:
        """The distribution of each side with weight on two neighboring bins whose mean is its distance; one beyond
        the last bin has all its weight there: (..., 4, number + 1).

        Args:
            references, wanted: boxes (..., 4), center, width and height.
        """
        middle, size = references[..., :2], references[..., 2:] / self.reg_scale + _LEAST_SIZE
        ends = corners(wanted)
        distance = paddle.concat([middle - ends[..., :2], ends[..., 2:] - middle], axis=-1)  # left, top, right, bottom
        distance = distance / paddle.concat([size, size], axis=-1) - 0.5 * self.reg_scale
        return self._between(distance.unsqueeze(-1))

    def _between(self, distance: paddle.Tensor) -> paddle.Tensor:
        """Of distances (..., 1): each bin's share falls in a line to 0 at both neighbors."""
        table = self.distances()
        low, here, high = (constant(_shifted, self, shift).astype(distance.dtype) for shift in (-1, 0, 1))
        distance = paddle.clip(distance, float(table[0]), float(table[-1]))
        rising, falling = (distance - low) / (here - low), (high - distance) / (high - here)
        return paddle.clip(paddle.minimum(rising, falling), min=0.0)


def _shifted(bins: DistanceBins, shift: int) -> np.ndarray:
    """The neighbors of the bins; beyond the ends as far as the last step."""
    table = bins.distances()
    padded = np.concatenate([[2 * table[0] - table[1]], table, [2 * table[-1] - table[-2]]])
    return padded[1 + shift : len(padded) - 1 + shift]


def bin_entropy(logits: paddle.Tensor, target: paddle.Tensor) -> paddle.Tensor:
    """The fine-grained localization loss of each query before its weight, (L, N, Q): cross-entropy, added over the
    sides.

    Args:
        logits: (L, N, Q, 4, bins); target: (N, Q, 4, bins).
    """
    return -(_log_softmax(logits) * target).sum(axis=[-1, -2])


def distillation(logits: paddle.Tensor, teacher: paddle.Tensor) -> paddle.Tensor:
    """The divergence of each side's distribution from the last layer's, both softened, (L, N, Q), mean of the sides.

    Args:
        logits: (L, N, Q, 4, bins); teacher: (N, Q, 4, bins), which learns nothing.
    """
    with paddle.no_grad():
        log_goal = _log_softmax(teacher / _TEMPERATURE)
        goal = paddle.exp(log_goal)
    apart = goal * (log_goal - _log_softmax(logits / _TEMPERATURE))
    return apart.sum(axis=-1).mean(axis=-1) * _TEMPERATURE**2


def _log_softmax(x: paddle.Tensor) -> paddle.Tensor:
    """Along the last axis. (Paddle's own gives no value below -64 on CPUs.)"""
    below = x - x.detach().max(axis=-1, keepdim=True)
    return below - paddle.log(paddle.exp(below).sum(axis=-1, keepdim=True))
