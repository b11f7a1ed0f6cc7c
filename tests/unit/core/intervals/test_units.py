"""How many independent samples or groups a value depends on."""

import numpy as np
import pytest
from scipy import stats

from paddlevit_dist.core.intervals import ProportionRecompute, bootstrap, means, quotient, units, wilson
from paddlevit_dist.core.intervals.units import UnitCounts, Variation


def pool(right: np.ndarray, sizes: np.ndarray) -> ProportionRecompute:
    """Declare a rate of samples with so many decisions, of which so many are right."""
    return ProportionRecompute(
        lambda weights: {"PCK": 100 * quotient(weights @ right, weights @ sizes)},
        {"PCK": int(sizes.sum())},
        pooled=("PCK",),
        sizes=sizes,
    )


@pytest.mark.parametrize(
    ("wrong", "decisions", "freedom"),
    [
        (1, 200, 199),  # one image shows no deviation of images: each counts as one decision
        (3, 2000, 3),
        (5, 2000, 5),
        (40, 2000, 40),
        (199, 2000, 199),
    ],
)
def test_decisions_have_the_degrees_of_freedom_of_the_samples_that_err(wrong, decisions, freedom):
    """Of 200 images with ten points each, one point is wrong in some."""
    right = np.where(np.arange(200) < wrong, 9, 10)
    found = bootstrap(pool(right, np.full(200, 10)), 200)["PCK"]
    expected = wilson(found.value, decisions, 95, stats.t.ppf(0.975, freedom))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.1 * (100 - expected.low))


def test_rare_successes_count_as_rare_errors_do():
    right, sizes = np.where(np.arange(200) < 5, 1, 0), np.full(200, 10)
    rare, mirrored = (bootstrap(pool(one, sizes), 200)["PCK"] for one in (right, sizes - right))
    assert (rare.low, rare.high) == pytest.approx((100 - mirrored.high, 100 - mirrored.low))


def test_samples_with_many_decisions_leave_fewer_degrees_of_freedom():
    sizes = np.array([50, *[2] * 25])
    right = sizes - 1
    counted = UnitCounts(pool(right, sizes), 26, None).get_rate("PCK")
    assert counted.number == counted.deviating == pytest.approx(100**2 / (50**2 + 25 * 4))
    alone = bootstrap(pool(right, sizes), 26)["PCK"]
    assert alone.low < bootstrap(pool(np.full(26, 3) - 1, np.full(26, 3)), 26)["PCK"].low


def test_samples_are_counted_in_parts_if_there_are_very_many(monkeypatch):
    monkeypatch.setattr(units, "_MOST_PARTS", 50)
    right = np.full(200, 10)
    right[::20] = 9
    counted = UnitCounts(pool(right, np.full(200, 10)), 200, None).get_rate("PCK")
    assert counted == (200, 10, None)


def test_groups_that_fail_as_a_whole_are_counted():
    right = np.repeat([0.0, 100.0, 100.0, 0.0, 100.0], 4)
    right[5] = 0.0
    declared = ProportionRecompute(means({"top-1": right}), {"top-1": 20})
    counted = UnitCounts(declared, 20, np.arange(20) // 4).get_rate("top-1")
    assert counted == (5, 3, 2)
    assert UnitCounts(declared, 20, None).get_rate("top-1") is None


@pytest.mark.parametrize(
    ("deviations", "counts", "freedom"),
    [
        ((1.0, 1.0), (30, 30), 39),  # no more than of all samples
        ((3.0, 0.0), (4, 30), 4),  # one class decides
        ((2.0, 1.0), (5, 30), 25 / (16 / 5 + 1 / 30)),
        ((0.0, 0.0), (5, 30), 39),
    ],
)
def test_a_mean_over_classes_has_the_degrees_of_freedom_of_those_that_vary(deviations, counts, freedom):
    """By the formula of a sum of variances."""
    names = ("IoU a", "IoU b")
    declared = ProportionRecompute(
        lambda weights: {}, {}, {"mIoU": names}, count_units=lambda numbers: dict(zip(names, counts))
    )
    found = {name: Variation(0.5, deviation) for name, deviation in zip(names, deviations)}
    counted = UnitCounts(declared, 40, None)
    assert counted.find_freedom("mIoU", found) == pytest.approx(freedom)
    assert counted.find_freedom("IoU a", found) == counts[0] - 1
    assert counted.find_freedom("mIoU", {"IoU a": found["IoU a"]}) == counts[0] - 1  # as the class that is alone


def test_a_mean_of_rates_of_samples_alone_has_the_degrees_of_freedom_of_all_samples():
    rates, found = {"a": 3, "b": 37}, {"a": Variation(66.7, 30.0), "b": Variation(50.0, 1.0)}
    counted = UnitCounts(ProportionRecompute(lambda weights: {}, rates, {"mean": ("a", "b")}), 40, None)
    assert counted.find_freedom("mean", found) == 39


def test_recalls_of_classes_in_few_groups_widen_the_interval_of_their_mean():
    """One class is in three of 40 patients, which differ."""
    patients = np.repeat(np.arange(40), 10)
    rare = patients < 3
    right = np.where(rare, np.arange(400) % 10 < 5 + 2 * patients, np.arange(400) % 10 < 8)
    columns = {"recall a": np.where(rare, np.nan, 100.0 * right), "recall b": np.where(rare, 100.0 * right, np.nan)}

    def score(weights):
        values = means(columns)(weights)
        return {**values, "mean": np.nanmean(list(values.values()), axis=0)}

    declared = ProportionRecompute(score, {"recall a": 370, "recall b": 30}, {"mean": tuple(columns)})
    found = bootstrap(declared, 400, groups=patients)["mean"]
    decisions = UnitCounts(declared, 400, patients).count_of_mean("mean", found_halves(declared, patients)).decisions
    expected = wilson(found.value, decisions, 95, stats.t.ppf(0.975, 3))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.2)


def found_halves(declared, patients):
    from paddlevit_dist.core.intervals.resampling import measure_halves

    return measure_halves(declared, len(patients), 1000, patients)
