"""Checks of the loss terms that a task of a user returns, and of their divisors."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.metrics_file import REPORT_FIELDS, require_free_names
from ..runtime.printing import describe_value
from .sample_arrays import as_array
from .step_types import LossTerm, Number

_WEIGHTED = {"DICE_WEIGHT": "dice", "LOVASZ_WEIGHT": "lovasz"}  # loss terms of the tasks by their keys in TRAIN
_EXPECTED = "expected a scalar float tensor, the sum over the micro-batch"


def require_terms(terms: Any, owner: type) -> None:
    """Refuse anything but a dictionary of loss terms; nothing waits for the device.

    Args:
        terms: what ``train_step`` of a task returned.
        owner: class of the task.

    Raises:
        UserError: as ``require_form``, or no term that counts has a gradient.
    """
    require_form(terms, owner, "train_step")
    if not terms:
        raise UserError(f"{owner.__name__}.train_step returns nothing: expected a dictionary of LossTerm")
    if all(term.sum.stop_gradient for term in terms.values() if term.weight):
        raise UserError(
            f"{owner.__name__}.train_step: no loss term has a gradient, so nothing would be learned: compute the loss "
            "from the outputs of the model, without detach(), numpy() or no_grad()"
        )


def require_form(terms: Any, owner: type, method: str) -> None:
    """Refuse what is not a dictionary of loss terms; nothing waits for the device.

    Args:
        terms: what a method of a task returned.
        owner: class of the task.
        method: the name of the method.

    Raises:
        UserError: a term is not a ``LossTerm``, has the name of a field of ``metrics.jsonl``, or a sum is not a scalar
            float tensor.
    """
    where = f"{owner.__name__}.{method}"
    if not isinstance(terms, Mapping):
        raise UserError(f"{where} returns {type(terms).__name__}: expected a dictionary of LossTerm")
    for name, term in terms.items():
        if not isinstance(term, LossTerm):
            returned = f"{{'{name}': {type(term).__name__}}}"
            raise UserError(f"{where} returns {returned}: expected LossTerm(sum, count) for '{name}'")
    require_free_names(terms, f"loss terms of {where}", REPORT_FIELDS)
    for name, term in terms.items():
        problem = _find_problem(term.sum)
        if problem:
            raise UserError(f"{where}: the loss term '{name}' is {problem}")


def has_own_step(task: Any) -> bool:
    """Return whether a user has written ``train_step`` of the task, or terms that it adds."""
    steps = (getattr(type(task), name, None) for name in ("train_step", "further_terms"))
    return any(step is not None and not is_builtin(step) for step in steps)


def has_own_loss(task: Any) -> bool:
    """Return whether a user has written the task's loss, so that a cross-entropy of an evaluation may be another."""
    step = getattr(type(task), "train_step", None)
    return adds_own_loss(task) or (step is not None and not is_builtin(step))


def adds_own_loss(task: Any) -> bool:
    """Return whether a user has written the loss in a method of this package that evaluations call, too."""
    ours = next(cls for cls in type(task).__mro__ if is_builtin(cls))
    names = [name for name in ("losses", "summed_loss") if hasattr(ours, name)]
    return any(not is_builtin(getattr(type(task), name)) for name in names)


def call_losses(task: Any, outputs: Any, batch: Any, *shapes: Sequence[int]) -> paddle.Tensor:
    """Return what ``losses`` of a user's task computes, checked.

    Args:
        shapes: the shapes that are right: of a loss for each element, or for each sample.

    Raises:
        UserError: it returns something else than a float tensor of such a shape; nothing waits for the device.
    """
    losses: Any = task.losses(outputs, batch)
    is_float = isinstance(losses, paddle.Tensor) and losses.is_floating_point()
    if not is_float or tuple(losses.shape) not in [tuple(shape) for shape in shapes]:
        forms = " or ".join(str(tuple(shape)) for shape in shapes)
        raise UserError(
            f"{type(task).__name__}.losses returns {describe_value(losses)}, expected a float tensor {forms}: do not "
            "reduce a batch (reduction='none')"
        )
    return losses


def sum_losses(losses: paddle.Tensor, counted: paddle.Tensor) -> LossTerm:
    """Return the term of losses (samples,), or of each element (...), where those count for which ``counted`` is true.

    Losses of samples are divided on each rank alone, as all have equally many samples.
    """
    if losses.shape != counted.shape:
        return LossTerm(losses.sum(), losses.shape[0], is_local=True)
    losses = paddle.where(counted, losses, paddle.zeros_like(losses))
    return LossTerm(losses.sum(), counted.astype("int64").sum())


def read_normalizers(counts: Any, task: Any) -> list[float]:
    """Return what ``loss_normalizers`` of a task returned for each of ``traits.normalizer_names``.

    Raises UserError: a name has no number, or one that nothing can be divided by; 0 is that of an empty batch.
    """
    where, names = f"{type(task).__name__}.loss_normalizers", task.traits.normalizer_names
    if not isinstance(counts, Mapping):
        raise UserError(f"{where} returns {describe_value(counts)}, expected a dictionary of numbers")
    numbers = []
    for name in names:
        try:
            value = counts[name]
        except KeyError:
            raise UserError(
                f"{where} returns {describe_value(counts)}, expected a number for '{name}' too, which is in "
                "traits.normalizer_names: add it, or remove the name there"
            ) from None
        array = as_array(value)
        if array is None or array.shape or array.dtype.kind not in "iuf" or not 0 <= array < np.inf:
            raise UserError(f"{where} returns {describe_value(value)} as '{name}', expected a number of at least 0")
        numbers.append(float(array))
    return numbers


def require_divisors(terms: Mapping[str, LossTerm], task: Any, given: Mapping[str, Number]) -> None:
    """Refuse terms of a user's ``train_step`` whose divisor is not the one that the engine takes.

    Reads counts from the device, so it is for the first micro-batch, and where ``has_own_step``.

    Args:
        given: this micro-batch's part of the engine's normalizers, by name.

    Raises:
        UserError: a term that counts has no normalizer in a task with ``loss_normalizers``, so that gradients would
            depend on the number of processes, or a declared count is not its normalizer.
    """
    where, names = f"{type(task).__name__}.train_step", task.traits.normalizer_names
    is_counted = task.traits.normalizers_per_sample is None and names
    for name, term in terms.items():
        if name in given and not term.is_local:
            count, expected = float(term.count), float(given[name])
            if expected > 0 and abs(count - expected) > 1e-3 * expected:
                raise UserError(
                    f"{where}: the loss term '{name}' declares {count:g} as its divisor, but the task's normalizer of "
                    f"this micro-batch is {expected:g}: return LossTerm(sum, count) with that count"
                )
        elif is_counted and term.weight and not term.is_local:
            raise UserError(
                f"{where}: loss_normalizers has no number for the loss term '{name}', only for {', '.join(names)}, so "
                "gradients would depend on the number of processes: use such a name, or return its number from "
                "loss_normalizers and add it to traits.normalizer_names"
            )


def require_sums(
    compute: Callable[..., Mapping[str, LossTerm]], tensors: Sequence[paddle.Tensor], owner: type, method: str
) -> None:
    """Refuse terms that are means over samples, which the engine would divide once more.

    With each sample twice a sum doubles, as its divisor does, and a mean stays what it is. It waits for the device, so
    it is for the first micro-batch. What is neither, such as a contrast of all pairs, passes.

    Args:
        compute: takes ``tensors``, or some of their rows, and returns the terms.
        tensors: a row for each sample of a micro-batch; half of them are tried.
        owner: class of the task.
        method: what computes the terms there.

    Raises:
        UserError: a term is a mean.
    """
    rows = [tensor[: max(len(tensor) // 2, 1)].detach() for tensor in tensors]
    with paddle.no_grad():
        once, twice = compute(*rows), compute(*(paddle.concat([part, part]) for part in rows))
    for name, term in once.items():
        total, doubled = float(term.sum), float(twice[name].sum)
        is_divided_twice = float(twice[name].count) > 1.5 * float(term.count)
        if total and is_divided_twice and abs(doubled - total) <= 1e-3 * abs(total):
            raise UserError(
                f"{owner.__name__}.{method} returns a mean over samples as '{name}': expected the sum, which is "
                "divided by the number of all processes' samples afterwards: end it with .sum()"
            )


def list_constant_terms(terms: Mapping[str, LossTerm], task: Any) -> list[str]:
    """Return log lines about terms of a user's ``train_step`` that count but have no gradient.

    Reads the sums of these from the device: 0 is the sum of a first micro-batch without anything to learn from.
    """
    return [
        f"note: {type(task).__name__}.train_step: the loss term '{name}' has no gradient, so it changes the loss that "
        "is reported, and nothing is learned from it: compute it from the outputs of the model, without detach(), "
        "numpy() or no_grad(), or give it the weight 0"
        for name, term in terms.items()
        if term.weight and term.sum.stop_gradient and float(term.sum)
    ]


def list_missing_terms(terms: Mapping[str, LossTerm], task: Any) -> list[str]:
    """Return log lines about keys whose loss terms a user's ``train_step`` does not return."""
    train = getattr(getattr(task, "config", None), "TRAIN", None)
    weights = {key: getattr(train, key, 0.0) for key, name in _WEIGHTED.items() if name not in terms}
    return [
        f"note: TRAIN.{key} is {weight:g}, but {type(task).__name__}.train_step returns no loss term "
        f"'{_WEIGHTED[key]}': add the terms of super().train_step, or the key changes nothing"
        for key, weight in weights.items()
        if weight
    ]


def _find_problem(total: Any) -> str:
    """Say what is wrong with the sum of a term; empty if nothing is."""
    if not isinstance(total, paddle.Tensor):
        return f"of type {type(total).__name__}: {_EXPECTED}; return a tensor, without item() or numpy()"
    if not total.is_floating_point():
        return f"of type {str(total.dtype).rpartition('.')[2]}: {_EXPECTED}; convert it to float32"
    return f"of shape {list(total.shape)}: {_EXPECTED}; end it with .sum()" if total.shape else ""
