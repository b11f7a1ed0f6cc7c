"""What a run freezes: parameters for the whole run, by TRAIN.FREEZE, or in some steps, by the rate of their group."""

import fnmatch
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import paddle

from ..distributed import DistributedBatchNorm, list_batch_norms, running_statistics
from ..runtime.errors import UserError
from ..runtime.hints import suggest
from ..runtime.printing import agree, count, describe_value
from ..tasks.step_types import StepPosition

_MOST_LINES = 4  # about rates of groups
RateFunction: TypeAlias = Callable[[StepPosition], float | None]


class GroupRate:
    """The learning rate of a parameter group as a function of the position in the run.

    Args:
        function: returns the rate of a step, or None: the group is frozen. It returns the same for the same position.
        names: of the group's parameters, for messages.
        parameters: of the group.
        may_freeze: whether the function may return None.

    Attributes:
        value: rate of the step that began last; 0 if the group is frozen in it.
        is_frozen: whether the group is frozen in that step.
    """

    def __init__(
        self, function: RateFunction, names: Sequence[str], parameters: Sequence[paddle.Tensor], may_freeze: bool = True
    ) -> None:
        self.function, self.names, self.parameters, self.may_freeze = function, names, parameters, may_freeze
        self.value, self.is_frozen = 0.0, False

    def begin(self, step: StepPosition) -> None:
        """Compute the rate of a step. Raises UserError if it is neither None nor a finite number from 0."""
        value = self.function(step)
        if value is not None and not (isinstance(value, numbers.Real) and 0 <= value < math.inf):
            raise UserError(
                f"parameter_groups: the learning_rate of {describe_names(self.names)} is {describe_value(value)} in "
                f"update {step.update}: expected a number from 0, or None, which freezes"
            )
        self.value, self.is_frozen = float(value or 0.0), value is None


class ParameterRates:
    """The groups whose learning rate is a function, and the parameters and batch norms that a step freezes.

    Everything that learns in any step is listed while nothing is frozen: by the optimizer, its shards, the average of
    the weights and the reducer of gradients.

    Args:
        positions: of all steps of the run. Raises UserError if a rate is not one, or a step freezes all parameters.

    Attributes:
        can_freeze: whether a step of the run freezes a group.
        lines: for the log: the rates of the first groups.
    """

    def __init__(self, rates: Sequence[GroupRate], model: paddle.nn.Layer, positions: Iterable[StepPosition]) -> None:
        self._rates = rates
        self._frozen = [False] * len(rates)
        freezing = [rate for rate in rates if rate.may_freeze]
        own = {id(parameter) for rate in freezing for parameter in rate.parameters}
        others_learn = any(id(p) not in own and not p.stop_gradient for p in model.parameters())
        self._number = sum(not parameter.stop_gradient for parameter in model.parameters())
        self.can_freeze, self.lines = False, list[str]()
        courses: list[list[float | None]] = [[] for _ in freezing]
        for step in positions if freezing else ():
            for rate, course in zip(freezing, courses):
                rate.begin(step)
                course.append(None if rate.is_frozen else rate.value)
            self.can_freeze |= any(rate.is_frozen for rate in freezing)
            if not others_learn and all(rate.is_frozen for rate in freezing):
                raise UserError(f"parameter_groups: all parameters are frozen in update {step.update}: let one learn")
        for rate, course in zip(freezing[:_MOST_LINES], courses):
            values = [value for value in course if value is not None] or [0.0]
            frozen = f", frozen in {course.count(None):,} of {count(len(course), 'update')}" if None in course else ""
            learning = f"rate from {values[0]:.3g} to {values[-1]:.3g}"
            self.lines.append(f"{describe_names(rate.names)}: {learning}{frozen} (parameter_groups)")
        if len(freezing) > _MOST_LINES:
            self.lines.append(f"{count(len(freezing) - _MOST_LINES, 'more group')} with rates that are functions")
        # A batch norm that starts to keep its statistics gives them back when it learns again.
        norms = list_norms(model) if self.can_freeze else ()
        self._norms = [
            (layer, parameters, layer._use_global_stats)
            for layer, parameters in norms
            if any(id(parameter) in own for parameter in parameters)
        ]

    def begin(self, step: StepPosition) -> bool:
        """Compute the rates of a step; return whether it freezes other groups than the step before."""
        for rate in self._rates:
            rate.begin(step)
        before, self._frozen = self._frozen, [rate.is_frozen for rate in self._rates]
        if any(self._frozen) and not self.can_freeze:
            raise UserError(
                f"parameter_groups: a learning_rate is None in update {step.update} and was a number when the run "
                "began: return the same for the same position"
            )
        return self._frozen != before

    def freeze(self) -> str:
        """Freeze the groups that the step freezes, let the others learn, and return a log line."""
        for rate in self._rates:
            for parameter in rate.parameters:
                parameter.stop_gradient = rate.is_frozen
        for layer, parameters, kept in self._norms:
            layer._use_global_stats = kept
            if all(parameter.stop_gradient for parameter in parameters):
                keep_statistics(layer)
        frozen = sum(len(rate.parameters) for rate in self._rates if rate.is_frozen)
        return f"{frozen or 'none'} of {count(self._number, 'parameter')} {agree(frozen)} frozen"


def freeze(model: paddle.nn.Layer, patterns: Sequence[str]) -> int:
    """Freeze the parameters whose names match a pattern, in which ``*`` matches any text, and return their number.

    Raises UserError if a pattern matches no parameter, or no parameter is left to train.
    """
    parameters = {key: p for key, p in model.named_parameters() if not p.stop_gradient}
    frozen = set()
    for pattern in patterns:
        matches = fnmatch.filter(parameters, pattern)
        if not matches:
            parts = sorted({key.split(".")[0] for key in parameters})
            hint = suggest(pattern.split(".")[0], parts)
            raise UserError(
                f"TRAIN.FREEZE {pattern} matches no parameter: {hint}their names begin with {', '.join(parts)}"
            )
        frozen.update(matches)
    if frozen and len(frozen) == len(parameters):
        raise UserError(f"TRAIN.FREEZE {', '.join(patterns)} leaves no parameter to train; name fewer")
    for name in frozen:
        parameters[name].stop_gradient = True
    return len(frozen)


def list_norms(model: paddle.nn.Layer) -> list[tuple[Any, list[paddle.Tensor]]]:
    """Return the batch norms of a model with the parameters that decide whether they are frozen.

    These are its own parameters. For a batch norm without any, they are the parameters of the smallest layer around it
    that has some.
    """
    statistics = {id(tensor) for tensor in running_statistics(model)}
    layers, norms = dict(model.named_sublayers(include_self=True)), []
    for name, layer in list_batch_norms(model).items():
        place, parameters = name, [p for p in layer.parameters() if id(p) not in statistics]
        while place and not parameters:
            place = place.rpartition(".")[0]
            parameters = [p for p in layers[place].parameters() if id(p) not in statistics]
        norms.append((layer, parameters))
    return norms


def keep_statistics(norm: Any) -> None:
    """Make a batch norm use and keep its running statistics in training."""
    norm._use_global_stats = True
    if isinstance(norm, paddle.nn.SyncBatchNorm):  # its forward pass ignores this attribute
        norm.__class__, norm.synchronized = DistributedBatchNorm, True


def keep_frozen_statistics(model: paddle.nn.Layer) -> int:
    """Make batch norms without a trained parameter keep their running statistics; return their number."""
    norms = [norm for norm, parameters in list_norms(model) if all(p.stop_gradient for p in parameters)]
    for norm in norms:
        keep_statistics(norm)
    return len(norms)


def describe_names(names: Sequence[str]) -> str:
    """Format the first of some names of parameters, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
