"""Groups of seeds against closed forms, single runs at the ends of a group's interval, and their lines."""

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.refusals import refusal_of
from support.trainings.trial_runs import write_samples

from paddlevit_dist.extensions.compare import group_pairs
from paddlevit_dist.extensions.compare.groups import SeedGroup
from paddlevit_dist.extensions.compare.tables import FILES, write_table

STUDENT = {2: 12.7062, 3: 4.30265, 4: 3.18245}  # 97.5 % quantiles by the number of seeds


def make_group(folder: Path, scores, states=None, settings=None, **about) -> str:
    states = states or ["finished"] * len(scores)
    rows, left = [], iter(scores)
    for number, state in enumerate(states):
        found = {"value": next(left), "epoch": 9} if state == "finished" else {}
        rows.append({"seed": number, "folder": f"seed_{number}", "state": state, **found})
    folder.mkdir()
    described = {"task": "landmarks", "dataset": "own", "score": "mre_mm", "more_is_better": False, **about}
    group = SeedGroup(str(folder), {**described, "settings": settings or {"TRAIN": {"BASE_LR": 0.1}}}, rows)
    group.write()
    return str(folder)


def make_run(folder: Path, value: float, settings: str = "TRAIN: {BASE_LR: 0.1}") -> str:
    folder.mkdir()
    event = {"kind": "evaluation", "epoch": 4, "mre_mm": value, "best": "mre_mm"}
    (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")
    (folder / "config.yaml").write_text(settings + "\n")
    return str(folder)


@pytest.mark.parametrize("folder", ["runs/a", "/runs/a"])
def test_finished_seeds_with_a_score_stand_for_their_group(folder):
    states = ["failed", "unfinished", "finished", "finished"]
    rows = [{"seed": n, "folder": f"seed_{n}", "state": state, "value": 1.0} for n, state in enumerate(states)]
    del rows[2]["value"]  # of no evaluation
    assert group_pairs.list_finished(SeedGroup(folder, {}, rows)) == [f"{folder}/seed_3"]


def test_every_group_is_compared_with_the_first(tmp_path):
    scores = {"a": [3.0, 5.0, 4.5], "b": [6.0, 7.5], "c": [1.0, 1.5, 1.25, 2.0]}
    rates = {"a": 0.1, "b": 0.1, "c": 0.2}
    runs = {n: make_group(tmp_path / n, own, settings={"TRAIN": {"BASE_LR": rates[n]}}) for n, own in scores.items()}
    plain, lines = group_pairs.compare_groups(list(runs.values()))
    assert plain["single_runs"] == [] and len(plain["comparisons"]) == 2
    for name, row in zip("bc", plain["comparisons"]):
        own, mean = scores[name], statistics.fmean(scores[name])
        half = STUDENT[len(own)] * statistics.stdev(own) / len(own) ** 0.5
        assert (row["first"], row["second"]) == (runs["a"], runs[name])
        assert (row["score"], row["more_is_better"], row["percent"]) == ("mre_mm", False, 95)
        assert row["seeds"] == [3, len(own)] and row["difference_percent"] == 97.5
        ends = {"value": mean, "low": max(0.0, mean - half), "high": mean + half}
        assert row["of_second"] == pytest.approx(ends, rel=1e-4)
        assert row["of_first"]["value"] == pytest.approx(12.5 / 3, rel=1e-4)
        difference = row["difference"]
        assert difference["value"] == pytest.approx(mean - 12.5 / 3, rel=1e-4)
        expected = stats.ttest_ind(own, scores["a"], equal_var=False)
        ends = expected.confidence_interval(0.975)
        assert [difference["low"], difference["high"]] == pytest.approx([*ends], rel=1e-3)
        assert row["noise"] == pytest.approx(ends.high - difference["value"], rel=1e-3)
        assert row["p"] == pytest.approx(expected.pvalue, rel=1e-3)
        assert row["settings"] == ({"TRAIN.BASE_LR": [0.1, 0.2]} if name == "c" else {}) and row["warnings"] == []
    assert [line.split(":")[0] for line in lines[:3]] == list(runs.values())
    assert lines[3] == "" and lines[4].split()[:5] == ["group", "mean", "of", "best", "mre_mm"]
    assert sum("is noise" in line for line in lines) == 2
    assert sum(line.startswith("settings that differ") for line in lines) == 1


def test_unfinished_seeds_are_counted(tmp_path):
    run = make_group(tmp_path / "a", [3.0, 5.0], ["failed", "finished", "unfinished", "unfinished", "finished"])
    plain, lines = group_pairs.compare_groups([run])
    assert plain == {"comparisons": [], "single_runs": []}
    assert len(lines) == 1 and lines[0].startswith(f"{run}: 2 seeds (3 unfinished), mean 4.0")


@pytest.mark.parametrize(
    ("value", "where", "told"),
    [
        (4.0, "within", "within 4.00, the score of all seeds of {group}, so there is no interval"),
        (3.5, "below", "below 4.00, the score of all seeds of {group}, so there is no interval"),
        (4.5, "above", "above 4.00, the score of all seeds of {group}, so there is no interval"),
    ],
)
def test_a_run_is_within_an_interval_that_it_touches(tmp_path, value, where, told):
    group, run = make_group(tmp_path / "a", [4.0, 4.0, 4.0]), make_run(tmp_path / "run", value)
    plain, lines = group_pairs.compare_groups([run, group])
    ends = {"seeds_low": 4.0, "seeds_high": 4.0, "where": where, "settings": {}, "warnings": []}
    assert plain["single_runs"] == [{"run": run, "group": group, "value": value, "epoch": 4, **ends}]
    assert lines[-2:] == ["", f"{run}: one run, best {value:.2f} in epoch 4: {told.format(group=group)}"]


def test_a_run_s_interval_is_that_of_one_more_seed(tmp_path):
    group = make_group(tmp_path / "a", [4.0, 5.0])
    inside = make_run(tmp_path / "inside", 13.5)
    outside = make_run(tmp_path / "outside", 16.0, "TRAIN: {BASE_LR: 0.3}")
    plain, lines = group_pairs.compare_groups([inside, group, outside])
    half = STUDENT[2] * 0.5**0.5 * 1.5**0.5  # deviation of 4 and 5, and of one more score from their mean
    for row, where in zip(plain["single_runs"], ("within", "above")):
        assert (row["seeds_low"], row["seeds_high"]) == (0.0, pytest.approx(4.5 + half, rel=1e-4))
        assert row["where"] == where
    assert [row["run"] for row in plain["single_runs"]] == [inside, outside]
    assert lines[1] == "" and lines[2].endswith(f"single seeds of {group}: may be due to its seed")
    assert lines[3] == "" and lines[4].endswith(f"single seeds of {group}: unlikely to be due to its seed alone")
    assert lines[5:] == ["settings that differ: TRAIN.BASE_LR 0.1 -> 0.3"]


def test_other_samples_are_the_first_warning_and_another_order_is_none(tmp_path):
    first, run = make_group(tmp_path / "a", [4.0, 5.0]), make_run(tmp_path / "run", 5.0)
    second = make_group(tmp_path / "b", [4.0, 6.0], ["failed", "finished", "finished"])
    assert group_pairs.compare_groups([first, second])[0]["comparisons"][0]["warnings"] == []  # without tables
    for folder, names, crop in ((f"{first}/seed_0", "cab", 1), (f"{second}/seed_1", "bca", 2), (run, "abz", 3)):
        write_samples(Path(folder), "epoch 9", 1, list(names), {"crop": crop})
    plain, lines = group_pairs.compare_groups([first, run, second])
    other = f"protocol: crop is 1 in {first}/seed_0"
    warnings = plain["comparisons"][0]["warnings"]
    assert warnings == [f"{other}, 2 in {second}/seed_1"]
    expected = [f"samples: {first}/seed_0 and {run} were evaluated on different samples", f"{other}, 3 in {run}"]
    assert plain["single_runs"][0]["warnings"] == expected
    assert lines[-3:] == [f"warning: {line}" for line in [*warnings, *expected]]


def test_other_samples_are_in_the_interval_where_all_seeds_have_tables(tmp_path):
    """Of 200 images, four seeds of one method and three of another are right on other ones."""
    generator, counts, images = np.random.default_rng(1), (4, 3), 200
    about = {"task": "landmarks", "kind": "classes", "score": "top-1", "more_is_better": True, "classes": ["a", "b"]}
    about |= {"split": "val", "dataset": "own", "of": "epoch 9", "protocol": {}, "input": {}}
    hard, hits, runs = generator.normal(size=images), [], []
    for name, number in zip("ab", counts):
        ease = hard + generator.normal(size=images)
        hits.append(ease + 0.5 * generator.normal(size=(number, images)) < 1.0)
        runs.append(make_group(tmp_path / name, (100 * hits[-1].mean(axis=1)).tolist(), score="top-1"))
        for seed, right in enumerate(hits[-1]):
            (tmp_path / name / f"seed_{seed}").mkdir()
            arrays = {"indices": np.arange(images), "labels": np.arange(images) % 2, "places": 1 - right.astype(int)}
            arrays |= {"losses": np.ones(images), "top": np.array([1])}
            file = tmp_path / name / f"seed_{seed}" / FILES[1]
            write_table(file, about, list(map(str, range(images))), arrays, None)
    (found,) = group_pairs.compare_groups(runs)[0]["comparisons"]
    changes = 100 * (hits[1].mean(axis=0) - hits[0].mean(axis=0))
    variance = changes.var(ddof=1) / images
    for own in hits:
        rest = 100 * (own - own.mean(axis=0) - own.mean(axis=1, keepdims=True) + own.mean())
        of_seeds = 100**2 * own.mean(axis=1).var(ddof=1) / len(own)
        variance += of_seeds - (rest**2).sum() / (len(own) - 1) / (images - 1) / len(own) / images
    difference = found["difference"]
    reach = (difference["high"] - difference["low"]) / 2
    assert 1.96 < reach / variance**0.5 < 2.4 and difference["value"] == pytest.approx(changes.mean(), rel=1e-5)
    assert found["over"] == "the seeds, of differences also of the same 200 samples"
    assert any(line.endswith(found["over"]) for line in group_pairs.compare_groups(runs)[1])
    (tmp_path / "b" / "seed_2" / FILES[1]).unlink()
    (alone,) = group_pairs.compare_groups(runs)[0]["comparisons"]
    assert "seeds alone: other samples are not in them" in alone["over"] and str(tmp_path / "b") in alone["over"]
    assert alone["difference"]["high"] - alone["difference"]["low"] < 2 * reach


@pytest.mark.parametrize(
    ("about", "scores", "told"),
    [
        (
            {"task": "detection"},
            [1.0, 2.0],
            "compare: {b} cannot be compared with {a}: task detection instead of landmarks",
        ),
        ({"score": "loss"}, [1.0, 2.0], "compare: {b} cannot be compared with {a}: score loss instead of mre_mm"),
        (
            {},
            [1.0],
            "compare: {b} has 1 finished seed(s): expected two or more; repeat its -seeds command to continue it",
        ),
    ],
)
def test_groups_that_cannot_be_compared_are_told(tmp_path, about, scores, told):
    a, b = make_group(tmp_path / "a", [1.0, 2.0]), make_group(tmp_path / "b", scores, **about)
    assert refusal_of(group_pairs.compare_groups, [a, b]) == told.format(a=a, b=b)
