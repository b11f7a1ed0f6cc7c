"""A task's scores as the engine uses them: sums that ranks add up, and per-sample results for intervals and tables."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from ..intervals import ConfidenceInterval
from .score_kind import Arrays


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


class Metrics:
    """Additive evaluation state: sums and counts, which are divided once, after the sums of all ranks have been added.

    A subclass keeps float64 and int64 tensors or numbers in ``state``.

    Attributes:
        state: sums and counts by name.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def merge(self: MetricsType, other: MetricsType) -> None:
        """Add the counts of metrics with the same settings, whose samples follow these, for ``library.meters``."""
        self.state = {name: value + other.state[name] for name, value in self.state.items()}

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Compute the final values by name from the state, summed over all ranks.

        Also called for a split without labels, whose values are not used: a state without samples must not raise.
        """
        raise NotImplementedError

    def summary(self, values: dict[str, float]) -> str:
        """Format the line that an evaluation ends with; for a part of the samples, from ``bootstrap_values`` only."""
        raise NotImplementedError


class PerSampleMetrics(Metrics, ABC):
    """Metrics with results of each sample, for confidence intervals, ``-per_sample`` and ``compare``."""

    #: intervals by name of the value, set before ``summary`` is called; empty if there are none
    intervals: Mapping[str, ConfidenceInterval] = {}
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
        """Compute the values of weighted samples, for the bootstrap. Called in the main process only.

        Args:
            table: the results of ``per_sample`` of all ranks, ordered by the samples' indices.
            weights: float64 (draws, samples), how often each sample counts in each draw.

        Returns:
            Values by name, float (draws,); NaN where a value is not defined.
        """

    def proportions(self, table: Sequence[np.ndarray]) -> Mapping[str, int]:
        """Return the names of values that are a proportion in percent, each with its number of trials.

        Trials are the items counted in the denominator, such as all samples or the samples of a class. These values get
        Wilson intervals instead of bootstrap intervals. ``table``: see ``bootstrap_values``.
        """
        return {}

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

        If all samples are equal, the bootstrap cannot estimate one.
        """
        interval = self.intervals.get(name)
        return f" {interval.ends(decimals)}" if interval is not None and interval.has_width() else ""
