"""A resumed training tells what it does otherwise, and its records tell each epoch once."""

from __future__ import annotations

import json
import shutil

import pytest

from .conftest import EPOCHS
from .runs import events, refused, run_main, well


@pytest.fixture
def stopped(trained, tmp_path):
    """A copy of a finished run that goes on from its third epoch, as if the later ones had been lost."""
    folder = shutil.copytree(trained.output, tmp_path / "run", symlinks=True)
    arguments = [f"-output={folder}" if word.startswith("-output=") else word for word in trained.arguments]
    shutil.rmtree(folder / "checkpoints" / f"epoch_{EPOCHS:04d}")
    (folder / "checkpoints" / "last").unlink()
    (folder / "checkpoints" / "best").unlink()
    for path in (folder / "checkpoints").glob("epoch_*"):
        if path.name != "epoch_0003":
            shutil.rmtree(path)
    return folder, arguments


def test_a_setting_that_alters_the_run_stops_it_and_shows_both_sides(stopped):
    folder, arguments = stopped
    before = (folder / "metrics.jsonl").read_bytes()
    message = refused(*arguments, "-resume=auto", "TRAIN.WEIGHT_DECAY", "0.5", "REPORT_FREQ", "7")
    assert "TRAIN.WEIGHT_DECAY 0.05 -> 0.5" in message and "-allow_changes" in message
    assert "REPORT_FREQ" not in message
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_another_effective_batch_alters_the_run_and_the_same_one_does_not(stopped):
    _, arguments = stopped
    message = refused(*arguments, "-resume=auto", "-ngpus=2")
    assert "effective batch 64 -> 128" in message
    message = refused(*arguments, "-resume=auto", "-ngpus=2", "-batch_size=32", "-seed=4")
    assert "SEED 3 -> 4" in message and "effective batch" not in message and "NGPUS" not in message


def test_allowed_changes_are_a_table_and_repeated_epochs_are_marked(stopped):
    folder, arguments = stopped
    text = (folder / "metrics.jsonl").read_text()
    (folder / "metrics.jsonl").write_text(text + '{"kind": "training", "epo')  # as a killed run leaves it
    ended = well(
        run_main(*arguments, "-resume=auto", "-allow_changes", "TRAIN.WEIGHT_DECAY", "0.5", "REPORT_FREQ", "7")
    )
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["setting", "before", "now"] in rows
    assert ["TRAIN.WEIGHT_DECAY", "0.05", "0.5", "alters", "the", "run"] in rows
    assert ["REPORT_FREQ", "10", "7"] in rows
    assert "earlier evaluations of epoch(s) 4, 5 are marked as superseded" in ended.out

    lines = events(folder)
    (resume,) = [line for line in lines if line["kind"] == "resume"]
    assert resume["epoch"] == 3 and resume["changes"]["TRAIN.WEIGHT_DECAY"] == [0.05, 0.5]
    (interruption,) = [line for line in lines if line["kind"] == "interruption"]
    assert interruption["epoch"] == 3 and interruption["lost_updates"] == 2 * 22
    valid = [line["epoch"] for line in lines if line["kind"] == "evaluation" and "superseded" not in line]
    assert valid == list(range(1, EPOCHS + 1))
    assert [line["epoch"] for line in lines if line.get("superseded") and line["kind"] == "evaluation"] == [4, 5]
    assert [line["text"] for line in lines if line["kind"] == "unreadable"] == ['{"kind": "training", "epo']


def test_an_undisturbed_run_says_nothing_of_interruptions(trained):
    assert not {"interruption", "resume"} & {line["kind"] for line in events(trained.output)}


def test_a_worker_that_is_refused_in_mid_training_is_an_event(tmp_path, trained):
    """The loss becomes infinite in the first epoch, long after the run has started its records."""
    arguments = [word for word in trained.arguments if not word.startswith("-output=")]
    output = tmp_path / "output"
    message = refused(f"-output={output}", *arguments, "TRAIN.BASE_LR", "1e30", "TRAIN.OPTIMIZER.NAME", "SGD")
    assert "diverged" in message
    (event,) = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines() if "interr" in line]
    assert event["kind"] == "interruption" and "diverged" in event["reason"] and event["epoch"] == 0
    assert "interrupted: " in (output / "log.txt").read_text()
