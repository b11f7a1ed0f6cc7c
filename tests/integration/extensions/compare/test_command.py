"""The command compares what trainings and evaluations leave in their folders, without Paddle and without their data."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from support.processes import run_command
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.tasks.sample_groups import read_groups
from paddlevit_dist.extensions.compare import tables
from paddlevit_dist.extensions.compare.command import run


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[str]:
    """Two trainings, and an evaluation of the second one's weights."""
    folders = [str(tmp_path_factory.mktemp(name) / name) for name in ("short", "long", "again")]
    for folder, epochs in zip(folders, ("1", "6")):
        words = [f"-epochs={epochs}", "-batch_size=64", "TRAIN.WARMUP_EPOCHS", "0"]
        small_runs.build(folder, *words, train_size=1400, val_size=300).train()
    evaluate_only(
        small_runs.build(folders[2], "-eval", f"-pretrained={folders[1]}/checkpoints/epoch_0006", val_size=300)
    )
    return folders


def test_two_runs_are_compared_without_paddle(runs):
    program = (
        "import sys; sys.modules['paddle'] = None\n"  # any import of paddle fails
        "from paddlevit_dist.extensions.compare.command import run; run(sys.argv[1:])"
    )
    ended = run_command([sys.executable, "-c", program, *runs[:2], "-json"])
    assert ended.code == 0, ended.err
    (found,) = json.loads(ended.out)["comparisons"]
    scores = [json.loads(Path(folder, "intervals.json").read_text())["values"] for folder in runs[:2]]
    for row, name in ((found, "top-1"), *((row, row["score"]) for row in found["classes"])):
        assert [row["of_first"], row["of_second"]] == [values[name] for values in scores]
    net = len(found["fixed"]) - len(found["broken"])
    assert found["difference"]["value"] == pytest.approx(100 * net / 300, rel=1e-4)
    assert found["samples"] == 300 and found["first"] == runs[0] and found["test"] == "McNemar's mid-p test"
    assert {row["class"] for row in found["classes"]} == set("0123456789") and found["p"] == found["p_corrected"]


def test_the_terminal_says_what_the_json_has(runs, capsys):
    run([*runs[:2], "-json"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    run(runs[:2])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{runs[0]}: val, epoch 1", f"{runs[1]}: val, epoch 6"]
    value = found["difference"]["value"]
    row = next(line for line in lines[3:] if line.startswith(runs[1]))
    assert f" {value:+.2f} [" in row and row.endswith(f"  {found['finding']}")
    assert any(line.startswith(f"fixed {len(found['fixed'])} (wrong before, right now): sample ") for line in lines)
    assert not any(line.startswith("warning") for line in lines)


def test_settings_of_trainings_that_differ_are_told_also_of_weights_evaluated_again(runs, capsys, tmp_path):
    for other in runs[1:]:
        run([runs[0], other])
        (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("settings that differ")]
        assert said == "settings that differ: TRAIN.NUM_EPOCHS 1 -> 6"
    run([runs[1], runs[2], "-json"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["settings"] == {}
    run([runs[0], runs[1], f"-output={tmp_path / 'page.html'}"])
    assert "<p>settings that differ: TRAIN.NUM_EPOCHS 1 -&gt; 6</p>" in (tmp_path / "page.html").read_text()
    damaged = tmp_path / "damaged"
    shutil.copytree(runs[0], damaged, symlinks=True)
    (damaged / "config.yaml").write_text("TRAIN: [")
    capsys.readouterr()
    run([str(damaged), runs[1]])
    assert "settings that differ" not in capsys.readouterr().out


def test_samples_of_a_group_are_compared_together(runs, capsys, tmp_path):
    """Given by a file, and known from the evaluations themselves."""
    run([*runs[:2], "-json"])
    (plain,) = json.loads(capsys.readouterr().out)["comparisons"]
    names, listed = tables.read_table(runs[0]).names, tmp_path / "videos.csv"
    changed = [{row["sample"] for row in plain[kind]} for kind in ("fixed", "broken")]
    gains = [(name in changed[0]) - (name in changed[1]) for name in names]
    video = np.empty(300, int)
    video[np.lexsort((np.arange(300) % 3, gains))] = np.arange(300) // 5  # alike in a video
    listed.write_text("name,video\n" + "".join(f"{name},{v}\n" for name, v in zip(names, video)), encoding="utf-8")
    run([*runs[:2], "-json", f"-group={listed}"])
    (found,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert found["groups"] == {"by": "video", "number": 60, "source": str(listed)}
    assert found["test"] == "Student's t" and found["of_first"] != plain["of_first"]
    gained = np.bincount(video, gains)
    drawn = np.random.default_rng(1).integers(0, 60, (20_000, 60))
    low, high = np.quantile(100 * gained[drawn].sum(axis=1) / 300, [0.025, 0.975])
    ends, ends_of_samples = found["difference"], plain["difference"]
    assert [ends["low"], ends["high"]] == pytest.approx([low, high], abs=5 / 3)  # one of 60 groups
    assert ends["high"] - ends["low"] > 1.4 * (ends_of_samples["high"] - ends_of_samples["low"])
    assert found["p"] == pytest.approx(stats.ttest_1samp(gained, 0.0).pvalue, rel=1e-3)

    groups = read_groups(str(listed), names, "data")
    for number, folder in enumerate(runs[:2]):  # as an evaluation with -group leaves it
        table, kept = tables.read_table(folder), groups._replace(names=np.roll(groups.names, number))
        (tmp_path / str(number)).mkdir()
        arrays = {"indices": np.arange(300), **table.arrays}
        tables.write_table(tmp_path / str(number) / tables.FILES[0], table.about, table.names, arrays, kept)
    run([str(tmp_path / "0"), runs[1], "-json"])
    (again,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert [again[what] for what in ("difference", "p")] == [found[what] for what in ("difference", "p")]
    run([runs[1], str(tmp_path / "0")])
    assert ", by 60 groups (video)\n" in capsys.readouterr().out
    run([str(tmp_path / "0"), str(tmp_path / "1"), f"-output={tmp_path / 'page.html'}"])
    shown = capsys.readouterr().out
    warning = f"warning: groups: {tmp_path / '1'} has different ones, by 60 groups (video); used are the groups of "
    assert f"{warning}{tmp_path / '0'}" in shown
    assert "of the same 300 samples, by 60 groups (video)" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="-group=video: there is no such file or column; expected a file"):
        run([*runs[:2], "-group=video"])


def test_several_runs_are_corrected_and_a_page_is_written(runs, capsys, tmp_path):
    target = tmp_path / "new" / "all.html"
    run([runs[1], runs[0], runs[2], f"-output={target}", "-json"])
    worse, same = json.loads(capsys.readouterr().out)["comparisons"]
    assert worse["p_corrected"] == pytest.approx(2 * worse["p"], rel=1e-5) and worse["finding"] == "worse"
    assert same["p"] == same["p_corrected"] == 1.0 and same["finding"] == "no difference" and not same["fixed"]
    page = target.read_text(encoding="utf-8")
    assert page.count("<tr>") > 20 and "p (corrected)" in page and f"{len(worse['broken'])} samples are broken" in page
    run([runs[1], runs[0], runs[2]])
    shown = capsys.readouterr().out
    assert f"{runs[2]}: val, weights {runs[1]}" in shown and re.search(
        r"^run +top-1 +difference +p +p \(corrected\)$", shown, re.M
    )


def test_a_table_is_whole_or_absent_and_off_with_intervals(tmp_path):
    folder = tmp_path / "run"
    small_runs.build(str(folder), "-epochs=1", "-batch_size=64", "EVALUATION.INTERVAL", "off").train()
    assert not list(folder.glob("*scored_samples.npz*"))
    with pytest.raises(UserError, match="has neither eval_scored_samples.npz nor scored_samples.npz"):
        run([str(folder), str(folder)])
    with pytest.raises(UserError, match="compare: give two runs or more"):
        run([str(folder)])


@pytest.mark.parametrize("target", ["other.yaml", "not/there"])
def test_a_page_is_not_written_over_what_is_none(target, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.yaml").write_text("mine")
    with pytest.raises(UserError, match=f"-output={target}: expected a file that ends in .html, or an existing folder"):
        run(["first", "second", f"-output={target}"])
    assert (tmp_path / "other.yaml").read_text() == "mine" and not (tmp_path / "not").exists()
