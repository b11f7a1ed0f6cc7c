"""Scores that a subclass adds to those of a kind, and their intervals by counting all halves of six samples."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from paddlevit_dist.core.intervals import ProportionRecompute, bootstrap
from paddlevit_dist.core.intervals.recompute import Recompute
from paddlevit_dist.core.intervals.score_ranges import UNBOUNDED
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.core.tasks.score_kind import Arrays, ScoreKind

SIX = 6
_MOST = 30  # names of a kind's scores
# Means of these numbers: one that has both signs, one in -1..1, an error in pixels.
OWN = {
    "bias": np.array([-3.0, 1.0, 4.0, -2.0, 0.5, 7.0]),
    "own_kappa": np.array([0.4, -0.6, 0.9, -0.1, 0.0, 0.2]),
    "error_px": np.array([90.0, 3.0, 0.5, 140.0, 61.0, 2.0]),
}


def check_own_scores(scores: ScoreKind, table: SampleTable) -> None:
    """Check the intervals of ``OWN`` in a subclass of a kind, from a table of six samples.

    So do scores whose names contain those of the kind, such as "recall bias". All other scores are proportions, or
    their range is declared.
    """
    known = list(scores.recompute([table.arrays], table.classes)(np.ones((1, SIX))))
    first = dict.fromkeys(name.partition(" ")[0] for name in known)
    names = [f"{name} of mine" for name in known[:_MOST]] + [f"my {name}" for name in known[:_MOST]]
    names += [f"{word} bias" for word in first]
    own_scores = {**OWN, **{name: OWN[kind] for name, kind in zip(names, itertools.cycle(OWN))}}

    class OwnScores(type(scores)):  # type: ignore[misc]
        def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
            declared = super().recompute(parts, classes)

            def compute_all(weights: np.ndarray) -> dict[str, np.ndarray]:
                own = {name: weights @ numbers / weights.sum(axis=1) for name, numbers in own_scores.items()}
                return {**declared(weights), **own}

            return dataclasses.replace(declared, values=compute_all)

    declared = OwnScores(table.classes).recompute([table.arrays], table.classes)
    assert isinstance(declared, ProportionRecompute)
    intervals = bootstrap(declared, SIX)
    for name, numbers in own_scores.items():
        halves = [numbers[list(half)].mean() for half in itertools.combinations(range(SIX), SIX // 2)]
        reach = stats.t.ppf(0.975, SIX - 1) * np.std(halves)
        expected = (numbers.mean(), numbers.mean() - reach, numbers.mean() + reach)
        assert tuple(intervals[name]) == pytest.approx(expected, rel=1e-6), name
    defined = [name for name, value in declared(np.ones((1, SIX))).items() if np.isfinite(value[0])]
    unknown = {name for name in defined if declared.find_range(name) == UNBOUNDED}
    means = {name for name in unknown if declared.list_rates(name)}
    assert unknown - {*declared.rates, *means} == own_scores.keys()
