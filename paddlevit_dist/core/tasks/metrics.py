"""A task's scores as the engine uses them: sums that ranks add up, and per-sample results for intervals and tables."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..intervals import ConfidenceInterval, ProportionRecompute, concat_rank_tables
from ..intervals.recompute import Recompute
from ..intervals.resampling import FEW
from ..intervals.score_ranges import require_inside
from .packed_columns import exchange_columns
from .score import Score
from .score_kind import LOSS, OWN_LOSS, Arrays, ScoreKind, require_score_kind
from .table_checks import require_draws, require_line, require_rows

_COUNT = "loss count"  # samples or elements in the sum of ``add_own_loss``


class SampleTable(NamedTuple):
    """The samples of an evaluation for a file, from which ``compare`` computes scores again without the metrics.

    Attributes:
        kind: registered name of the ``ScoreKind`` that computes scores from the arrays.
        classes: names of classes, or of landmarks.
        arrays: arrays of numbers or booleans, by name.
    """

    kind: str
    classes: Sequence[str]
    arrays: Arrays


MetricsType = TypeVar("MetricsType", bound="Metrics")
PerSampleType = TypeVar("PerSampleType", bound="PerSampleMetrics")
TableType = TypeVar("TableType", bound="TableMetrics")


class ShownValues(dict[str, Any]):
    """Values for ``Metrics.summary``: one that is not defined reads as NaN, and is not among them."""

    def __init__(self, values: Mapping[str, Any], undefined: Collection[str]) -> None:
        super().__init__({name: value for name, value in values.items() if name not in undefined})
        self._undefined = undefined

    def __missing__(self, name: str) -> float:
        if name in self._undefined:
            return math.nan
        raise KeyError(name)


class Metrics:
    """Additive evaluation state: sums and counts, which are divided once, after the sums of all ranks have been added.

    A subclass keeps float64 and int64 tensors or numbers in ``state``.

    Attributes:
        state: sums and counts by name.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def find_undefined(self, values: Mapping[str, float]) -> Collection[str]:
        """Return the names of values that the samples, or the answers, do not define: those that are NaN or None."""
        return {name for name, value in values.items() if value is None or value != value}

    def merge(self: MetricsType, other: MetricsType) -> None:
        """Add the counts of metrics with the same settings, whose samples follow these, for ``library.meters``."""
        self.state = {name: value + other.state[name] for name, value in self.state.items()}

    @abstractmethod
    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the final values by name from the state, summed over all ranks; NaN where one is not defined.

        It is not called for a split without labels. An infinite value ends a training run.
        """

    @abstractmethod
    def summary(self, values: dict[str, float]) -> str:
        """Format the line that an evaluation ends with; for a part of the samples, from ``bootstrap_values`` only.

        A value that is not defined is not among ``values``, but reads as NaN.
        """


class PerSampleMetrics(Metrics, ABC):
    """Metrics with results of each sample, for confidence intervals, ``-per_sample`` and ``compare``."""

    #: intervals by name of the value, set before ``summary`` is called; empty if there are none
    intervals: Mapping[str, ConfidenceInterval] = {}
    #: see ``ScoreKind.few``
    few: int = FEW
    #: names of attributes that are lists and grow with each sample or batch
    lists: ClassVar[Sequence[str]] = ()

    def merge(self: PerSampleType, other: PerSampleType) -> None:
        """Add the counts and the lists of other metrics with the same settings, whose samples follow after these."""
        super().merge(other)
        for name in self.lists:
            getattr(self, name).extend(getattr(other, name))

    @abstractmethod
    def per_sample(self) -> Sequence[np.ndarray]:
        """Return the per-sample results that ``bootstrap_values`` needs.

        Called on each rank after ``compute``; it may wait for the device, which ``update`` should not.

        Returns:
            Arrays (samples, ...) of any dtype, also of objects, with exactly one row for each sample of this rank, in
            the order in which the samples were added; otherwise there are no intervals. They are gathered from all
            ranks and so should be small.
        """

    @abstractmethod
    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute the values of weighted samples, for intervals. Called in the main process only.

        Args:
            table: the results of ``per_sample`` of all ranks, ordered by the samples' indices.
            weights: float64 (draws, samples), how often each sample counts in each draw.

        Returns:
            Values by name, float (draws,); NaN where a value is not defined.
        """

    def proportions(self, table: Sequence[np.ndarray]) -> Mapping[str, int]:
        """Return the names of values that are a proportion in percent, each with its number of trials.

        Trials are the items counted in the denominator, such as all samples or the samples of a class. These values get
        Wilson intervals. ``table``: see ``bootstrap_values``.
        """
        return {}

    def declare(self, table: Sequence[np.ndarray]) -> ProportionRecompute:
        """Return ``bootstrap_values`` of this table with what intervals need to know of its values."""
        return ProportionRecompute(functools.partial(self.bootstrap_values, table), self.proportions(table))

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable | None:
        """Return the samples as a table for a file, or None if no file is written.

        Called in the main process only, after ``bootstrap_values``, which explains ``table``.
        """
        return None

    def columns(self, table: Sequence[np.ndarray]) -> Mapping[str, Sequence[Any]]:
        """Return the columns of a table about each sample, for people; by default the values of the sample alone.

        Called in the main process only, after ``compute``. Numbers (a cell is empty if one is not finite), booleans or
        texts by column, in the order of ``table``, see ``bootstrap_values``.
        """
        rows = [[column[row : row + 1] for column in table] for row in range(len(table[0]))]
        row_values = [self.bootstrap_values(row, np.ones((1, 1))) for row in rows]
        return {name: [float(values[name][0]) for values in row_values] for name in row_values[0]}

    def format_interval(self, name: str, decimals: int) -> str:
        """Format the interval of a value after a space, for ``summary``; empty if there is none, or one without width.

        If all samples are equal, the deviation cannot be estimated.
        """
        interval = self.intervals.get(name)
        return f" {interval.ends(decimals)}" if interval is not None and interval.has_width() else ""


def gather_columns(
    columns: Mapping[Any, np.ndarray], indices: Sequence[int] | None
) -> tuple[np.ndarray | None, dict[Any, np.ndarray]]:
    """Gather the rows of all ranks, ordered by the samples' indices. Every rank must call this.

    Args:
        columns: arrays (samples of this rank, ...) by name; may be empty without samples.
        indices: indices of these samples in their data set; None if they are not known.

    Returns:
        Indices of all samples, int64 (samples,), ascending and unique, and their columns, (samples, ...) each. If a
        rank has other indices than rows, there are no indices, and the rows of ranks follow one another.

    Raises:
        ValueError: ranks have other columns.
    """
    number = len(next(iter(columns.values()), ()))
    is_known = indices is not None and all(len(column) == len(indices) for column in columns.values())
    is_known = is_known and bool(columns or not indices)
    gathered = exchange_columns(indices if is_known else None, number, columns)
    has_indices = all(part is not None for part, _, _ in gathered)
    ends = np.cumsum([rows for _, rows, _ in gathered])
    parts = [
        (part if has_indices else range(end - rows, end), own) for (part, rows, own), end in zip(gathered, ends) if rows
    ]
    names = list(parts[0][1]) if parts else []
    for _, own in parts:
        if list(own) != names:
            raise ValueError(f"processes have the columns {list(own)} and {names}: add the same ones for each sample")
    tables = [(part, [np.asarray(part, np.int64), *own.values()]) for part, own in parts]
    all_indices, *rows = concat_rank_tables(tables) if tables else [np.zeros(0, np.int64)]
    return all_indices if has_indices else None, dict(zip(names, rows))


class TableMetrics(PerSampleMetrics):
    """Metrics that are a table with a row for each sample, from which a ``ScoreKind`` computes all values.

    The rows of all ranks are ordered by the samples' indices, so that values are equal on any number of processes.

    Args:
        kind: registered name of the kind.
        class_names: names of the classes, or of landmarks.
        settings: arrays of the table that are not rows, see ``ScoreKind.settings``.

    Raises:
        UserError: no kind of this name is registered.
    """

    lists: ClassVar[Sequence[str]] = ("_batches",)
    kind: str
    scores: ScoreKind
    #: indices in the data set of the samples that were added, in their order, set before ``compute``; None: unknown
    indices: Sequence[int] | None = None
    #: whether all samples of a split are added; False if the first ones try the metrics
    is_complete: bool = True
    #: whether the task's loss is one of a user, and not the cross-entropy of the table
    has_own_loss: bool = False
    #: whether ``add_own_loss`` is to be called for each batch
    expects_loss: bool = False
    #: result of ``gather_columns`` after ``compute``, in the main process; None in others
    gathered: tuple[np.ndarray | None, dict[Any, np.ndarray]] | None = None

    def __init__(self, kind: str, class_names: Sequence[str] = (), settings: Arrays | None = None) -> None:
        super().__init__()
        self.class_names = list(class_names)
        self.score_by(kind)
        self.settings = dict(settings or {})
        self._undefined: Collection[str] = ()  # of the last ``compute``
        self.column_names: list[str] = []  # of ``per_sample``, once it was called, or ``compute``
        self._batches: list[tuple[Sequence[str], Callable[[], Sequence[np.ndarray]]]] = []  # names and values
        self._prepared: tuple[Any, Recompute] | None = None  # the table that ``bootstrap_values`` had last, its scores

    def score_by(self: TableType, kind: str) -> TableType:
        """Let another kind compute the scores from the same columns; return these metrics.

        A task of yours calls it in ``build_metrics``. Raises UserError: no kind of this name is registered.
        """
        self.kind, self.scores = kind, require_score_kind(kind, self.class_names)
        self.few = self.scores.few
        return self

    def add(self, **columns: Any) -> None:
        """Add a sample: a number or an array for each column, with the same columns and shapes for all samples."""
        self.add_batch(**{name: np.array(value)[None] for name, value in columns.items()})

    def add_batch(self, **columns: Any) -> None:
        """Add the samples of a batch: columns (batch, ...), all arrays or all tensors. This does not wait for a GPU.

        Arrays may not be changed afterwards.

        Raises:
            ValueError: the columns have other names than before, or different numbers of rows.
        """
        names, values = list(columns), list(columns.values())
        require_rows(columns, self._batches[0][0] if self._batches else None)
        if isinstance(values[0], np.ndarray):
            self._batches.append((names, lambda: values))
        else:
            from ..runtime.transfers import read_later  # needs Paddle

            self._batches.append((names, read_later(*values)))

    def expect_own_loss(self, is_added: bool) -> None:
        """Note that the task's loss is one of a user, see ``has_own_loss``; ``is_added``: by ``add_own_loss``."""
        self.has_own_loss, self.expects_loss = self.scores.has_cross_entropy, is_added
        if is_added:
            import paddle  # nothing else here needs it

            self.state |= {LOSS: paddle.zeros([1], "float64"), _COUNT: paddle.zeros([1], "int64")}

    def add_own_loss(self, term: Any) -> None:
        """Add the loss of a batch, a ``LossTerm``: summed over samples or elements, with their number."""
        self.state[LOSS] = self.state[LOSS] + term.sum.detach().astype("float64").reshape([1])
        self.state[_COUNT] = self.state[_COUNT] + term.count

    def rows(self) -> dict[str, np.ndarray]:
        """Return the columns of this rank's samples, (samples, ...) each; none without samples."""
        names = self._batches[0][0] if self._batches else []
        columns = zip(*(read() for _, read in self._batches))
        return {name: np.concatenate(column) for name, column in zip(names, columns)}

    def per_sample(self) -> list[np.ndarray]:
        """Return the columns of ``rows``."""
        rows = self.rows()
        self.column_names = list(rows)
        return list(rows.values())

    def to_arrays(self, table: Sequence[np.ndarray]) -> Arrays:
        """Return the arrays that ``scores`` reads, from the columns of all samples in the order of ``column_names``."""
        marks = {OWN_LOSS: np.ones(len(table[0]), bool)} if self.has_own_loss else {}
        return {**dict(zip(self.column_names, table)), **marks, **self.settings}

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the defined values of all ranks' samples, and counts. Every rank must call this.

        ``find_undefined`` names the others.

        An infinite value ends a training run. Raises InvalidScoreError: a value is outside of its range or not a
        number, or the kind declares facts about a score that it does not compute.
        """
        from ..distributed import is_main  # needs Paddle

        gathered = gather_columns(self.rows(), self.indices)
        self.column_names, table = list(gathered[1]), list(gathered[1].values())
        self.gathered = gathered if is_main() else None
        if not table:
            return {}
        arrays = self.to_arrays(table)
        columns = self.bootstrap_values(table, np.ones((1, len(table[0]))))
        self.scores.require_declared(columns, arrays, self.class_names)
        find_range = self.declare(table).find_range
        for name, column in columns.items():
            if np.isfinite(column[0]):
                require_inside(name, float(column[0]), find_range(name))
        hidden = () if self.scores.logs_classes else {self.scores.class_score.format(name) for name in self.class_names}
        known = {name: float(column[0]) for name, column in columns.items() if name not in hidden}
        if self.expects_loss and LOSS not in known:
            count = state[_COUNT].item()
            known[LOSS] = state[LOSS].item() / count if count else math.nan
        self._undefined = {name for name, value in known.items() if np.isnan(value)}
        defined = {name: value for name, value in known.items() if name not in self._undefined}
        return {**defined, **self.scores.counts(arrays)}

    def find_undefined(self, values: Mapping[str, float]) -> Collection[str]:
        """Return the names of the scores that were NaN in ``compute``."""
        return self._undefined

    def describe(self, values: Mapping[str, float]) -> dict[str, Score]:
        """Return ``ScoreKind.describe`` of all but the counts, after ``compute``; in the main process only."""
        if self.gathered is None or not self.gathered[1]:
            return {}
        arrays = self.to_arrays(list(self.gathered[1].values()))
        names = [name for name, value in values.items() if not isinstance(value, int)]
        return self.scores.describe(names, arrays, self.class_names)

    def describe_classes(self) -> list[Score]:
        """Return ``ScoreKind.describe_classes``, after ``compute``; in the main process only."""
        if self.gathered is None or not self.gathered[1]:
            return []
        return self.scores.describe_classes(self.to_arrays(list(self.gathered[1].values())), self.class_names)

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> Mapping[str, np.ndarray]:
        """Compute the scores of weighted samples by ``ScoreKind.recompute``, which prepares a table once."""
        if self._prepared is None or self._prepared[0] is not table[0]:
            self._prepared = table[0], self.scores.recompute_scores([self.to_arrays(table)], self.class_names)
        return require_draws(self.scores, self._prepared[1](weights), len(weights))

    def declare(self, table: Sequence[np.ndarray]) -> ProportionRecompute:
        """Return ``ScoreKind.declare``."""
        values = functools.partial(self.bootstrap_values, table)
        return self.scores.declare(values, self.to_arrays(table), self.class_names)

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Return the arrays that a file has."""
        arrays = {name: array for name, array in self.to_arrays(table).items() if name not in self.scores.unsaved}
        return SampleTable(self.kind, self.class_names, arrays)

    def columns(self, table: Sequence[np.ndarray]) -> Mapping[str, Sequence[Any]]:
        """Return ``ScoreKind.columns``."""
        return self.scores.columns(self.to_arrays(table))

    def summary(self, values: dict[str, float]) -> str:
        """Return ``ScoreKind.summary``; raises InvalidScoreError if it is not a text."""
        line = self.scores.summary(ShownValues(values, self._undefined), self.format_interval)
        return require_line(self.scores, line)
