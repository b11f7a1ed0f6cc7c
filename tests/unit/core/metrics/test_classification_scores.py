"""Scores of tables of classified samples: which tables are valid, what is right, and several tables at once."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.core.metrics.classification_scores import ClassificationScores
from paddlevit_dist.core.tasks.score_kind import find_score_kind

NAMES = ["cow", "ant", "bee"]


def make_table(**changes):
    table = {"labels": [2, 0, 2, 1], "places": [0, 2, 1, 0], "losses": [0.5, 2.0, 1.0, 0.25], "top": [1, 2]}
    return {name: np.array(values) for name, values in {**table, **changes}.items()}


@pytest.mark.parametrize(
    "changes, is_valid",
    [
        ({}, True),
        ({"predictions": [2, -1, 0, 1]}, True),  # -1: not known
        ({"predictions": [2, 3, 0, 1]}, False),
        ({"predictions": [2, -2, 0, 1]}, False),
        ({"predictions": [2, 1, 0]}, False),
        ({"labels": [2, 0, 3, 1]}, False),
        ({"labels": [2, 0, -1, 1]}, False),
        ({"places": [0, 2, 1]}, False),
        ({"losses": [[0.5], [2.0], [1.0], [0.25]]}, False),
    ],
)
def test_columns_have_a_row_for_each_sample_and_classes_in_their_range(changes, is_valid):
    assert ClassificationScores().is_valid(make_table(**changes), 4, 3) == is_valid


def test_right_samples_are_those_among_the_best():
    scores, table = find_score_kind("classes"), make_table(predictions=[2, 1, 1, 1])
    assert type(scores) is ClassificationScores
    assert (scores.class_score, scores.decimals, scores.right_rate) == ("recall {}", 2, "top-1")
    hits = {name: values.tolist() for name, values in scores.hits(table, NAMES).items()}
    assert hits == {
        **{"top-1": [True, False, False, True], "top-2": [True, False, True, True]},
        **{"recall cow": [False], "recall ant": [True], "recall bee": [True, False]},
    }
    assert scores.truth(table).tolist() == [2, 0, 2, 1] and scores.predictions(table).tolist() == [2, 1, 1, 1]
    assert scores.predictions(make_table()) is None


def test_several_tables_are_scored_as_one():
    more = make_table(labels=[0, 0], places=[0, 5], losses=[3.0, np.nan])
    recompute = ClassificationScores().recompute([make_table(), more], NAMES)
    values = {name: float(column[0]) for name, column in recompute(np.ones((1, 6))).items()}
    expected = {"top-1": 50.0, "top-2": 400 / 6, "recall cow": 100 / 3, "recall ant": 100.0, "recall bee": 50.0}
    expected |= {"balanced accuracy": (100 / 3 + 100 + 50) / 3, "loss": 6.75 / 5}
    assert values == pytest.approx(expected)
    absent = ClassificationScores().recompute([make_table(), more], [*NAMES, "dog"])(np.ones((1, 6)))
    assert np.isnan(absent.pop("recall dog")).all() and absent.keys() == expected.keys()
    assert recompute.rates == {"top-1": 6, "top-2": 6, "recall cow": 3, "recall ant": 1, "recall bee": 2}


class ScoresWithRates(ClassificationScores):
    """A rate whose name begins as those of classes do."""

    def compute(self, arrays, weights):
        return {**super().compute(arrays, weights), "recall of two": 100.0 * (weights @ arrays["places"] < 2)}

    def hits(self, arrays, classes):
        return {**super().hits(arrays, classes), "recall of two": arrays["places"][:2] < 1}


def test_a_mean_of_rates_is_of_those_of_classes_alone():
    table = make_table(labels=np.arange(60) % 3, places=np.zeros(60, int), losses=np.ones(60))
    plain, more = (
        bootstrap(kind(NAMES).recompute([table], NAMES), 60)["balanced accuracy"]
        for kind in (ClassificationScores, ScoresWithRates)
    )
    assert more == plain and plain.low < 95


class ScoresWithTwins(ClassificationScores):
    """A score below zero, and the same score moved by 50."""

    def compute(self, arrays, weights):
        values = super().compute(arrays, weights)
        return {**values, "low": values["top-1"] / 100 - 0.9, "high": values["top-1"] / 100 + 49.1}


def test_the_interval_of_a_subclasss_score_has_no_bounds_that_nobody_declared():
    rng = np.random.default_rng(0)
    table = make_table(labels=rng.integers(0, 3, 60), places=rng.integers(0, 3, 60), losses=np.ones(60))
    intervals = bootstrap(ScoresWithTwins(NAMES).recompute([table], NAMES), 60)
    low, high = intervals["low"], intervals["high"]
    assert low.low < low.value < low.high < 0
    assert [low.low, low.high] == pytest.approx([high.low - 50, high.high - 50])
    assert low.high - low.value == pytest.approx(low.value - low.low)
