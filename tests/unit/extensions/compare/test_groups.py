"""How far groups of seeds differ: their numbers against closed forms and slow loops, and what is said of them."""

import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.logging.record import SCORES
from paddlevit_dist.core.tasks.score import Score, to_plain
from paddlevit_dist.extensions.compare import groups
from paddlevit_dist.extensions.compare.command import run
from paddlevit_dist.extensions.compare.seeds import format_group
from paddlevit_dist.extensions.report.runs import read_run

SETTINGS = {"TRAIN": {"BASE_LR": 0.002}, "SAVE": "a", "SEED": 0}


def write_group(folder, scores, settings=None, unfinished=(), **about) -> str:
    folder.mkdir()
    rows = [
        {"seed": n, "folder": f"seed_{n}", "state": "finished", "value": s, "epoch": 9} for n, s in enumerate(scores)
    ]
    rows += [{"seed": 90 + n, "folder": f"seed_{n}", "state": state} for n, state in enumerate(unfinished)]
    described = {"task": "classification", "dataset": "digits", "score": "top-1", "more_is_better": True, **about}
    groups.SeedGroup(str(folder), {**described, "settings": settings or SETTINGS}, rows).write()
    return str(folder)


def write_run(folder, score, **more) -> str:
    folder.mkdir()
    events = [{"kind": "evaluation", "epoch": 3, "top-1": score, "best": "top-1", **more}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return str(folder)


def test_the_best_evaluation_is_that_of_the_linked_checkpoint(tmp_path):
    rows = [{"kind": "evaluation", "epoch": e, "top-1": s, "best": "top-1"} for e, s in ((1, 4.0), (2, 5.0), (3, 7.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert groups.find_best(tmp_path, "top-1") == {"value": 7.0, "epoch": 3}
    (tmp_path / "checkpoints" / "epoch_0002").mkdir(parents=True)
    (tmp_path / "checkpoints" / "best").symlink_to("epoch_0002")  # the run was killed before it linked epoch 3
    assert groups.find_best(tmp_path, "top-1") == {"value": 5.0, "epoch": 2}
    best = read_run(tmp_path, "").metrics.best
    assert (best["value"], best["epoch"]) == (5.0, 2)


def test_two_seeds_vary_and_one_does_not():
    assert groups.format_summary([1.0, 3.0], 3) == "mean 2.000, standard deviation 1.414, minimum 1.000, maximum 3.000"
    assert groups.format_summary([1.5], 1) == "mean 1.5, minimum 1.5, maximum 1.5"


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (8, 2.30600), (30, 2.04227), (1000, 1.96234)]
)
def test_the_quantiles_of_student_are_those_of_the_tables(freedom, expected):
    assert groups.student_quantile(0.975, freedom) == pytest.approx(expected, rel=1e-5)
    assert groups.student_quantile(0.5, freedom) == pytest.approx(0.0, abs=1e-6)


def test_a_quantile_of_a_fraction_of_a_degree_lies_between_its_neighbors():
    assert groups.student_quantile(0.975, 3) < groups.student_quantile(0.975, 2.5) < groups.student_quantile(0.975, 2)


def test_the_interval_covers_the_true_difference_and_noise_what_equal_groups_do():
    generator = np.random.default_rng(2)
    covered, within = 0, 0
    for _ in range(400):
        first, second = generator.normal(90, 0.5, 5).tolist(), generator.normal(91, 1.5, 4).tolist()
        value, deviation, freedom = groups.measure_difference(first, second)
        covered += abs(value - 1.0) <= groups.student_quantile(0.975, freedom) * deviation
        expected = stats.ttest_ind(first, second, equal_var=False)
        assert (-value / deviation, freedom) == pytest.approx((expected.statistic, expected.df))
        same = generator.normal(90, 0.5, 3)
        within += abs(statistics.fmean(first[:3]) - same.mean()) <= groups.compute_noise(first[:3])
    assert 0.92 <= covered / 400 <= 0.985  # 0.95, within three deviations
    assert 0.92 <= within / 400 <= 0.985  # it was 0.89 for groups of three with the degrees of freedom of two groups


def test_welch_of_groups_that_do_not_vary_has_no_deviation():
    assert groups.measure_difference([1.0, 1.0], [2.0, 2.0]) == (1.0, 0.0, 1.0)


def test_a_table_of_seeds_by_samples_has_the_variance_of_both_without_their_interaction_twice():
    """Random effects of seeds, of samples and of their pairs, whose variances are known."""
    generator, seeds, samples, found, means = np.random.default_rng(4), 4, 60, [], []
    for _ in range(600):
        sides = [
            generator.normal(0, 0.2, (seeds, 1))
            + generator.normal(0, 1, samples)
            + generator.normal(0, 2, (seeds, samples))
            for _ in range(2)
        ]
        changes = sides[1].mean(axis=0) - sides[0].mean(axis=0)
        rest = [side - side.mean(axis=0) - side.mean(axis=1, keepdims=True) + side.mean() for side in sides]
        interaction = sum((each**2).sum() for each in rest) / (seeds - 1) / (samples - 1) / seeds / samples
        noise = groups.SampleNoise(changes.var(ddof=1) / samples, interaction, samples - 1, "")
        scores = [side.mean(axis=1).tolist() for side in sides]
        value, deviation, freedom = groups.measure_difference(*scores, noise)
        found.append(abs(value) <= groups.student_quantile(0.975, freedom) * deviation)
        means.append((value, deviation))
    values, deviations = np.array(means).T
    assert np.mean(found) > 0.93 and deviations.mean() == pytest.approx(values.std(), rel=0.12)


def test_two_groups_in_the_terminal_and_as_json(tmp_path, capsys):
    first = write_group(tmp_path / "a", [90.0, 90.4, 90.2, 90.6, 90.8])
    other = {"TRAIN": {"BASE_LR": 0.001}, "SAVE": "b", "SEED": 0}
    second = write_group(tmp_path / "b", [91.0, 91.4, 91.2, 91.6, 91.8], other, unfinished=["failed"])
    run([first, second, "-json"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["difference"]["value"] == pytest.approx(1.0) and found["p"] == pytest.approx(
        2 * stats.t.sf(5.0, 8), rel=1e-3
    )
    assert found["finding"] == "better" and found["settings"] == {"TRAIN.BASE_LR": [0.002, 0.001]}
    run([first, second])
    said = capsys.readouterr().out
    assert f"{second}: 5 seeds (1 unfinished), mean 91.40, standard deviation 0.32, minimum 91.00" in said
    assert (
        "settings that differ: TRAIN.BASE_LR 0.002 -> 0.001" in said and "+1.00 [+0.54, +1.46]  0.0011  better" in said
    )
    assert "a difference of up to 0.46 is noise" in said


def test_ends_are_not_what_a_score_cannot_be(tmp_path, capsys):
    """Two seeds each: Student's quantile of one degree, 12.7, times a deviation of some percent."""
    near, far = write_group(tmp_path / "near", [99.0, 97.0]), write_group(tmp_path / "far", [3.0, 1.0])
    run([far, near, "-json"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["of_first"] == {"value": 2.0, "low": 0.0, "high": pytest.approx(2 + 12.7062)}
    assert found["of_second"] == {"value": 98.0, "low": pytest.approx(98 - 12.7062), "high": 100.0}
    assert found["difference"] == {"value": 96.0, "low": pytest.approx(96 - 4.30265 * 2**0.5), "high": 100.0}
    assert found["noise"] == pytest.approx(4.30265 * 2**0.5)  # before the cut
    run([far, near])
    assert "a difference of up to 6.08 is noise" in capsys.readouterr().out
    shares = [write_group(tmp_path / name, ends, score="AP") for name, ends in (("c", [0.1, 0.9]), ("d", [0.2, 0.8]))]
    run([*shares, "-json"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert [found["of_first"][end] for end in ("low", "high")] == [0.0, 1.0]
    assert [found["difference"][end] for end in ("low", "high")] == [-1.0, 1.0] and found["noise"] == 1.0
    assert "differ by up to 1.0000 (95 %" in "\n".join(format_group(groups.read_group(shares[0])))


@pytest.mark.parametrize(
    ("score", "described", "value", "difference"),
    [
        ("mre_mm", None, (0.0, 5.0), (-3.0, 5.0)),  # of a former version: by its name
        *((own, None, (-3.0, 5.0), (-3.0, 5.0)) for own in ("own", "AP bias", "APD", "signed mm", "mIoU gain")),
        ("AP", Score("AP", range=(-1.0, 1.0)), (-1.0, 1.0), (-2.0, 2.0)),
        ("own", Score("own", range=(-math.inf, 4.0)), (-3.0, 4.0), (-3.0, 5.0)),
        ("own", Score("own", range=None), (-3.0, 5.0), (-3.0, 5.0)),
    ],
)
def test_the_range_of_a_score_is_what_its_runs_say(tmp_path, score, described, value, difference):
    group = groups.read_group(write_group(tmp_path / "group", [0.5, 0.6], score=score))
    (tmp_path / "group" / "seed_0").mkdir()  # has not been evaluated
    if described is not None:
        (tmp_path / "group" / "seed_1").mkdir()
        content = json.dumps(to_plain({score: described}, []))
        (tmp_path / "group" / "seed_1" / SCORES).write_text(content)
    bounds = groups.find_range(group)
    assert groups.clip_to_range(bounds, -3.0, 5.0) == value
    assert groups.clip_to_range(bounds, -3.0, 5.0, is_difference=True) == difference


def test_seeds_that_all_score_the_same_have_no_interval(tmp_path, capsys):
    first, second = write_group(tmp_path / "a", [100.0] * 3), write_group(tmp_path / "b", [98.0] * 3)
    run([first, second, write_run(tmp_path / "run", 99.0)])
    said = capsys.readouterr().out
    assert "[" not in said and "no interval: all seeds of" in said and "is noise" not in said
    assert any(line.startswith("all seeds have the same score") for line in format_group(groups.read_group(first)))
    assert "below 100.00, the score of all seeds of" in said


def test_the_page_shows_what_is_said_of_its_own_scores(tmp_path, capsys, monkeypatch):
    page = (ROOT / "docs" / "explanation" / "scoring_and_confidence_intervals.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "output").mkdir()
    [table] = re.findall(r"^seed +best top-1 +epoch\n((?:\d .*\n)+)", page, re.MULTILINE)
    usual = [round(3.6 * float(row.split()[1])) for row in table.splitlines()]  # correct of 360 images
    for name, correct, rate in (("usual", usual, 0.002), ("faster", [279, 291, 258, 306, 315], 0.003)):
        write_group(Path("output", name), [100 * count / 360 for count in correct], {"TRAIN": {"BASE_LR": rate}})
    run(["output/usual", "output/faster"])
    lines = capsys.readouterr().out.splitlines()  # of seeds alone: there are no tables of samples
    assert "\n".join(lines[:5]) in page and lines[-1] in page
    group = format_group(groups.read_group("output/usual"))
    lines = [line for line in group if "[" not in line and not line[:1].isdigit()]
    assert len(lines) > 2 and all(line in page for line in lines[2:])


@pytest.mark.parametrize(("score", "where"), [(90.5, "within"), (99.0, "above"), (80.0, "below")])
def test_one_run_beside_a_group_is_one_line(tmp_path, capsys, score, where):
    group = write_group(tmp_path / "a", [90.0, 90.4, 90.2, 90.6, 90.8])
    single = write_run(tmp_path / "run", score)
    for words in ([group, single], [single, group], [f"{group}/seeds.json", single]):
        run(words)
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(single)]
        # t of 4 degrees, 2.776, times the deviation 0.3162 times sqrt(1 + 1/5)
        assert f"best {score:.2f} in epoch 3: {where} [89.44, 91.36], the interval of 95 % of single seeds" in line


@pytest.mark.parametrize("interval", [None, [], {"top-1": "x"}, {"top-1": ["a", "b"]}, {"loss": [1, 2]}, "text"])
def test_a_best_score_is_read_whatever_stands_for_its_interval(tmp_path, interval):
    folder = write_run(tmp_path / "run", 90.0, interval=interval)
    assert groups.find_best(Path(folder), "top-1") == {"value": 90.0, "epoch": 3}


def test_the_best_score_is_of_the_last_best_evaluation_that_counts(tmp_path):
    rows = [
        (1, 80.0, {}),
        (2, 95.0, {"superseded": True}),
        (2, 85.0, {"interval": {"percent": 95, "top-1": [83, 87]}}),
        (3, 70.0, None),
    ]
    events = [
        {"kind": "evaluation", "epoch": n, "top-1": s, **({"best": "top-1", **m} if m is not None else {})}
        for n, s, m in rows
    ]
    lines = [json.dumps(event) for event in [*events, {"kind": "evaluation", "top-1": 99.0, "best": "top-1"}]]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "evalua')
    assert groups.find_best(tmp_path, "top-1") == {"value": 85.0, "epoch": 2, "low": 83, "high": 87}


def test_what_cannot_be_compared_is_one_line(tmp_path):
    group = write_group(tmp_path / "a", [90.0, 90.4])
    with pytest.raises(UserError, match="has 1 finished seed.s.: expected two or more"):
        run([group, write_group(tmp_path / "b", [90.0], unfinished=["unfinished"])])
    with pytest.raises(UserError, match="score AP instead of top-1"):
        run([group, write_group(tmp_path / "c", [0.5, 0.6], score="AP")])
    with pytest.raises(UserError, match="nowhere is not a folder"):
        run([group, str(tmp_path / "nowhere")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="metrics.jsonl in .* has no best top-1 of a training run"):
        run([group, str(tmp_path / "empty")])
    with pytest.raises(UserError, match="-output does not apply to groups of seeds"):
        run([group, group, "-output=page.html"])
    (tmp_path / "empty" / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match="empty: its record cannot be read: Is a directory"):
        run([group, str(tmp_path / "empty")])
    written = (tmp_path / "a" / "seeds.json").read_bytes()
    changed = [(b'"value": 90.4', b'"value": NaN'), (b'"finished"', b"1"), (b'"format": 1', b'"format": 2')]
    changed += [(b'"task": "classification"', b'"task": 3'), (b'"settings": {', b'"settings": 0, "other": {')]
    changed += [(b'"more_is_better"', b'"less_is_better"')]
    damaged = [written.replace(*change) for change in changed]
    assert written not in damaged and written.startswith(b'{\n "format": 1,\n "task": ') and written.endswith(b"}\n")
    for content in (b"", b"[]", b"{}", b'{"format": 1, "seeds": 3}', "{}".encode("utf-16"), *damaged):
        (tmp_path / "a" / "seeds.json").write_bytes(content)
        with pytest.raises(UserError, match="seeds.json is damaged or from another version"):
            run([group, group])
    (tmp_path / "a" / "seeds.json").unlink()
    (tmp_path / "a" / "seeds.json").mkdir()
    with pytest.raises(UserError, match="seeds.json cannot be read: Is a directory"):
        groups.read_group(group)


def test_a_single_run_s_interval_is_cut_and_settings_that_differ_are_told(tmp_path, capsys):
    group = write_group(tmp_path / "a", [99.9, 99.2, 99.6])
    alone = tmp_path / "alone"
    alone.mkdir()
    event = {"kind": "evaluation", "best": "top-1", "top-1": 99.7, "epoch": 3}
    (alone / "metrics.jsonl").write_text(json.dumps(event) + "\n")
    (alone / "config.yaml").write_text("TRAIN: {BASE_LR: 0.004}\nSAVE: alone\nSEED: 0\n")
    run([group, str(alone)])
    said = capsys.readouterr().out
    assert "100.00], the interval of 95 % of single seeds" in said
    assert "settings that differ: TRAIN.BASE_LR 0.002 -> 0.004" in said
