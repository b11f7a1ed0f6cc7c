"""Intervals cover what they say, and depend on the table of samples alone."""

import math
import re

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.intervals import (
    ClassificationCounts,
    ProportionRecompute,
    bootstrap,
    concat_rank_tables,
    confusion_scores,
    means,
    paired_difference,
    resampling,
    small_sample_warning,
    weighted_sums,
    wilson,
)
from paddlevit_dist.core.intervals.quantiles import student_quantile
from paddlevit_dist.core.intervals.score_ranges import UNBOUNDED
from paddlevit_dist.core.tasks.score_kind import require_score_kind


def shares_that_cover(draw, truths: dict, percent: float, sets: int) -> dict:
    """Of so many sets of samples, those whose interval contains the truth.

    Args:
        draw: from a generator to ``Recompute`` and the number of samples.
    """
    generator, hits = np.random.default_rng(1), dict.fromkeys(truths, 0)
    for _ in range(sets):
        found = bootstrap(*draw(generator), percent=percent, resamples=400)
        for name, truth in truths.items():
            hits[name] += found[name].low <= truth <= found[name].high
    return {name: number / sets for name, number in hits.items()}


def drawn_labels(generator):
    labels = generator.choice(4, 400, p=[0.4, 0.3, 0.2, 0.1])
    found = ClassificationCounts(
        labels, (generator.random(400) >= np.array([0.9, 0.8, 0.7, 0.6])[labels]).astype(int), 4
    )
    return ProportionRecompute(found, found.rates()), 400


def drawn_confusions(generator):
    """Scenes of very different sizes whose points are right with a share that differs from scene to scene."""
    true = generator.poisson(generator.gamma(2.0, 50.0, (150, 1)), (150, 2))
    right = generator.binomial(true, generator.beta(8, 2, (150, 2)))
    wrong = true - right
    return confusion_scores(np.stack([right, true, right + wrong[:, ::-1]], axis=1), ["b", "a"]), 150


OF_LABELS = {"top-1": 100 * (0.36 + 0.24 + 0.14 + 0.06), "balanced accuracy": 75.0, "recall 1": 80.0}


@pytest.mark.parametrize("draw, truths", [(drawn_labels, OF_LABELS), (drawn_confusions, {"mIoU": 0.8 / 1.2})])
def test_an_interval_covers_the_truth_nearly_always(draw, truths):
    """Of 60 intervals that cover in 95 % of cases, 52 to 60 do in 99 % of such tests; 500 of each kind at night."""
    shares = shares_that_cover(draw, truths, 95, sets=60)
    assert all(52 / 60 <= share <= 1 for share in shares.values()), shares


@pytest.mark.parametrize("share, number", [(0.9, 200), (0.98, 360), (0.99, 200), (0.99, 1000)])
def test_wilson_s_ends_are_where_the_normal_test_is_at_its_limit_and_they_cover(share, number):
    counts = np.arange(number + 1)
    found = [wilson(100 * count / number, number, 95) for count in counts]
    ends = np.array([interval[1:] for interval in found]) / 100
    for count, low, high in zip(counts, *ends.T):
        assert 0 <= low <= count / number <= high <= 1 and high > low
        for end in (low, high):
            if 0 < end < 1:  # the equation that defines them
                assert abs(count / number - end) == pytest.approx(
                    1.959964 * (end * (1 - end) / number) ** 0.5, abs=1e-6
                )
    assert (np.diff(ends, axis=0) > 0).all()  # one more that is right moves both: never backwards
    chance = np.array(
        [math.comb(number, int(count)) * share**count * (1 - share) ** (number - count) for count in counts]
    )
    assert 0.93 <= chance[(ends[:, 0] <= share) & (share <= ends[:, 1])].sum() <= 0.99


def test_a_rate_s_interval_is_wilson_s_also_where_all_are_right():
    labels, places = np.arange(200) % 4, np.zeros(200, int)
    classified = ClassificationCounts(labels, places, 4)
    found = bootstrap(ProportionRecompute(classified, classified.rates()), 200)
    assert found["top-1"] == wilson(100.0, 200, 95) and found["top-1"].ends(2) == "[98.12, 100.00]"
    assert found["recall 3"] == wilson(100.0, 50, 95)


VIDEOS, FRAMES = 50, 20


def test_a_group_of_its_own_for_each_sample_changes_no_bit():
    recompute, number = drawn_labels(np.random.default_rng(4))
    alone = np.random.default_rng(5).permutation(number)
    assert bootstrap(recompute, number, groups=alone) == bootstrap(recompute, number)


def test_the_difference_of_paired_shares_is_newcombe_s():
    """The example of his paper, and coverage where nearly all are right."""
    first = np.repeat([True, False, True, False], [36, 12, 2, 0])
    second = np.repeat([True, True, False, False], [36, 12, 2, 0])
    found = paired_difference(first, second, 95)
    assert [found.low, found.high] == pytest.approx([5.69, 34.04], abs=0.006) and found.value == pytest.approx(20.0)
    alike = paired_difference(np.ones(200, bool), np.ones(200, bool), 95)
    assert alike.low == -alike.high == pytest.approx(-1.8845, abs=1e-4)
    generator, hits = np.random.default_rng(2), 0
    for kinds in generator.choice(4, (2000, 200), p=[0.975, 0.015, 0.005, 0.005]):
        interval = paired_difference((kinds == 0) | (kinds == 2), kinds < 2, 95)
        hits += interval.low <= 1.0 <= interval.high
    assert 0.93 <= hits / 2000 <= 1.0


@pytest.mark.parametrize(("both", "gained", "lost", "none"), [(30, 8, 3, 9), (16, 12, 12, 10), (5, 20, 21, 4)])
def test_predictions_that_agree_have_narrower_differences(both, gained, lost, none):
    """By his formula of the table of counts, in which agreement counts less by half of all samples."""
    number, cells = both + gained + lost + none, both * none - gained * lost
    first, second = (np.repeat(hits, [both, gained, lost, none]) for hits in ([True, False, True, False], [1, 1, 0, 0]))
    found = paired_difference(first, second == 1, 90)
    before, after = (wilson(100 * (both + more) / number, number, 90) for more in (lost, gained))
    spread = ((both + lost) * (gained + none) * (both + gained) * (lost + none)) ** 0.5
    phi = (cells if cells < 0 else max(0, cells - number / 2)) / spread
    down, up = after.value - after.low, before.high - before.value
    assert found.value - found.low == pytest.approx((down**2 - 2 * phi * down * up + up**2) ** 0.5)
    up, down = after.high - after.value, before.value - before.low
    assert found.high - found.value == pytest.approx((up**2 - 2 * phi * down * up + down**2) ** 0.5)


def test_ends_stay_inside_what_a_score_can_be():
    """With an error among few samples of a class, moving the quantiles by the bias went above 100."""
    generator = np.random.default_rng(4)
    for _ in range(60):
        labels = generator.choice(5, 60, p=[0.5, 0.3, 0.1, 0.06, 0.04])
        found = bootstrap(ClassificationCounts(labels, (generator.random(60) < 0.03).astype(int), 5), 60, resamples=200)
        assert all(0 <= low <= value <= high <= 100 for value, low, high in found.values())


def test_an_interval_of_a_mean_is_that_of_the_normal_distribution():
    numbers = np.random.default_rng(0).normal(10.0, 2.0, 5000)
    interval = bootstrap(means({"mean": numbers}), 5000, resamples=4000)["mean"]
    half = 1.96 * numbers.std() / np.sqrt(5000)
    assert interval.value == pytest.approx(numbers.mean())
    assert [interval.low, interval.high] == pytest.approx([numbers.mean() - half, numbers.mean() + half], abs=half / 15)


def test_how_many_draws_are_made_at_a_time_changes_nothing(monkeypatch):
    numbers = np.random.default_rng(0).normal(size=(300, 1))
    seen = {}
    for most in (300, 7 * 300 + 5, 1 << 22):
        monkeypatch.setattr("paddlevit_dist.core.intervals.resampling.MOST_WEIGHTS", most)
        parts = []

        def recompute(weights, parts=parts):
            parts.append(weights.copy())
            return {"sum": weighted_sums(weights, numbers)[:, 0]}

        seen[most] = bootstrap(recompute, 300, resamples=50), np.concatenate(parts)
    (first, weights), *others = seen.values()
    assert all(found == first and (other == weights).all() for found, other in others)
    assert weights.shape == (51, 300) and (weights[0] == 1).all() and np.isin(weights, (0, 1)).all()
    assert (weights[1:].sum(axis=1) == 150).all()


def test_a_mean_of_few_samples_has_student_s_interval():
    """All 252 halves of ten samples deviate exactly as the mean's standard error says; also of an odd number."""
    for number, quantile in ((10, 2.262157), (9, 2.306004)):
        numbers = np.random.default_rng(number).normal(5.0, 2.0, number)
        interval = bootstrap(means({"mean": numbers}), number)["mean"]
        half = quantile * numbers.std(ddof=1) / number**0.5
        assert [interval.low, interval.high] == pytest.approx([numbers.mean() - half, numbers.mean() + half], rel=1e-4)


def test_ends_follow_the_range_of_a_score():
    """An error has an interval on its logarithm, a fraction that of a proportion with the same deviation."""
    deviation, quantile = 0.04, 2.1
    error = resampling.make_interval(0.5, deviation, quantile, (0.0, math.inf))
    assert math.log(error.high / 0.5) == pytest.approx(math.log(0.5 / error.low)) == pytest.approx(quantile * 0.08)
    for value, low, high in ((0.93, 0.0, 1.0), (93.0, 0.0, 100.0), (0.86, -1.0, 1.0)):
        width = high - low
        found = resampling.make_interval(value, deviation * width, quantile, (low, high))
        shares = [(end - low) / width for end in found]
        for end in shares[1:]:  # where the test with a proportion's variance, scaled to the deviation, is at its limit
            variance = deviation**2 * end * (1 - end) / (shares[0] * (1 - shares[0]))
            assert abs(shares[0] - end) == pytest.approx(quantile * variance**0.5)
    assert resampling.make_interval(0.5, deviation, quantile, UNBOUNDED)[1:] == pytest.approx((0.416, 0.584))
    none = resampling.make_interval(0.5, deviation, quantile, None)
    assert not none.has_width() and none.plain() == {"value": 0.5}


def test_a_score_with_one_bound_has_an_interval_of_factors_that_ends_there():
    """From a bound above as from one below: the distance to the bound times and over the same factor."""
    deviation, quantile = 0.04, 2.1
    found = resampling.make_interval(2.5, deviation, quantile, (-math.inf, 3.0))
    assert math.log((3 - found.low) / 0.5) == pytest.approx(math.log(0.5 / (3 - found.high))) == pytest.approx(0.168)
    at_bounds = [
        resampling.make_interval(3.0, deviation, quantile, bounds)[1:] for bounds in ((-math.inf, 3.0), (3.0, math.inf))
    ]
    assert at_bounds == [pytest.approx((2.916, 3.0)), pytest.approx((3.0, 3.084))]


def test_a_mean_of_recalls_counts_as_many_samples_as_its_rarest_classes_allow():
    labels = np.repeat([0, 1], [45, 5])
    found = bootstrap(ClassificationCounts(labels, np.zeros(50, int), 2), 50)["balanced accuracy"]
    assert found == wilson(100.0, 4 / (1 / 45 + 1 / 5), 95, student_quantile(0.975, 49))


@pytest.mark.parametrize("number", [1, 2])
def test_one_or_two_samples_have_rates_with_intervals_and_no_other(number):
    found = bootstrap(ClassificationCounts(np.zeros(number, int), np.zeros(number, int), 1), number)
    assert found["top-1"] == wilson(100.0, number, 95)
    assert not bootstrap(means({"mean": np.arange(number)}), number)["mean"].has_width()
    assert not bootstrap(means({"mean": np.arange(9)}), 9, groups=np.arange(9) % number)["mean"].has_width()


def test_values_that_are_not_defined_are_left_out():
    found = bootstrap(ClassificationCounts(np.array([0, 0, 2]), np.array([0, 1, 0]), 4, ["a", "b", "c", "d"]), 3)
    assert set(found) == {"top-1", "balanced accuracy", "recall a", "recall c"}
    assert found["balanced accuracy"].value == 75.0 and found["recall c"] == wilson(100.0, 1, 95)

    def recompute(weights):
        is_whole = (weights == 1).all(axis=1)
        values = {"of all": np.where(is_whole, 1, np.nan), "of halves": np.where(is_whole, np.nan, 1)}
        return {**values, "of both": weights[:, 0]}

    found = bootstrap(recompute, 9, resamples=20)
    assert set(found) == {"of all", "of both"} and not found["of all"].has_width()


def test_what_makes_an_interval_rough_is_one_line():
    def note(labels, places, names="ab", shown=()):
        classified = ClassificationCounts(np.array(labels), np.array(places), len(names), list(names))
        found = {**bootstrap(classified, len(labels)), **bootstrap(means({"loss": np.ones(len(labels))}), len(labels))}
        return small_sample_warning(
            len(labels), "image", found, classified.rates(), ["top-1", "balanced accuracy", *shown]
        )

    assert note([0, 1] * 50, [0, 0, 0, 1, 1] * 20) is None  # 40 wrong
    assert note([0, 1] * 25, [0, 0, 0, 0, 1] * 10) is None  # the fewest samples, and errors, that are not few
    few = note([0, 1] * 10, [0, 0, 1, 1] * 5)
    held = "95 % intervals held in 83 % of simulations or more, in fewer with rare large errors"
    assert few == f"the interval is rough: 20 images (below 50): {held}"
    assert note([0], [0]).startswith("the interval is rough: 1 image (below 50), 0 wrong (below 10): 95 % ")
    assert "rough: 4 wrong (below 10): 95" in note([0, 1] * 50, [1] * 4 + [0] * 96)
    assert "rough: 3 right (below 10): 95" in note([0, 1] * 50, [0] * 3 + [1] * 97)
    assert note([0] * 80 + [1] * 3 + [2] * 9 + [4] * 8, [0, 1] * 50, "abcdef") is None  # rare classes
    alike = note([0, 1] * 50, [0] * 100, shown=["loss"])
    assert alike.endswith("; no interval of loss: every half of them gives the same") and "0 wrong" in alike
    assert small_sample_warning(5, "image", {}, {}, ["top-1"]) is None  # no intervals are wanted
    flat = {name: resampling.ConfidenceInterval(1.0, 1.0, 1.0) for name in "abcde"}
    for shown, listed in (("abc", "a, b, c"), ("abcd", "a, b, c and 1 more"), ("abcde", "a, b, c and 2 more")):
        line = f"no interval of {listed}: every half of them gives the same"
        assert small_sample_warning(99, "image", flat, {}, [*shown]) == line


def test_an_interval_of_decisions_that_are_all_alike_is_told_to_be_that_of_the_samples():
    """Its lower end is above that of a rate with one error."""

    def rate(wrong, samples=6, most=3):
        right = np.full((samples, most), 100.0)
        right.flat[:wrong] = 0.0
        values = means({"hits": right.mean(axis=1)})
        found = bootstrap(ProportionRecompute(values, {"hits": samples * most}, pooled=("hits",)), samples)
        line = small_sample_warning(samples, "volume", found, {"hits": samples * most}, ["hits"], few=0)
        return found["hits"], line or ""

    all_right, told = rate(0)
    cause = "all decisions are alike, so nothing shows whether several of one volume depend on one another"
    assert told.endswith(f"; the interval of hits is that of 6 volumes: {cause}")
    assert all_right.low == pytest.approx(100 / (1 + student_quantile(0.975, 5) ** 2 / 6))
    assert all_right.low > rate(1)[0].low
    assert "all decisions are alike" not in rate(1)[1]
    assert "all decisions are alike" in rate(18)[1] and "all decisions are alike" not in rate(0, most=1)[1]


def test_an_interval_without_width_is_none_in_files():
    found = bootstrap(means({"same": np.full(40, 0.3), "other": np.arange(40.0)}), 40)
    widths = {(0.0, 0.0): False, (0.0, 1e-300): True, (-1e6, -1e6 + 1e-4): False, (-1e6, -1e6 + 1e-2): True}
    assert {ends: resampling.ConfidenceInterval(ends[0], *ends).has_width() for ends in widths} == widths
    assert found["same"].plain() == {"value": 0.3} and set(found["other"].plain()) == {"value", "low", "high"}


def test_how_many_samples_have_a_class_is_counted_for_each_kind():
    statistics = np.zeros((5, 3, 2), int)
    statistics[:2, 1, 0] = 7
    statistics[4, 2, 1] = 3  # taken for it

    def count(kind, arrays):
        return require_score_kind(kind).count_units(arrays, ["a", "b"], None)

    assert count("confusions", {"statistics": statistics}) == {"IoU a": 2, "IoU b": 0}
    boxes = {
        "ids": np.array([30, 10, 20]),
        "image_ids": np.array([10, 20, 30]),
        "totals": np.zeros((2, 4)),
        "annotated": np.array([[0, 1, 5, 0, 5, 0], [2, 1, 1, 1, 0, 0]]),
        "wished": np.array([0.9, np.nan]),
    }
    names = ("AP {}", "mask AP {}", "score for precision 0.9 {}")
    assert count("boxes", boxes) == {name.format(of): n for name in names for of, n in (("a", 0), ("b", 2))}
    sums = np.zeros((4, 2, 7))
    sums[:3, 1, 0] = 1
    names = ("{} mre_mm", "{} sd_mm", *(f"{{}} sdr_{radius}mm" for radius in (2, 2.5, 3, 4)))
    assert count("landmarks", {"sums": sums}) == {
        name.format(of): n for name in names for of, n in (("a", 0), ("b", 3))
    }
    organs = np.zeros((3, 2, 11))
    organs[1:, 0, 5] = 9  # labeled voxels
    names = ("Dice", "labeled Dice", "pooled Dice", "assd_mm", "hd95_mm")
    counts = {f"{name} {of}": n for name in names for of, n in (("a", 2), ("b", 0))}
    assert count("volume classes", {"sums": organs}) == counts


def test_joined_tables_are_ordered_and_padding_counts_once():
    parts = [
        ([4, 0, 1], [np.array([40, 0, 10]), np.eye(5)[[4, 0, 1]]]),
        ([2, 3, 0], [np.array([20, 30, 0]), np.eye(5)[[2, 3, 0]]]),
    ]
    numbers, rows = concat_rank_tables(parts)
    assert numbers.tolist() == [0, 10, 20, 30, 40] and (rows == np.eye(5)).all()
    assert all((one == other).all() for one, other in zip(concat_rank_tables(parts[::-1]), (numbers, rows)))
    unpadded = [([30, 10, 50], [np.array([3.0, 1.0, 5.0])]), ([20, 0], [np.array([2.0, 0.0])])]
    (rows,) = concat_rank_tables(unpadded)  # nothing is there twice
    assert rows.tolist() == [0.0, 1.0, 2.0, 3.0, 5.0]
    with pytest.raises(ValueError, match="2 rows for 3 samples"):
        concat_rank_tables([([0, 1, 2], [np.zeros(2)])])


def test_a_thousand_classes_are_counted_as_one_by_one():
    generator = np.random.default_rng(3)
    labels, places = generator.integers(0, 7, 90), generator.integers(0, 9, 90)
    weights = generator.integers(0, 4, (6, 90)).astype(float)
    found = ClassificationCounts(labels, places, 8, top=(1, 5))(weights)
    for draw, counts in enumerate(weights.astype(int)):
        of, at = np.repeat(labels, counts), np.repeat(places, counts)
        recalls = [100 * (at[of == label] == 0).mean() for label in range(7)]
        assert found["top-1"][draw] == pytest.approx(100 * (at == 0).mean())
        assert found["top-5"][draw] == pytest.approx(100 * (at < 5).mean())
        assert [found[f"recall {label}"][draw] for label in range(7)] == pytest.approx(recalls)
        assert found["balanced accuracy"][draw] == pytest.approx(np.mean(recalls))
    assert np.isnan(found["recall 7"]).all()


def test_shares_of_classified_samples_have_wilsons_interval_without_being_told_so():
    classified = ClassificationCounts(np.arange(20) % 2, np.arange(20) // 14, 2)
    found = bootstrap(classified, 20, resamples=10)
    assert found["top-1"] == wilson(70.0, 20, 95) and found["recall 1"] == wilson(70.0, 10, 95)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_sums_have_the_axes_of_a_samples_numbers(shape):
    generator = np.random.default_rng(0)
    weights, numbers = generator.integers(0, 3, (5, 6)).astype(float), generator.integers(0, 100, (6, *shape))
    found = weighted_sums(weights, numbers)
    assert found.dtype == np.float64 and np.array_equal(found, np.tensordot(weights, numbers, 1))


def test_the_score_of_a_class_has_the_quantile_of_the_samples_with_the_class():
    errors = np.where(np.arange(40) < 5, np.arange(40.0), np.nan)
    values, counts = means({"a": errors}), {"a": 5}
    few, all_samples = (
        bootstrap(ProportionRecompute(values, {}, count_units=lambda _, units=units: units), 40)["a"]
        for units in (counts, {})
    )
    ratio = (few.high - few.value) / (all_samples.high - all_samples.value)
    assert ratio == pytest.approx(student_quantile(0.975, 4) / student_quantile(0.975, 39))


def test_two_samples_have_no_interval_and_a_third_gives_one():
    for number, has_width in ((1, False), (2, False), (3, True)):
        found = bootstrap(means({"mean": np.arange(number) * 3.0}), number)["mean"]
        assert found.has_width() is has_width and found.value == 1.5 * (number - 1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(
            ({"percent": percent}, f"percent={percent!r}: expected a level")
            for percent in (0.95, 0, -95, 100, math.nan)
        ),
        *(({"resamples": number}, f"resamples={number!r}: expected a whole") for number in (-1, 0, 1, 1e3)),
        ({"groups": [0, 0, 1]}, "groups has 3 entries for 4 samples"),
    ],
)
def test_odd_levels_numbers_of_halves_and_groups_are_refused(options, told):
    with pytest.raises(UserError, match=f"^{re.escape(told)}"):
        bootstrap(means({"error": np.arange(4.0)}), 4, **options)
    if "percent" in options:
        with pytest.raises(UserError, match=f"^{re.escape(told)}"):
            paired_difference(np.eye(4, dtype=bool)[0], np.ones(4, bool), **options)


def test_the_lowest_and_highest_level_and_number_of_halves_give_intervals_that_contain_each_other():
    errors = means({"error": np.random.default_rng(0).normal(size=30)})
    narrow, wide = (bootstrap(errors, 30, percent, resamples=2)["error"] for percent in (1, 99.9))
    assert wide.low < narrow.low < narrow.high < wide.high
