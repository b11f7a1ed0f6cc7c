"""A training that is asked to stop saves, says where it goes on, and ends with 75; all ranks at the same update."""

import signal
import sys

import pytest
from integration.core.distributed.stops import (
    STOPPED,
    require_end_at_the_second_interrupt,
    require_end_of_a_wait_for_data,
    saved_by,
    train,
)
from support.processes import (
    Finished,
    run_command,
    run_workers,
)


def test_one_rank_is_asked_to_save_and_to_stop_and_all_do_at_the_same_update(tmp_path):
    asked = {1: (1, signal.SIGUSR1), 3: (1, signal.SIGTERM)}
    assert saved_by(train(tmp_path, 2, "-batch_size=16", signals_at=asked)) == "update_00000004"
    saved = {path.name for path in (tmp_path / "checkpoints").glob("[eu]*")}
    assert saved == {"update_00000002", "update_00000004"}


def test_a_second_interrupt_ends_everything_at_once(tmp_path):
    require_end_at_the_second_interrupt(tmp_path / "run", processes=1)


def test_a_wait_for_data_that_do_not_come_ends_too(tmp_path):
    require_end_of_a_wait_for_data(tmp_path / "run", loader_processes=1)


def test_before_the_first_update_nothing_is_saved(tmp_path):
    ended = train(tmp_path / "run", 1, "-batch_size=32", "-stop_after_seconds=0.001")
    message = "asked to stop (-stop_after_seconds=0.001): nothing was saved yet; the same command starts again"
    assert (ended.code, ended.err) == (STOPPED, f"stopped: {message}\n")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_stop_leaves_no_thread_inside_paddle(tmp_path):
    """Python's end would abort the process, now and then."""
    ended = run_workers(
        "integration.core.distributed.stopped_runs:threads_after_a_stop", str(tmp_path / "run"), processes=1
    )
    assert (ended.code, ended.results) == (0, [[]]), ended.err


# ---- starts --------------------------------------------------------------------------------------------------------

START = "import os, signal, sys, time; from paddlevit_dist.core.runtime import environment, errors, signals; "


def run_program(text: str, *before: str, **variables: str) -> Finished:
    return run_command([*before, sys.executable, "-c", START + text], **variables)


@pytest.mark.parametrize(
    "trains, name, code, line",
    [
        (True, "SIGINT", 75, "stopped: asked to stop (SIGINT) before the first update: nothing new was saved; "),
        (True, "SIGHUP", 75, "stopped: asked to stop (SIGHUP) before the first update: nothing new was saved; "),
        (False, "SIGINT", 130, "interrupted"),
        (False, "SIGTERM", 143, "interrupted (SIGTERM)"),
        (False, "SIGHUP", 129, "interrupted (SIGHUP)"),
    ],
)
def test_a_signal_during_an_import_that_swallows_exceptions_ends_the_start(tmp_path, trains, name, code, line):
    module = f"import os, signal\ntry:\n    os.kill(os.getpid(), signal.{name})\nexcept BaseException: pass\n"
    (tmp_path / "swallows.py").write_text(module)
    work = f"sys.path.insert(0, {str(tmp_path)!r}); f = lambda: (__import__('swallows'), time.sleep(30)); "
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f, trains={trains}))")
    assert ended.code == code and ended.err.startswith(line) and len(ended.err.splitlines()) == 1, ended.err


def test_a_signal_while_an_object_is_finalised_ends_the_start():
    """Python prints what ``__del__`` raises, and goes on."""
    work = (
        "\nclass Of:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGINT)\n        sum(range(9))\n"
        "f = lambda: (str(Of()), time.sleep(30))\n"
    )
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f, trains=True))")
    assert ended.code == STOPPED and ended.err.startswith("stopped: ") and len(ended.err.splitlines()) == 1, ended.err


def test_a_signal_while_the_process_is_replaced_is_not_lost():
    work = "f = lambda: (signals.block(), os.kill(os.getpid(), signal.SIGINT), environment.restart()); "
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f, trains=True))")
    assert ended.code == STOPPED and len(ended.err.splitlines()) == 1, ended.err


@pytest.mark.parametrize("first, code", [("SIGTERM", STOPPED), ("SIGHUP", STOPPED), ("0", 0)])
def test_signals_at_the_end_of_python_change_nothing(first, code):
    """Python restores their default actions before it destroys what is left."""
    work = (
        "\nclass Late:\n    def __del__(self, kill=os.kill, own=os.getpid(), write=os.write):\n"
        f"        [kill(own, number) for number in ({int(signal.SIGTERM)}, {int(signal.SIGHUP)})]; write(1, b'late')\n"
        f"_late = Late(); f = lambda: os.kill(os.getpid(), getattr(signal, {first!r}, 0))\n"
    )
    program = f"{START}{work}sys.exit(errors.run_and_report(f, trains=True))"
    ended = run_command([sys.executable, "-c", program], is_copy=False)  # a copy ends without Python's end
    assert (ended.code, ended.out) == (code, "late"), ended.err


def test_a_second_interrupt_at_the_end_ends_with_its_code():
    late = "import atexit; stop = lambda: os.kill(os.getpid(), signal.SIGINT); "
    for number, code in ((1, STOPPED), (2, 130)):
        work = f"{late}f = lambda: ([atexit.register(stop) for _ in range({number - 1})], stop()); "
        assert run_program(f"{work}sys.exit(errors.run_and_report(f, trains=True))").code == code


def test_after_a_trial_in_a_child_a_second_interrupt_ends_this_process():
    work = (
        "from paddlevit_dist.core.launch import launch_workers, plan_processes\n"
        "def f():\n    launch_workers(print, ('child',), plan_processes(1), in_child=True)\n    signals.record_only()\n"
        "    [(os.kill(os.getpid(), signal.SIGINT), sum(range(9))) for _ in 'two']\n"
    )
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f, trains=True))")
    assert (ended.code, ended.err) == (130, "interrupted\n") and ended.out == "child\n"


@pytest.mark.parametrize(
    "name, before", [("SIGHUP", ["nohup"]), ("SIGINT", ["sh", "-c", "trap '' INT; exec \"$@\"", "-"])]
)
def test_what_was_ignored_at_the_start_stays_ignored(name, before):
    work = f"f = lambda: (os.kill(os.getpid(), signal.{name}), print('goes on')); "
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f))", *before)
    assert ended.code == 0 and "goes on" in ended.out
