"""Updates of all parameters by operations that take lists of tensors, or one long vector of all values.

Between an update's flag and the next forward pass a GPU has nothing to do but this, and each operation costs the host
some microseconds of Python, however small its tensor is. So there are a few for all parameters together instead of one
or more for each. For the 152 parameters of ViT-Ti in two groups these are 2 launches for the norm, 3 for clipping, 3 a
group for AdamW (one of them for the rate, the others of 60 tensors or 320 blocks of values) and 4 for the average: by
Paddle's sources; nobody has measured it.

All have kernels for CPUs too, where the tests compare them with Paddle's own optimizers and where models compute with
them that are too small for anything compiled.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from ..extension import make
from ..runtime import paddle_versions

Columns = Sequence[Sequence[paddle.Tensor]]  # of an optimizer: accumulators by name, each in the parameters' order
_ALIGNED_BYTES = 16  # a GPU reads four float32 numbers at once


class FlatBuffer:
    """Tensors that seldom move as one vector. Making 152 views takes as long as launching 100 operations."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._views: list[paddle.Tensor] = []

    def __call__(self, tensors: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """(values,): a copy of all values in a row; the tensors are of one type."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._addresses:
            self._views = [tensor.detach().reshape([-1]) for tensor in tensors]
            # One that is a copy, as of a scalar, has another address and so is made anew each time.
            self._addresses = [view.data_ptr() for view in self._views]
        return paddle.concat(self._views)


class GradientList:
    """All gradients of a model's parameters, as far as they have one."""

    def __init__(self, parameters: Sequence[paddle.Tensor]) -> None:
        self._parameters = list(parameters)

    @paddle.no_grad()
    def norm(self) -> np.float32:
        """Their global norm; infinite where the sum of squares exceeds float32. The host waits for the device, once."""
        gradients = self.present()
        with np.errstate(over="ignore"):
            return np.sqrt(self.sum_of_squares(gradients)) if gradients else np.float32(0)

    @paddle.no_grad()
    def scale(self, factor: np.float32) -> None:
        """Multiply them, where they are finite, by a factor above 0, in place."""
        gradients = self.present()
        if gradients:
            self.multiply(gradients, factor)

    def present(self) -> list[paddle.Tensor]:
        """Those that there are. A view, as the backward pass of a layer may return one, is replaced by a copy in a row:
        Paddle's operations on lists write in place as if the values lay in the order of the shape."""
        present = []
        for parameter in self._parameters:
            gradient = parameter._grad_ivar()
            if gradient is not None and gradient.is_dense() and not gradient.is_contiguous():
                gradient = parameter.grad = gradient.contiguous()
            if gradient is not None:
                present.append(gradient)
        return present

    def sum_of_squares(self, gradients: Sequence[paddle.Tensor]) -> np.float32:
        """Of all values."""
        return np.float32(self.squares(gradients).item())

    def squares(self, gradients: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """(1,) float32: ``sum_of_squares``, on the device."""
        view = paddle._C_ops.reshape  # a third of the time of the method
        parts = [
            paddle_versions.squared_norm(paddle.concat([view(tensor, [-1]) for tensor in alike])).astype("float32")
            for alike in _by_type(gradients)
        ]
        return parts[0] if len(parts) == 1 else paddle.add_n(parts)

    def multiply(self, gradients: Sequence[paddle.Tensor], factor: np.float32) -> None:
        """``scale`` of those that there are."""
        for alike in _by_type(gradients):
            dtype = "float64" if alike[0].dtype == paddle.float64 else "float32"
            # A loss scaler's operation: it divides.
            paddle._C_ops.check_finite_and_unscale_(alike, paddle.full([1], 1.0 / float(factor), dtype))


def collect_gradients(parameters: Sequence[paddle.Tensor]) -> GradientList:
    """All gradients of the parameters, read the fastest way that there is."""
    return make(lambda one: one.gradients(parameters), lambda: GradientList(parameters))


def clipping_factor(norm: np.float32, largest: float | None) -> np.float32:
    """Compute what brings gradients of a finite norm down to the largest one; 1 if they are below it or none is set."""
    if not largest:
        return np.float32(1)
    return np.minimum(np.float32(largest) / (norm + np.float32(1e-6)), np.float32(1))


def _by_type(tensors: Sequence[paddle.Tensor]) -> list[list[paddle.Tensor]]:
    alike: dict[Any, list[paddle.Tensor]] = {}
    for tensor in tensors:
        alike.setdefault(tensor.dtype, []).append(tensor)
    return list(alike.values())


def zero_where(is_bad: paddle.Tensor, tensors: Sequence[paddle.Tensor]) -> None:
    """Fill tensors of one type with zeros if ``is_bad``, bool (1,), is true; else they are not even read."""
    # A loss scaler's operation: it lets a scale of its own follow, here by factors of 1 after each.
    state = _scaler_state(paddle.get_device())
    paddle._C_ops.update_loss_scaling_(tensors, is_bad, *state, 1, 1, 1.0, 1.0, False)


@functools.lru_cache(maxsize=8)
def _scaler_state(device: str) -> list[paddle.Tensor]:
    """Scale, good and bad steps in a row, which always return to 1, 0 and 0: made once, not in each update."""
    return [paddle.ones([1]), paddle.zeros([1], "int32"), paddle.zeros([1], "int32")]


class MovingAverages:
    """Moves averages toward values by a share of their distance.

    Args:
        flat: (values,) float32: the averages of all tensors in a row.
        sizes: of the tensors that are averaged; they are of float32 as well.
    """

    def __init__(self, flat: paddle.Tensor, sizes: Sequence[int]) -> None:
        self._views = FlatBuffer()

    def __call__(
        self,
        flat: paddle.Tensor,
        tensors: Sequence[paddle.Tensor],
        share: float,
        is_bad: paddle.Tensor | None = None,
    ) -> None:
        """Move averages like those of the beginning toward their tensors, in place; not at all if ``is_bad``."""
        change = self._views(tensors)
        change.subtract_(flat)  # as a + s (w - a): one product less than in (1 - s) a + s w
        if is_bad is not None:
            zero_where(is_bad, [change])
        flat.add_(change.scale_(share))


# ---- optimizers ----------------------------------------------------------------------------------------------

# Updates parameters of one learning rate and decay: parameters, gradients, rate (1,), decay, accumulators by name.
Update = Callable[[list[paddle.Tensor], list[paddle.Tensor], paddle.Tensor, float, Any], None]


def adamw(beta1: float, beta2: float, epsilon: float) -> Update:
    """AdamW's update; its accumulators are both moments and both powers of the betas, equal for all parameters."""

    def update(parameters: Any, gradients: Any, rate: paddle.Tensor, decay: float, columns: Any) -> None:
        paddle_versions.fused_adamw(parameters, gradients, rate, columns, (beta1, beta2), epsilon, decay)

    return update


def momentum(kept: float) -> Update:
    """SGD's update with momentum; its accumulator is the velocity. With an L2 term Paddle launches one for each
    parameter after all, but without Python between them."""

    def update(parameters: Any, gradients: Any, rate: paddle.Tensor, decay: float, columns: Any) -> None:
        n = len(parameters) if decay else 0
        paddle._C_ops.merged_momentum_(
            parameters, gradients, *columns, [rate], None, kept, False, ["l2_decay"] * n, [decay] * n, False, 1.0
        )

    return update


class MultiTensorStep:
    """An optimizer's step with one call for all parameters that share learning rate and decay.

    Args:
        update: ``adamw`` or ``momentum``.
        parameters: float32.
        columns: what ``update`` takes.
        factors: of the learning rate, for each parameter.
        decays: for each parameter.
    """

    def __init__(
        self,
        update: Update,
        parameters: Sequence[paddle.Tensor],
        columns: Columns,
        factors: Sequence[float],
        decays: Sequence[float],
    ) -> None:
        self._update = update
        self._parameters, self._columns = parameters, columns
        self._factors, self._decays = factors, decays
        self._powers = [column for column in columns if all(t.place.is_cpu_place() and t.size == 1 for t in column)]
        self._moments = [column for column in columns if not any(column is other for other in self._powers)]
        self._views = [FlatBuffer() for _ in self._moments]
        self._grouped: list[bool] | None = None  # which parameters had a gradient when the groups were made
        self._groups: list[tuple[float, float, list[int]]] = []  # factor, decay, numbers of parameters

    def __call__(self, rate: float, gradients: Sequence[paddle.Tensor | None]) -> bool:
        """Make a step, or nothing if a gradient is not plain; returns whether it was made."""
        if not self.takes(gradients):
            return False
        self.make(rate, gradients)
        return True

    @paddle.no_grad()
    def make(self, rate: float, gradients: Sequence[paddle.Tensor | None], share: paddle.Tensor | None = None) -> None:
        """Make a step with gradients that it ``takes``.

        Args:
            share: of the rate, float32 (1,): 1, or 0 for a step that changes moments only.
        """
        self._group(gradients)
        for factor, decay, numbers in self._groups:
            factor = float(np.float32(rate) * np.float32(factor))
            self._update(
                [self._parameters[n] for n in numbers],
                [_align(gradients[n]) for n in numbers],
                paddle.full([1], factor, "float32") if share is None else share * factor,
                decay,
                [[column[n] for n in numbers] for column in self._columns],
            )

    def gradients(self) -> list[paddle.Tensor | None]:
        """What ``__call__`` takes, as the parameters have them."""
        return [parameter._grad_ivar() for parameter in self._parameters]

    def takes(self, gradients: Sequence[paddle.Tensor | None]) -> bool:
        """Whether there are some, and all are plain."""
        present = [gradient for gradient in gradients if gradient is not None]
        # Asking for the dtype takes ten times as long as for the size of an element, for each of them.
        return bool(present) and all(gradient.is_dense() and gradient.element_size() == 4 for gradient in present)

    @paddle.no_grad()
    def copies(self, gradients: Sequence[paddle.Tensor | None]) -> Callable[[], None]:
        """Copy what a step with these gradients changes besides parameters; the result puts it back."""
        self._group(gradients)
        moments = [views(column) for views, column in zip(self._views, self._moments)]
        groups = self._groups
        powers = [[column[numbers[0]].clone() for column in self._powers] for _, _, numbers in groups]

        @paddle.no_grad()
        def put_back() -> None:
            for column, copy in zip(self._moments, moments):
                for tensor, earlier in zip(column, paddle.split(copy, [tensor.size for tensor in column])):
                    paddle.assign(earlier.reshape(tensor.shape), output=tensor)
            for (_, _, numbers), earlier_ones in zip(groups, powers):
                for column, earlier in zip(self._powers, earlier_ones):
                    for n in numbers:
                        paddle.assign(earlier, output=column[n])

        return put_back

    def _group(self, gradients: Sequence[paddle.Tensor | None]) -> None:
        """Group the parameters that have a gradient. On a GPU the powers of the betas, which are on the host, count for
        all if they are the first parameter's: those that have had fewer gradients go into a list of their own."""
        have_one = [gradient is not None for gradient in gradients]
        if have_one == self._grouped:
            return
        groups: dict[tuple[float, ...], list[int]] = {}
        for n in np.flatnonzero(have_one).tolist():
            powers = [column[n].item() for column in self._powers]
            groups.setdefault((self._factors[n], self._decays[n], *powers), []).append(n)
        self._groups = [(key[0], key[1], numbers) for key, numbers in groups.items()]
        self._grouped = have_one


def _align(gradient: Any) -> paddle.Tensor:
    """The gradient, or a copy where it is strided or begins in the middle of another tensor's memory: Paddle's kernel
    reads as many values of it at once as it finds fitting for parameters and moments."""
    if not gradient.is_contiguous():
        return gradient.contiguous()
    return gradient.clone() if gradient.data_ptr() % _ALIGNED_BYTES else gradient
