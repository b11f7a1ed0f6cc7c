"""A training that is asked to stop saves, says where it goes on, and ends with 75; all ranks at the same update."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.processes import (
    Finished,
    left_behind,
    run_command,
    run_workers,
    start_command,
    start_nodes,
    succeeded,
    wait_until,
)
from support.runs import DIGITS, MAIN, events

STOPPED = 75


def train(output: Path, processes: int, *arguments: str, signals_at: dict = {}) -> Finished:  # noqa: B006
    words = ["-epochs=2", *arguments]
    return run_workers(
        "distributed.stopped_runs:train", str(output), words, signals_at, processes=processes, timeout=120
    )


def saved_by(ended: Finished, name: str = "SIGTERM") -> str:
    """The checkpoint that a stopped training names in its one line."""
    assert ended.code == STOPPED, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-5000:]}"
    (line,) = ended.err.splitlines()
    assert line.startswith(f"stopped: asked to stop ({name}): saved "), line
    assert line.endswith("; the same command with -resume=auto continues from there"), line
    return line.partition("saved ")[2].partition(";")[0].rpartition("/")[2]


def weights(output: Path) -> dict:
    state = paddle.load(str(output / "checkpoints" / "last" / "model.pdparams"))
    return {name: tensor.numpy() for name, tensor in state.items()}


def updates(output: Path) -> list:
    """Update and loss of all that count."""
    lines = [line for line in events(output) if line["kind"] == "training" and "superseded" not in line]
    return [(line["update"], line["loss"]) for line in lines]


def test_one_rank_is_asked_to_save_and_to_stop_and_all_do_at_the_same_update(tmp_path):
    asked = {1: (1, signal.SIGUSR1), 3: (1, signal.SIGTERM)}
    assert saved_by(train(tmp_path, 2, "-batch_size=16", signals_at=asked)) == "update_00000004"
    saved = {path.name for path in (tmp_path / "checkpoints").glob("[eu]*")}
    assert saved == {"update_00000002", "update_00000004"}


@pytest.mark.long
def test_two_processes_then_one_with_accumulation_then_two_equal_one_that_was_not_stopped(tmp_path):
    """The same samples in the same order: neither losses nor weights differ by more than rounding."""
    succeeded(train(tmp_path / "straight", 1, "-batch_size=32"))
    output = tmp_path / "stopped"
    asked = {3: (1, signal.SIGHUP)}
    assert saved_by(train(output, 2, "-batch_size=16", signals_at=asked), "SIGHUP") == "update_00000004"
    again = ["-resume=auto", "-accum_iter=2", "-batch_size=16"]
    assert saved_by(train(output, 1, *again, signals_at={7: (0, signal.SIGINT)}), "SIGINT") == "update_00000007"
    succeeded(train(output, 2, "-resume=auto", "-batch_size=16"))
    assert [update for update, _ in updates(output)] == list(range(1, 11))
    np.testing.assert_allclose(updates(output), updates(tmp_path / "straight"), rtol=2e-5)
    expected, found = weights(tmp_path / "straight"), weights(output)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=name)


@pytest.mark.long
def test_all_ranks_leave_an_evaluation_when_one_is_asked(tmp_path):
    output = tmp_path / "run"
    target, arguments = "distributed.stopped_runs:evaluate", ["-epochs=1", "-batch_size=16"]
    ended = run_workers(target, str(output), arguments, timeout=120)
    assert saved_by(ended) == "epoch_0001"
    batches = Path(f"{output}.batches").read_text().split()
    assert batches.count("0") == batches.count("1") == 1  # of five
    assert "evaluation" not in [line["kind"] for line in events(output)]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_second_interrupt_ends_everything_at_once(tmp_path, processes):
    output = tmp_path / "run"
    target = "distributed.stopped_runs:interrupt_twice"
    ended = run_workers(target, str(output), processes > 1, processes=processes, timeout=120)
    seconds = time.time() - float(Path(f"{output}.when").read_text())
    assert (ended.code, ended.err) == (130, "interrupted\n") and seconds < 15
    assert not (output / "checkpoints").exists()


@pytest.mark.parametrize("loader_processes", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_wait_for_data_that_do_not_come_ends_too(tmp_path, loader_processes):
    target = "distributed.stopped_runs:train_on_data_that_stall"
    ended = run_workers(target, str(tmp_path / "run"), loader_processes, processes=1, timeout=120)
    assert saved_by(ended) == "update_00000002"


def test_before_the_first_update_nothing_is_saved(tmp_path):
    ended = train(tmp_path / "run", 1, "-batch_size=32", "-stop_after_seconds=0.001")
    message = "asked to stop (-stop_after_seconds=0.001): nothing was saved yet; the same command starts again"
    assert (ended.code, ended.err) == (STOPPED, f"stopped: {message}\n")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_stop_leaves_no_thread_inside_paddle(tmp_path):
    """Python's end would abort the process, now and then."""
    ended = run_workers("distributed.stopped_runs:threads_after_a_stop", str(tmp_path / "run"), processes=1)
    assert (ended.code, ended.results) == (0, [[]]), ended.err


# ---- starts --------------------------------------------------------------------------------------------------------

START = "import os, signal, sys, time; from paddlevit_dist.runtime import environment, errors, signals; "


def run_program(text: str, *before: str, **variables: str) -> Finished:
    return run_command([*before, sys.executable, "-c", START + text], timeout=60, **variables)


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
    work = "f = lambda: (signals.hold(), os.kill(os.getpid(), signal.SIGINT), environment.restart()); "
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f, trains=True))")
    assert ended.code == STOPPED and len(ended.err.splitlines()) == 1, ended.err


@pytest.mark.parametrize(
    "name, before", [("SIGHUP", ["nohup"]), ("SIGINT", ["sh", "-c", "trap '' INT; exec \"$@\"", "-"])]
)
def test_what_was_ignored_at_the_start_stays_ignored(name, before):
    work = f"f = lambda: (os.kill(os.getpid(), signal.{name}), print('goes on')); "
    ended = run_program(f"{work}sys.exit(errors.run_and_report(f))", *before)
    assert ended.code == 0 and "goes on" in ended.out


@pytest.mark.long
@pytest.mark.parametrize("processes, cpu_seconds", [(1, 0.1), (1, 0.5), (1, 1.0), (2, 0.5), (2, 1.4)])
def test_ctrl_c_in_a_start_ends_with_one_line(tmp_path, processes, cpu_seconds):
    arguments = [word for word in DIGITS if word != "-epochs=1"] + ["-epochs=500", f"-output={tmp_path / 'run'}"]
    process = start_command([sys.executable, str(MAIN), *arguments, f"-ngpus={processes}"])
    wait_for_cpu_seconds(process.pid, cpu_seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED and len(err.splitlines()) == 1, err
    assert err.startswith("stopped: asked to stop (SIGINT)") and left_behind(process.pid) == []


def wait_for_cpu_seconds(pid: int, seconds: float) -> None:
    """Until a process has come this far, on a machine of any load, or for a while where it waits for others."""
    deadline = time.monotonic() + 20 * seconds
    while time.monotonic() < deadline:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return
        time.sleep(0.005)


# ---- several machines ----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_one_of_two_nodes_is_asked_and_both_ranks_save_and_stop(tmp_path):
    output = tmp_path / "run"
    arguments = [word for word in DIGITS if word != "-epochs=1"] + ["-epochs=500", f"-output={output}"]
    nodes = start_nodes(tmp_path, *arguments)
    try:
        metrics = output / "metrics.jsonl"
        wait_until(lambda: metrics.is_file() and '"training"' in metrics.read_text(), "it does not train", 120.0)
        nodes[1].send_signal(signal.SIGTERM)  # Paddle's launcher passes it on to its rank
        for node in nodes:
            node.communicate(timeout=90)
    finally:
        for node in nodes:
            for pid in left_behind(node.pid, 0.0):
                os.kill(pid, signal.SIGKILL)
    event = [json.loads(line) for line in metrics.read_text().splitlines()][-1]
    assert event["kind"] == "interruption" and event["reason"].startswith("asked to stop")
    name = event["saved"].partition(";")[0].rpartition("/")[2]
    assert (output / "checkpoints" / name).is_dir()
    logs = "".join(path.read_text(errors="replace") for path in tmp_path.glob("log*/**/workerlog.*"))
    assert logs.count(f"/{name}; the same command with -resume=auto continues from there") >= 2
