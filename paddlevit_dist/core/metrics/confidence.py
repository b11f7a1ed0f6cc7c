"""Confidence intervals of an evaluation, computed once from the per-sample results of all ranks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..distributed import broadcast_object, is_main
from ..intervals import (
    ConfidenceInterval,
    bootstrap,
    number_groups,
    small_sample_warning,
)
from ..runtime.json_format import format_json
from ..settings.every_run import RunSettings
from ..tasks.metrics import PerSampleMetrics, SampleTable, TableMetrics, gather_columns
from ..tasks.paired_scores import PairedScores
from ..tasks.sample_groups import SampleGroups
from ..tasks.score_kind import require_score_kind


class IntervalConfig(NamedTuple):
    """Confidence level in percent, and number of half samples, see ``intervals.bootstrap``."""

    percent: int
    resamples: int

    @classmethod
    def from_config(cls, config: RunSettings) -> "IntervalConfig | None":
        """Read EVALUATION.INTERVAL and EVALUATION.RESAMPLES; return None if intervals are off."""
        percent, resamples = config.EVALUATION.INTERVAL, config.EVALUATION.RESAMPLES
        return cls(percent, resamples) if percent else None


class PerSampleResults(NamedTuple):
    """Per-sample results of an evaluation from all ranks; in the main process only.

    Attributes:
        indices: int64 (samples,), ascending.
        columns: arrays (samples, ...), see ``PerSampleMetrics.per_sample``.
        groups: groups of these samples; None: each sample is resampled alone.
    """

    metrics: PerSampleMetrics
    indices: np.ndarray
    columns: list[np.ndarray]
    groups: SampleGroups | None = None

    @property
    def group_names(self) -> np.ndarray | None:
        """Name of each sample's group; None without groups."""
        return None if self.groups is None else self.groups.names

    def to_sample_table(self) -> SampleTable | None:
        """Return the samples as a table for a file; None if the metrics have none."""
        return self.metrics.to_sample_table(self.columns)

    def without(self, indices: Sequence[int]) -> "PerSampleResults":
        """Return the results without the samples of these indices."""
        stays = ~np.isin(self.indices, indices)
        groups = None if self.groups is None else self.groups.select(stays)
        return PerSampleResults(self.metrics, self.indices[stays], [column[stays] for column in self.columns], groups)

    def values(self) -> dict[str, float]:
        """Compute the finite ``bootstrap_values`` of the metrics for these samples; there must be at least one."""
        values = self.metrics.bootstrap_values(self.columns, np.ones((1, len(self.indices))))
        return {name: float(value[0]) for name, value in values.items() if np.isfinite(value[0])}

    def intervals(self, confidence: IntervalConfig | None) -> dict[str, ConfidenceInterval]:
        """Compute the intervals by name; empty if ``confidence`` is None."""
        if confidence is None:
            return {}
        return bootstrap(self.metrics.declare(self.columns), len(self.indices), *confidence, self.group_names)

    def interval_of_difference(
        self, other: "PerSampleResults", name: str, confidence: IntervalConfig | None
    ) -> ConfidenceInterval | None:
        """Compute the interval of how much a value exceeds that of ``other``, of the same samples, which are paired.

        None: there is no interval; see ``PairedScores.compute_differences``.
        """
        if confidence is None or not np.array_equal(self.indices, other.indices):
            return None
        numbers = number_groups(self.group_names)
        tables = [one.to_sample_table() for one in (other, self)]
        if tables[0] is None or tables[1] is None:
            before, after = (one.metrics.declare(one.columns) for one in (other, self))
            scores = PairedScores.of_values(before, after, len(self.indices), numbers)
        else:
            kind, classes = require_score_kind(tables[0].kind, tables[0].classes), tables[0].classes
            arrays, order = (tables[0].arrays, tables[1].arrays), np.arange(len(self.indices))
            scores = PairedScores.of_tables(kind, classes, arrays, order, numbers)
        return scores.compute_differences(confidence.percent).get(name)

    def small_sample_warning(self, intervals: Mapping[str, ConfidenceInterval], shown: Iterable[str]) -> str | None:
        """Return the warning of ``intervals.small_sample_warning`` for these samples and ``shown`` values, or None."""
        declared = self.metrics.declare(self.columns)
        units = (len(self.indices), "sample") if self.groups is None else self.groups.units()
        with_range = [name for name in shown if declared.find_range(name) is not None]
        return small_sample_warning(*units, intervals, declared.rates, with_range, self.metrics.few)


def compute_intervals(
    metrics: PerSampleMetrics,
    indices: Sequence[int],
    confidence: IntervalConfig | None,
    keep: Callable[[PerSampleResults], None] | None = None,
    groups: SampleGroups | None = None,
) -> dict[str, ConfidenceInterval]:
    """Gather the per-sample results and compute intervals in the main process. Every rank must call this.

    Returns intervals by name, equal on every rank; empty without ``confidence``, or if the metrics do not have one row
    per sample.

    Args:
        indices: indices of this rank's samples in the order in which they were evaluated.
        keep: called in the main process with the table of all samples, if there is one.
        groups: groups of all samples, ordered by index.
    """
    if isinstance(metrics, TableMetrics) and metrics.indices is not None:
        gathered = metrics.gathered  # by ``compute``
    else:
        gathered = gather_columns(dict(enumerate(metrics.per_sample())), indices)
    intervals: dict[str, ConfidenceInterval] = {}
    if is_main() and gathered is not None and gathered[0] is not None and len(gathered[0]):
        all_indices, columns = gathered[0], list(gathered[1].values())
        table = PerSampleResults(metrics, all_indices, columns, None if groups is None else groups.select(all_indices))
        intervals = table.intervals(confidence)
        if keep is not None:
            keep(table)
    return broadcast_object(intervals)


def to_event(
    intervals: Mapping[str, ConfidenceInterval], names: Iterable[str], confidence: IntervalConfig | None
) -> Any:
    """Return the intervals as an event stores them; empty if there are none.

    "interval" is a dict with "percent" and, for each value with an interval, its two ends, or None if they are equal.
    """
    if not intervals or confidence is None:
        return {}
    plain_intervals = {name: intervals[name].plain() for name in names if name in intervals}
    ends = {name: [plain["low"], plain["high"]] if "low" in plain else None for name, plain in plain_intervals.items()}
    return {"interval": {"percent": confidence.percent, **ends}}


def to_json(
    intervals: Mapping[str, ConfidenceInterval], confidence: IntervalConfig | None, facts: Mapping[str, Any]
) -> str:
    """Format the content of ``intervals.json``: all intervals with the facts that describe the evaluation."""
    rows = {name: interval.plain() for name, interval in intervals.items()}
    about = {} if confidence is None else confidence._asdict()
    return format_json({**facts, **about, "values": rows}, indent=1) + "\n"
