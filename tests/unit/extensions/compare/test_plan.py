"""Planned numbers of samples and seeds, against simulated evaluations of that size."""

import json
import math
import re
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from paddlevit_dist import UserError
from paddlevit_dist.core.intervals import paired_difference
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.extensions.compare import groups, tables
from paddlevit_dist.extensions.compare.command import run
from paddlevit_dist.extensions.compare.pairs import TablePair
from paddlevit_dist.extensions.compare.plan import (
    format_plan,
    limit_deviation,
    plan_group,
    plan_pair,
    plan_samples,
    plan_seeds,
    plan_single,
)
from paddlevit_dist.volumes.landmarks.metrics import sum_errors

POWER = ((NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)) / NormalDist().inv_cdf(0.975)) ** 2


def draw_places(number, seed):
    """Answers of two models that are right 80 and 83 % of the time and disagree on 15 %: 0 is right, 1 is wrong."""
    kinds = np.random.default_rng(seed).choice(4, number, p=[0.74, 0.06, 0.09, 0.11])
    return np.isin(kinds, (2, 3)).astype(np.int64), np.isin(kinds, (1, 3)).astype(np.int64)


def make_table(name, places):
    number = len(places)
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "of": "epoch 1"}
    about |= {"classes": ["a", "b"], "split": "val", "dataset": "drawn", "digest": "0", "protocol": {}, "input": {}}
    arrays = {"labels": np.arange(number) % 2, "places": places, "losses": np.ones(number), "top": np.array([1])}
    return tables.EvaluationTable(name, about, list(map(str, range(number))), arrays, None)


def test_a_pair_plans_the_samples_of_an_interval_that_wide():
    first, second = draw_places(1000, 1)
    plan = plan_pair(make_table("a", first), make_table("b", second), 1.0)
    assert plan.pop("samples_for_power") == pytest.approx(POWER * plan["samples_needed"], rel=1e-3)
    facts = {"runs": ["a", "b"], "score": "top-1", "difference": 1.0, "samples": 1000, "rare_classes": 0}
    assert {name: plan[name] for name in facts} == facts
    assert plan["half_width"] == pytest.approx(1.962341 * 100 * np.std(first - second) / 1000**0.5, rel=0.03)
    # The share of chi-square with 999 degrees of freedom below 40 %: 987.1 by the tables' approximation
    assert plan["half_width_limit"] / plan["half_width"] == pytest.approx((999 / 987.1) ** 0.5, rel=1e-4)
    # A Wald interval: z^2 (p + q - (p - q)^2) / d^2, with shares p, q of samples that only one model has right.
    closed = 1.959964**2 * 1e4 * np.var(first - second)
    assert plan["samples_needed"] == pytest.approx(closed, rel=0.07)  # halves are drawn
    widths = []
    for seed in range(2, 8):
        before, after = (places == 0 for places in draw_places(plan["samples_needed"], seed))
        interval = paired_difference(before, after, 95, ())
        widths.append((interval.high - interval.low) / 2)
    assert np.mean(widths) == pytest.approx(1.0, rel=0.08)
    with pytest.raises(
        UserError, match="^-plan: the score does not vary over these samples or seeds: name runs with more"
    ):
        plan_pair(make_table("a", first), make_table("b", first), 1.0)


def test_a_single_run_plans_for_independent_errors():
    places = draw_places(1000, 3)[0]
    plan = plan_single(make_table("a", places), 1.0)
    right = 1 - places.mean()
    assert plan["half_width"] == pytest.approx(1.959964 * 100 * (2 * right * (1 - right) / 1000) ** 0.5, rel=0.05)
    copied = make_table("a", np.repeat(places[:200], 5))
    grouped = copied._replace(groups=SampleGroups("video", np.repeat(np.arange(200), 5).astype(str), "file"))
    assert plan_single(grouped, 1.0)["half_width"] > 1.5 * plan_single(copied, 1.0)["half_width"]
    assert plan["samples_needed"] == pytest.approx(1.959964**2 * 1e4 * 2 * right * (1 - right), rel=0.1)
    with pytest.raises(UserError, match="the score does not vary over these"):
        plan_single(make_table("a", np.zeros(30, int)), 1.0)
    few = make_table("a", places[:19])
    labels = np.eye(2, dtype=np.int8)[few.arrays["labels"]]  # 10 images of the first class, 9 of the second
    logits = labels + np.random.default_rng(0).normal(size=labels.shape)
    about = {**few.about, "kind": "labels", "score": "mAP"}
    ranked = few._replace(about=about, arrays={"labels": labels, "logits": logits, "chosen": logits > 0})
    assert [plan_single(table, 1.0)["rare_classes"] for table in (few, ranked)] == [0, 1]  # top-1 is no mean of classes


def make_volumes(name, errors, names=None):
    """Make a table of volumes with one landmark each, which has these errors, in these groups."""
    about = {**make_table(name, []).about, "task": "landmarks", "kind": "landmarks", "score": "mre_mm"}
    about |= {"classes": ["a"], "more_is_better": False}
    samples = list(map(str, range(len(errors))))
    groups = None if names is None else SampleGroups("patient", np.array(names), "file")
    return tables.EvaluationTable(name, about, samples, {"sums": sum_errors(np.reshape(errors, (-1, 1)))}, None, groups)


def measure_power(deviation, units, difference):
    """Probability that a normal mean over this number of units differs from 0, if this is its true value."""
    draws = np.random.default_rng(3).normal(difference, deviation, (20_000, units))
    reach = groups.student_quantile(0.975, units - 1) * draws.std(axis=1, ddof=1) / math.sqrt(units)
    return np.mean(draws.mean(axis=1) > reach)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_independent_units_are_planned_with_the_interval_that_a_comparison_has(is_grouped):
    generator = np.random.default_rng(5)
    unit = np.arange(12) if not is_grouped else np.append(np.repeat(np.arange(12), 5), 11)
    errors = generator.uniform(20, 30, (2, 12))[:, unit] + generator.uniform(0, 0.1, (2, len(unit)))
    pair = [make_volumes(name, row, unit.astype(str) if is_grouped else None) for name, row in zip("ab", errors)]
    plan, found = plan_pair(*pair, 2.0), TablePair.match(*pair).compute_intervals().difference["mre_mm"]
    assert plan["half_width"] == pytest.approx((found.high - found.low) / 2, rel=1e-3)  # one group is larger
    changes = [np.diff(errors[:, unit == one].mean(axis=1)) for one in range(12)]
    assert plan["half_width"] == pytest.approx(2.200985 * np.std(changes, ddof=1) / 12**0.5, rel=0.08)
    limit = plan["half_width_limit"] / 2.200985 * 12**0.5  # deviation of one unit
    number = plan["groups_for_power" if is_grouped else "samples_for_power"]
    assert measure_power(limit, number, 2.0) == pytest.approx(0.8, abs=0.03)
    lines = format_plan(plan)
    if is_grouped:
        needed = plan["groups_needed"]
        assert plan["groups"]["number"] == 12 and plan["samples_for_power"] == math.ceil(number * 61 / 12)
        assert lines[0].startswith("a, b: 61 samples in 12 groups give +-")
        assert lines[1].endswith(f": {math.ceil(needed * 61 / 12)} samples in {needed} groups")
        assert lines[2].endswith(f" evaluations: {plan['samples_for_power']} samples in {number} groups")
    else:
        assert lines[2].endswith(f" evaluations: {number} samples") and "groups" not in str(plan)


def test_a_plan_of_unequal_groups_has_the_degrees_of_freedom_of_their_comparison():
    """With 45 of 100 volumes in one of twelve groups, these vary as 4.3 equal ones."""
    unit = np.append(np.repeat(np.arange(12), 5), np.full(40, 11))
    errors = np.random.default_rng(5).uniform(20, 30, (2, 12))[:, unit]
    pair = [make_volumes(name, row, unit.astype(str)) for name, row in zip("ab", errors)]
    plan, found = plan_pair(*pair, 2.0), TablePair.match(*pair).compute_intervals().difference["mre_mm"]
    assert plan["half_width"] == pytest.approx((found.high - found.low) / 2, rel=1e-3)
    freedom = 100**2 / (11 * 25 + 45**2) - 1
    assert plan["half_width_limit"] / plan["half_width"] == pytest.approx(limit_deviation(1.0, freedom), rel=1e-3)
    needed = plan_samples(12, plan["half_width_limit"], 2.0, freedom=freedom)
    assert plan["groups_needed"] == pytest.approx(needed, abs=1)


def test_few_samples_that_a_pilot_plans_reach_the_power_of_students_test():
    generator, found, fewest = np.random.default_rng(6), 0, 99
    for _ in range(200):
        first, second = generator.uniform(20, 30, (2, 10))
        number = plan_pair(make_volumes("a", first), make_volumes("b", second), 4.5)["samples_for_power"]
        changes = np.subtract(*generator.uniform(20, 30, (2, number))) + 4.5
        found += stats.ttest_1samp(changes, 0.0).pvalue < 0.05
        fewest = min(fewest, number)
    assert 0.72 < found / 200 < 0.9 and 3 <= fewest < 9
    plan = plan_pair(make_volumes("a", first), make_volumes("b", second), 1000.0)
    assert (plan["samples_needed"], plan["samples_for_power"]) == (2, 3)  # the deviation of two is not known


@pytest.mark.parametrize(("deviation", "difference"), [(3.0, 0.3), (0.3, 0.3), (0.5, 1.0), (1.0, 0.1), (0.001, 10.0)])
def test_seeds_and_samples_are_the_fewest_whose_interval_is_that_narrow(deviation, difference):
    number = plan_seeds(deviation, difference)

    def half_width(seeds):
        return groups.student_quantile(0.975, 2 * seeds - 2) * deviation * math.sqrt(2 / seeds)

    assert half_width(number) <= difference and (number == 2 or half_width(number - 1) > difference)
    pilot = groups.student_quantile(0.975, 9) * deviation / math.sqrt(10)
    number = plan_samples(10, pilot, difference)
    ends = [groups.student_quantile(0.975, n - 1) * deviation / n**0.5 for n in range(2, number + 1)]
    assert ends[-1] <= difference and all(end > difference for end in ends[:-1])


def test_planned_seeds_give_intervals_that_wide_in_simulation():
    number, generator = plan_seeds(1.0, 0.8), np.random.default_rng(0)
    widths = []
    for _ in range(200):
        _, deviation, freedom = groups.measure_difference(*generator.normal(0, 1, (2, number)).tolist())
        widths.append(groups.student_quantile(0.975, freedom) * deviation)
    assert np.sqrt(np.mean(np.square(widths))) == pytest.approx(0.8, rel=0.05)


def test_power_is_reached_in_simulation():
    """With the samples for power, 80 % of evaluations find a true difference of the planned size."""
    generator, difference = np.random.default_rng(0), 3.0
    before, after = draw_places(400_000, 9)
    plan = plan_pair(make_table("a", before[:4000]), make_table("b", after[:4000]), difference)
    found = 0
    for _ in range(300):
        rows = generator.integers(0, len(before), plan["samples_for_power"])
        gains = 100.0 * (before[rows] - after[rows])  # 3 points on average
        found += gains.mean() > 1.959964 * gains.std() / math.sqrt(len(rows))
    assert 0.70 < found / 300 < 0.90


@pytest.mark.parametrize(("freedom", "quantile", "error"), [(1, 0.275, 0.02), (2, 1.0217, 0.01), (99, 94.83, 1e-3)])
def test_a_limit_divides_by_the_quantile_of_chi_square_that_tables_have(freedom, quantile, error):
    assert limit_deviation(2.0, freedom) == pytest.approx(2 * (freedom / quantile) ** 0.5, rel=error)


@pytest.mark.parametrize("pilot", [3, 10])
def test_seeds_that_a_pilot_plans_reach_the_power_in_simulation(pilot):
    generator, found = np.random.default_rng(1), 0
    for _ in range(400):
        rows = [{"state": "finished", "value": value} for value in generator.normal(size=pilot)]
        number = plan_group(groups.SeedGroup("a", {"score": "top-1"}, rows), 1.0)["seeds_for_power"]
        first, second = generator.normal(size=(2, number)) + [[0.0], [1.0]]
        difference, deviation, freedom = groups.measure_difference(first.tolist(), second.tolist())
        found += difference > groups.student_quantile(0.975, freedom) * deviation
    assert 0.72 < found / 400 < 0.90


def test_the_command_prints_seeds_of_a_group(tmp_path, capsys):
    folder = tmp_path / "usual"
    folder.mkdir()
    scores = [80.0, 83.0, 81.0, 84.0]
    rows = [
        {"seed": n, "folder": f"seed_{n}", "state": "finished", "value": s, "epoch": 9} for n, s in enumerate(scores)
    ]
    about = {"task": "classification", "dataset": "digits", "score": "top-1", "more_is_better": True, "settings": {}}
    groups.SeedGroup(str(folder), about, rows).write()
    run(["-plan=1", str(folder)])
    out = capsys.readouterr().out
    expected = plan_seeds(limit_deviation(float(np.std(scores, ddof=1)), 3), 1.0)
    assert re.search(rf"best top-1 to \+-1 \(95 % interval between two methods\): {expected} seeds of each", out)
    run(["-plan=1", "-json", str(folder)])
    assert json.loads(capsys.readouterr().out)["seeds_needed"] == expected
    for words, message in ((["-plan=0", "a"], "above 0"), (["-plan=1", "a", "b", "c"], "one run, two runs")):
        with pytest.raises(Exception, match=message):
            run(words)


def test_plans_are_told_as_lines():
    rows = [{"seed": n, "folder": f"{n}", "state": "finished", "value": s} for n, s in enumerate([80.0, 83, 81, 84])]
    rows.append({"seed": 9, "folder": "9", "state": "failed"})
    plan = plan_group(groups.SeedGroup("a\nb", {"score": "top-1"}, rows), 0.5)
    limit = limit_deviation(3.3333333**0.5, 3)
    assert limit == pytest.approx((3.3333333 * 3 / 1.86917) ** 0.5, rel=6e-3)  # 40 % of chi-square of 3 degrees
    needed, power = plan_seeds(limit, 0.5), plan_seeds(limit, 0.5, 0.8)
    facts = {"runs": ["a\nb"], "score": "best top-1", "difference": 0.5, "seeds": 4, "deviation": 1.82574}
    facts["deviation_limit"] = pytest.approx(limit, rel=1e-5)
    assert plan == {**facts, "seeds_needed": needed, "seeds_for_power": power}
    assert format_plan({**plan, "seeds_needed": 1234, "seeds_for_power": 5678}) == [
        r"a\nb: 4 seeds, standard deviation 1.8257",
        "best top-1 to +-0.5 (95 % interval between two methods): 1,234 seeds of each",
        "to find a true difference of 0.5 in 80 % of comparisons: 5,678 seeds of each",
        "planned with the upper 60 % limit of the measured deviation, 2.3014; on these samples: more seeds do not "
        "reduce the noise of other samples",
    ]
    plan = {"runs": ["a", "b"], "score": "AP", "difference": 0.01, "samples": 1000, "half_width": 0.0123456}
    plan |= {"half_width_limit": 0.0125, "rare_classes": 0, "samples_needed": 23456, "samples_for_power": 45678}
    lines = format_plan(plan)
    assert lines == [
        "a, b: 1,000 samples give +-0.0123 (of both)",
        "AP to +-0.01 (95 % interval of the paired difference): 23,456 samples",
        "to find a true difference of 0.01 in 80 % of evaluations: 45,678 samples",
        "planned with the upper 60 % limit of the measured noise, +-0.0125",
    ]
    assert format_plan({**plan, "runs": ["a"], "rare_classes": 3}) == [
        "a: 1,000 samples give +-0.0123 (of a model and another with independent errors)",
        *lines[1:],
        "models that err on the same samples need fewer: name both runs",
        "rough, and likely too many: 3 classes are in fewer than 10 samples or groups; plan again with more samples",
    ]


@pytest.mark.parametrize("difference", [1e-300, 5e-324, 1e-9])
def test_a_difference_far_below_the_noise_is_refused(difference):
    for plan in (lambda: plan_samples(400, 0.5, difference), lambda: plan_seeds(0.5, difference)):
        message = f"-plan={difference:g} is less than a millionth of the noise of these runs, +-0.5: name a larger diff"
        with pytest.raises(UserError, match=f"^{re.escape(message)}erence$"):
            plan()
    many = 4e14 * (1.959964 / 1.965927) ** 2  # Student's quantile with 399 degrees of freedom
    assert plan_samples(400, 1.0, 1e-6) == pytest.approx(many, rel=1e-5)
    assert plan_samples(400, 0.5, 1e300) == plan_seeds(0.5, 1e300) == 2


def test_a_difference_that_no_two_scores_have_is_refused():
    first, second = (make_table(name, places) for name, places in zip("ab", draw_places(60, 0)))
    about = {"task": "classification", "dataset": "digits", "score": "top-1", "more_is_better": True}
    rows = [{"seed": n, "folder": str(n), "state": "finished", "value": 80.0 + n, "epoch": 9} for n in range(3)]
    seeds = groups.SeedGroup("usual", about, rows)
    for plan in (
        lambda most: plan_pair(first, second, most),
        lambda most: plan_single(first, most),
        lambda most: plan_group(seeds, most),
    ):
        assert plan(100.0)["difference"] == 100.0
        with pytest.raises(UserError, match="^-plan=101 is more than this score can differ, 100: name a smaller"):
            plan(101.0)
    errors = [make_volumes(name, np.random.default_rng(0).uniform(200, 900, 20)) for name in "a"]
    assert plan_single(*errors, 500.0)["difference"] == 500.0  # distances have no highest value
