"""The exponential moving average of a model's weights, which is evaluated, saved and resumed beside them."""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, Union

import numpy as np
import paddle

from . import one_pass


class ModelEma:
    """After every update: ``average = decay * average + (1 - decay) * weights`` (Polyak and Juditsky, 1992).

    It covers everything in the model's state: parameters and floating buffers are averaged, integers copied. It lives
    on the device and communicates nothing: equal weights on all ranks have equal averages.

    Args:
        model: the inner model, whose current weights initialise the average.
        decay: share that is kept; an average over about the last 1 / (1 - decay) updates.
    """

    def __init__(self, model: paddle.nn.Layer, decay: float) -> None:
        self.model = model
        self.decay = decay
        self._averages: Dict[str, paddle.Tensor] = {}
        self._approach = one_pass.Approach()
        self.restart()

    def restart(self) -> None:
        """Start again from the model's current weights."""
        self._averages = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        self._is_worthwhile = one_pass.is_worthwhile(list(self._averages.values()))

    @paddle.no_grad()
    def update(self, finite: Union[bool, paddle.Tensor] = True) -> None:
        """Include the weights of one more update.

        Args:
            finite: whether the update was applied; if not, the average stays as it is. A tensor, bool of
                shape (), where only the device knows.
        """
        if finite is False:
            return
        pairs = [(self._averages[name], tensor) for name, tensor in self.model.state_dict().items()]
        if finite is True and self._is_worthwhile:
            pairs = self._approach(pairs, 1.0 - self.decay)
        share = None if finite is True else finite.astype("float32") * (1.0 - self.decay)
        for average, tensor in pairs:
            if average.dtype in (paddle.float32, paddle.float64):
                # In place, as a - (1 - d) (a - w): one product less than the formula above.
                change = average - tensor
                change = change.scale(1.0 - self.decay) if share is None else change * share.astype(change.dtype)
                average.subtract_(change)
            else:
                average.set_value(tensor)  # as it was before an update that was not applied

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
        for name, tensor in self.model.state_dict().items():
            own = tensor.detach().clone()
            tensor.set_value(self._averages[name])
            self._averages[name] = own

    def state_dict(self) -> Dict[str, paddle.Tensor]:
        """The averages by the model's names."""
        return dict(self._averages)

    def load_state_dict(self, state: Dict[str, np.ndarray]) -> None:
        """Restore a saved ``state_dict``.

        Raises:
            ValueError: its names or shapes are not the model's.
        """
        differing = sorted(set(state) ^ set(self._averages))
        if differing:
            raise ValueError(f"the averaged weights do not fit: {differing[0]} and {len(differing) - 1} more differ")
        for name, average in self._averages.items():
            if tuple(average.shape) != tuple(state[name].shape):
                raise ValueError(f"the averaged weights do not fit: {name} is {tuple(state[name].shape)}")
            average.set_value(np.asarray(state[name]))
