"""The difference of two functions of weighted samples, whose answers are not known."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from paddlevit_dist.core.intervals import ClassificationCounts, ProportionRecompute, bootstrap, means
from paddlevit_dist.core.tasks import MeasuredScores, paired_scores
from paddlevit_dist.core.tasks.paired_scores import PairedScores

NUMBER = 40


def compare(first: np.ndarray, second: np.ndarray):
    pair = PairedScores.of_values(*(ProportionRecompute(means({"a": x}), {}) for x in (first, second)), NUMBER, None)
    return pair.compute_intervals(95)


def test_a_mean_has_students_interval_of_the_differences():
    generator = np.random.default_rng(0)
    first = generator.normal(size=NUMBER)
    changes = generator.normal(1.0, 0.2, NUMBER)  # far from 0
    found = compare(first, first + changes)
    reach = 2.022691 * changes.std(ddof=1) / math.sqrt(NUMBER)  # Student's quantile with 39 degrees of freedom
    assert found.difference["a"] == pytest.approx(
        (changes.mean(), changes.mean() - reach, changes.mean() + reach), abs=0.1 * reach
    )
    assert found.second["a"].value - found.first["a"].value == pytest.approx(changes.mean())


def test_scores_that_are_not_finite_have_no_difference_and_no_warning():
    endless = ProportionRecompute(lambda weights: {"a": np.full(len(weights), np.inf)}, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pair = PairedScores.of_values(endless, endless, NUMBER, None)
        assert pair.compute_intervals(95).difference == {}


class DotScores(MeasuredScores):
    def find_ranges(self, arrays, classes):
        return {"error": (0.0, math.inf)}


def test_a_range_that_a_kind_declares_holds_where_its_parent_computes_the_scores():
    errors = np.r_[np.zeros(NUMBER - 2), 50.0, 80.0]
    tables, order = ({"error": errors}, {"error": errors[::-1].copy()}), np.arange(NUMBER)
    pairs = [PairedScores.of_tables(kind(), (), tables, order, None) for kind in (DotScores, MeasuredScores)]
    ranged, free = (pair.compute_intervals(95).first["error"] for pair in pairs)
    alone = bootstrap(DotScores().declare(means(tables[0]), tables[0], ()), NUMBER, 95)["error"]
    assert free.low < 0 <= ranged.low and (ranged.low, ranged.high) == (alone.low, alone.high)


def test_intervals_of_both_are_computed_once_for_all_rates_without_a_difference(monkeypatch):
    """Of 40 samples in ten groups no answer differs, as after most exports."""
    is_right, calls = np.arange(NUMBER) % 3 > 0, []
    values = ClassificationCounts(np.arange(NUMBER) % 4, np.where(is_right, 0, 1), 4, top=(1, 5)).declare()
    hits = {"top-1": is_right, "top-5": np.ones(NUMBER, bool)}
    pair = PairedScores.of_values(values, values, NUMBER, np.arange(NUMBER) // 4)
    pair = dataclasses.replace(pair, hits=(hits, hits))
    expected = pair.compute_intervals(95).difference
    monkeypatch.setattr(paired_scores, "bootstrap", lambda *words: calls.append(words) or bootstrap(*words))
    found = pair.compute_differences(95)
    assert len(calls) == 2 and found == expected
    assert found["top-1"].has_width() and found["top-1"].value == 0
