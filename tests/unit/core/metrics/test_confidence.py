"""Evaluations of a run show and record their intervals, which are those of its table of images."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.evaluation import evaluate_only
from paddlevit_dist.core.intervals import ProportionRecompute, bootstrap, find_share_range, means
from paddlevit_dist.core.settings import load


def make_names(folder: Path) -> list[str]:
    samples = small_runs.build(str(folder), val_size=200).evaluator.samples
    return list(map(samples.name, range(200)))


def make_events(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == "evaluation"]


def quantiles(right: int, samples: int) -> np.ndarray:
    """Of how many of so many are right in a draw, in percent: the binomial distribution's own."""
    draws = np.random.default_rng(5).binomial(samples, right / samples, 200_000)
    return 100 * np.quantile(draws, [0.025, 0.975]) / samples


def test_a_training_and_an_evaluation_tell_and_record_the_same_interval(tmp_path):
    trained, evaluated = tmp_path / "run", tmp_path / "evaluation"
    small_runs.build(str(trained), "-epochs=1", "-batch_size=64", train_size=128, val_size=200).train()
    again = small_runs.build(str(evaluated), "-eval", f"-pretrained={trained}", val_size=200)
    evaluate_only(again)
    (first,), (second,) = make_events(trained), make_events(evaluated)
    assert first["interval"] == second["interval"] and first["interval"]["percent"] == 95
    names = {"top-1", "top-5", "loss", "balanced accuracy", "macro precision", "MCC", "kappa"}
    assert set(first["interval"]) == {"percent", *names}  # of what the event has
    low, high = first["interval"]["top-1"]
    assert [low, high] == pytest.approx(quantiles(first["top-1 count"], 200).tolist(), abs=1.0)  # two images
    shown = f"top-1 {first['top-1']:.2f} [{low:.1f}, {high:.1f}] top-5 {first['top-5']:.2f} loss {first['loss']:.4f}"
    assert (trained / "log.txt").read_text().splitlines()[-1].endswith(f" {shown} (last and best, epoch 1)")
    assert (evaluated / "log.txt").read_text().splitlines()[-1].endswith(f" {shown}")
    best = json.loads((trained / "checkpoints" / "best" / "evaluation.json").read_text())["best"]
    assert best["line"] == shown
    written = json.loads((trained / "intervals.json").read_text())
    of_evaluation = json.loads((evaluated / "eval_intervals.json").read_text())
    assert written["values"] == of_evaluation["values"] and written["epoch"] == 1 and of_evaluation["split"] == "val"
    assert [written["percent"], written["resamples"]] == [95, 1000]
    assert {"balanced accuracy", "recall 0", "recall 9"} < set(written["values"])
    assert written["values"]["top-1"] == {"value": first["top-1"], "low": low, "high": high}


def test_samples_of_a_group_are_drawn_together_and_all_records_say_so(tmp_path):
    trained, evaluated, listed = tmp_path / "run", tmp_path / "evaluation", tmp_path / "videos.csv"
    names = make_names(tmp_path / "plain")
    listed.write_text(
        "sample,video\n" + "".join(f"{name},{n // 10}\n" for n, name in enumerate(names)), encoding="utf-8"
    )
    run = small_runs.build(
        str(trained), "-epochs=1", "-batch_size=64", f"-group={listed}", train_size=128, val_size=200
    )
    run.train()
    words = [f"-group={listed}:video", f"-per_sample={tmp_path / 'rows.csv'}", "EVALUATION.RESAMPLES", "1000"]
    evaluate_only(small_runs.build(str(evaluated), "-eval", f"-pretrained={trained}", *words, val_size=200))
    (first,), (second,) = make_events(trained), make_events(evaluated)
    assert first["interval"] == second["interval"] and first["groups"] == second["groups"] == "by 20 groups (video)"
    rows = [row.split(",") for row in (tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()]
    assert rows[0][:2] == ["name", "group"] and rows[34][:2] == [names[33], "3"]
    losses = np.array([row[rows[0].index("loss")] for row in rows[1:]], float)
    of_videos = means({"loss": losses.reshape(20, 10).mean(axis=1)})
    expected = bootstrap(ProportionRecompute(of_videos, {}, find_range=find_share_range), 20)["loss"]
    assert first["interval"]["loss"] == pytest.approx([expected.low, expected.high], abs=1e-4)
    for folder, name in ((trained, "intervals.json"), (evaluated, "eval_intervals.json")):
        about = json.loads((folder / name).read_text())["groups"]
        assert about == {"by": "video", "number": 20, "source": str(listed)}
    log = (evaluated / "log.txt").read_text()
    assert "note: the interval is rough: 20 groups (below 50)" in log
    assert log.endswith(f" loss {second['loss']:.4f} by 20 groups (video)\n")
    best = json.loads((trained / "checkpoints" / "best" / "evaluation.json").read_text())["best"]
    assert best["line"].endswith(" by 20 groups (video)")


def test_groups_that_do_not_fit_are_refused_before_anything_is_computed(tmp_path):
    listed = tmp_path / "few.csv"
    names = make_names(tmp_path / "plain")
    listed.write_text(f"{names[1]},a\n{names[2]},b\n", encoding="utf-8")
    with pytest.raises(UserError, match="198 of 200 samples have no group in .*few.csv, such as sample 0 of .*; each"):
        small_runs.build(str(tmp_path / "run"), f"-group={listed}", val_size=200)


@pytest.mark.parametrize("words", [["off"], ["False"], ["99", "EVALUATION.RESAMPLES", "300"]])
def test_the_key_says_which_interval(tmp_path, words):
    trainer = small_runs.build(str(tmp_path), "-epochs=1", "-batch_size=64", "EVALUATION.INTERVAL", *words, val_size=64)
    values, line = trainer.evaluator("evaluation")
    if words[0] == "99":
        assert trainer.evaluator.confidence == (99, 300) and " [" in line and trainer.evaluator.intervals
        assert trainer.evaluator.build_event(values)["interval"]["percent"] == 99
    else:
        assert re.fullmatch(r"top-1 [\d.]+ top-5 [\d.]+ loss [\d.]+", line) and not trainer.evaluator.intervals
        assert "interval" not in trainer.evaluator.build_event(values)


def test_the_keys_take_what_they_say():
    for given, expected in (("off", False), ("95", 95), ("99", 99)):
        assert load(["EVALUATION.INTERVAL", given]).values.EVALUATION.INTERVAL is expected
    with pytest.raises(UserError, match="EVALUATION.INTERVAL is 90: expected one of off, 95, 99"):
        load(["EVALUATION.INTERVAL", "90"])
    with pytest.raises(UserError, match="EVALUATION.RESAMPLES"):
        load(["EVALUATION.RESAMPLES", "3"])


def test_of_one_sample_the_rate_has_an_exact_interval_and_the_loss_none(tmp_path):
    trainer = small_runs.build(str(tmp_path), "-epochs=1", "-batch_size=1", val_size=1)
    values, line = trainer.evaluator("evaluation")
    low, high = (20.7, 100.0) if values["top-1"] else (0.0, 79.3)
    assert re.fullmatch(rf"top-1 [\d.]+ \[{low}, {high}\] top-5 [\d.]+ loss [\d.]+", line)
    interval = trainer.evaluator.build_event(values)["interval"]
    assert interval["top-1"] == pytest.approx([low, high], abs=0.05) and interval["loss"] is None
