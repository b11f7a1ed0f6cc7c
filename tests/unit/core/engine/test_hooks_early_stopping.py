"""A training ends after TRAIN.PATIENCE evaluations without an improvement, also one that was stopped in between."""

import functools
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.trainings import small_runs
from support.trainings.killed_runs import kill_in_evaluation
from support.trainings.runs import read_events

from paddlevit_dist.core.checkpoint.integrity import fingerprint
from paddlevit_dist.core.engine.hooks import EarlyStopping
from paddlevit_dist.core.engine.resume import ResumeState
from paddlevit_dist.core.intervals import ConfidenceInterval

RUN = ["-batch_size=16", "VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "TRAIN.PATIENCE", "1"]
build = functools.partial(small_runs.build, train_size=32, val_size=16)


class Record(list):
    """The lines that are said, and the events."""

    def log_and_print(self, line: str) -> None:
        self.append(line)

    def event(self, kind: str, values: dict[str, Any]) -> None:
        self.append({"kind": kind, **values})


def make_stopping(
    patience: int,
    least: float,
    more: bool = True,
    evaluations: Sequence[tuple[int, float]] = (),
    epoch: int = 0,
    named: str = "score",
    evaluation: Any = None,
    run_log: Record | None = None,
) -> EarlyStopping:
    """Build the early stopping of a run of 100 epochs."""
    return EarlyStopping(
        SimpleNamespace(PATIENCE=patience, MIN_IMPROVEMENT=least, NUM_EPOCHS=100),
        ("score", more),
        ResumeState({"epoch": epoch}, best={"name": named}, evaluations=list(evaluations)),
        evaluation or SimpleNamespace(intervals={}),
        Record() if run_log is None else run_log,
        100,
    )


def ended_at(stopping: EarlyStopping, scores: list[float], first: int = 1) -> int | None:
    for epoch, score in enumerate(scores, first):
        stopping.after_evaluate(epoch, {} if score is None else {"score": score}, "", False)
        if stopping.stop_reason:
            return epoch
    return None


def expected_end(scores: list[float], patience: int, least: float, more: bool) -> int | None:
    """As the words say it: the last improvement of each prefix, found by walking from improvement to improvement."""
    for length in range(1, len(scores) + 1):
        signed = [score if more else -score for score in scores[:length]]
        last = 0
        while following := [n for n in range(last + 1, length) if signed[n] > signed[last] + least]:
            last = following[0]
        if length - 1 - last >= patience:
            return length
    return None


@pytest.mark.parametrize(
    "scores, end",
    [
        ([None] * 9, None),
        ([None] * 5 + [0.5, 0.4, 0.3], 8),
        ([0.5, None, None], 3),
        ([0.5, None, 0.6, None, 0.6], 5),
        ([None, 0.0, None, -1.0], 4),
    ],
)
def test_an_evaluation_that_does_not_define_the_score_is_no_improvement_and_none_counts_before_it(scores, end):
    assert ended_at(make_stopping(2, 0.0), scores) == end
    half = len(scores) // 2  # resumed in the middle
    resumed = make_stopping(2, 0.0, evaluations=list(enumerate(scores[:half], 1)), epoch=half)
    assert ended_at(resumed, scores[half:], half + 1) == end


@pytest.mark.parametrize("seed", range(20))
def test_it_ends_where_the_words_say_it_whenever_it_was_resumed(seed):
    generator = np.random.default_rng(seed)
    scores, more = generator.normal(size=30).cumsum().round(1).tolist(), bool(seed % 2)
    patience, least = int(generator.integers(1, 5)), float(generator.choice([0.05, 0.55, 2.05]))
    expected = expected_end(scores, patience, least, more)
    assert ended_at(make_stopping(patience, least, more), scores) == expected
    evaluations = list(enumerate(scores, 1))
    for epoch in range(1, (expected or 31) - 1):
        resumed = make_stopping(patience, least, more, evaluations[:epoch], epoch)
        assert not resumed.stop_reason
        assert ended_at(resumed, scores[epoch:], epoch + 1) == expected
    if expected:
        assert f"ended early after epoch {expected} of 100" in (
            make_stopping(patience, least, more, evaluations[:expected], expected).stop_reason
        )


def test_evaluations_of_another_number_do_not_count():
    resumed = {"evaluations": [(5, 60.0), (6, 58.0), (7, 57.0)], "epoch": 7}
    assert make_stopping(2, 0.0, **resumed).stop_reason
    assert ended_at(make_stopping(2, 0.0, named="mIoU", **resumed), [50.0, 49.0, 48.0], 8) == 10


def test_the_count_travels_with_the_checkpoint_into_another_folder(tmp_path):
    words = [*RUN[:-1], "3", "-epochs=6", "TRAIN.MIN_IMPROVEMENT", "100"]  # nothing after epoch 1 counts
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    build(first, *words, "-stop_after_epoch=2").train()
    (tmp_path / "first" / "metrics.jsonl").unlink()
    build(second, *words, f"-resume={first}", "-stop_after_epoch=3").train()
    build(second, *words, "-resume=auto").train()
    assert [event["epoch"] for event in read_events(tmp_path / "second") if event["kind"] == "evaluation"] == [3, 4]


def test_the_count_of_an_earlier_versions_checkpoint_is_in_the_record(tmp_path):
    words = [*RUN[:-1], "3", "-epochs=9", "TRAIN.MIN_IMPROVEMENT", "100"]
    build(str(tmp_path), *words, "-stop_after_epoch=2").train()
    checkpoint = tmp_path / "checkpoints" / "epoch_0002"
    about = {
        name: json.loads((checkpoint / f"{name}.json").read_text()) for name in ("state", "evaluation", "manifest")
    }
    del about["state"]["extra"]["evaluations"], about["evaluation"]["evaluations"]
    for name in ("state", "evaluation", "manifest"):
        (checkpoint / f"{name}.json").write_text(json.dumps(about[name]))
        about["manifest"]["files"]["state.json"] = fingerprint(checkpoint / "state.json")
    with open(tmp_path / "metrics.jsonl", "a") as file:  # of a start from epoch 2 that was killed
        file.write('{"kind": "evaluation", "epoch": 3, "top-1": 99.0}\n')
    build(str(tmp_path), *words, "-resume=auto").train()
    evaluated = [
        event for event in read_events(tmp_path) if event["kind"] == "evaluation" and "superseded" not in event
    ]
    assert [event["epoch"] for event in evaluated] == [1, 2, 3, 4]


def test_an_improvement_within_the_interval_is_told_first_and_where_the_training_goes_on_because_of_it():
    evaluation, run_log = SimpleNamespace(intervals={}), Record()
    stopping = make_stopping(3, 0.0, evaluation=evaluation, run_log=run_log)
    told = []
    for epoch, score in enumerate([80.0, 90.0, 90.5, 91.0, 90.0, 91.5], 1):
        evaluation.intervals = {"score": ConfidenceInterval(score, score - 2, score + 2)}
        stopping.after_evaluate(epoch, {"score": score}, "", False)
        told += [epoch] * len(run_log)
        last = list(run_log)
        run_log.clear()
    assert told == [3, 6]  # 2 is far better, 4 is like 3, 5 is worse
    assert last == ["note: score +0.5 since epoch 4 is within the interval [89.5, 93.5]: may be chance"]


def test_a_run_that_ends_early_ends_as_a_finished_one_does(tmp_path, capsys):
    words = [*RUN, "-epochs=3", "TRAIN.MIN_IMPROVEMENT", "100", "REPORT", "True"]
    values = build(str(tmp_path), *words).train()
    said = capsys.readouterr().out
    assert "ended early after epoch 2 of 3: top-1 has not improved by more than 100 in 1 evaluation(s)" in said
    assert [event["epoch"] for event in read_events(tmp_path) if event["kind"] == "evaluation"] == [1, 2]
    assert values["top-1"] == read_events(tmp_path)[-2]["top-1"] and read_events(tmp_path)[-1]["kind"] == "ended_early"
    assert (tmp_path / "checkpoints" / "last").resolve().name == "epoch_0002"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "ended early after epoch 2 of 3" in page and "figures-0-training" in page and "95 % interval: " in page
    assert build(str(tmp_path), *words, "-resume=auto").train() == {}
    assert "nothing to do: ended early after epoch 2 of 3" in capsys.readouterr().out
    build(str(tmp_path), *words, "-resume=auto", "TRAIN.PATIENCE", "0", "REPORT", "False").train()
    assert read_events(tmp_path)[-1]["epoch"] == 3


def test_an_evaluation_that_was_broken_off_ends_the_training_when_it_is_repeated(tmp_path, monkeypatch, capsys):
    words = [*RUN, "-epochs=5", "TRAIN.MIN_IMPROVEMENT", "100"]
    kill_in_evaluation(build(str(tmp_path), *words), monkeypatch, number=2)
    assert not any(event["kind"] == "ended_early" for event in read_events(tmp_path))
    build(str(tmp_path), *words, "-resume=auto").train()
    said = capsys.readouterr().out
    assert "ended early after epoch 2 of 5" in said and "(last" in said.splitlines()[-1] + said.splitlines()[-2]
    assert [event["epoch"] for event in read_events(tmp_path) if event["kind"] == "evaluation"] == [1, 2]
    assert [event["epoch"] for event in read_events(tmp_path) if event["kind"] == "ended_early"] == [2]
