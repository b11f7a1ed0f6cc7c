"""Try, before the first update, what an evaluation asks of a user's task, metrics and kind of scores."""

import math
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..intervals.score_ranges import InvalidScoreError
from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.metrics_file import require_free_names
from ..runtime.printing import describe_value
from ..tasks.metrics import Metrics, PerSampleMetrics, ShownValues, TableMetrics
from ..tasks.score import HIGHER, LOWER
from ..tasks.score_kind import CROSS_ENTROPY, LOSS
from ..tasks.table_checks import require_line
from ..tasks.task import Task
from ..tasks.task_factory import require_best_metric

_MISTAKES = (AttributeError, LookupError, NameError, TypeError)  # others may come from few samples, or from untrained


def require_value(task: Task, values: Mapping[str, float], undefined: Collection[str] = ()) -> None:
    """Raise UserError if an evaluation's values lack the one that the task's ``best_metric`` names, or it is not valid.

    ``undefined``: names of values that its samples do not define.
    """
    require_best_metric(task)
    name = task.best_metric[0]
    if name not in values and name not in undefined:
        if name == LOSS and CROSS_ENTROPY in values:
            raise UserError(
                f"best_metric of {type(task).__name__} is '{LOSS}', but an evaluation does not compute the loss of its "
                f"train_step: choose another score, such as ('{CROSS_ENTROPY}', False)"
            )
        names = ", ".join([*values, *undefined])
        raise UserError(
            f"best_metric of {type(task).__name__} is '{name}', which compute does not return; "
            f"it returns {names or 'no value'}"
        )


def check_values(metrics: Metrics, values: Mapping[str, Any]) -> Collection[str]:
    """Return the names of computed values that are undefined.

    Raises UserError: a name is not a text, or "percent", the name of an interval's level. Raises InvalidScoreError: one
    is not a number.
    """
    place = f"compute of {describe_owner(metrics)}"
    if not isinstance(values, Mapping):
        raise InvalidScoreError(f"{place} returns {describe_value(values)}, expected values by name")
    undefined = metrics.find_undefined(values)
    require_free_names([*values, *undefined], f"scores of {describe_owner(metrics)}", ("percent",))
    for name, value in values.items():
        if name not in undefined and not _is_number(value):
            raise InvalidScoreError(f"{place}: '{name}' is {describe_value(value)}, expected a number")
    return undefined


def _is_number(value: Any) -> bool:
    try:
        math.isfinite(value)  # as an evaluation asks of it
    except TypeError:
        return False
    return True


def find_problem(task: Task, metrics: Metrics, state: dict[str, Any]) -> str:
    """Compute and show the values, and columns of a table; return what is wrong, on the rank that finds it.

    Empty: nothing is, or it cannot be told from these samples and weights. Every rank must call this.
    """
    method, values = "compute", None
    try:
        values = metrics.compute(state)
        undefined = check_values(metrics, values)
        require_value(task, values, undefined)
        _require_one_direction(task, metrics)
        method = "summary"
        require_line(metrics, metrics.summary(ShownValues(values, undefined)))
        if isinstance(metrics, TableMetrics) and metrics.gathered is not None:
            method = "columns"
            _try_table(metrics, list(metrics.gathered[1].values()))
    except UserError as error:
        return str(error) if values is not None or isinstance(error, InvalidScoreError) else ""
    except _MISTAKES as error:
        if method == "summary" and isinstance(error, KeyError):
            is_interval = error.args[0] in (values or ())  # there are none yet
            return "" if is_interval else f"summary of {_find_shower(metrics)}: compute does not return {error}"
        return describe_failure(metrics, method, error)
    except Exception:  # a user's code may raise anything
        return ""
    return ""


def _require_one_direction(task: Task, metrics: Metrics) -> None:
    """Raise UserError if the task and the kind of scores say another direction of the score that chooses the best."""
    name, more_is_better = task.best_metric
    declared = metrics.scores.directions.get(name) if isinstance(metrics, TableMetrics) else None
    chosen = HIGHER if more_is_better else LOWER
    if declared not in (None, "", chosen):  # "" says neither of them
        raise UserError(
            f"best_metric of {type(task).__name__} says of '{name}' that {chosen} is better, and directions of "
            f"{describe_owner(metrics)} that {declared} is: change one"
        )


def _try_table(metrics: TableMetrics, table: list[np.ndarray]) -> None:
    number = len(table[0]) if table else 0
    if not number:
        return
    draws = np.ones((2, number))
    draws[1, : number // 2] = 0.0  # half of the samples, as for intervals
    metrics.bootstrap_values(table, draws)
    saved = {name: array for name, array in metrics.to_arrays(table).items() if name not in metrics.scores.unsaved}
    try:  # as ``compare`` computes them, from a file
        metrics.scores.recompute_scores([saved], metrics.class_names)(draws)
    except KeyError as missing:
        raise UserError(
            f"compute of {describe_owner(metrics)} reads {missing}, which files for compare do not have: set "
            "unsaved = () in the class"
        ) from missing
    _require_rows(metrics, metrics.columns(table), number)


def compute_columns(metrics: PerSampleMetrics, table: list[np.ndarray], number: int) -> Mapping[str, Sequence[Any]]:
    """Return the columns of a table of this number of samples; UserError if the metrics or their kind cannot."""
    try:
        columns = metrics.columns(table)
    except UserError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise UserError(describe_failure(metrics, "columns", error)) from error
    return _require_rows(metrics, columns, number)


def _require_rows(metrics: Metrics, columns: Mapping[str, Sequence[Any]], number: int) -> Mapping[str, Sequence[Any]]:
    for name, column in columns.items():
        if len(column) != number:
            raise UserError(
                f"columns of {describe_owner(metrics)}: '{name}' has {len(column)} rows for {number} samples: return "
                "one for each"
            )
    return columns


def describe_owner(metrics: Metrics) -> str:
    """Return the name of the class that computes the values."""
    return type(metrics.scores if isinstance(metrics, TableMetrics) else metrics).__name__


def _find_shower(metrics: Metrics) -> str:
    """Return the name of the class whose ``summary`` a user has written, or that shows our metrics."""
    return describe_owner(metrics) if is_builtin(type(metrics).summary) else type(metrics).__name__


def describe_failure(metrics: Metrics, method: str, error: Exception) -> str:
    """Describe in a line why a method of the metrics, or of their kind of scores, fails."""
    owner = describe_owner(metrics)
    if isinstance(metrics, TableMetrics) and isinstance(error, KeyError):
        names = [*metrics.column_names, *metrics.settings]
        if error.args[0] not in names:
            return f"{method} of {owner} reads {error}, which its table lacks: it has {', '.join(names)}"
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{method} of {owner}: {type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
