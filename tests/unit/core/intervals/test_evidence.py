"""Notes on what samples show, and cannot show, of their intervals."""

import numpy as np
import pytest

from paddlevit_dist.core.intervals import ProportionRecompute, bootstrap, means, small_sample_warning
from paddlevit_dist.core.intervals.score_ranges import ERROR_RANGE


def note(declared: ProportionRecompute, samples: int, few: int = 0) -> str:
    intervals = bootstrap(declared, samples)
    return small_sample_warning(samples, "volume", intervals, declared.rates, [*intervals], few) or ""


def declare_errors(errors: np.ndarray) -> ProportionRecompute:
    return ProportionRecompute(means({"hd95_mm": errors}), {}, find_range=lambda name: ERROR_RANGE)


def test_one_gross_error_is_told_to_make_up_the_variation():
    errors = np.random.default_rng(0).gamma(4.0, 1.0, 30)
    told = "one or two of 30 volumes make up most of the variation of hd95_mm: others may be larger"
    assert told not in note(declare_errors(errors), 30)
    assert told in note(declare_errors(np.where(np.arange(30) == 7, 80.0, errors)), 30)
    shares = ProportionRecompute(means({"Dice": errors * 0 + (np.arange(30) > 0)}), {}, find_range=lambda name: (0, 1))
    assert "most of the variation" not in note(shares, 30)  # a score with bounds has no gross errors


@pytest.mark.parametrize("name", ["hd95_mm", "loss", "first cross_entropy"])
def test_errors_without_bound_are_told_to_have_no_gross_ones_but_losses_only_of_few_samples(name):
    errors = np.random.default_rng(0).gamma(4.0, 1.0, 30)
    declared = ProportionRecompute(means({name: errors}), {}, find_range=lambda name: ERROR_RANGE)
    told = f"{name} has no bound: gross errors that are not in these 30 volumes are not in its interval"
    assert note(declared, 30, few=50).endswith(f"; {told}")
    assert note(declared, 30, few=30) == (told if name == "hd95_mm" else "")


@pytest.mark.parametrize(
    ("single", "failing", "is_told"), [(20, 0, True), (20, 1, False), (1, 0, False), (600, 0, False)]
)
def test_samples_that_may_fail_as_a_whole_are_told_where_the_interval_omits_them(single, failing, is_told):
    """Of 200 images with ten points each; with three in 200 that fail, 1.5 % less would be right."""
    right = np.full((200, 10), 100.0)
    right[:failing] = 0.0
    right[failing:].flat[: 9 * single : 9] = 0.0
    declared = ProportionRecompute(means({"PCK": right.mean(axis=1)}), {"PCK": 2000}, pooled=("PCK",))
    told = "no volume fails as a whole, but up to 1.5 % may (rule of three), which the interval of PCK omits"
    assert (told in note(declared, 200)) is is_told


@pytest.mark.parametrize("sign", [1, -1])
def test_a_score_that_is_higher_of_few_samples_is_told_with_its_bias(sign):
    """The largest of a deviation and 2 / samples more: halves of 40 have 4 / 40."""
    values = np.random.default_rng(0).normal(0.5, 0.05, 40)

    def score(weights):
        return {"mAP": weights @ values / weights.sum(axis=1) + sign * 2 / weights.sum(axis=1)}

    line = note(ProportionRecompute(score, {}, find_range=lambda name: (0, 1)), 40)
    ways = ("higher", "more", "less") if sign > 0 else ("lower", "less", "more")
    assert line == "mAP of few volumes is {}: half of these have 0.05 {}, and very many may have 0.05 {}".format(*ways)
    assert note(ProportionRecompute(means({"mean": values}), {}, find_range=lambda name: (0, 1)), 40) == ""
