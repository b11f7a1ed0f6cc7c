"""Tables of samples of users' own kinds of scores: compared with what they register, or refused in a line."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from support.registrations import forgotten
from yacs.config import CfgNode

from paddlevit_dist import UserError, register_score_kind
from paddlevit_dist.core.intervals import means, paired_difference
from paddlevit_dist.core.intervals.proportions import mcnemar_test
from paddlevit_dist.core.launch.spawn import WorkerPayload
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.metrics import SampleTable
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.core.tasks.score_kind import ScoreKind, find_score_kind, join_arrays
from paddlevit_dist.extensions.compare import pairs, tables
from paddlevit_dist.extensions.compare.formatting import format_lines
from paddlevit_dist.extensions.compare.pairs import TablePair, compare_tables
from paddlevit_dist.extensions.compare.plan import plan_pair, plan_single

NUMBER = 30
KIND = "errors of sums"


class ErrorScores(ScoreKind):
    decimals = 3
    right_rate = "near"

    def recompute(self, parts, classes):
        errors = join_arrays(parts, "errors")
        return means({"mean error": errors, "near": 100.0 * (errors < 0.5)})

    def is_valid(self, arrays, samples, classes):
        return all(arrays[name].shape == (samples,) for name in ("errors", "sums"))

    def truth(self, arrays):
        return arrays["sums"]

    def hits(self, arrays, classes):
        return {"near": arrays["errors"] < 0.5}


@pytest.fixture(autouse=True)
def registered():
    with forgotten():
        register_score_kind(KIND, ErrorScores)
        yield


def write(folder, arrays, kind=KIND, score="near", **keys):
    """What an evaluation of a user's task writes."""
    kept = SampleTable(kind, ["sum"], arrays)
    evaluation = SimpleNamespace(
        table=SimpleNamespace(indices=np.arange(NUMBER), to_sample_table=lambda: kept, groups=None),
        config=CfgNode({"TASK": "adding", "DATA": {"DATASET": "vectors"}}),
        task=SimpleNamespace(best_metric=(score, True), signature=dict),
        samples=SimpleNamespace(name="vector {}".format),
        facts={},
    )
    folder.mkdir()
    tables.write_evaluated(folder / "intervals.json", evaluation, {"epoch": 1})
    return folder


def draw(seed, **more):
    sums = np.random.default_rng(0).random(NUMBER)
    return {"errors": np.random.default_rng(seed).gamma(2, 0.3, NUMBER), "sums": sums, **more}


def read(folder, *arguments, **options):
    return tables.read_table(str(write(folder, *arguments, **options)))


def test_right_answers_of_an_own_kind_have_the_exact_test_and_interval(tmp_path):
    first, second = read(tmp_path / "a", draw(1)), read(tmp_path / "b", draw(2))
    found = compare_tables(first, second)
    before, after = (table.arrays["errors"] < 0.5 for table in (first, second))
    fixed, broken = np.flatnonzero(after & ~before), np.flatnonzero(before & ~after)
    assert [row["sample"] for row in found["fixed"]] == [f"vector {row}" for row in fixed]
    assert found["test"] == "McNemar's mid-p test"
    assert found["p"] == pytest.approx(mcnemar_test(len(fixed), len(broken)), rel=1e-5)
    exact, difference = paired_difference(before, after, 95), found["difference"]
    assert [difference["low"], difference["high"]] == pytest.approx([exact.low, exact.high], abs=1e-4)
    assert difference["value"] == pytest.approx(100 * (after.mean() - before.mean()), rel=1e-4)
    lines = "\n".join(format_lines([first, second], [found], first.kind.decimals))
    assert f"fixed {len(fixed)} (wrong before, right now): vector {fixed[0]}, " in lines and found["classes"] == []


def test_an_own_kind_needs_no_more_than_its_scores(tmp_path):
    class Least(ScoreKind):
        def recompute(self, parts, classes):
            return means({"mean error": np.concatenate([part["errors"] for part in parts])})

    register_score_kind("least", Least)
    first, second = (
        read(tmp_path / name, draw(seed), kind="least", score="mean error") for name, seed in (("a", 1), ("b", 2))
    )
    found = compare_tables(first, second)
    gains = second.arrays["errors"] - first.arrays["errors"]
    assert found["p"] == pytest.approx(stats.ttest_1samp(gains, 0.0).pvalue, rel=0.02)
    best = int(np.argmax(gains))
    assert found["better"][0]["sample"] == f"vector {best}" and len(found["worse"]) == int((gains < 0).sum())
    assert plan_pair(first, second, 0.1)["samples"] == plan_single(first, 0.1)["samples"] == NUMBER
    assert first.kind.count_units(first.arrays, ["sum"], None) == {}


def test_a_score_that_one_sample_does_not_have_names_no_samples_as_better_or_worse(tmp_path):
    class Spread(ScoreKind):
        def recompute(self, parts, classes):
            moments = means({name: join_arrays(parts, "errors") ** power for name, power in (("one", 1), ("two", 2))})

            def compute(weights):
                drawn = moments(weights)
                is_known = (weights > 0).sum(axis=1) > 1
                return {"variance": np.where(is_known, drawn["two"] - drawn["one"] ** 2, np.nan)}

            return compute

    register_score_kind("spread", Spread)
    first, second = (
        read(tmp_path / name, draw(seed), kind="spread", score="variance") for name, seed in (("a", 1), ("b", 2))
    )
    found = compare_tables(first, second)
    variances = [table.arrays["errors"].var() for table in (first, second)]
    assert found["difference"]["value"] == pytest.approx(variances[1] - variances[0], rel=1e-4)
    assert "better" not in found and "worse" not in found
    lines = format_lines([first, second], [found], 3)
    assert not [line for line in lines if line.startswith(("better ", "worse "))]


def test_classes_of_an_own_kind_are_compared_and_counted(tmp_path):
    class Named(ErrorScores):
        class_score = "error of {}"

        def recompute(self, parts, classes):
            scores = super().recompute(parts, classes)
            return lambda weights: {**scores(weights), "error of sum": scores(weights)["mean error"]}

        def truth(self, arrays):
            return arrays["labels"]

        def predictions(self, arrays):
            return arrays["labels"]

    register_score_kind("named", Named)
    labels = np.array([0, -1, *[0] * (NUMBER - 2)])  # one is of no class
    first, second = (
        read(tmp_path / name, draw(seed, labels=labels), kind="named") for name, seed in (("a", 1), ("b", 2))
    )
    found = compare_tables(first, second)
    assert [row["class"] for row in found["classes"]] == ["sum"]
    assert all(row["class"] == row["taken_for"] == "sum" for row in found["fixed"] if row["sample"] != "vector 1")
    assert first.kind.count_units(first.arrays, ["sum"], None) == {"error of sum": NUMBER - 1}


def test_another_ground_truth_of_an_own_kind_is_refused(tmp_path):
    first = read(tmp_path / "a", {**draw(1), "sums": np.array([np.nan, *range(1, NUMBER)])})
    assert compare_tables(first, first)["difference"]["value"] == 0
    other = first.arrays["sums"].copy()
    other[4] = 0.5
    second = first._replace(arrays={**first.arrays, "sums": other})
    with pytest.raises(UserError, match="1 of 30 samples have different labels, such as vector 4"):
        compare_tables(first, second)
    with pytest.raises(UserError, match="1 of 30 samples have different labels, such as vector 0"):
        compare_tables(first, first._replace(arrays={**first.arrays, "sums": np.arange(NUMBER)}))
    wider = first._replace(arrays={**first.arrays, "sums": np.stack([other, other], axis=1)})
    with pytest.raises(UserError, match=r"labels of the shape \(30, 2\) instead of \(30,\)"):
        compare_tables(first, wider)


@pytest.mark.parametrize(
    ("kind", "arrays", "said"),
    [
        (
            "of nobody",
            draw(1),
            "task adding have results of the kind 'of nobody' .* no ScoreKind of this name is regis",
        ),
        (KIND, {"errors": np.ones(NUMBER)}, r"has no array sums, .* kind errors of sums .*\(it has errors\): evaluate"),
        (
            KIND,
            draw(1, sums=np.ones((NUMBER, 2))),
            r"\(errors, sums\) are not valid for scores of the kind 'errors of s",
        ),
        ("classes", {"errors": np.ones(NUMBER)}, r"has no array labels, which scores of the kind classes are computed"),
    ],
)
def test_a_table_that_no_kind_reads_is_refused_in_a_line(tmp_path, kind, arrays, said):
    write(tmp_path / "a", arrays, kind=kind)
    with pytest.raises(UserError, match=said) as refused:
        tables.read_table(str(tmp_path / "a"))
    assert "damaged" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_score_that_the_kind_does_not_have_is_refused_in_a_line(tmp_path):
    first, second = (read(tmp_path / name, draw(seed), score="worst") for name, seed in (("a", 1), ("b", 2)))
    said = "worst is not a score of the kind errors of sums: let the metrics return a SampleTable of a kind of your own"
    for call in (
        lambda: compare_tables(first, second),
        lambda: plan_pair(first, second, 0.1),
        lambda: plan_single(first, 0.1),
    ):
        with pytest.raises(UserError, match=said):
            call()


def test_a_score_without_a_value_is_refused_in_a_line(tmp_path):
    empty = {**draw(1), "errors": np.full(NUMBER, np.nan)}
    first, second = (
        read(tmp_path / name, arrays, score="mean error") for name, arrays in (("a", draw(1)), ("b", empty))
    )
    said = "mean error is not defined for these samples$"
    with pytest.raises(UserError, match=f"^compare: {second.run} cannot be compared with {first.run}: {said}"):
        compare_tables(first, second)
    with pytest.raises(UserError, match=f"^-plan: {second.run}: {said}"):
        plan_single(second, 0.1)


def test_a_right_rate_without_decisions_is_refused_in_a_line(tmp_path):
    class Wrong(ErrorScores):
        right_rate = "far"

    register_score_kind(KIND, Wrong, replace=True)
    first, second = read(tmp_path / "a", draw(1)), read(tmp_path / "b", draw(2))
    with pytest.raises(UserError, match="Wrong.hits has no decisions 'far' of 30 samples: its right_rate names them"):
        compare_tables(first, second)


def test_a_kind_is_registered_once_derived_and_also_in_workers():
    with pytest.raises(UserError, match=r"score kind 'classes' is registered twice \(this package has one\)"):
        register_score_kind("classes", ErrorScores)
    register_score_kind("plain", int)
    with pytest.raises(UserError, match="int is not derived from ScoreKind: derive it"):
        find_score_kind("plain")
    packed = pickle.dumps(WorkerPayload.pack(len, ((),)))
    with forgotten():
        REGISTRY.kinds["score_kind"].pop(KIND)
        assert find_score_kind(KIND) is None
        pickle.loads(packed).unpack()
        assert isinstance(find_score_kind(KIND), ErrorScores)


RANGES = {"share": (0.0, 1.0), "wide": (-2.0, 3.0), "error": (0.0, math.inf), "free": (-math.inf, math.inf)}


class RangedScores(ScoreKind):
    def recompute(self, parts, classes):
        values = {name: join_arrays(parts, name) for name in (*RANGES, "alone")}
        return self.declare(means(values), parts[0], classes)

    def find_ranges(self, arrays, classes):
        return {**RANGES, "alone": None}


def test_a_difference_has_possible_ends_and_none_where_its_score_has_none(tmp_path):
    """Of 30 samples all but three change by as much as they can: Student's interval goes beyond what is possible."""
    register_score_kind("ranged", RangedScores)
    generator, arrays, changed = np.random.default_rng(0), [], np.arange(NUMBER) >= 3
    for is_second in (False, True):
        values = {"share": changed * is_second, "wide": np.where(changed * is_second, 3.0, -2.0)}
        values |= {name: generator.gamma(2.0, 50.0, NUMBER) for name in ("error", "free", "alone")}
        arrays.append({name: np.asarray(column, float) for name, column in values.items()})
    pair = [read(tmp_path / name, dict(given), kind="ranged", score="share") for name, given in zip("ab", arrays)]
    for first, second, sign in ((*pair, 1), (*pair[::-1], -1)):
        found = TablePair.match(first, second).compute_intervals()
        for name, most in {"share": 1.0, "wide": 5.0, "error": math.inf, "free": math.inf}.items():
            interval, changes = found.difference[name], sign * (arrays[1][name] - arrays[0][name])
            reach = 2.045230 * changes.std(ddof=1) / NUMBER**0.5  # Student's quantile with 29 degrees of freedom
            ends = changes.mean() - reach, changes.mean() + reach
            assert max(map(abs, ends)) > most or most == math.inf
            expected = max(ends[0], -most), min(ends[1], most)
            assert (interval.low, interval.high) == pytest.approx(expected, abs=0.1 * reach), name
            assert max(abs(interval.low), abs(interval.high)) <= most
        assert not found.difference["alone"].has_width() and not found.first["alone"].has_width()


@pytest.mark.parametrize("which", [(True, False), (False, True), (True, True)])
def test_groups_of_either_table_hold_for_both(tmp_path, which):
    """p is that of Student's test of the gains of five groups."""
    order, groups = np.random.default_rng(3).permutation(NUMBER), np.arange(NUMBER) % 5
    first, turned = draw(1), {name: column[order] for name, column in draw(2).items()}
    one, other = read(tmp_path / "a", first), read(tmp_path / "b", turned)
    other = other._replace(names=[one.names[row] for row in order], about={**other.about, "digest": "b"})
    rows = (np.arange(NUMBER), order)
    one, other = (
        table._replace(groups=SampleGroups("site", groups[own].astype(str), "x") if has else None)
        for table, own, has in zip((one, other), rows, which)
    )
    found = compare_tables(one, other)
    right = [draw(seed)["errors"] < 0.5 for seed in (1, 2)]
    gains = [int(right[1][groups == group].sum()) - int(right[0][groups == group].sum()) for group in range(5)]
    assert found["p"] == pytest.approx(stats.ttest_1samp(gains, 0.0).pvalue, rel=1e-3)
    assert found["test"] == "Student's t" and found["groups"]["number"] == 5 and found["warnings"] == []


@pytest.mark.parametrize("is_less_better", [False, True])
def test_samples_change_for_the_better_up_to_a_number_of_them(tmp_path, monkeypatch, is_less_better):
    first, second = (read(tmp_path / name, draw(seed), score="mean error") for name, seed in (("a", 1), ("b", 2)))
    monkeypatch.setattr(ErrorScores, "right_rate", "")
    about = {**first.about, "more_is_better": not is_less_better}
    monkeypatch.setattr(pairs, "_MAX_SINGLE_SCORES", NUMBER)
    found = compare_tables(first._replace(about=about), second)
    gains = (second.arrays["errors"] - first.arrays["errors"]) * (-1 if is_less_better else 1)
    for kind, sign in (("better", 1), ("worse", -1)):
        rows = [row for row in np.argsort(-np.abs(gains)) if sign * gains[row] > 0]
        assert [each["sample"] for each in found[kind]] == [f"vector {row}" for row in rows]
    monkeypatch.setattr(pairs, "_MAX_SINGLE_SCORES", NUMBER - 1)
    assert not {"better", "worse"} & compare_tables(first._replace(about=about), second).keys()


def test_an_answer_is_told_with_the_classes_that_there_are(tmp_path):
    class Named(ErrorScores):
        class_score = "error of {}"

        def truth(self, arrays):
            return arrays["labels"]

        def predictions(self, arrays):
            return arrays.get("answers")

    register_score_kind("told", Named)
    order = np.array([1, 0, *range(2, NUMBER)])
    labels, answers = np.zeros(NUMBER, int), np.array([0, 1, 2, -1, *[0] * (NUMBER - 4)])
    one = read(tmp_path / "a", draw(1, labels=labels, answers=answers), kind="told")
    pair = TablePair(one, one, one.kind, order, ["x", "y"])
    told = [pair.describe_answer(row, False) for row in range(4)]
    assert told == [{"class": "x", "taken_for": name} for name in "xy"] + [{"class": "x"}] * 2  # class 2 is unknown
    assert [pair.describe_answer(row, True)["taken_for"] for row in range(2)] == ["y", "x"]
    for several in ({"answers": np.zeros((NUMBER, 2), int)}, {}):
        table = one._replace(arrays={**draw(1, labels=labels), **several})
        assert TablePair(table, table, one.kind, order, ["x", "y"]).describe_answer(0, False) == {"class": "x"}
