"""The interval of the difference of two networks' values on the same samples."""

import math

import numpy as np
import pytest

from paddlevit_dist.core.intervals import paired_difference
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.metrics.confidence import IntervalConfig, PerSampleResults
from paddlevit_dist.core.tasks.metrics import PerSampleMetrics
from paddlevit_dist.core.tasks.sample_groups import SampleGroups

NUMBER = 400
LEVEL = IntervalConfig(95, 1000)


class MeanError(PerSampleMetrics):
    """The mean of a number of each sample."""

    def compute(self, state):
        raise NotImplementedError

    def summary(self, values):
        raise NotImplementedError

    def per_sample(self):
        raise NotImplementedError

    def bootstrap_values(self, table, weights):
        return {"error": weights @ table[0] / weights.sum(axis=1)}


def results(metrics, *columns, groups=None) -> PerSampleResults:
    return PerSampleResults(metrics, np.arange(NUMBER), list(columns), groups)


def test_a_mean_has_students_interval_of_the_differences_of_the_samples():
    random = np.random.default_rng(0)
    before = random.normal(10, 3, NUMBER)
    changes = random.normal(0.02, 0.1, NUMBER)
    first, second = results(MeanError(), before), results(MeanError(), before + changes)
    found = second.interval_of_difference(first, "error", LEVEL)
    assert found.value == pytest.approx(changes.mean())
    half = 1.966 * changes.std(ddof=1) / math.sqrt(NUMBER)  # t of 399 degrees of freedom
    assert found.high - found.value == pytest.approx(half, rel=0.06) and half < 0.05 * before.std()
    assert found.value - found.low == pytest.approx(half, rel=0.06)
    assert first.interval_of_difference(first, "error", LEVEL).has_width() is False
    assert second.interval_of_difference(first, "another", LEVEL) is None
    assert second.interval_of_difference(first, "error", None) is None
    few = PerSampleResults(MeanError(), np.arange(3), [before[:3]])
    assert second.interval_of_difference(few, "error", LEVEL) is None


def classified(places: np.ndarray, groups=None) -> PerSampleResults:
    """Results whose right class has these places, 0 for the first."""
    metrics = ClassificationMetrics(10, [str(name) for name in range(10)])
    labels = np.arange(NUMBER) % 10
    columns = {"labels": labels, "places": places, "losses": np.ones(NUMBER), "predictions": (labels + places) % 10}
    metrics.column_names = list(columns)
    return results(metrics, *columns.values(), groups=groups)


def test_a_rate_has_newcombes_interval_also_where_no_answer_differs_and_groups_widen_it():
    random = np.random.default_rng(1)
    before = (random.random(NUMBER) < 0.2).astype(np.int64)
    after = np.where(np.arange(NUMBER) < 8, 1, before)
    first, second = classified(before), classified(after)
    expected = paired_difference(before == 0, after == 0, 95)
    assert second.interval_of_difference(first, "top-1", LEVEL) == pytest.approx(expected)
    assert first.interval_of_difference(first, "top-1", LEVEL).has_width()
    groups = SampleGroups("patient", np.arange(NUMBER) // 20, "patients.csv")
    grouped = classified(after, groups).interval_of_difference(classified(before, groups), "top-1", LEVEL)
    assert grouped.high - grouped.low > 1.5 * (expected.high - expected.low)  # all changes are in one of 20 groups
