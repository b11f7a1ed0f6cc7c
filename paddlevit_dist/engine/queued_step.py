"""A step that a GPU makes or leaves out by itself, so that the host can queue the next passes behind it.

Whether an update is finite says the norm of its gradients, which is on the device. To ask for it before the step means
that nothing is queued meanwhile: in half precision a quarter of an update. Here all that depends on it stays there. For
gradients that are not finite the device takes zeros, a learning rate of 0 and no share in the average, which leaves
weights and average as they are; moments, which such a step shrinks, are copied before it, and put back by the host once
it knows.
"""

import math

import numpy as np
import paddle

from ..runtime.transfers import constant, read_later
from .model_ema import ModelEma
from .multi_tensor import GradientList, MultiTensorStep, zero_where


class QueuedStep:
    """A step of an optimizer, queued behind its gradients.

    Args:
        gradients: of an update, times ``scale``.
        step: of the optimizer.
        scale: of the loss.
        clip: largest norm; None: any.
        average: moved with the weights.
    """

    @paddle.no_grad()
    def __init__(
        self,
        gradients: GradientList,
        step: MultiTensorStep,
        *,
        scale: float,
        clip: float | None,
        learning_rate: float,
        average: ModelEma | None,
    ) -> None:
        present = gradients.present()
        squares = gradients.squares(present)  # (1,)
        is_finite = paddle.less_than(squares, constant(np.full, 1, np.inf, "float32"))  # NaN is not either
        is_bad = paddle.logical_not(is_finite)
        self._scale = scale
        self._read = read_later(squares)
        if clip or scale != 1:
            # Clipping and the loss's scale in one divisor: S * max((norm / S + 1e-6) / clip, 1).
            divisor = paddle.full([1], scale, "float32")
            if clip:
                divisor = paddle.maximum(paddle.scale(squares.sqrt(), 1 / clip, bias=scale * 1e-6 / clip), divisor)
            paddle._C_ops.check_finite_and_unscale_(present, divisor)
        zero_where(is_bad, present)
        own = step.gradients()
        self._put_back = step.copies(own)
        step.make(learning_rate, own, is_finite.astype("float32"))
        if average is not None:
            average.update(is_bad)

    def wait(self) -> np.float32:
        """The norm of the gradients; not finite where nothing was changed, and moments are then as before, too."""
        with np.errstate(over="ignore"):
            norm = np.sqrt(np.float32(self._read()[0].item())) / np.float32(self._scale)
        if not math.isfinite(norm):
            self._put_back()
        return norm
