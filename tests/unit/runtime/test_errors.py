"""How each kind of error ends a process: its lines and its exit code."""

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.runtime import errors, limits, process_exit, signals
from paddlevit_dist.runtime.errors import DeviceFailure, OwnCodeError, WorkerFailure, run_and_report

FIRST = "before the first update: nothing new was saved; the same command starts again"


@pytest.fixture(autouse=True)
def ends(monkeypatch):
    """The codes with which this process would end."""
    codes = []
    monkeypatch.setattr(signals, "_state", signals._SignalState())
    monkeypatch.setattr(signals, "install", lambda: None)
    monkeypatch.setattr(process_exit, "end_if_in_danger", codes.append)
    monkeypatch.setattr(errors.sys, "excepthook", errors.sys.excepthook)
    return codes


def failing(error):
    def work():
        assert not signals._state.only_records
        raise error

    return work


@pytest.mark.parametrize(
    "error, trains, code, text",
    [
        (UserError("no file"), True, 2, "error: no file\n"),
        (DeviceFailure("no GPU"), True, 1, "error: no GPU\n"),
        (OwnCodeError("own.py: ValueError", "a\nerror: b\n"), True, 2, "error: own.py: ValueError\na\n  error: b\n"),
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
    assert ends == [signals._state.code] == [code] and signals._state.only_records
    lines = capsys.readouterr().err
    if text is None:
        text = "trace\nmore\nerror: rank 3 failed: ValueError: x\n"
    assert lines == text


def test_work_that_is_done_ends_with_zero(ends, capsys):
    modes = []
    assert run_and_report(lambda: modes.append(signals.is_training()), trains=True) == 0
    assert run_and_report(lambda: modes.append(signals.is_training())) == 0
    assert modes == [True, False] and ends == [0, 0] and capsys.readouterr().err == ""


@pytest.mark.parametrize("reason", ["the disk is full", None])
def test_other_exceptions_are_faults_unless_a_limit_explains_them(monkeypatch, ends, capsys, reason):
    monkeypatch.setattr(limits, "explain", lambda error: reason)
    if reason is None:
        with pytest.raises(ZeroDivisionError):
            run_and_report(failing(ZeroDivisionError()))
        return
    assert run_and_report(failing(ZeroDivisionError())) == 2
    assert capsys.readouterr().err == "error: the disk is full\n" and ends == [2]


@pytest.mark.parametrize("advice", ["pip install it", None])
def test_a_module_that_is_not_installed_is_told_with_advice(monkeypatch, capsys, advice):
    monkeypatch.setattr(errors.environment, "restart_in_venv", lambda error: advice)
    monkeypatch.setattr(limits, "explain", lambda error: None)
    if advice is None:
        with pytest.raises(ModuleNotFoundError):
            run_and_report(failing(ModuleNotFoundError(name="x")))
        return
    assert run_and_report(failing(ModuleNotFoundError(name="x"))) == 2
    assert capsys.readouterr().err == "error: pip install it\n"


def test_a_process_is_prepared_before_its_work(monkeypatch):
    calls = []
    monkeypatch.setattr(errors.printing, "ignore_broken_pipe", lambda: calls.append("streams"))
    monkeypatch.setattr(signals, "install", lambda: calls.append("signals"))
    assert run_and_report(lambda: calls.append(errors.sys.excepthook)) == 0
    assert calls == ["streams", "signals", errors.printing.show_uncaught]
