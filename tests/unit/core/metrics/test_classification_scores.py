"""Scores of tables of classified samples: which tables are valid, what is right, and several tables at once."""

import warnings

import numpy as np
import pytest
from sklearn import metrics

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.core.metrics.classification_scores import SENSITIVITY, ClassificationScores
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


@pytest.mark.parametrize("size", [2, 4])
def test_agreement_and_curves_are_those_of_scikit_learn_also_of_weighted_samples(size):
    generator, number = np.random.default_rng(size), 300
    labels, logits = generator.integers(0, size, number), generator.normal(size=(number, size))
    logits[np.arange(number), labels] += 1.0
    shares = np.round(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), 2).clip(0.01)  # some are equal
    shares[:, 0] = 1 - shares[:, 1:].sum(axis=1)
    found, weights = shares.argmax(axis=1), generator.integers(0, 2, (3, number)).astype(np.float64)
    losses = -np.log(shares[np.arange(number), labels]).astype(np.float32)
    arrays = {"labels": labels, "places": (found != labels).astype(int), "losses": losses, "top": np.array([1])}
    arrays["predictions"] = found
    values = ClassificationScores([*map(str, range(size))]).compute(arrays, weights)
    for draw, own in enumerate(weights):
        rows = own > 0
        expected = {"MCC": metrics.matthews_corrcoef(labels[rows], found[rows])}
        expected["kappa"] = metrics.cohen_kappa_score(labels[rows], found[rows])
        precisions = 100 * metrics.precision_score(labels[rows], found[rows], average=None)
        expected["macro precision"] = precisions.mean()
        if size == 2:
            of_second = shares[rows, 1]
            false, right, _ = metrics.roc_curve(labels[rows], of_second, drop_intermediate=False)
            expected |= {"AUC": metrics.roc_auc_score(labels[rows], of_second), "precision 1": precisions[1]}
            expected["Brier score"] = metrics.brier_score_loss(labels[rows], of_second)
            expected[SENSITIVITY] = 100 * right[false <= 0.05].max()
        for name, value in expected.items():
            assert values[name][draw] == pytest.approx(value), name
    assert ("AUC" in values) == (size == 2)


def test_scores_of_one_class_alone_are_not_defined_and_have_no_warning():
    arrays = {"labels": np.ones(5, int), "places": np.zeros(5, int), "top": np.array([1])}
    arrays |= {"losses": np.full(5, -np.log(0.9)), "predictions": np.ones(5, int)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = ClassificationScores(["a", "b"]).compute(arrays, np.ones((1, 5)))
    assert all(np.isnan(values[name][0]) for name in ("MCC", "kappa", "AUC", SENSITIVITY))
    assert values["Brier score"][0] == pytest.approx(0.01) and values["macro precision"][0] == 100


def test_outputs_that_are_not_finite_have_an_infinite_loss_where_losses_are_known():
    """A training ends by it; a table of results without losses has none."""
    scores = ClassificationScores(["a", "b", "c"])
    arrays = {"labels": np.array([0, 1, 2]), "places": np.zeros(3, np.int32), "top": np.array([1])}
    weights = np.ones((1, 3))
    for predictions, losses, expected in (
        ([0, 1, -1], [0.1, 0.2, np.nan], np.inf),
        ([-1, -1, -1], [np.nan] * 3, np.inf),
        ([0, 1, 2], [0.25] * 3, 0.25),
        ([0, 1, -1], [np.nan] * 3, np.nan),
    ):
        known = {"predictions": np.array(predictions), "losses": np.array(losses, np.float32)}
        np.testing.assert_equal(scores.compute({**arrays, **known}, weights)["loss"], [expected])
