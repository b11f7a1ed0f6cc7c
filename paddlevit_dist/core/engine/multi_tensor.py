"""Updates of all parameters by operations on lists of tensors, or on one vector of all values.

Between backward and next forward pass, a GPU has nothing else to do, and each operation costs the host microseconds of
Python even for a small tensor. So a few operations for all parameters replace one or more per parameter. They have CPU
kernels, too, whose results tests compare with Paddle's own optimizers.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import paddle

from ..runtime import paddle_versions
from .freezing import GroupRate

Tensors = list[paddle.Tensor]
Scalar: TypeAlias = paddle.Tensor  # float32 (1,), on the device
Columns = Sequence[Tensors]  # one list per accumulator name, each in the parameters' order
_ALIGNED_BYTES = 16  # GPU kernels read four float32 values at once


class FlatBuffer:
    """Concatenates tensors whose memory seldom moves; keeps its views, which are as slow to make as operations."""

    def __init__(self) -> None:
        self._addresses: list[int] = []
        self._views: list[paddle.Tensor] = []

    def __call__(self, tensors: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Return a copy of all values as one vector, (values,); the tensors must have one dtype."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        if addresses != self._addresses:
            self._views = [tensor.detach().reshape([-1]) for tensor in tensors]
            # A view that is a copy, as of a scalar, has another address, so it is recreated each time.
            self._addresses = [view.data_ptr() for view in self._views]
        return paddle.concat(self._views)


class GradientList:
    """The gradients of a model's parameters; parameters without one are skipped."""

    def __init__(self, parameters: Sequence[paddle.Tensor]) -> None:
        self.parameters = list(parameters)
        self._joined = _list_joined(self.parameters)

    @paddle.no_grad()
    def norm(self) -> np.float32:
        """Compute the norm of all gradients, which waits for the device once; infinite if float32 overflows."""
        gradients = self.present()
        return np.sqrt(np.float32(self.squares(gradients).item())) if gradients else np.float32(0)

    @paddle.no_grad()
    def scale(self, factor: np.float32) -> None:
        """Multiply the gradients, which must be finite, by a factor above 0, in place."""
        for alike in _by_type(self.present()):
            dtype = "float64" if alike[0].dtype == paddle.float64 else "float32"
            # The loss scaler's operation, which divides by its argument.
            paddle._C_ops.check_finite_and_unscale_(alike, paddle.full([1], 1.0 / float(factor), dtype))

    @paddle.no_grad()
    def clip_each(
        self, gradients: Sequence[paddle.Tensor], largest: float, loss_scale: float, on_host: bool = False
    ) -> None:
        """Divide gradients by the loss scale and limit the norm of each to ``largest``, in place; no host waits.

        If they are ``on_host``, those that stay unchanged are not touched.

        Each is multiplied by ``min(1, largest / (norm + 1e-6))``, as a single gradient is by PyTorch's
        ``clip_grad_norm_``. Gradients that are not finite may become any values.
        """
        for alike in _by_type(gradients):
            dtype = "float64" if alike[0].dtype == paddle.float64 else "float32"
            squares = [paddle._C_ops.squared_l2_norm(gradient.astype(dtype)).reshape([1]) for gradient in alike]
            norms = paddle.concat(squares).sqrt()  # (gradients,), with the loss scale
            divisors = paddle.clip((norms + loss_scale * 1e-6) / largest, min=loss_scale)
            is_changed = (divisors.numpy() != 1).tolist() if on_host else [True] * len(alike)
            for gradient, divisor, changes in zip(alike, paddle.split(divisors, len(alike)), is_changed):
                if changes:
                    paddle._C_ops.check_finite_and_unscale_([gradient], divisor)

    def present(self) -> list[paddle.Tensor]:
        """Return the existing gradients, with contiguous copies of strided views, which a backward pass may return.

        Paddle's operations on lists write in place as if values were in the order of the shape.
        """
        present = []
        for parameter in self.parameters:
            gradient = parameter._grad_ivar()
            if gradient is not None and gradient.is_dense() and not gradient.is_contiguous():
                gradient = parameter.grad = gradient.contiguous()
            if gradient is not None:
                present.append(gradient)
        return present

    @paddle.no_grad()
    def clear(self, keeps_memory: bool) -> None:
        """Fill the gradients with zeros in place, or free them."""
        if not keeps_memory:
            for parameter in self.parameters:
                parameter.clear_gradient(False)
            return
        for alike in _by_type(self.present()):
            zero_where(paddle.ones([1], "bool"), alike)

    def squares(self, gradients: Sequence[paddle.Tensor]) -> paddle.Tensor:
        """Compute the sum of squares of all values of what ``present`` returned, as a float32 tensor (1,)."""
        joined = self._joined if len(gradients) == len(self.parameters) else _list_joined(gradients)
        parts = []
        for numbers in joined:
            part = gradients[numbers[0]] if len(numbers) == 1 else paddle.concat([gradients[n] for n in numbers])
            square = paddle._C_ops.squared_l2_norm(part)  # on a CPU, paddle.linalg.norm takes ten times as long
            parts.append(square if square.dtype == paddle.float32 else square.astype("float32"))
        return parts[0] if len(parts) == 1 else paddle.add_n(parts)


def _list_joined(tensors: Sequence[paddle.Tensor]) -> list[list[int]]:
    """Group the numbers of tensors of one dtype whose shapes differ in the first axis only, where they can be joined.

    A ViT has few such shapes. To join them all, the host would launch a reshape for each matrix.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, tensor in enumerate(tensors):
        shape = tensor.shape
        groups.setdefault((tensor.dtype, *shape[1:]) if shape else (number,), []).append(number)
    return list(groups.values())


def clipping_factor(norm: np.float32, largest: float | None) -> np.float32:
    """Compute the factor that limits gradients of a finite norm to ``largest``; 1 without a limit."""
    if not largest:
        return np.float32(1)
    return np.minimum(np.float32(largest) / (norm + np.float32(1e-6)), np.float32(1))


def _by_type(tensors: Sequence[paddle.Tensor]) -> list[list[paddle.Tensor]]:
    alike: dict[Any, list[paddle.Tensor]] = {}
    for tensor in tensors:
        alike.setdefault(tensor.dtype, []).append(tensor)
    return list(alike.values())


def _as_vector(tensor: paddle.Tensor) -> paddle.Tensor:
    """Return a view of all values. Two thirds of a network's parameters are vectors, for which nothing is called."""
    if tensor.ndim == 1:
        return tensor
    return paddle._C_ops.reshape(tensor, [-1])  # takes half of the time of Tensor.reshape


def zero_where(is_bad: paddle.Tensor, tensors: Sequence[paddle.Tensor]) -> None:
    """Fill tensors of one dtype with zeros if ``is_bad``, bool (1,), is true; otherwise leave them unread."""
    # The loss scaler's operation; it also updates a scale, here by a factor of 1 after each step.
    state = _scaler_state(paddle.get_device())
    paddle._C_ops.update_loss_scaling_(tensors, is_bad, *state, 1, 1, 1.0, 1.0, False)


@functools.lru_cache(maxsize=8)
def _scaler_state(device: str) -> list[paddle.Tensor]:
    """Return scale and numbers of good and bad steps, which always return to 1, 0 and 0; allocated once."""
    return [paddle.ones([1]), paddle.zeros([1], "int32"), paddle.zeros([1], "int32")]


def flatten(tensors: Sequence[paddle.Tensor]) -> paddle.Tensor:
    """Return a copy of all values of tensors of one dtype as one vector, (values,)."""
    return paddle.concat([_as_vector(tensor) for tensor in tensors])


def subtract(tensors: Sequence[paddle.Tensor], changes: Sequence[paddle.Tensor], factor: paddle.Tensor) -> None:
    """Subtract ``factor``, float32 (1,), times float32 changes of any shape from contiguous tensors, in place."""
    # Momentum's operation with a momentum of 0: velocity = gradient, weight -= rate * velocity.
    paddle._C_ops.merged_momentum_(tensors, changes, changes, [factor], None, 0.0, False, [], [], False, 1.0)


def move_average(
    average: paddle.Tensor, values: paddle.Tensor, share: float, is_bad: paddle.Tensor | None = None
) -> None:
    """Move an average, (values,) float32, by ``share`` toward ``values``, which are overwritten, in place.

    Leave it unchanged if ``is_bad``, bool (1,) on the device, is true.
    """
    change = values.subtract_(average)  # a + s (w - a) has one product less than (1 - s) a + s w
    if is_bad is not None:
        zero_where(is_bad, [change])
    average.add_(change.scale_(share))


class Update(NamedTuple):
    """The update of parameters that share learning rate and decay.

    A step whose gradients are not finite is still queued, with gradients, rate and ``share`` of 0. It must leave the
    parameters unchanged, and what it does to moments is undone later.

    Attributes:
        apply: takes parameters, gradients, rate (1,), share (1,), decay and Columns; share is 1, or 0 in such a step.
        shrink: takes the decay; returns the factor by which such a step multiplies each moment, or None if it also adds
            to it, so that only a copy made before can undo it.
    """

    apply: Callable[[Tensors, Tensors, Scalar, Scalar, float, Columns], None]
    shrink: Callable[[float], tuple[float | None, ...]]


def adamw(beta1: float, beta2: float, epsilon: float) -> Update:
    """Return AdamW's update. Its accumulators are both moments and both powers of the betas, equal for all."""

    def apply(
        parameters: Tensors, gradients: Tensors, rate: Scalar, share: Scalar, decay: float, columns: Columns
    ) -> None:
        paddle_versions.fused_adamw(parameters, gradients, rate, columns, (beta1, beta2), epsilon, decay)

    return Update(apply, lambda decay: (beta1, beta2))


def momentum(factor: float | Callable[[], float], is_nesterov: bool = False) -> Update:
    """Return the update of SGD with momentum; its accumulator is the velocity.

    With an L2 term, Paddle launches one kernel per parameter after all, but without Python in between. ``factor``:
    share of the velocity that each step keeps, or a function that returns it; ``is_nesterov``: step ``gradient + factor
    * velocity``.
    """

    def get_kept() -> float:
        return factor() if callable(factor) else factor

    def apply(
        parameters: Tensors, gradients: Tensors, rate: Scalar, share: Scalar, decay: float, columns: Columns
    ) -> None:
        n = len(parameters) if decay else 0
        methods, decays = ["l2_decay"] * n, [decay] * n
        paddle._C_ops.merged_momentum_(
            parameters, gradients, *columns, [rate], None, get_kept(), is_nesterov, methods, decays, False, 1.0
        )

    return Update(apply, lambda decay: (None if decay else get_kept(),))  # an L2 term enters the velocity


class ForeachStep(Protocol):
    """An optimizer step by operations on lists of parameters, which ``queued_step`` queues without waiting.

    ``gradients`` may be nested, as by optimizers: only the step that returned them reads them.
    """

    def gradients(self) -> Any:
        """Return the current gradients of the parameters."""

    def accepts(self, gradients: Any) -> bool:
        """Return whether ``apply`` can update the parameters with these gradients."""

    def prepare_undo(self, gradients: Any) -> Callable[[], None]:
        """Return, before the step, a function that undoes what a step with a ``share`` of 0 does to moments.

        Moments that it only shrinks are divided again, and are equal to one rounding; only those that it adds to are
        copied.
        """

    def apply(self, rate: float, gradients: Any, share: paddle.Tensor | None = None) -> None:
        """Update the parameters with what ``gradients`` returned and ``accepts`` accepts.

        ``share``: factor of the rate, float32 (1,): 1, or 0 for a step whose gradients are 0 and that must not change
        parameters; None: 1.
        """


class Optimizer(Protocol):
    """What the engine calls of an optimizer: Paddle's methods, and ``foreach_step``."""

    @property
    def _accumulators(self) -> dict[str, dict[str, paddle.Tensor]]:
        """Accumulators by name, then by a parameter's automatic name."""

    def get_lr(self) -> float:
        """Return the learning rate."""

    def set_lr(self, value: float) -> None:
        """Set the learning rate."""

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear all gradients."""

    def step(self) -> None:
        """Update the parameters that have a gradient."""

    def foreach_step(self) -> ForeachStep | None:
        """Return the step by lists, or None if this optimizer has none."""


class _UpdatedTogether(NamedTuple):
    """Parameters that one call of an ``Update`` updates, listed once: lists take the host longer than the call.

    Attributes:
        factor: of the learning rate.
        rate: see ``MultiTensorStep``.
        numbers: positions in the list of all parameters.
        columns: the accumulators of ``parameters``: ``powers``, which are on the host, and ``moments``.
    """

    factor: float
    rate: GroupRate | None
    decay: float
    numbers: list[int]
    parameters: Tensors
    columns: list[Tensors]
    powers: list[Tensors]
    moments: list[Tensors]


class MultiTensorStep:
    """An optimizer step with one call for all parameters that share learning rate and decay; a ``ForeachStep``.

    The ``columns`` are the accumulators of ``update``; ``factors`` of the learning rate, ``decays``, and ``rates`` in
    place of the run's, or None, are per parameter. ``decay_factor``, if it is set, returns the factor of all decays in
    the current step.
    """

    decay_factor: Callable[[], float] | None = None

    def __init__(
        self,
        update: Update,
        parameters: Sequence[paddle.Tensor],
        columns: Columns,
        factors: Sequence[float],
        decays: Sequence[float],
        rates: Sequence[GroupRate | None] | None = None,
    ) -> None:
        self._update = update
        self._rates = rates or [None] * len(parameters)
        self._parameters, self._columns = parameters, columns
        self._factors, self._decays = factors, decays
        self._powers = [column for column in columns if all(t.place.is_cpu_place() and t.size == 1 for t in column)]
        self._moments = [column for column in columns if not any(column is power for power in self._powers)]
        self._grouped: list[bool] | None = None  # whether each parameter had a gradient when the groups were made
        self._groups: list[_UpdatedTogether] = []

    def __call__(self, rate: float, gradients: Sequence[paddle.Tensor | None]) -> bool:
        """Make a step and return True, or return False without one if a gradient is not dense float32."""
        if not self.accepts(gradients):
            return False
        self.apply(rate, gradients)
        return True

    @paddle.no_grad()
    def apply(self, rate: float, gradients: Sequence[paddle.Tensor | None], share: paddle.Tensor | None = None) -> None:
        """Update each parameter that has a gradient."""
        self._group(gradients)
        if share is None:
            share = paddle.ones([1])
        decay_now = self._decay_now
        for group in self._groups:
            own: Tensors = [gradients[n] for n in group.numbers]
            if not all(gradient.is_contiguous() and not gradient.data_ptr() % _ALIGNED_BYTES for gradient in own):
                own = [align(gradient) for gradient in own]
            own_rate = rate if group.rate is None else group.rate.value
            now = share * float(np.float32(own_rate) * np.float32(group.factor))
            self._update.apply(group.parameters, own, now, share, group.decay * decay_now, group.columns)

    def gradients(self) -> list[paddle.Tensor | None]:
        """Return the current gradient of each parameter, or None."""
        return [parameter._grad_ivar() for parameter in self._parameters]

    def accepts(self, gradients: Sequence[paddle.Tensor | None]) -> bool:
        """Return whether all gradients are dense float32; a frozen part of the parameters has none."""
        present = (gradient for gradient in gradients if gradient is not None)
        # element_size takes a tenth of the time of dtype.
        return all(gradient.is_dense() and gradient.element_size() == 4 for gradient in present)

    @paddle.no_grad()
    def prepare_undo(self, gradients: Sequence[paddle.Tensor | None]) -> Callable[[], None]:
        """Return a function that undoes what a step with a share of 0 does to moments and powers."""
        self._group(gradients)
        undos: list[Callable[[], None]] = []
        for group in self._groups:
            for powers in group.powers:  # one number on the host for each group
                undos.append(functools.partial(_restore, powers[0].clone(), powers))
            for moments, factor in zip(group.moments, self._update.shrink(group.decay * self._decay_now), strict=True):
                if factor is None:
                    undos.append(functools.partial(_restore, flatten(moments), moments))
                elif factor != 1.0:
                    undos.append(functools.partial(_grow, moments, factor))

        @paddle.no_grad()
        def undo() -> None:
            for each in undos:
                each()

        return undo

    @property
    def _decay_now(self) -> float:
        return 1.0 if self.decay_factor is None else self.decay_factor()

    def _group(self, gradients: Sequence[paddle.Tensor | None]) -> None:
        """Group the parameters that have a gradient by learning rate, decay and powers of the betas.

        On a GPU, Paddle reads the first parameter's powers for its whole group, so fewer gradients so far need another
        group.
        """
        has_gradient = [gradient is not None for gradient in gradients]
        if has_gradient == self._grouped:
            return
        groups: dict[tuple[Any, ...], list[int]] = {}
        for n in np.flatnonzero(has_gradient).tolist():
            powers = [column[n].item() for column in self._powers]
            groups.setdefault((self._factors[n], self._rates[n], self._decays[n], *powers), []).append(n)
        self._groups = []
        for (factor, rate, decay, *_), numbers in groups.items():
            columns, powers, moments = (
                [[column[n] for n in numbers] for column in kind]
                for kind in (self._columns, self._powers, self._moments)
            )
            parameters = [self._parameters[n] for n in numbers]
            kept = numbers, parameters, columns, powers, moments
            self._groups.append(_UpdatedTogether(factor, rate, decay, *kept))
        self._grouped = has_gradient


def _restore(values: paddle.Tensor, tensors: Sequence[paddle.Tensor]) -> None:
    """Give tensors earlier values: what ``flatten`` returned of them, (values,), or one value of all, (1,)."""
    parts = paddle.split(values, [each.size for each in tensors]) if values.size > 1 else [values] * len(tensors)
    for part, tensor in zip(parts, tensors, strict=True):
        paddle.assign(part if part.shape == tensor.shape else part.reshape(tensor.shape), output=tensor)


def _grow(moments: Sequence[paddle.Tensor], factor: float) -> None:
    """Divide moments by the factor by which a step has multiplied them; 0 may stay, as the next step keeps none."""
    if factor:
        divisor = paddle.full([1], factor, "float32")
        for moment in moments:
            paddle.assign(moment / divisor, output=moment)


def align(gradient: paddle.Tensor) -> paddle.Tensor:
    """Return the gradient, or a copy if strided or not aligned, which Paddle's vectorizing kernel does not check."""
    if not gradient.is_contiguous():
        return gradient.contiguous()
    return gradient.clone() if gradient.data_ptr() % _ALIGNED_BYTES else gradient
