"""An optimizer step that the GPU itself applies or skips, so that the host can queue the next passes at once.

The norm of the gradients, on the device, decides whether a step is applied. If the host waited for it, the GPU would
idle for a quarter of a step in half precision. Here every operation that depends on it stays on the device. If
gradients are not finite, the device replaces them, the learning rate and the share in the average with 0, which leaves
weights and average unchanged bit for bit. Moments shrink in such a step: once the host knows the norm, it divides them
by their decay, so that they are equal to one rounding. Only a velocity with an L2 term is copied before the step.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.transfers import constant, read_later
from ..tasks.task_state import WeightAverage
from .multi_tensor import ForeachStep, GradientList, zero_where


class QueuedStep:
    """One step of an optimizer, queued after its gradients, which are multiplied by ``scale``.

    ``present`` is what ``gradients.present`` returned, and ``step_gradients`` what ``step.gradients`` returned after
    it. ``clip`` is the largest norm of all gradients, or of each if ``clips_each``; ``average`` moves with the step.

    Attributes:
        is_bad: whether the gradients are not finite, bool (1,) on the device.
    """

    @paddle.no_grad()
    def __init__(
        self,
        gradients: GradientList,
        present: Sequence[paddle.Tensor],
        step: ForeachStep,
        step_gradients: Any,
        *,
        scale: float,
        clip: float | None,
        clips_each: bool = False,
        learning_rate: float,
        average: WeightAverage | None,
    ) -> None:
        squares = gradients.squares(present)  # (1,)
        is_finite = paddle.less_than(squares, constant(np.full, 1, np.inf, "float32"))  # False for NaN, too
        self.is_bad = is_bad = paddle.logical_not(is_finite)
        self._scale = scale
        self._read = read_later(squares)
        if clip and clips_each:
            gradients.clip_each(present, clip, scale)
        elif clip or scale != 1:
            # One divisor for clipping and loss scale S: S * max((norm / S + 1e-6) / clip, 1).
            divisor = paddle.full([1], scale, "float32")
            if clip:
                divisor = paddle.maximum(paddle.scale(squares.sqrt(), 1 / clip, bias=scale * 1e-6 / clip), divisor)
            paddle._C_ops.check_finite_and_unscale_(present, divisor)
        zero_where(is_bad, present)
        self._undo = step.prepare_undo(step_gradients)
        step.apply(learning_rate, step_gradients, is_finite.astype("float32"))
        if average is not None:
            average.update(is_bad)

    def wait(self) -> np.float32:
        """Wait for the step and return the norm of its gradients, without the loss scale.

        If it is not finite, the step changed no weight, and what it did to the moments is undone.
        """
        with np.errstate(over="ignore"):
            norm = np.sqrt(np.float32(self._read()[0].item())) / np.float32(self._scale)
        if not math.isfinite(norm):
            self._undo()
        return norm
