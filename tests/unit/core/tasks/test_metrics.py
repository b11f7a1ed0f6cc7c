"""Metrics that ranks add up, and their results for each sample."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.core.tasks.metrics import Metrics, PerSampleMetrics


class Weighed(PerSampleMetrics):
    """The mean weight of samples, and its square."""

    lists = ("weights", "names")

    def __init__(self, weights, names):
        super().__init__()
        self.weights, self.names = list(weights), list(names)
        self.state = {"sum": float(sum(weights)), "count": len(weights)}

    def per_sample(self):
        return [np.array(self.weights), np.array(self.names)]

    def bootstrap_values(self, table, weights):
        mean = (weights * table[0]).sum(1) / weights.sum(1)
        return {"mean": mean, "square": mean**2}


def test_counts_and_lists_are_merged_in_order():
    metrics = Weighed([1.0, 4.0], "ab")
    metrics.merge(Weighed([2.5], "c"))
    assert metrics.state == {"sum": 7.5, "count": 3}
    assert (metrics.weights, metrics.names) == ([1.0, 4.0, 2.5], ["a", "b", "c"])
    plain, other = Metrics(), Metrics()
    assert plain.state == {}
    plain.state, other.state = {"right": 3, "all": 5}, {"right": 2, "all": 9}
    plain.merge(other)
    assert plain.state == {"right": 5, "all": 14}


def test_a_table_of_samples_has_the_values_of_each_alone():
    metrics = Weighed([1.0, 4.0, 2.5], "abc")
    assert metrics.columns(metrics.per_sample()) == {"mean": [1.0, 4.0, 2.5], "square": [1.0, 16.0, 6.25]}
    assert (metrics.proportions([]), metrics.to_sample_table([])) == ({}, None)


@pytest.mark.parametrize("low, high, text", [(1.25, 3.5, " [1.25, 3.50]"), (2.0, 2.0, "")])
def test_an_interval_is_shown_if_it_has_a_width(low, high, text):
    metrics = Weighed([1.0], "a")
    assert metrics.format_interval("mean", 2) == "" and not metrics.intervals
    interval = ConfidenceInterval(2.0, low, high)
    metrics.intervals = {"mean": interval}
    assert metrics.format_interval("mean", 2) == text
    assert metrics.format_interval("square", 2) == ""
