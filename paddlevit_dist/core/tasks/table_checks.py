"""Checks of the columns that a task adds to a table of samples, and of the scores that a kind computes from it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals.score_ranges import InvalidScoreError
from ..runtime.printing import describe_value


def require_rows(columns: Mapping[str, Any], names: Sequence[str] | None) -> None:
    """Raise ValueError if columns, arrays or tensors, have other names, or are not (batch, ...) with one batch size.

    ``names`` are the columns of earlier samples, None without any.
    """
    if names is not None and list(columns) != list(names):
        raise ValueError(f"columns {list(columns)} after {names}: add the same ones for each sample")
    shapes = {name: tuple(column.shape) for name, column in columns.items()}
    sizes = {shape[:1] for shape in shapes.values()}
    if () in sizes or len(sizes) > 1:
        raise ValueError(f"columns have the shapes {shapes}: expected (batch, ...), a row for each sample")


def require_draws(kind: object, values: Mapping[str, np.ndarray], draws: int) -> Mapping[str, np.ndarray]:
    """Return the values that the ``ScoreKind`` computed; InvalidScoreError if one does not have the shape (draws,)."""
    if not isinstance(values, Mapping):
        raise InvalidScoreError(
            f"compute of {type(kind).__name__} returns {describe_value(values)}, expected values of the draws by name"
        )
    for name, column in values.items():
        if np.shape(column) != (draws,):
            raise InvalidScoreError(
                f"compute of {type(kind).__name__}: '{name}' has shape {np.shape(column)}, expected ({draws},), a "
                "value for each draw: weights are (draws, samples)"
            )
    return values
