"""Samples of one group, and decisions of one sample, count as what they say together."""

import math

import numpy as np
import pytest

from paddlevit_dist.core.intervals import (
    ClassificationCounts,
    ProportionRecompute,
    bootstrap,
    means,
    quotient,
    resampling,
    units,
    wilson,
)
from paddlevit_dist.core.intervals.quantiles import student_quantile


def test_things_of_one_sample_that_agree_count_as_one():
    right = np.repeat(np.random.default_rng(0).random(100) < 0.8, 19).reshape(100, 19)
    values = means({"share": 100.0 * right.mean(axis=1)})
    found = bootstrap(ProportionRecompute(values, {"share": right.size}), 100)["share"]
    alone = wilson(100.0 * right.mean(), 100, 95)
    assert found.low == pytest.approx(alone.low, abs=1.0) and found.high == pytest.approx(alone.high, abs=1.0)


def test_groups_of_equal_size_are_drawn_as_samples_with_their_means():
    generator = np.random.default_rng(3)
    numbers, order = generator.gamma(2.0, 1.0, (40, 6)), generator.permutation(240)
    groups = np.repeat(np.arange(40), 6)[order]
    first = list(dict.fromkeys(groups.tolist()))  # groups are numbered as they come
    found = bootstrap(means({"mean": numbers.ravel()[order]}), 240, groups=[f"video {one}" for one in groups])
    assert found["mean"] == pytest.approx(bootstrap(means({"mean": numbers.mean(axis=1)[first]}), 40)["mean"])


def test_a_rate_whose_draws_are_all_alike_is_of_as_many_as_there_are_groups():
    """All of one class are in one video, or right in each."""
    labels, of_video = np.repeat([0, 1, 1, 1, 1], 20), np.repeat(np.arange(5), 20)
    places = (np.arange(100) < 4).astype(int)  # 16 of 20 of class 0
    classified = ClassificationCounts(labels, places, 2)
    found = bootstrap(ProportionRecompute(classified, classified.rates()), 100, groups=of_video)
    quantiles = [student_quantile(0.975, freedom) for freedom in (1, 3)]  # one of one group is not known
    assert found["recall 0"] == wilson(80.0, 1, 95, quantiles[0])
    assert found["recall 1"] == wilson(100.0, 4, 95, quantiles[1])


@pytest.mark.parametrize(
    ("share", "deviation", "independent"),
    [
        (0.0, 0.0, 5),  # no deviation: as many as there are samples
        (0.5, 1e-10, 5),  # but for rounding
        (0.5, 0.1, 25.0),  # 0.5 * 0.5 / 0.1^2
        (0.5, 0.6, 1.0),
        (0.5, 0.01, 100),  # no more than there are
    ],
)
def test_decisions_count_as_many_as_would_vary_as_much(share, deviation, independent):
    assert units.count_independent(100, 5, share, deviation) == pytest.approx(independent)
    assert units.count_independent(3, 5, share, 0.0) == 3


def test_how_many_groups_are_counted_at_a_time_changes_nothing(monkeypatch):
    generator = np.random.default_rng(0)
    groups, has_both = generator.integers(0, 200, 300), generator.random(300) < 0.3
    right = (generator.random(200) < 0.8)[groups].astype(float)

    def share(weights, counted):
        counts = weights @ counted
        return 100 * (weights @ (right * counted)) / np.where(counts, counts, np.nan)

    def score(weights):
        return {"all": share(weights, np.ones(300)), "some": share(weights, has_both.astype(float))}

    recompute = ProportionRecompute(score, {"all": 300, "some": int(has_both.sum())})
    whole = bootstrap(recompute, 300, resamples=50, groups=groups)
    defined = {"all": len(set(groups)), "some": len(set(groups[has_both]))}
    equal = 300**2 / (np.unique(groups, return_counts=True)[1] ** 2).sum()
    for most in (1, 300 * 7, 300 * 10_000):
        for module in (resampling, units):
            monkeypatch.setattr(module, "MOST_WEIGHTS", most)
        assert bootstrap(recompute, 300, resamples=50, groups=groups) == whole
        counts = units.UnitCounts(recompute, 300, units.number_groups(groups))
        found = {name: counts.get_rate(name).number for name in defined}
        assert found == pytest.approx({"all": equal, "some": equal / defined["all"] * defined["some"]})


def test_a_score_that_no_group_alone_defines_varies_as_by_drawing_groups():
    """The correlation of true and found classes, where each of 60 patients has images of one class only."""
    generator = np.random.default_rng(0)
    patients = np.repeat(np.arange(60), 8)
    labels = (patients % 2).astype(float)
    wrong = generator.random(480) < np.repeat(generator.beta(1, 2, 60), 8)
    found = np.where(wrong, 1 - labels, labels)

    def correlate(weights):
        total = weights.sum(axis=1)
        true, chosen, both = weights @ labels / total, weights @ found / total, weights @ (labels * found) / total
        return quotient(both - true * chosen, np.sqrt(true * (1 - true) * chosen * (1 - chosen)))

    def score(weights):
        return {"right": 100 * weights @ ~wrong / weights.sum(axis=1), "correlation": correlate(weights)}

    declared = ProportionRecompute(score, {"right": 480}, find_range=lambda name: (-1.0, 1.0))
    own = bootstrap(declared, 480, groups=patients)["correlation"]
    drawn = np.stack([np.bincount(generator.integers(0, 60, 60), minlength=60) for _ in range(2000)])
    low, high = np.percentile(correlate(drawn[:, patients].astype(float)), [2.5, 97.5])
    assert own.low == pytest.approx(low, abs=0.04) and own.high == pytest.approx(high, abs=0.04)


def test_decisions_of_few_samples_depend_on_one_another():
    """Five decisions in each of 20 of 100 samples, that agree, count as 20, although there are no more than samples."""
    right, has_decisions = np.arange(100) % 20 < 16, np.arange(100) < 20
    values = means({"share": np.where(has_decisions, 100.0 * right, np.nan)})
    alone = wilson(80.0, 20, 95)
    found = bootstrap(ProportionRecompute(values, {"share": 100}, pooled=("share",)), 100)["share"]
    assert found.low < alone.low + 1 and found.high > alone.high - 1
    assert bootstrap(ProportionRecompute(values, {"share": 100}), 100)["share"] == wilson(80.0, 100, 95)


@pytest.mark.parametrize(
    ("counts", "rates", "expected"),
    [
        ((3, 200), (33.3, 50.0), 4 / (1 / 3 + 1 / 200)),  # one rate of few decisions
        ((9, 200), (33.3, 50.0), 4 / (1 / 9 + 1 / 200)),
        ((10, 200), (30.0, 50.0), math.inf),
        ((50, 200), (100.0, 50.0), 4 / (1 / 50 + 1 / 200)),  # one rate all right, or all wrong
        ((50, 200, 80), (30.0, 50.0, 0.0), 9 / (1 / 50 + 1 / 200 + 1 / 80)),
    ],
)
def test_a_mean_with_a_rare_or_perfect_rate_has_at_most_the_decisions_of_rates_that_are_alike(counts, rates, expected):
    """The variance of a mean of k rates is the sum of p (1 - p) / n over k squared."""
    names = [f"rate {number}" for number in range(len(counts))]
    declared = ProportionRecompute(lambda weights: {}, dict(zip(names, counts)), {"mean": names})
    found = {name: units.Variation(rate, 1e-9) for name, rate in zip(names, rates)}
    found["mean"] = units.Variation(50.0, 0.1)
    counted = units.UnitCounts(declared, 300, None).count_of_mean("mean", found)
    assert counted.decisions == pytest.approx(min(expected, 0.25 / 0.001**2))  # of the mean's own deviation


def test_a_group_that_dominates_leaves_few_degrees_of_freedom():
    groups = np.repeat(np.arange(10), [91, *[1] * 9])
    effective = 100**2 / (91**2 + 9)
    values = means({"mean": np.random.default_rng(0).normal(size=100)})
    for numbers, freedom in ((groups, 1), (np.repeat(np.arange(10), 10), 9)):
        deviation = resampling.measure_halves(values, 100, 1000, numbers)["mean"].deviation
        found = bootstrap(values, 100, groups=numbers)["mean"]
        assert found.high - found.value == pytest.approx(student_quantile(0.975, freedom) * deviation)
    assert effective - 1 < 1


@pytest.mark.parametrize("number", [3, 4, 5, 7, 12])
@pytest.mark.parametrize("is_grouped", [False, True])
def test_all_halves_of_few_samples_give_the_deviation_of_a_mean_exactly(number, is_grouped):
    """A half without repeats varies by s^2 (1/m - 1/n), and the mean of all by s^2 / n, also for odd numbers."""
    values = np.random.default_rng(number).normal(size=number)
    numbers = np.repeat(np.arange(number), 2) if is_grouped else None
    drawn = means({"mean": np.repeat(values, 2) if is_grouped else values})
    value, deviation, *_ = resampling.measure_halves(drawn, number * (1 + is_grouped), 1000, numbers)["mean"]
    assert (value, deviation) == pytest.approx((values.mean(), values.std(ddof=1) / math.sqrt(number)))
    found = bootstrap(drawn, number * (1 + is_grouped), groups=numbers)["mean"]
    assert found.high - found.value == pytest.approx(student_quantile(0.975, number - 1) * deviation)


def test_several_decisions_a_sample_are_no_more_than_the_samples_say():
    """Three decisions in each of 20 samples, that agree, vary as those of 20 samples."""
    right = np.arange(20) < 15
    values = means({"share": 100.0 * right})
    found = bootstrap(ProportionRecompute(values, {"share": 60}), 20)["share"]
    expected = wilson(75.0, 19, 95, student_quantile(0.975, 19))  # of s^2 / n with n - 1 in s^2
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.7)
    assert bootstrap(ProportionRecompute(values, {"share": 20}), 20)["share"] == wilson(75.0, 20, 95)
