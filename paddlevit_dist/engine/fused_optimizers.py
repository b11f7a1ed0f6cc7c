"""Paddle's optimizers with a fused update of all parameters, used where it gives the results of Paddle's own update.

The optimizer's state, its names and the checkpoints do not depend on which update runs. The results are compared with
Paddle's once at the start. If they differ, or if a parameter is not float32, Paddle's own update runs.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from .. import extension
from ..runtime import paddle_versions
from . import multi_tensor

# Makes a step from a learning rate and gradients (None for a parameter without one); returns False if it cannot.
Step = Callable[[float, Sequence[paddle.Tensor | None]], bool]
Maker = Callable[..., Step]  # takes parameters, accumulators, learning rate factors and decays
MakerOrProblem = tuple[Maker | None, str]  # None for Paddle's own update; and a problem to log, if any


class UpdateRule(NamedTuple):
    """The update rule of an optimizer.

    Attributes:
        kind: Paddle's optimizer class.
        columns: names of its accumulators.
        options: its numeric options by name, apart from learning rate, parameters and decay.
    """

    kind: Any
    columns: tuple[str, ...]
    options: tuple[tuple[str, float], ...]


class FusedStep:
    """Mixin that gives a Paddle optimizer one step for all parameters.

    Args:
        decays: weight decay (AdamW) or factor of the L2 term by a parameter's automatic name, equal to the groups'
            values.
        log: receives log lines.
        options: options of Paddle's optimizer, with parameter groups.
    """

    COLUMNS: tuple[str, ...] = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    OPTIONS: tuple[str, ...] = ("beta1", "beta2", "epsilon")
    _fused: Any = None  # makes a step of all parameters; False: Paddle's own update runs

    def __init__(
        self, decays: dict[str, float], log: Callable[[str], None] = lambda text: None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._decays, self._log = decays, log

    @property
    def rule(self) -> UpdateRule:
        """The update rule of Paddle's optimizer, which is the second base class."""
        options = tuple((name, getattr(self, f"_{name}")) for name in self.OPTIONS)
        return UpdateRule(type(self).__bases__[1], self.COLUMNS, options)

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        fused = self.foreach_step()
        if not (fused and fused(self.get_lr(), [p._grad_ivar() for p in self._trained])):  # type: ignore
            super().step()  # type: ignore[misc]

    def foreach_step(self) -> Step | None:
        """Return the function that updates all parameters, or None if Paddle's own update runs."""
        if self._fused is None:
            groups = self._param_groups  # type: ignore[attr-defined]
            self._trained = [p for group in groups for p in group["params"] if not p.stop_gradient]
            self._fused = self._choose() or False
        return self._fused or None

    def _choose(self) -> Step | None:
        parameters = self._trained
        if any(p.dtype != paddle.float32 or not p.is_contiguous() for p in parameters):
            return None
        fast = extension.optimizer_step(self.rule, parameters) if extension.has("cpu_kernels") else None
        maker, problem = _try_lists(self.rule) if fast is None else fast
        self._log_problem(problem)
        return None if maker is None else self._build(maker)

    def _log_problem(self, problem: str) -> None:
        if problem:
            self._log(f"note: Paddle updates one parameter after the other; its operation for all of them {problem}")

    def _build(self, maker: Maker) -> Any:
        """Make a step of all trained parameters with their accumulators, learning rate factors and decays."""
        parameters = self._trained
        paddle_versions.create_accumulators(self)
        columns = [[self._accumulators[name][p.name] for p in parameters] for name in self.COLUMNS]  # type: ignore
        factors = [p.optimize_attr["learning_rate"] for p in parameters]
        return maker(parameters, columns, factors, [self._decays[p.name] for p in parameters])


class FusedAdam(FusedStep, paddle.optimizer.Adam):
    """``paddle.optimizer.Adam`` with a fused step on CPUs; on GPUs, Paddle's own update runs."""


class FusedAdamW(FusedStep, paddle.optimizer.AdamW):
    """``paddle.optimizer.AdamW`` with a fused step."""


class FusedMomentum(FusedStep, paddle.optimizer.Momentum):
    """``paddle.optimizer.Momentum`` with a fused step, and with a momentum that may differ between steps.

    Args:
        momentum_now: returns the momentum of the current step; None: it is constant.
        fused: whether one step updates all parameters; False: Paddle's own update runs.
        arguments: arguments of ``FusedStep``.
        options: options of Paddle's optimizer.
    """

    COLUMNS, OPTIONS = ("velocity",), ("momentum", "use_nesterov")

    def __init__(
        self,
        *arguments: Any,
        momentum_now: Callable[[], float] | None = None,
        fused: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._momentum_now = momentum_now
        self._fused = None if fused else False

    def foreach_step(self) -> Step | None:
        """Return the function that updates all parameters, or None if Paddle's own update runs."""
        if self._momentum_now is not None:
            self._momentum = self._momentum_now()
            for group in self._param_groups:
                group["momentum"] = self._momentum  # Paddle's own update reads it here
        return super().foreach_step()

    def _choose(self) -> Step | None:
        if self._momentum_now is None:
            return super()._choose()
        maker, problem = _try_lists(self.rule)
        if maker is None or any(p.dtype != paddle.float32 or not p.is_contiguous() for p in self._trained):
            self._log_problem(problem)
            return None
        update = multi_tensor.momentum(lambda: self._momentum, self._use_nesterov)
        return self._build(functools.partial(multi_tensor.MultiTensorStep, update))


@functools.cache
def _try_lists(rule: UpdateRule) -> MakerOrProblem:
    """Return the step that uses Paddle's multi-tensor operations, or None and the problem with them."""
    values = dict(rule.options)
    if rule.kind is paddle.optimizer.Adam:
        return None, ""
    make: Callable[..., Any] = multi_tensor.adamw if rule.kind is paddle.optimizer.AdamW else multi_tensor.momentum
    maker = functools.partial(multi_tensor.MultiTensorStep, make(*values.values()))
    try:
        return (maker, "") if agrees(rule, maker) else (None, "gives other results here")
    except Exception as error:  # Paddle raises several types for a missing kernel or unknown arguments
        lines = str(error).strip().splitlines() or [""]
        return None, f"fails here: {type(error).__name__}: {lines[-1]}"


def agrees(rule: UpdateRule, make: Maker) -> bool:
    """Return whether three fused steps on 715 values give the results of Paddle's optimizer.

    On a CPU, the results must be equal bit by bit. On a GPU, they must agree to a millionth of the largest value,
    because its compiler decides which products and sums are fused.

    Args:
        rule: the update rule.
        make: makes the fused step.
    """
    generator = np.random.default_rng(0)
    shapes, decays, factor = ((700,), (3, 5)), (0.05, 0.0), 0.7
    with paddle.utils.unique_name.guard():  # the names of later parameters must not change
        start = paddle.nn.initializer.Constant(0.0)  # uses no random numbers
        expected, actual = (
            [paddle.create_parameter(shape, "float32", default_initializer=start) for shape in shapes] for _ in range(2)
        )
        optimizers = []
        for parameters in (expected, actual):
            groups = [
                {"params": [p], "weight_decay": decay, "learning_rate": factor} for p, decay in zip(parameters, decays)
            ]
            options = dict(rule.options)
            optimizers.append(rule.kind(learning_rate=0.0, parameters=groups, weight_decay=0.05, **options))
            paddle_versions.create_accumulators(optimizers[-1])
    for shape, *pair in zip(shapes, expected, actual):
        values = generator.standard_normal(shape).astype(np.float32)
        for parameter in pair:
            parameter.set_value(values)
    state = [
        [[optimizer._accumulators[name][p.name] for p in parameters] for name in rule.columns]
        for optimizer, parameters in zip(optimizers, (expected, actual))
    ]
    step = make(actual, state[1], [factor] * len(shapes), decays)
    for rate in (1e-3, 0.9e-3, 0.8e-3):
        gradients = [(generator.standard_normal(s) * 10.0 ** generator.integers(-6, 3, s)).astype("f4") for s in shapes]
        for parameter, gradient in zip(expected, gradients):
            parameter.grad = paddle.to_tensor(gradient)
        optimizers[0].set_lr(rate)
        optimizers[0].step()
        if not step(rate, [paddle.to_tensor(gradient) for gradient in gradients]):
            return False
    pairs = zip([*expected, *itertools.chain(*state[0])], [*actual, *itertools.chain(*state[1])])
    return all(_is_same(a.numpy(), b.numpy(), actual[0].place.is_cpu_place()) for a, b in pairs)


def _is_same(expected: np.ndarray, actual: np.ndarray, bitwise: bool) -> bool:
    if bitwise:
        return np.array_equal(expected.view(np.int32), actual.view(np.int32))
    return bool(np.abs(expected - actual).max() <= 1e-6 * np.abs(expected).max())
