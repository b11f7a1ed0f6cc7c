"""Checks of the columns that a task adds to a table of samples, and of the scores that a kind computes from it."""

import numbers
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..intervals.score_ranges import InvalidScoreError
from ..runtime.metrics_file import find_problem_of_names
from ..runtime.printing import describe_value, shorten
from .sample_arrays import as_array
from .score import HIGHER, LOWER


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
    """Return the values that the ``ScoreKind`` computed; InvalidScoreError if one is not made of numbers (draws,)."""
    if not isinstance(values, Mapping):
        raise InvalidScoreError(
            f"compute of {type(kind).__name__} returns {describe_value(values)}, expected values of the draws by name"
        )
    problem = find_problem_of_names(values)
    if problem:
        raise InvalidScoreError(f"scores of {type(kind).__name__}: {problem}")
    return {name: _make_draws(kind, name, column, draws) for name, column in values.items()}


def _make_draws(kind: object, name: str, column: Any, draws: int) -> np.ndarray:
    """Return a value of each draw as an array (draws,), also of a tensor or a list."""
    place, array = f"compute of {type(kind).__name__}: '{name}'", as_array(column)
    if column is None or isinstance(column, str):
        raise InvalidScoreError(
            f"{place} is {describe_value(column)}, expected an array ({draws},), a value for each draw"
        )
    array = np.asarray(column, object) if array is None else array
    if array.shape != (draws,):
        raise InvalidScoreError(
            f"{place} has shape {array.shape}, expected ({draws},), a value for each draw: weights are (draws, samples)"
        )
    if array.dtype.kind not in "biuf":
        if not all(isinstance(value, numbers.Real) for value in array):  # such as fractions
            raise InvalidScoreError(f"{place} is {describe_value(column)}, expected real numbers")
        array = array.astype(np.float64)
    return array


def require_line(owner: object, line: object) -> str:
    """Return what ``summary`` of metrics or of their kind returned; InvalidScoreError if it is not a text."""
    if not isinstance(line, str):
        raise InvalidScoreError(
            f"summary of {type(owner).__name__} returns {describe_value(line)}, expected the line of an evaluation"
        )
    return line


def require_names(kind: str, place: str, own: object, inherited: Collection[str], computed: Collection[str]) -> None:
    """Raise InvalidScoreError if what a user's kind declares at a place, by name, is of none of its scores.

    Names that are ``inherited`` from a kind of this package need not be computed.
    """
    if not isinstance(own, Mapping):
        raise InvalidScoreError(f"{place} of {kind} is {describe_value(own)}, expected a dictionary by name")
    unknown = [name for name in own if name not in computed and name not in inherited]
    if unknown:
        names = shorten(", ".join(computed), 300)
        raise InvalidScoreError(
            f"{place}: {unknown[0]!r} is none of the scores that {kind} computes ({names}): correct the name"
        )


def require_texts(kind: str, directions: Mapping[str, object], units: Mapping[str, object]) -> None:
    """Raise InvalidScoreError if a direction of a score of this kind, or a unit, is none."""
    for name, better in directions.items():
        if better not in (HIGHER, LOWER, ""):
            raise InvalidScoreError(
                f"directions of {kind}: {name!r} is {shorten(repr(better), 60)}, expected {HIGHER!r} or {LOWER!r} is "
                "better, or '' for neither"
            )
    for name, unit in units.items():
        if not isinstance(unit, str):
            raise InvalidScoreError(f"units of {kind}: {name!r} is {shorten(repr(unit), 60)}, expected a text, as 'mm'")
