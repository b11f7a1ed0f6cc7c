"""Paddle's optimizers with a step for all parameters at once, where that gives what Paddle's own gives.

The state of an optimizer, its names and what checkpoints hold do not depend on how it was updated. That the results are
the same is tried once with Paddle's own; where they are not, or a parameter is not of float32, Paddle's update is made.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..extension import make
from ..runtime import paddle_versions
from . import multi_tensor

# Makes a step at a learning rate with the gradients, None for a parameter without one; False if it could not.
Step = Callable[[float, Sequence[paddle.Tensor | None]], bool]
Maker = Callable[..., Step]  # of parameters, accumulators, factors of the rate and decays
Found = tuple[Maker | None, str]  # None if Paddle's own is to be taken, and what about that is to be told


class UpdateRule(NamedTuple):
    """How an optimizer updates.

    Attributes:
        kind: the optimizer of Paddle.
        columns: names of its accumulators.
        options: what it takes by these names, besides rate, parameters and decay.
    """

    kind: Any
    columns: tuple[str, ...]
    options: tuple[tuple[str, float], ...]


class FusedStep:
    """Of an optimizer: a step for all parameters at once.

    Args:
        decays: L2 terms or decoupled weight decays by a parameter's automatic name, as they were given to Paddle by
            groups.
        say: takes a line for the log.
        options: Paddle's, with groups of parameters.
    """

    COLUMNS: tuple[str, ...] = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    OPTIONS: tuple[str, ...] = ("beta1", "beta2", "epsilon")
    _at_once: Any = None  # what makes a step; False: Paddle does

    def __init__(
        self, decays: dict[str, float], say: Callable[[str], None] = lambda text: None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._decays, self._say = decays, say

    @property
    def rule(self) -> UpdateRule:
        """Of Paddle's optimizer, the second base class."""
        options = tuple((name, getattr(self, f"_{name}")) for name in self.OPTIONS)
        return UpdateRule(type(self).__bases__[1], self.COLUMNS, options)

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        at_once = self.foreach_step()
        if not (at_once and at_once(self.get_lr(), [p._grad_ivar() for p in self._trained])):  # type: ignore
            super().step()  # type: ignore[misc]

    def foreach_step(self) -> Step | None:
        """Return what makes the step, None if Paddle does."""
        if self._at_once is None:
            groups = self._param_groups  # type: ignore[attr-defined]
            self._trained = [p for group in groups for p in group["params"] if not p.stop_gradient]
            self._at_once = self._choose() or False
        return self._at_once or None

    def _choose(self) -> Step | None:
        parameters = self._trained
        if any(p.dtype != paddle.float32 or not p.is_contiguous() for p in parameters):
            return None
        maker, problem = make(lambda one: one.optimizer_step(self.rule, parameters), lambda: _try_lists(self.rule))
        if problem:
            self._say(f"note: Paddle updates one parameter after the other; its operation for all of them {problem}")
        if maker is None:
            return None
        paddle_versions.create_accumulators(self)
        columns = [[self._accumulators[name][p.name] for p in parameters] for name in self.rule.columns]  # type: ignore
        factors = [p.optimize_attr["learning_rate"] for p in parameters]
        return maker(parameters, columns, factors, [self._decays[p.name] for p in parameters])


class FusedAdam(FusedStep, paddle.optimizer.Adam):
    """``paddle.optimizer.Adam``; on GPUs it is Paddle's own."""


class FusedAdamW(FusedStep, paddle.optimizer.AdamW):
    """``paddle.optimizer.AdamW``."""


class FusedMomentum(FusedStep, paddle.optimizer.Momentum):
    """``paddle.optimizer.Momentum``."""

    COLUMNS, OPTIONS = ("velocity",), ("momentum",)


@functools.cache
def _try_lists(rule: UpdateRule) -> Found:
    """A step by Paddle's operations that take lists of tensors."""
    values = dict(rule.options)
    if rule.kind is paddle.optimizer.Adam:
        return None, ""
    update = multi_tensor.adamw if rule.kind is paddle.optimizer.AdamW else multi_tensor.momentum
    maker = functools.partial(multi_tensor.MultiTensorStep, update(*values.values()))
    try:
        return (maker, "") if agrees(rule, maker) else (None, "gives other results here")
    except Exception as error:  # whatever Paddle raises for a kernel that is missing or takes something else
        lines = str(error).strip().splitlines() or [""]
        return None, f"fails here: {type(error).__name__}: {lines[-1]}"


def agrees(rule: UpdateRule, make: Maker) -> bool:
    """Whether three steps of a few hundred values are those of Paddle's optimizer: to the bit on a CPU, on a GPU to a
    millionth of the largest, since its compiler chooses which products and sums are rounded together."""
    generator = np.random.default_rng(0)
    shapes, decays, factor = ((700,), (3, 5)), (0.05, 0.0), 0.7
    with paddle.utils.unique_name.guard():  # other names stay as they are
        start = paddle.nn.initializer.Constant(0.0)  # draws no random number
        theirs, ours = (
            [paddle.create_parameter(shape, "float32", default_initializer=start) for shape in shapes] for _ in range(2)
        )
        optimizers = []
        for parameters in (theirs, ours):
            groups = [
                {"params": [p], "weight_decay": decay, "learning_rate": factor} for p, decay in zip(parameters, decays)
            ]
            options = dict(rule.options)
            optimizers.append(rule.kind(learning_rate=0.0, parameters=groups, weight_decay=0.05, **options))
            paddle_versions.create_accumulators(optimizers[-1])
    for shape, *pair in zip(shapes, theirs, ours):
        values = generator.standard_normal(shape).astype(np.float32)
        for parameter in pair:
            parameter.set_value(values)
    state = [
        [[optimizer._accumulators[name][p.name] for p in parameters] for name in rule.columns]
        for optimizer, parameters in zip(optimizers, (theirs, ours))
    ]
    step = make(ours, state[1], [factor] * len(shapes), decays)
    for rate in (1e-3, 0.9e-3, 0.8e-3):
        gradients = [(generator.standard_normal(s) * 10.0 ** generator.integers(-6, 3, s)).astype("f4") for s in shapes]
        for parameter, gradient in zip(theirs, gradients):
            parameter.grad = paddle.to_tensor(gradient)
        optimizers[0].set_lr(rate)
        optimizers[0].step()
        if not step(rate, [paddle.to_tensor(gradient) for gradient in gradients]):
            return False
    pairs = zip([*theirs, *itertools.chain(*state[0])], [*ours, *itertools.chain(*state[1])])
    return all(_is_same(one.numpy(), other.numpy(), ours[0].place.is_cpu_place()) for one, other in pairs)


def _is_same(one: np.ndarray, other: np.ndarray, has_its_bits: bool) -> bool:
    if has_its_bits:
        return np.array_equal(one.view(np.int32), other.view(np.int32))
    return bool(np.abs(one - other).max() <= 1e-6 * np.abs(one).max())
