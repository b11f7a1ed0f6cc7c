"""Check of the loss terms that a task of a user returns."""

from collections.abc import Mapping
from typing import Any

import paddle

from ..runtime.errors import UserError
from ..runtime.metrics_file import require_free_names
from .step_types import LossTerm

_EXPECTED = "expected a scalar float tensor, the sum over the micro-batch"


def require_terms(terms: Any, owner: type) -> None:
    """Refuse anything but a dictionary of loss terms; nothing waits for the device.

    Args:
        terms: what ``train_step`` of a task returned.
        owner: class of the task.

    Raises:
        UserError: a term is not a ``LossTerm``, has the name of a field of ``metrics.jsonl``, a sum is not a scalar
            float tensor, or no term that counts has a gradient.
    """
    found = list(terms.values()) if isinstance(terms, Mapping) else [terms]
    named = terms.items() if isinstance(terms, Mapping) else [(None, terms)]
    others = [(name, type(term).__name__) for name, term in named if not isinstance(term, LossTerm)]
    if not found or others:
        name, returned = others[0] if others else (None, "nothing")
        entry = returned if name is None else f"{{'{name}': {returned}}}"
        expected = (
            "expected a dictionary of LossTerm" if name is None else f"expected LossTerm(sum, count) for '{name}'"
        )
        raise UserError(f"{owner.__name__}.train_step returns {entry}: {expected}")
    require_free_names(terms, f"loss terms of {owner.__name__}.train_step")
    for name, term in terms.items():
        problem = _find_problem(term.sum)
        if problem:
            raise UserError(f"{owner.__name__}.train_step: the loss term '{name}' is {problem}")
    if all(term.sum.stop_gradient for term in found if term.weight):
        raise UserError(
            f"{owner.__name__}.train_step: no loss term has a gradient, so nothing would be learned: compute the loss "
            "from the outputs of the model, without detach(), numpy() or no_grad()"
        )


def _find_problem(total: Any) -> str:
    """Say what is wrong with the sum of a term; empty if nothing is."""
    if not isinstance(total, paddle.Tensor):
        return f"of type {type(total).__name__}: {_EXPECTED}; return a tensor, without item() or numpy()"
    if not total.is_floating_point():
        return f"of type {str(total.dtype).rpartition('.')[2]}: {_EXPECTED}; convert it to float32"
    return f"of shape {list(total.shape)}: {_EXPECTED}; end it with .sum()" if total.shape else ""
