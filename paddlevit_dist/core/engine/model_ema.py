"""Exponential moving average of a model's weights, which is evaluated, saved and resumed in addition to the weights."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import paddle

from ..intervals import ConfidenceInterval
from ..tasks.task_state import WeightAverage, require_same_shapes
from .multi_tensor import FlatBuffer, move_average
from .sharding import Shards

_MOST_KEPT = 0.1  # of the first weights
_FITTING_UPDATES = 5.0  # run length in updates of 1 / (1 - decay): exp(-5) = 0.7 % of the first weights are kept


class ModelEma(WeightAverage):
    """Average of the weights: ``average = decay * average + (1 - decay) * weights`` after every step.

    Source: B. Polyak and A. Juditsky, "Acceleration of stochastic approximation by averaging", 1992.

    It covers the bare model's whole state: parameters and floating-point buffers are averaged, integers copied. It is
    on the device and communicates nothing: equal weights on all ranks give equal averages.

    Args:
        decay: weight of the old average, in [0, 1); the average covers about the last 1 / (1 - decay) steps.
        warmup: time constant in steps over which the decay rises: ``decay * (1 - exp(-n / warmup))`` at step n, as in
            YOLOv5, RT-DETR and D-FINE; 0: the decay is constant.
        made: returns the number of steps completed before the current one.
        shards: the float32 state whose average this rank keeps, see ``sharding``; None: all.
    """

    def __init__(
        self,
        model: paddle.nn.Layer,
        decay: float,
        warmup: int = 0,
        made: Callable[[], int] = lambda: 0,
        shards: Shards | None = None,
    ) -> None:
        self.model, self._shards = model, shards
        self.decay, self.warmup, self._made = decay, warmup, made
        self.restart()

    def restart(self) -> None:
        """Restart the average from the model's current weights."""
        self._first_update = self._made()
        state = self.model.state_dict()
        if self._shards is not None:
            owned = self._shards.owned
            state = {name: t for name, t in state.items() if name in owned or t.dtype != paddle.float32}
        self._names = list(state)
        self._shapes = {name: tuple(t.shape) for name, t in state.items() if t.dtype == paddle.float32}
        # The averages of all float32 tensors as one vector, (values,): a GPU updates it with four operations.
        self._flat = _in_a_row([state[name] for name in self._shapes])
        self._others = {name: t.detach().clone() for name, t in state.items() if name not in self._shapes}
        self._concatenate = FlatBuffer()
        self._read: Callable[[], list[paddle.Tensor]] | None = None

    @paddle.no_grad()
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Move the average toward the current weights, unless ``is_bad``, bool (1,) on the device, is true."""
        if self._read is None:
            self._read = _reader(self.model, [*self._shapes, *self._others])
        tensors = self._read()
        share = 1.0 - self.decay
        if self.warmup:
            share = 1.0 + self.decay * math.expm1(-(self._made() + 1) / self.warmup)
        if self._shapes:
            move_average(self._flat, self._concatenate(tensors[: len(self._shapes)]), share, is_bad)
        for average, tensor in zip(self._others.values(), tensors[len(self._shapes) :]):
            if average.dtype == paddle.float64:
                average.add_((tensor - average).scale_(share))
            else:
                paddle.assign(tensor, output=average)

    def describe_first_weights(self, updates: int) -> str:
        """Format that over a tenth of the average after ``updates`` steps is its first weights, with a decay that fits.

        Empty if at most a tenth is.
        """
        numbers = np.arange(self._first_update + 1, updates + 1)
        rise = -np.expm1(-numbers / self.warmup) if self.warmup else np.ones(len(numbers))
        kept = float(np.prod(self.decay * rise))
        if kept <= _MOST_KEPT or not len(numbers):
            return ""
        fitting = 1.0 - float(f"{-math.expm1(-_FITTING_UPDATES / len(numbers)):.1g}")
        return (
            f"note: TRAIN.MODEL_EMA_DECAY {self.decay:g} is too slow for {len(numbers):,} update(s): {kept:.0%} of the "
            "averaged weights, which are scored and used, will be what they start from; "
            f"{fitting:.10g} fits, or TRAIN.MODEL_EMA false"
        )

    @property
    def is_all_float32(self) -> bool:
        """Whether all state is float32, which ``update`` needs for ``is_bad``."""
        return not self._others

    @paddle.no_grad()
    def exchange(self) -> None:
        """Swap the average and the model's weights. With shards, every rank must call this."""
        state = self.model.state_dict()
        averages = self.state_dict()
        flat = _in_a_row([state[key] for key in self._shapes])
        others = {key: state[key].detach().clone() for key in self._others}
        for name, average in averages.items():
            paddle.assign(average, output=state[name])  # on the device: set_value goes through the host in Paddle 2.6
        if self._shards is not None:
            self._shards.exchange_state()
        self._flat, self._others = flat, others

    @paddle.no_grad()
    def state_dict(self) -> dict[str, paddle.Tensor]:
        """Return the averages by the model's names; with shards, this rank's."""
        averages, begin = dict(self._others), 0
        for name, shape in self._shapes.items():
            end = begin + math.prod(shape)
            averages[name] = self._flat[begin:end].reshape(shape)
            begin = end
        return {key: averages[key] for key in self._names}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore a saved ``state_dict``. Raises ValueError if its names or shapes are not the model's."""
        averages = self.state_dict()
        if self._shards is not None:
            state = {key: value for key, value in state.items() if key in averages}
        require_same_shapes("the averaged weights do", averages, state)
        self._first_update = 0
        if self._shapes:
            self._flat.set_value(np.concatenate([np.ravel(state[key]) for key in self._shapes]).astype(np.float32))
        for name, average in self._others.items():
            average.set_value(np.asarray(state[name]))


def describe_worse_average(
    metric: tuple[str, bool], raw: float, averaged: float, interval: ConfidenceInterval | None
) -> str:
    """Format that averaged weights score worse than the model's own by more than chance; empty otherwise.

    ``metric``: name of the value, and whether larger ones are better; ``interval``: of ``averaged``, None if unknown.
    """
    name, more_is_better = metric
    is_worse = averaged < raw if more_is_better else averaged > raw
    if not is_worse or interval is None or interval.low <= raw <= interval.high:
        return ""
    return (
        f"note: the averaged weights score worse than the model's own: {name} {averaged:.4g}, where these have "
        f"{raw:.4g}, outside of the interval [{interval.low:.4g}, {interval.high:.4g}]; lower TRAIN.MODEL_EMA_DECAY; "
        "model.pdparams of a checkpoint is not averaged"
    )


def _in_a_row(tensors: Sequence[paddle.Tensor]) -> paddle.Tensor:
    return paddle.concat([t.detach().reshape([-1]) for t in tensors]) if tensors else paddle.empty([0])


def _reader(model: paddle.nn.Layer, names: Sequence[str]) -> Callable[[], list[paddle.Tensor]]:
    """Return a function that returns the model's current tensors for these names.

    In Paddle 2.6, ``state_dict`` takes 1.5 ms of Python for a ViT, a hundred times longer than the layers' own tables.
    """
    tables = {}
    for layer in model.sublayers(include_self=True):
        for table in (layer._parameters, layer._buffers):
            tables.update({id(tensor): (table, key) for key, tensor in table.items() if tensor is not None})
    state = model.state_dict()
    places = [tables.get(id(state[name])) for name in names]
    if None in places:  # the model overrides state_dict
        return lambda: list(map(model.state_dict().__getitem__, names))
    return lambda: [each[key] for each, key in places]  # type: ignore[misc]
