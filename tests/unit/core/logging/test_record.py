"""The records of a run: what a resumed run marks as repeated, and what a stopped one leaves."""

import datetime
import json
import os
import platform
import stat
import sys
import time

import numpy as np
import paddle
import pytest
from support.refusals import refusal_of

import paddlevit_dist
from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.launch import tuning
from paddlevit_dist.core.logging import record
from paddlevit_dist.core.logging.record import RunLog, find_numbered, make_folder, note_end, output_folder, supersede
from paddlevit_dist.core.runtime.errors import WorkerFailure
from paddlevit_dist.core.runtime.metrics_file import METRICS, recorded_events

RECORDED = [
    ("training", 1, 2),
    ("epoch", 1, 4),
    ("evaluation", 1, 4),
    ("training", 2, 6),
    ("epoch", 2, 8),
    ("evaluation", 2, 8),
    ("evaluation_without_average", 2, 8),
    ("training", 3, 9),
    ("training", 3, 10),
    ("training", 3, 12),
    ("epoch", 3, 12),
    ("note", 3, 12),
    ("evaluation", 3, 12),
]


def write(folder, events=RECORDED, end=""):
    lines = [json.dumps({"kind": kind, "epoch": epoch, "update": update}) for kind, epoch, update in events]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines) + end)


def marked(folder):
    return [number for number, event in enumerate(recorded_events(folder)) if event.get("superseded")]


@pytest.mark.parametrize(
    "position, repeats, found",
    [
        ((2, 10, False), [9, 10, 12], ([3], 2, 3, False)),  # two updates of epoch 3 were saved
        ((2, 8, False), [7, 8, 9, 10, 12], ([3], 4, 3, False)),
        ((2, 8, True), [5, 6, 7, 8, 9, 10, 12], ([2, 3], 4, 3, False)),
        ((3, 12, False), [], ([], 0, 3, False)),
        ((3, 12, True), [12], ([3], 0, 3, False)),
        ((0, 0, False), [number for number in range(13) if number != 11], ([1, 2, 3], 12, 3, False)),
    ],
)
def test_a_resumed_run_marks_what_it_repeats(tmp_path, position, repeats, found):
    write(tmp_path)
    assert supersede(tmp_path, *position) == found
    assert marked(tmp_path) == repeats
    assert [(e["kind"], e["epoch"], e["update"]) for e in recorded_events(tmp_path)] == RECORDED
    assert supersede(tmp_path, *position)[:2] == ([], 0)  # what is marked is not counted again


def test_lines_that_are_no_events_are_kept(tmp_path):
    write(tmp_path, [("training", 1, 2), ("interruption", 1, 2)])
    assert supersede(tmp_path, 1, 4).is_stop_recorded
    write(tmp_path, [("training", 1, 2), ("training", "one", 2)], end='{"kind": "trai')
    assert supersede(tmp_path, 0, 0) == ([], 2, 1, False) and marked(tmp_path) == [0]
    assert list(recorded_events(tmp_path))[-1] == {"kind": "unreadable", "text": '{"kind": "trai'}
    write(tmp_path, [("evaluation", epoch, epoch) for epoch in (8, 1, 3)])
    assert supersede(tmp_path, 0, 0).evaluations == [1, 3, 8]
    (tmp_path / "metrics.jsonl").unlink()
    assert supersede(tmp_path, 3, 7) == ([], 0, 0, False) and not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "kind, error, reason, line",
    [
        ("interruption", KeyboardInterrupt(), "asked to stop (SIGINT)", None),
        ("interruption", KeyboardInterrupt("SIGTERM"), "asked to stop (SIGTERM)", None),
        ("failure", ValueError("first\nsecond"), "first", None),
        ("failure", ValueError(), "ValueError", None),
        ("interruption", Stopped("SIGUSR1", "epoch 2 is saved"), "asked to stop (SIGUSR1)", "epoch 2 is saved"),
        ("failure", WorkerFailure(1, "KeyError: 'a'"), "rank 1 failed: KeyError: 'a'", None),
        ("interruption", WorkerFailure(1, "ended by SIGKILL", is_lost=True), "rank 1 failed: ended by SIGKILL", None),
    ],
)
def test_the_end_of_training_is_recorded_with_its_last_epoch(tmp_path, kind, error, reason, line):
    write(tmp_path)
    supersede(tmp_path, 2, 8)
    (tmp_path / "run.json").touch()
    note_end(tmp_path, time.time_ns() + 10**12, error, is_training=True)  # the clock was set back after the start
    event = list(recorded_events(tmp_path))[-1]
    del event["time"]
    saved = {} if line is None else {"saved": line}
    assert event == {"kind": kind, "epoch": 2, "reason": reason, **saved}
    told = f"interrupted: {reason}; continue with -resume=auto" if line is None else f"stopped: {error}"
    assert (tmp_path / "log.txt").read_text()[20:] == f"{told}\n"


def test_an_end_in_the_first_epoch_is_recorded_as_after_none(tmp_path):
    write(tmp_path, [("training", 1, 5)])
    (tmp_path / "run.json").touch()
    note_end(tmp_path, 0, ValueError("why"), is_training=True)
    assert list(recorded_events(tmp_path))[-1]["epoch"] == 0


@pytest.mark.parametrize(
    "is_training, has_record, is_newer", [(False, True, True), (True, False, True), (True, True, False)]
)
def test_a_run_that_did_not_begin_to_train_is_only_logged(tmp_path, is_training, has_record, is_newer):
    write(tmp_path)
    if has_record:
        (tmp_path / "run.json").touch()
        os.utime(tmp_path / "run.json", (1000, 1000))
    note_end(tmp_path, 999 if is_newer else 1000 * 10**9, ValueError("why"), is_training)
    assert (tmp_path / "log.txt").read_text()[20:] == "stopped: why\n"
    assert len(list(recorded_events(tmp_path))) == len(RECORDED)


def test_a_rank_that_is_lost_before_the_training_is_recorded(tmp_path):
    note_end(tmp_path, 0, WorkerFailure(2, "it did not connect", is_lost=True), is_training=True)
    (event,) = recorded_events(tmp_path)
    assert (event["kind"], event["epoch"]) == ("interruption", 0)


def test_only_the_main_process_writes(tmp_path, capsys, command_line):
    command_line("run", "two words", "https://me:secret@host/a")
    for writes in (False, True):
        log = RunLog(tmp_path, writes)
        log.log_and_print("both")
        log.log("log only \udce9\n")
        log.event("epoch", {"epoch": 2, "loss": 0.5})
        log.file("note.txt", "content")
        log.start("A: 1", {"seed": 3}, evaluation=False)
        log.start("B: 2", {"seed": 4}, evaluation=True)
        assert bool(os.listdir(tmp_path)) == writes
    assert capsys.readouterr().out == "both\n"
    assert [line[20:] for line in (tmp_path / "log.txt").read_text().splitlines()] == ["both", "log only \\xe9\\n"]
    assert [{**event, "time": 0} for event in recorded_events(tmp_path)] == [
        {"kind": "epoch", "time": 0, "epoch": 2, "loss": 0.5}
    ]
    assert [(tmp_path / name).read_text() for name in ("note.txt", "config.yaml", "eval_config.yaml")] == [
        "content",
        "A: 1",
        "B: 2",
    ]
    facts = [json.loads((tmp_path / name).read_text()) for name in ("run.json", "eval_run.json")]
    assert [each["seed"] for each in facts] == [3, 4]
    machine = {"host": platform.node(), "system": platform.platform(), "processor": tuning.processor()["model"]}
    assert facts[0].pop("started")[:4] == str(datetime.date.today().year)
    assert facts[0] == {
        "seed": 3,
        "command": f"{sys.executable} run 'two words' https://***@host/a",
        "folder": os.getcwd(),
        "versions": {
            **{"paddlevit_dist": paddlevit_dist.__version__, "paddle": paddle.__version__, "numpy": np.__version__},
            "python": platform.python_version(),
        },
        "machine": {**machine, "cores": os.cpu_count()},
        "tuning": tuning.settings(),
    }


@pytest.mark.parametrize("records, stays", [((), False), (("run.json",), True), (("mine",), False)])
def test_a_refused_run_leaves_no_folder_without_records(tmp_path, records, stays):
    path = tmp_path / "a" / "b" / "run"
    with pytest.raises(UserError), output_folder(str(path)) as folder:
        for name in records:
            (folder / name).touch()
        raise UserError("no")
    assert path.exists() == stays and (tmp_path / "a").exists() == stays
    (tmp_path / "old").mkdir(exist_ok=True)
    with pytest.raises(UserError), output_folder(str(tmp_path / "old")):
        raise UserError("no")
    assert (tmp_path / "old").exists()
    with pytest.raises(UserError), output_folder(str(tmp_path / "c" / "run"), ["mine"]) as folder:
        (folder / "mine").touch()
        raise UserError("no")
    assert (tmp_path / "c" / "run" / "mine").exists()


def test_a_number_that_is_not_finite_is_null_also_where_an_earlier_version_wrote_nan(tmp_path):
    log = RunLog(tmp_path, writes=True)
    (tmp_path / METRICS).write_text('{"kind": "epoch", "epoch": 1, "loss": NaN}\n')
    log.event("evaluation", {"epoch": 2, "loss": np.float64("inf"), "top-1": 12.5})
    supersede(tmp_path, 1, 9)
    first, second = (tmp_path / METRICS).read_text().splitlines()
    assert first == '{"kind": "epoch", "epoch": 1, "loss": null}'
    assert '"loss": null, "top-1": 12.5, "superseded": true' in second


def test_numbered_folders_are_sorted_by_number(tmp_path):
    for name in ("run", "run-2", "run-10", "run-9", "run-x", "run-3b", "runs-4", "r*n-5"):
        (tmp_path / name).mkdir()
    assert [folder.name for folder in find_numbered(tmp_path / "run")] == ["run-10", "run-9", "run-2"]
    assert [folder.name for folder in find_numbered(tmp_path / "r*n")] == ["r*n-5"]
    assert make_folder(str(tmp_path / "run"), is_numbered=True).name == "run-11"
    assert make_folder(str(tmp_path / "run")) == tmp_path / "run"
    with pytest.raises(UserError, match=r"^-output=~nobody1/x \(SAVE\): there is no such user; write \./~nobody1/x if"):
        make_folder("~nobody1/x")


@pytest.mark.parametrize("evaluation, name", [(False, "run.json"), (True, "eval_config.yaml"), (True, "log.txt")])
def test_files_that_cannot_be_written_are_told_before_any_work(tmp_path, evaluation, name):
    record.require_writable(tmp_path, evaluation)
    assert not os.listdir(tmp_path)  # nothing is created
    os.mkfifo(tmp_path / name)
    message = refusal_of(record.require_writable, tmp_path, evaluation)
    told = f"cannot write {tmp_path / name}: it is not a file; remove it, or choose another -output"
    assert message == told
    record.require_writable(tmp_path, not evaluation) if name != "log.txt" else None
    os.unlink(tmp_path / name)
    (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        record.require_writable(tmp_path, evaluation)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.rmdir(tmp_path / name)
    (tmp_path / name).symlink_to("/dev/null")
    record.require_writable(tmp_path, evaluation)
