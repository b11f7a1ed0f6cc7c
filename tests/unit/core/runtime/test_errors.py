"""How each kind of error ends a process: its lines and its exit code."""

import contextlib
import errno
import signal
import sys

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.runtime import printing, process_exit, signals
from paddlevit_dist.core.runtime.errors import DeviceFailure, OwnCodeError, WorkerFailure, run_and_report

FIRST = "before the first update: nothing new was saved; the same command starts again"


@pytest.fixture(autouse=True)
def ends(monkeypatch, at_exit, exit_codes):
    """The codes with which this process would end, in danger or after a SIGINT; it handles signals."""
    codes, hook = [], sys.excepthook
    monkeypatch.setattr(process_exit, "end_if_in_danger", codes.append)

    def read_ends() -> list[int]:
        signal.raise_signal(signal.SIGINT)  # is only recorded
        assert signals.interrupts() == 1 and not signals.is_ending()
        for function in at_exit:
            function()
        return [*codes, *exit_codes]

    with signals.installed():
        yield read_ends
    sys.excepthook = hook


def own(message, traceback, error):
    OwnCodeError(message, traceback).attach(error)
    return error


def failing(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    "error, trains, code, text",
    [
        (UserError("no file"), True, 2, "error: no file\n"),
        (DeviceFailure("no GPU"), True, 1, "error: no GPU\n"),
        (OwnCodeError("own.py: ValueError", "a\nerror: b\n"), True, 2, "a\n  error: b\nerror: own.py: ValueError\n"),
        (own("sample 1: KeyError: 2", "a\n", KeyError(2)), True, 2, "a\nerror: sample 1: KeyError: 2\n"),
        (WorkerFailure(3, "ValueError: x\nmore", "trace\n"), True, 1, None),
        (Stopped("SIGTERM", "epoch 2 is saved"), True, 75, "stopped: asked to stop (SIGTERM): epoch 2 is saved\n"),
        (KeyboardInterrupt(), False, 130, "interrupted\n"),
        (KeyboardInterrupt(), True, 75, f"stopped: asked to stop (SIGINT) {FIRST}\n"),
        (signals.ProcessInterrupted(15), True, 75, f"stopped: asked to stop (SIGTERM) {FIRST}\n"),
        (signals.ProcessInterrupted(15), False, 143, "interrupted (SIGTERM)\n"),
        (signals.ProcessInterrupted(2, again=True), True, 130, "interrupted\n"),
    ],
)
def test_an_error_has_its_lines_and_its_exit_code(ends, capsys, error, trains, code, text):
    assert run_and_report(failing(error), trains) == code
    lines = capsys.readouterr().err
    assert ends() == [code, code]
    if text is None:
        text = "trace\nmore\nerror: rank 3 failed: ValueError: x\n"
    assert lines == text


def test_a_signal_interrupts_the_work(ends, capsys):
    assert run_and_report(lambda: signal.raise_signal(signal.SIGTERM)) == 143
    assert capsys.readouterr().err == "interrupted (SIGTERM)\n"


def test_work_that_is_done_ends_with_zero(capsys):
    modes = []
    assert run_and_report(lambda: modes.append(signals.is_training()), trains=True) == 0
    assert run_and_report(lambda: modes.append(signals.is_training())) == 0
    assert modes == [True, False] and capsys.readouterr().err == ""


def test_other_exceptions_are_faults_unless_a_limit_explains_them(ends, capsys):
    with pytest.raises(ZeroDivisionError):
        run_and_report(failing(ZeroDivisionError()))
    assert run_and_report(failing(OSError(errno.ENAMETOOLONG, "File name too long"))) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: OSError: ") and line.endswith(": give a shorter path\n") and ends() == [2, 2]


def test_a_module_that_is_not_installed_is_told_with_advice(monkeypatch, capsys):
    monkeypatch.setenv("PADDLEVIT_DIST_PYTHON", "/x/python")  # another one was tried
    with pytest.raises(ModuleNotFoundError):
        run_and_report(failing(ModuleNotFoundError(name="own")))
    assert run_and_report(failing(ModuleNotFoundError(name="yacs"))) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and "yacs" in line and line.count("\n") == 1


def test_a_process_is_prepared_before_its_work():
    seen = []
    with contextlib.redirect_stderr(None):  # as of a process without a terminal
        assert run_and_report(lambda: seen.extend([sys.excepthook, printing.is_safe(sys.stderr)])) == 0
    assert seen == [printing.show_uncaught, True]
