"""Confidence intervals of an evaluation, computed once from the per-sample results of all ranks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..distributed import broadcast_object, is_main
from ..intervals import (
    ConfidenceInterval,
    ProportionRecompute,
    bootstrap,
    dependent_difference,
    number_groups,
    paired_difference,
    small_sample_warning,
)
from ..runtime.json_format import format_json
from ..settings.every_run import RunSettings
from ..tasks.metrics import PerSampleMetrics, SampleTable, TableMetrics, gather_columns
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

        A rate of single samples has Newcombe's interval, which has a width even if no decision differs; see
        ``dependent_difference`` for groups, or several decisions a sample. None: there is no interval.
        """
        results = (other, self)
        if confidence is None or not np.array_equal(self.indices, other.indices):
            return None
        declared = self.metrics.declare(self.columns)

        def subtract(weights: np.ndarray) -> dict[str, np.ndarray]:
            before, after = (one.metrics.bootstrap_values(one.columns, weights) for one in results)
            return {name: after[name] - before[name]} if name in before and name in after else {}

        difference = ProportionRecompute(
            subtract, {}, declared.class_means, count_units=declared.count_units, sizes=declared.sizes
        )
        found = bootstrap(difference, len(self.indices), *confidence, self.group_names).get(name)
        tables = [one.to_sample_table() for one in results]
        columns = [require_score_kind(one.kind).hits(one.arrays, one.classes).get(name) for one in tables if one]
        hits = [column for column in columns if column is not None]
        if found is None or len(hits) < len(results):
            return found
        depends = number_groups(self.group_names) is not None
        own = [one.intervals(confidence)[name] for one in results] if depends else []
        if own or name in declared.pooled or len(hits[0]) > len(self.indices):
            return dependent_difference(found, hits[0], hits[1], confidence.percent, own)
        return paired_difference(hits[0], hits[1], confidence.percent)._replace(value=found.value)

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
