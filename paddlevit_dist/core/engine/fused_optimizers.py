"""Paddle's optimizers with a fused update of all parameters, used where it gives the results of Paddle's own update.

State, names and checkpoints do not depend on which update runs. The results are compared with Paddle's once at the
start. If they differ, or if a parameter is not float32, Paddle's own update runs.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..runtime import paddle_versions
from . import multi_tensor
from .freezing import GroupRate
from .multi_tensor import ForeachStep, MultiTensorStep

# Makes a step from a learning rate and gradients (None for a parameter without one); returns False if it cannot.
Step = Callable[[float, Sequence[paddle.Tensor | None]], bool]
Maker = Callable[..., Step]  # takes parameters, accumulators, learning rate factors and decays


# Names of weight decays in Paddle's parameter groups, and in its regularizers.
_DECAYS = ("weight_decay", "lamb_weight_decay", "regularization_coeff", "_coeff")


class UpdateRule(NamedTuple):
    """The update rule of an optimizer.

    Attributes:
        columns: names of its accumulators.
        options: its numeric options by name, apart from learning rate, parameters and decay.
    """

    kind: type[paddle.optimizer.Optimizer]
    columns: tuple[str, ...]
    options: tuple[tuple[str, float], ...]


class KeptNames:
    """Mixin for a Paddle optimizer that gives parameters back the names by which Paddle keeps their accumulators.

    With GLOG_v >= 6 or FLAGS_enable_unique_name, each operation in place renames its tensor, and Paddle's own update
    would begin with new moments in every step.

    Attributes:
        decay_factor: returns the factor of all weight decays in the current step; None: they are constant.
        rates: learning rates that are functions, by automatic name of the parameters that have one.
    """

    decay_factor: Callable[[], float] | None = None
    rates: Mapping[str, GroupRate] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        groups = self._param_groups  # type: ignore[attr-defined]
        listed = [group["params"] if isinstance(group, dict) else [group] for group in groups]
        self._named = [(parameter, parameter.name) for parameters in listed for parameter in parameters]
        self._factors = {name: parameter.optimize_attr["learning_rate"] for parameter, name in self._named}
        regularizers = (vars(getattr(parameter, "regularizer", None) or self) for parameter, _ in self._named)
        places = [*(group for group in groups if isinstance(group, dict)), *regularizers]
        # Where Paddle's own update reads weight decays: each place once, since parameters share their regularizer.
        self._decay_places = {
            (id(place), name): (place, name, place[name])
            for place in places
            for name in _DECAYS
            if isinstance(place.get(name), float)
        }

    def restore_names(self) -> None:
        """Give the parameters the names that they had when this optimizer was made."""
        for parameter, name in self._named:
            if parameter.name != name:
                parameter.name = name

    def step(self) -> None:
        """Update the parameters that have a gradient by Paddle's own update."""
        self.restore_names()
        if self.decay_factor is not None:
            for place, name, decay in self._decay_places.values():
                place[name] = decay * self.decay_factor()
        rate = self.get_lr()  # type: ignore[attr-defined]
        if self.rates:  # of a run whose own rate may be 0, so that no factor of it gives theirs
            for parameter, name in self._named:
                own = self.rates[name].value if name in self.rates else rate
                parameter.optimize_attr["learning_rate"] = float(np.float32(own) * np.float32(self._factors[name]))
            self.set_lr(1.0)  # type: ignore[attr-defined]
        super().step()  # type: ignore[misc]
        if self.rates:
            self.set_lr(rate)  # type: ignore[attr-defined]

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear all gradients; Paddle would first look for them in its groups."""
        for parameter, _ in self._named:
            parameter.clear_gradient(set_to_zero)


class FusedStep(KeptNames):
    """Mixin that gives a Paddle optimizer one step for all parameters.

    ``decays``: weight decay (AdamW) or factor of the L2 term by automatic name, equal to the groups' values.
    """

    COLUMNS: tuple[str, ...] = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    OPTIONS: tuple[str, ...] = ("beta1", "beta2", "epsilon")

    def __init__(
        self,
        decays: dict[str, float],
        log: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._decays, self._log = decays, log
        self._has_chosen = False
        self._lists: MultiTensorStep | None = None
        self._trained: list[paddle.Tensor] = []

    @property
    def rule(self) -> UpdateRule:
        """The update rule of Paddle's optimizer, which is the second base class."""
        options = tuple((name, getattr(self, f"_{name}")) for name in self.OPTIONS)
        return UpdateRule(type(self).__bases__[1], self.COLUMNS, options)

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        self._choose_once()
        if self._lists is None or not self._lists(self.get_lr(), self._lists.gradients()):  # type: ignore
            super().step()

    def foreach_step(self) -> ForeachStep | None:
        """Return the step by lists, or None if Paddle's own update runs."""
        self._choose_once()
        return self._lists

    def _choose_once(self) -> None:
        if self._has_chosen:
            return
        self._has_chosen = True
        groups = self._param_groups  # type: ignore[attr-defined]
        self._trained = [p for group in groups for p in group["params"]]
        if all(p.dtype == paddle.float32 and p.is_contiguous() for p in self._trained):
            self._choose()

    def _choose(self) -> None:
        maker = self._find_lists()
        self._lists = None if maker is None else self._build(maker)

    def _find_lists(self) -> Maker | None:
        maker, problem = try_lists(self.rule)
        if problem:
            self._log(f"note: Paddle updates one parameter after the other; its operation for all of them {problem}")
        return maker

    def _build(self, maker: Callable[..., Any]) -> Any:
        parameters = self._trained
        self.restore_names()
        paddle_versions.create_accumulators(self)
        columns = [[self._accumulators[name][p.name] for p in parameters] for name in self.COLUMNS]  # type: ignore
        factors = [self._factors[p.name] for p in parameters]
        rates = [self.rates.get(p.name) for p in parameters]
        step = maker(parameters, columns, factors, [self._decays[p.name] for p in parameters], rates)
        step.decay_factor = self.decay_factor
        return step


class FusedAdamW(FusedStep, paddle.optimizer.AdamW):
    """``paddle.optimizer.AdamW`` with a fused step."""


class FusedMomentum(FusedStep, paddle.optimizer.Momentum):
    """``paddle.optimizer.Momentum`` with a fused step, and with ``momentum_now()``, if given, in each step."""

    COLUMNS, OPTIONS = ("velocity",), ("momentum", "use_nesterov")

    def __init__(self, *arguments: Any, momentum_now: Callable[[], float] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._momentum_now = momentum_now

    def step(self) -> None:
        """Update the parameters that have a gradient, with the momentum of this step."""
        self._set_momentum()
        super().step()

    def foreach_step(self) -> ForeachStep | None:
        """Return the step by lists with the momentum of this step; None if another update runs."""
        self._set_momentum()
        return super().foreach_step()

    def _set_momentum(self) -> None:
        if self._momentum_now is not None:
            self._momentum = self._momentum_now()
            for group in self._param_groups:
                group["momentum"] = self._momentum  # Paddle's own update reads it here

    def _choose(self) -> None:
        if self._momentum_now is None:
            super()._choose()
        elif self._find_lists() is not None:
            update = multi_tensor.momentum(lambda: self._momentum, self._use_nesterov)
            self._lists = self._build(functools.partial(MultiTensorStep, update))


class PerParameterStep(KeptNames):
    """Mixin for a Paddle optimizer that has no step by lists: it updates one parameter after the other."""

    def foreach_step(self) -> None:
        """Return None: there is no step by lists."""


class Adam(PerParameterStep, paddle.optimizer.Adam):
    """``paddle.optimizer.Adam`` with the methods of the engine's optimizers; Paddle has no such operation on lists."""


class Lamb(PerParameterStep, paddle.optimizer.Lamb):
    """``paddle.optimizer.Lamb`` with the methods of the engine's optimizers."""


@functools.cache
def try_lists(rule: UpdateRule) -> tuple[Maker | None, str]:
    """Return the step that uses Paddle's multi-tensor operations, or None and the problem with them."""
    values = dict(rule.options)
    make: Callable[..., Any] = multi_tensor.adamw if rule.kind is paddle.optimizer.AdamW else multi_tensor.momentum
    maker = functools.partial(MultiTensorStep, make(*values.values()))
    try:
        return (maker, "") if agrees(rule, maker) else (None, "gives other results here")
    except Exception as error:  # Paddle raises several types for a missing kernel or unknown arguments
        lines = str(error).strip().splitlines() or [""]
        return None, f"fails here: {type(error).__name__}: {lines[-1]}"


def agrees(rule: UpdateRule, make: Maker) -> bool:
    """Return whether three fused steps on 715 values give the results of Paddle's optimizer.

    They must be equal bit by bit on a CPU. On a GPU, whose compiler decides which products and sums are fused, they
    must agree to a millionth of the largest value.
    """
    generator = np.random.default_rng(0)
    shapes, decays, factor = ((700,), (3, 5)), (0.05, 0.0), 0.7
    kind = type("Named", (KeptNames, rule.kind), {})
    with paddle.utils.unique_name.guard():  # the names of later parameters must not change
        start = paddle.nn.initializer.Constant(0.0)  # uses no random numbers
        expected, actual = (
            [paddle.create_parameter(size, "float32", default_initializer=start) for size in shapes] for _ in range(2)
        )
        optimizers = []
        for parameters in (expected, actual):
            groups = [
                {"params": [p], "weight_decay": decay, "learning_rate": factor} for p, decay in zip(parameters, decays)
            ]
            options = dict(rule.options)
            optimizers.append(kind(learning_rate=0.0, parameters=groups, weight_decay=0.05, **options))
            paddle_versions.create_accumulators(optimizers[-1])
    for shape, *pair in zip(shapes, expected, actual):
        values = generator.standard_normal(shape).astype(np.float32)
        for parameter in pair:
            parameter.set_value(values)
    for optimizer in optimizers:
        optimizer.restore_names()
    state = [
        [[each._accumulators[name][p.name] for p in listed] for name in rule.columns]
        for each, listed in zip(optimizers, (expected, actual))
    ]
    step = make(actual, state[1], [factor] * len(shapes), decays)
    for rate in (1e-3, 0.9e-3, 0.8e-3):
        gradients = [(generator.standard_normal(s) * 10.0 ** generator.integers(-6, 3, s)).astype("f4") for s in shapes]
        for parameter, gradient in zip(expected, gradients):
            parameter.grad = paddle.to_tensor(gradient)
        optimizers[0].set_lr(rate)
        optimizers[0].step()
        if not step(rate, [paddle.to_tensor(each) for each in gradients]):
            return False
    pairs = zip([*expected, *itertools.chain(*state[0])], [*actual, *itertools.chain(*state[1])])
    return all(is_same(a.numpy(), b.numpy(), actual[0].place.is_cpu_place()) for a, b in pairs)


def is_same(expected: np.ndarray, actual: np.ndarray, bitwise: bool) -> bool:
    """Return whether float32 results are equal to the bit, or up to 1e-6 of the largest."""
    if bitwise:
        return np.array_equal(expected.view(np.int32), actual.view(np.int32))
    return bool(np.abs(expected - actual).max() <= 1e-6 * np.abs(expected).max())
