"""State of a task that changes in training apart from the model's weights, and averages that are evaluated."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
import paddle

from .step_types import StepPosition


class WeightAverage(ABC):
    """Average of a model's weights that is evaluated, saved and resumed: of TRAIN.MODEL_EMA, or a task's own.

    It is on the device and communicates nothing: equal weights on all ranks give equal averages. A checkpoint holds it
    by the model's names in ``model_ema.pdparams``, which every later use of the run's weights reads.
    """

    #: whether the model's own weights are evaluated, too, and the scores compared
    is_compared: ClassVar[bool] = True

    @property
    @abstractmethod
    def is_all_float32(self) -> bool:
        """Whether all state is float32, which ``update`` needs for ``is_bad``."""

    @abstractmethod
    def restart(self) -> None:
        """Restart the average from the model's current weights."""

    @abstractmethod
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Move the average toward the current weights, unless ``is_bad``, bool (1,) on the device, is true."""

    @abstractmethod
    def exchange(self) -> None:
        """Swap the average and the model's weights. With shards, every rank must call this."""

    @abstractmethod
    def state_dict(self) -> dict[str, paddle.Tensor]:
        """Return the averages by the model's names; with shards, this rank's."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore the ``state_dict`` of all ranks. Raises ValueError if its names or shapes are not the model's."""

    def describe_first_weights(self, updates: int) -> str:
        """Format how much of the first weights is left after ``updates`` steps, if that is too much; else empty."""
        return ""

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Swap the averaged weights into the model inside the block. With shards, every rank must call this."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()


class TaskState:
    """State that a task changes with each step, such as a center; saved in each checkpoint and resumed.

    A task gives it as its aspect ``protocols.StateKeeping``. Checkpoints hold ``tensors`` in ``task.npz``.

    Attributes:
        average: weights that are evaluated in place of the model's; None: there are none.
        layers: networks besides the model whose forward passes in training change running statistics. These are kept
            like the model's: restored after a skipped step, and rank 0's in checkpoints and evaluations.
    """

    average: WeightAverage | None = None
    layers: Sequence[paddle.nn.Layer] = ()

    def tensors(self) -> dict[str, paddle.Tensor]:
        """Return the state itself by name, equal on all ranks, with TRAIN.SHARDING also; without ``average``."""
        return {}

    def restart(self) -> None:
        """Begin a new training with the model's current weights; ``average`` is restarted before."""

    def keeps_gradients(self, step: StepPosition) -> bool:
        """Return whether ``before_update`` keeps all gradients in this step; others are not captured, as they move."""
        return True

    def before_update(self, step: StepPosition) -> None:
        """Prepare an optimizer step once its gradients are computed, with the loss scale; it may clear some.

        Args:
            step: position of the step in the run.
        """

    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Change the state after an optimizer step. Every rank calls this, and it may communicate without waiting.

        On a GPU the host does not know yet whether the step was finite: the state must not change if ``is_bad``,
        bool (1,) on the device, is true. Without it, the step was finite.
        """

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore the values of ``tensors``. Raises ValueError if names or shapes differ."""
        tensors = self.tensors()
        require_same_shapes("the state of the task does", tensors, state)
        for name, tensor in tensors.items():
            tensor.set_value(state[name])


def require_same_shapes(what: str, own: Mapping[str, paddle.Tensor], saved: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError, "``what`` not fit", unless saved arrays have the names and shapes of tensors."""
    differing = sorted(set(own) ^ set(saved))
    if differing:
        raise ValueError(f"{what} not fit: {differing[0]} and {len(differing) - 1} more differ")
    for name, tensor in own.items():
        if tuple(tensor.shape) != tuple(saved[name].shape):
            raise ValueError(f"{what} not fit: {name} is {tuple(saved[name].shape)}")
