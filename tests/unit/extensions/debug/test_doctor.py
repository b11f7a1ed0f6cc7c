"""Which checks the command makes, what it counts, and how it ends."""

import os
import tempfile
from pathlib import Path

import pytest
from support.trainings.runs import PLAIN

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import stale_resources
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.runtime.errors import WorkerFailure
from paddlevit_dist.extensions.debug import doctor, doctor_checks, doctor_updates
from paddlevit_dist.extensions.debug.doctor_checks import CheckResult, DoctorCheck

THREADS = "FLAGS_paddle_num_threads"
RESULTS = {"ok": CheckResult("ok", "fine"), "warning": CheckResult("warning", "odd", "look"), "skipped": None}


@pytest.fixture(autouse=True)
def restarts(monkeypatch, machine, replacements) -> list:
    """The programs by which this process of a machine of six cores, whose environment is not set, is replaced."""
    machine.cores = 6
    for name in ("PADDLEVIT_DIST_ENVIRONMENT", THREADS):
        monkeypatch.delenv(name, raising=False)
    return replacements


def ask(monkeypatch, words, machine, data=()) -> None:
    """Run the command with checks that have these results, or do this; ``skipped`` needs ``failure``."""
    made = {**RESULTS, "failure": CheckResult("failure", "broken", "repair it")}

    def make(number, name):
        needs = ("machine 1",) if name == "skipped" else ()
        return DoctorCheck(f"machine {number}", name if callable(name) else lambda _: made[name], needs)

    monkeypatch.setattr(doctor_checks, "CHECKS", [make(*pair) for pair in enumerate(machine)])
    monkeypatch.setattr(doctor_updates, "UPDATE_CHECK", DoctorCheck("a step", lambda _: made["ok"]))
    monkeypatch.setattr(
        doctor_checks, "DATA_CHECKS", [DoctorCheck(f"data {name}", lambda _, name=name: made[name]) for name in data]
    )
    with signals.installed():
        signals.set_mode(training=True)
        doctor.run(words)
        assert not signals.is_training()


def test_a_machine_is_checked_without_data(monkeypatch, capsys, restarts):
    ask(monkeypatch, ["-ngpus=2", "-seed=3"], ["ok", "warning", "ok"], data=["failure"])
    assert len(restarts) == 1 and os.environ[THREADS] == "3"
    assert not {"PADDLEVIT_DIST_PLAIN_LAYERS", "CUDA_VISIBLE_DEVICES"} & set(os.environ)
    assert capsys.readouterr().out.splitlines() == [
        "ok       machine 0       fine",
        "warning  machine 1       odd -> look",
        "ok       machine 2       fine",
        "2 ok, 1 warnings, 0 failures",
        "To check data and a training step as well, add -cfg=FILE, -dataset or -data_path.",
    ]


@pytest.mark.parametrize("words", [[PLAIN], ["-ngpus=1", "MODEL.DEPTH", "2"]])
def test_data_are_checked_if_a_run_is_described_and_a_failure_ends_with_code_1(monkeypatch, capsys, words):
    with pytest.raises(SystemExit) as ended:
        ask(monkeypatch, words, ["ok", "failure", "skipped", "skipped"], data=["ok"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 1 and lines[1] == "failure  machine 1       broken -> repair it"
    assert lines[2] == "skipped  machine 2       not checked: fix 'machine 1' first"
    assert lines[4] == "ok       data ok         fine"
    assert lines[5] == "ok       a step          fine"
    assert lines[-1] == "3 ok, 0 warnings, 1 failures, 2 skipped"


def test_notices_about_settings_follow_the_checks(monkeypatch, capsys):
    ask(monkeypatch, ["-ngpus=7"], ["ok"])
    note = "note: 7 processes share 6 core(s): they will slow one another down"
    assert capsys.readouterr().out.splitlines()[1] == note


@pytest.mark.parametrize("flag, name", [("-eval", "EVAL"), ("-selftest", "SELFTEST")])
def test_the_flags_of_other_jobs_are_refused(monkeypatch, flag, name):
    words = [flag, "-pretrained=x.pdparams"] if name == "EVAL" else [flag]
    with pytest.raises(UserError, match=rf"doctor checks a training run: remove {flag} \({name}\)"):
        ask(monkeypatch, words, [])
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    with pytest.raises(UserError, match="without Paddle's launcher"):
        ask(monkeypatch, ["-ngpus=1"], [])


def test_shared_memory_of_killed_processes_is_removed_after_an_error(monkeypatch):
    left = []

    def stop(context):
        assert context.folder.is_dir() and context.folder.name.startswith("paddlevit_dist_doctor_")
        left.append(Path(tempfile.gettempdir(), f"paddlevit_dist_ends_{stale_resources.token()}_killed"))
        left[0].touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(monkeypatch, ["-ngpus=1"], [stop])
    assert not left[0].exists() and stale_resources.token() not in left[0].name


def test_errors_are_results_and_those_of_programs_have_their_trace(capsys):
    errors = {
        "user": UserError("no such file"),
        "worker": WorkerFailure(1, "it ended\nwith a signal", "trace of rank 1"),
        "program": ValueError("bad\nvalue"),
    }
    found = {}
    for name, error in errors.items():

        def fail(_, error=error):
            raise error

        found[name] = (doctor_checks.run_check(DoctorCheck(name, fail), None), capsys.readouterr().err)
    assert found["user"] == (CheckResult("failure", "no such file"), "")
    assert (
        found["worker"][0] == CheckResult("failure", "rank 1 failed: it ended")
        and "trace of rank 1" in found["worker"][1]
    )
    assert found["program"][0] == CheckResult("failure", "ValueError: bad") and "in fail" in found["program"][1]
