"""The intervals of an evaluation: made once of what all ranks have kept of their samples, and recorded."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..distributed import all_gather, broadcast_object, is_main
from ..intervals import ConfidenceInterval, ProportionRecompute, bootstrap, concat_rank_tables, small_sample_warning
from ..settings.every_run import RunSettings
from ..tasks.metrics import Metrics, SampleTable
from ..tasks.sample_groups import SampleGroups, draw, get_group_names
from ..tasks.truth import samples_of_classes


class IntervalConfig(NamedTuple):
    """How intervals are made.

    Attributes:
        percent: of a hundred such intervals that contain what they are about.
        resamples: see ``intervals.bootstrap``.
    """

    percent: int
    resamples: int

    @classmethod
    def of(cls, config: RunSettings) -> "IntervalConfig | None":
        """Read what EVALUATION.INTERVAL and EVALUATION.RESAMPLES ask for; None: nothing."""
        percent, resamples = config.EVALUATION.INTERVAL, config.EVALUATION.RESAMPLES
        return cls(percent, resamples) if percent else None


class PerSampleResults(NamedTuple):
    """The samples that the metrics of an evaluation have kept, joined over ranks; in the main process.

    Attributes:
        metrics: that have kept it.
        indices: int64 (samples,), ascending.
        columns: see ``Metrics.per_sample``.
        groups: of these samples; None: each is alone.
    """

    metrics: Metrics
    indices: np.ndarray
    columns: list[np.ndarray]
    groups: SampleGroups | None = None

    def kept(self) -> SampleTable | None:
        """See ``Metrics.kept``."""
        return self.metrics.to_sample_table(self.columns)

    def without(self, indices: Sequence[int]) -> "PerSampleResults":
        """The other samples."""
        stays = ~np.isin(self.indices, indices)
        groups = None if self.groups is None else self.groups.chosen(stays)
        return PerSampleResults(self.metrics, self.indices[stays], [column[stays] for column in self.columns], groups)

    def values(self) -> dict[str, float]:
        """Return what is defined of ``Metrics.bootstrap_values`` for these samples, at least one."""
        found = self.metrics.bootstrap_values(self.columns, np.ones((1, len(self.indices))))
        return {name: float(value[0]) for name, value in found.items() if not np.isnan(value[0])}

    def intervals(self, confidence: IntervalConfig | None) -> dict[str, ConfidenceInterval]:
        """By name; empty where none are wanted."""
        if confidence is None:
            return {}
        values = functools.partial(self.metrics.bootstrap_values, self.columns)
        rated = ProportionRecompute(values, self.metrics.rates(self.columns))
        return bootstrap(rated, len(self.indices), *confidence, get_group_names(self.groups))

    def small_sample_warning(self, found: Mapping[str, ConfidenceInterval], shown: Iterable[str]) -> str | None:
        """See ``intervals.small_sample_warning``; ``shown`` are the names of an evaluation's values."""
        kept, rates = self.kept(), self.metrics.rates(self.columns)
        of_class = (
            samples_of_classes(kept.kind, kept.arrays, kept.classes, get_group_names(self.groups)) if kept else {}
        )
        return small_sample_warning(*draw(self.groups, len(self.indices), "sample"), found, rates, of_class, shown)


def compute_intervals(
    metrics: Metrics,
    indices: Sequence[int],
    confidence: IntervalConfig | None,
    keep: Callable[[PerSampleResults], None] | None = None,
    groups: SampleGroups | None = None,
) -> dict[str, ConfidenceInterval]:
    """By name, equal on every rank; empty where the metrics have none. Every rank must call this.

    What ranks have kept of their samples travels once, here. The main process computes, the others wait.

    Args:
        indices: of this rank's samples, in the order in which they were evaluated.
        keep: called in the main process with the table of all samples, where there is one.
        groups: of all samples, by their indices.
    """
    own = metrics.per_sample()
    if own is not None and any(len(column) != len(indices) for column in own):
        own = None  # a task of somebody's own has added other rows than one for each sample
    gathered = all_gather((indices, own))
    if any(arrays is None for _, arrays in gathered):
        return {}
    found: dict[str, ConfidenceInterval] = {}
    if is_main():
        joined, *columns = concat_rank_tables(
            [(part, [np.asarray(part, np.int64), *arrays]) for part, arrays in gathered]
        )
        if len(joined):
            table = PerSampleResults(metrics, joined, columns, None if groups is None else groups.chosen(joined))
            found = table.intervals(confidence)
            if keep is not None:
                keep(table)
    return broadcast_object(found)


def to_event(
    intervals: Mapping[str, ConfidenceInterval], names: Iterable[str], confidence: IntervalConfig | None
) -> Any:
    """Return what an evaluation's event says of intervals: percent, and the ends for each of its values that has one,
    in the order of these names, None for one without width; empty where there are none."""
    if not intervals or confidence is None:
        return {}
    found = {name: intervals[name].plain() for name in names if name in intervals}
    ends = {name: [plain["low"], plain["high"]] if "low" in plain else None for name, plain in found.items()}
    return {"interval": {"percent": confidence.percent, **ends}}


def to_json(
    intervals: Mapping[str, ConfidenceInterval], confidence: IntervalConfig | None, facts: Mapping[str, Any]
) -> str:
    """The content of ``intervals.json``: all of them, with what they are of."""
    rows = {name: interval.plain() for name, interval in intervals.items()}
    about = {} if confidence is None else confidence._asdict()
    return json.dumps({**facts, **about, "values": rows}, indent=1) + "\n"
