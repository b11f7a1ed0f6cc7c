"""The exponential moving average of a model's weights, which is evaluated, saved and resumed beside them."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import paddle

from ..extension import make
from .multi_tensor import MovingAverages


class ModelEma:
    """After every update: ``average = decay * average + (1 - decay) * weights`` (Polyak and Juditsky, 1992).

    It covers everything in the model's state: parameters and floating buffers are averaged, integers copied. It lives
    on the device and communicates nothing: equal weights on all ranks have equal averages.

    Args:
        model: the inner model, whose current weights initialize the average.
        decay: share that is kept; an average over about the last 1 / (1 - decay) updates.
        warmup: updates over which the share rises, to 63 % of it after so many: ``decay * (1 - exp(-n / warmup))``, as
            YOLOv5's, RT-DETR's and D-FINE's authors have it; 0: it is the same from the first.
        made: how many updates were made before the one that is under way.
    """

    def __init__(
        self, model: paddle.nn.Layer, decay: float, warmup: int = 0, made: Callable[[], int] = lambda: 0
    ) -> None:
        self.model = model
        self.decay, self.warmup, self._made = decay, warmup, made
        self.restart()

    def restart(self) -> None:
        """Start again from the model's current weights."""
        state = self.model.state_dict()
        self._names = list(state)
        self._shapes = {name: tuple(t.shape) for name, t in state.items() if t.dtype == paddle.float32}
        # Those of all float32 tensors in a row, (values,): a GPU averages them by four operations.
        self._flat = _in_a_row([state[name] for name in self._shapes])
        self._others = {name: t.detach().clone() for name, t in state.items() if name not in self._shapes}
        sizes = [math.prod(shape) for shape in self._shapes.values()]
        self._move = make(lambda one: one.averages(self._flat, sizes), lambda: MovingAverages(self._flat, sizes))
        self._read: Callable[[], list[paddle.Tensor]] | None = None

    @paddle.no_grad()
    def update(self, is_bad: paddle.Tensor | None = None) -> None:
        """Include the weights of one more update, unless ``is_bad``, bool (1,), is true."""
        if self._read is None:
            self._read = _reader(self.model, [*self._shapes, *self._others])
        tensors = self._read()
        taken = 1.0 - self.decay
        if self.warmup:
            taken = 1.0 + self.decay * math.expm1(-(self._made() + 1) / self.warmup)
        if self._shapes:
            self._move(self._flat, tensors[: len(self._shapes)], taken, is_bad)
        for average, tensor in zip(self._others.values(), tensors[len(self._shapes) :]):
            if average.dtype == paddle.float64:
                average.add_((tensor - average).scale_(taken))
            else:
                paddle.assign(tensor, output=average)

    @property
    def is_of_one_type(self) -> bool:
        """Whether ``update`` takes ``is_bad``."""
        return not self._others

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the model has the averaged weights, afterwards its own."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @paddle.no_grad()
    def _exchange(self) -> None:
        state = self.model.state_dict()
        averages = self.state_dict()
        flat = _in_a_row([state[name] for name in self._shapes])
        others = {name: state[name].detach().clone() for name in self._others}
        for name, tensor in state.items():
            paddle.assign(averages[name], output=tensor)  # on the device: set_value goes through the host in Paddle 2.6
        self._flat, self._others = flat, others

    @paddle.no_grad()
    def state_dict(self) -> dict[str, paddle.Tensor]:
        """The averages by the model's names."""
        averages, begin = dict(self._others), 0
        for name, shape in self._shapes.items():
            end = begin + math.prod(shape)
            averages[name] = self._flat[begin:end].reshape(shape)
            begin = end
        return {name: averages[name] for name in self._names}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Restore a saved ``state_dict``.

        Raises:
            ValueError: its names or shapes are not the model's.
        """
        averages = self.state_dict()
        differing = sorted(set(state) ^ set(averages))
        if differing:
            raise ValueError(f"the averaged weights do not fit: {differing[0]} and {len(differing) - 1} more differ")
        for name, average in averages.items():
            if tuple(average.shape) != tuple(state[name].shape):
                raise ValueError(f"the averaged weights do not fit: {name} is {tuple(state[name].shape)}")
        if self._shapes:
            self._flat.set_value(np.concatenate([np.ravel(state[name]) for name in self._shapes]).astype(np.float32))
        for name, average in self._others.items():
            average.set_value(np.asarray(state[name]))


def _in_a_row(tensors: Sequence[paddle.Tensor]) -> paddle.Tensor:
    return paddle.concat([t.detach().reshape([-1]) for t in tensors]) if tensors else paddle.zeros([0])


def _reader(model: paddle.nn.Layer, names: Sequence[str]) -> Callable[[], list[paddle.Tensor]]:
    """Return a function of the tensors that the model then has by their names. ``state_dict`` takes 1.5 ms of Python
    for a ViT in Paddle 2.6, in which a GPU would wait; asking the layers' own tables takes a hundredth of it."""
    tables = {}
    for layer in model.sublayers(include_self=True):
        for table in (layer._parameters, layer._buffers):
            tables.update({id(tensor): (table, key) for key, tensor in table.items() if tensor is not None})
    state = model.state_dict()
    places = [tables.get(id(state[name])) for name in names]
    if None in places:  # a model with a state_dict of its own
        return lambda: list(map(model.state_dict().__getitem__, names))
    return lambda: [table[key] for table, key in places]  # type: ignore[misc]
