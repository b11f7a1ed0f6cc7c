"""What a resumed run tells, what it takes over, and what it refuses before anything is lost."""

import json

import pytest
import yaml

from paddlevit_dist.core.engine import resume
from paddlevit_dist.core.engine.compatibility import FactDifference
from paddlevit_dist.core.engine.resume import ResumeState, epochs_by_size, log_resumption, read_resumed_section
from paddlevit_dist.core.logging.record import RunLog
from paddlevit_dist.core.runtime.metrics_file import recorded_events
from paddlevit_dist.core.settings import load


def config_of(folder, *words):
    return load([f"-output={folder}", *words]).values


def checkpoint(folder, settings, name="epoch_0003"):
    directory = folder / "checkpoints" / name
    directory.mkdir(parents=True)
    (directory / "state.json").write_text("{}")
    if settings is not None:
        (directory / "about.yaml").write_text(yaml.safe_dump({"settings": settings}))
    return directory


@pytest.mark.parametrize(
    "train, epochs",
    [
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, 7),
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 501, "EPOCH_LIMITS": [2, 90]}, None),
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 91]}, None),
        ({"NUM_EPOCHS": 1, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, 1),
        ({"NUM_EPOCHS": "7", "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, None),
        (None, None),
    ],
)
def test_a_resumed_run_keeps_the_epochs_that_its_size_gave_it(tmp_path, train, epochs):
    directory = checkpoint(tmp_path, {"TRAIN": train})
    sized = ["TRAIN.NUM_SAMPLES", "500", "TRAIN.EPOCH_LIMITS", "[2,90]"]
    for source in ("auto", directory):
        assert epochs_by_size(config_of(tmp_path, *sized, f"-resume={source}")) == epochs
    assert epochs_by_size(config_of(tmp_path, *sized)) is None
    assert epochs_by_size(config_of(tmp_path, f"-resume={directory}")) is None


@pytest.mark.parametrize(("last", "evaluated"), [(7, [3, 6, 7]), (6, [3, 6]), (2, [2])])
def test_epochs_of_a_frequency_and_the_last_one_are_evaluated(tmp_path, last, evaluated):
    config = config_of(tmp_path, "VALIDATE_FREQ", "3")
    assert [epoch for epoch in range(1, last + 1) if resume.is_evaluated(config, epoch, last)] == evaluated


def test_a_section_is_that_of_the_resumed_run(tmp_path):
    directory = checkpoint(tmp_path, {"DATA": {"A": 1}})
    config = config_of(tmp_path / "other", f"-resume={directory}")
    assert (read_resumed_section(config, "DATA"), read_resumed_section(config, "MODEL")) == ({"A": 1}, {})
    assert read_resumed_section(config_of(tmp_path), "DATA") == {}


@pytest.mark.parametrize(
    "before, now, names",
    [
        ([], [], None),
        (["a", "b"], ["b", "a"], None),
        (["a", "b"], ["b", "c"], "a, c"),
        (["a"], ["d", "c", "b"], "a, b, c and 1 more"),
        (["e", "f"], ["d", "c", "b", "a"], "a, b, c and 3 more"),
    ],
)
def test_weight_decay_that_is_applied_otherwise_is_told(before, now, names):
    rule = "from here on this run's rule applies"
    told = [] if names is None else [f"note: /c applied weight decay differently to {names}; {rule}"]
    assert resume.describe_changed_decay("/c", before, now) == told


EVENTS = [("training", 1, 4), ("epoch", 1, 8), ("evaluation", 1, 8), ("training", 2, 12), ("evaluation", 2, 16)]


def resumed(folder, state, events=EVENTS, more=(), writes=True, run_log=None):
    """Return the printed lines and the new events of a start from this state."""
    lines = [{"kind": kind, "epoch": epoch, "update": update} for kind, epoch, update in events]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
    printed, log = [], run_log or RunLog(folder, writes)
    log.log_and_print = printed.append
    log_resumption(state, log)
    added = list(recorded_events(folder))[len(lines) + len(more) :]
    return printed, [{name: value for name, value in event.items() if name != "time"} for event in added]


def test_what_a_killed_run_lost_is_told_and_recorded(tmp_path):
    directory = checkpoint(tmp_path, None, "epoch_0001")
    changes = [FactDifference(*(None,) * len(FactDifference._fields))._replace(name="SEED", before=1, now=2)]
    state = ResumeState({"epoch": 1, "consumed": 0, "update": 8}, directory, changes)
    printed, added = resumed(tmp_path, state)
    assert printed == [
        "the previous run ended without a message in epoch 2: what it did after epoch 1 is done again",
        "earlier evaluations of epoch(s) 2 are marked as superseded in metrics.jsonl",
    ]
    assert added == [
        {"kind": "interruption", "epoch": 1, "reason": "found when resuming", "lost_updates": 8},
        {"kind": "resume", "epoch": 1, "update": 8, "from": str(directory), "changes": {"SEED": [1, 2]}},
    ]


@pytest.mark.parametrize(
    "position, due, more, kinds, number",
    [
        ((2, 0, 16), False, [], ["resume"], 0),  # nothing is lost
        ((2, 0, 16), True, [], ["interruption", "resume"], 2),  # its evaluation is due
        ((1, 0, 8), False, [{"kind": "interruption", "epoch": 1}], ["resume"], 1),  # it was recorded
        ((1, 20, 12), False, [], ["interruption", "resume"], 2),
    ],
)
def test_a_stop_is_told_once(tmp_path, position, due, more, kinds, number):
    directory = checkpoint(tmp_path, None)
    state = ResumeState(dict(zip(("epoch", "consumed", "update"), position)), directory, evaluation_due=due)
    printed, added = resumed(tmp_path, state, more=more)
    assert [event["kind"] for event in added] == kinds and len(printed) == number
    if position[1]:
        assert printed[0].endswith("what it did after update 12, 20 samples into epoch 2 is done again")


def test_a_start_from_an_older_checkpoint_is_no_interruption(tmp_path):
    older = checkpoint(tmp_path, None, "epoch_0001")
    checkpoint(tmp_path, None, "epoch_0002")
    log = RunLog(tmp_path, True)
    printed, added = resumed(tmp_path, ResumeState({"epoch": 1, "consumed": 0, "update": 8}, older), run_log=log)
    assert added == [] and not any("superseded" in event for event in recorded_events(tmp_path))
    assert printed == [
        "earlier evaluations of epoch(s) 2 are marked as superseded in metrics.jsonl, once a checkpoint replaces theirs"
    ]
    log.replace_events()  # a checkpoint is on disk
    log.replace_events()
    log.event("epoch", {"epoch": 2})
    events = list(recorded_events(tmp_path))
    assert [number for number, event in enumerate(events) if "superseded" in event] == [3, 4]
    assert [event["kind"] for event in events[5:]] == ["resume", "epoch"]


def test_a_new_run_tells_nothing_and_a_restart_does(tmp_path):
    new = ResumeState({"epoch": 0, "consumed": 0, "update": 0})
    assert resumed(tmp_path, new, []) == ([], [])
    assert resumed(tmp_path, new, writes=False) == ([], [])
    printed, added = resumed(tmp_path, new)
    assert [event["kind"] for event in added] == ["interruption", "resume"] and added[1]["from"] is None
    assert printed[1] == "earlier evaluations of epoch(s) 1, 2 are marked as superseded in metrics.jsonl"
