"""Stops of several processes and machines, at any moment of a start, and what goes on from them."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from integration.core.distributed.stops import (
    STOPPED,
    require_end_at_the_second_interrupt,
    require_end_of_a_wait_for_data,
    saved_by,
    train,
)
from support.processes import (
    left_behind,
    run_workers,
    start_command,
    start_nodes,
    succeeded,
    wait_until,
)
from support.trainings.runs import DIGITS, MAIN, read_events


def weights(output: Path) -> dict:
    state = paddle.load(str(output / "checkpoints" / "last" / "model.pdparams"))
    return {name: tensor.numpy() for name, tensor in state.items()}


def updates(output: Path) -> list:
    """Update and loss of all that count."""
    lines = [line for line in read_events(output) if line["kind"] == "training" and "superseded" not in line]
    return [(line["update"], line["loss"]) for line in lines]


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


def test_all_ranks_leave_an_evaluation_when_one_is_asked(tmp_path):
    output = tmp_path / "run"
    target, arguments = "integration.core.distributed.stopped_runs:evaluate", ["-epochs=1", "-batch_size=16"]
    ended = run_workers(target, str(output), arguments)
    assert saved_by(ended) == "epoch_0001"
    batches = Path(f"{output}.batches").read_text().split()
    assert batches.count("0") == batches.count("1") == 1  # of five
    assert "evaluation" not in [line["kind"] for line in read_events(output)]


def test_a_second_interrupt_ends_two_processes_at_once(tmp_path):
    require_end_at_the_second_interrupt(tmp_path / "run", processes=2)


def test_a_wait_for_data_of_this_process_ends_too(tmp_path):
    require_end_of_a_wait_for_data(tmp_path / "run", loader_processes=0)


@pytest.mark.parametrize("processes, cpu_seconds", [(1, 0.1), (1, 0.5), (1, 1.0), (2, 0.5), (2, 1.4)])
def test_ctrl_c_in_a_start_ends_with_one_line(tmp_path, processes, cpu_seconds):
    arguments = [word for word in DIGITS if word != "-epochs=1"] + ["-epochs=500", f"-output={tmp_path / 'run'}"]
    process = start_command([sys.executable, str(MAIN), *arguments, f"-ngpus={processes}"])
    wait_until(lambda: has_taken_over(process.pid), "no signal is blocked or handled")
    wait_for_cpu_seconds(process.pid, cpu_seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == STOPPED and len(err.splitlines()) == 1, err
    assert err.startswith("stopped: asked to stop (SIGINT)") and left_behind(process.pid) == []


def has_taken_over(pid: int) -> bool:
    """Whether the program blocks or handles SIGTERM, which Python does not: SIGINT would end Python's own start."""
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool((int(status["SigBlk"], 16) | int(status["SigCgt"], 16)) >> (signal.SIGTERM - 1) & 1)


def wait_for_cpu_seconds(pid: int, seconds: float) -> None:
    """Until a process has come this far, on a machine of any load, or for a while where it waits for others."""
    deadline = time.monotonic() + 20 * seconds
    while time.monotonic() < deadline:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return
        time.sleep(0.005)


# ---- several machines ----------------------------------------------------------------------------------------------


def test_one_of_two_nodes_is_asked_and_both_ranks_save_and_stop(tmp_path):
    output = tmp_path / "run"
    arguments = [word for word in DIGITS if word != "-epochs=1"] + ["-epochs=500", f"-output={output}"]
    nodes = start_nodes(tmp_path, *arguments)
    try:
        metrics = output / "metrics.jsonl"
        wait_until(lambda: metrics.is_file() and '"training"' in metrics.read_text(), "it does not train")
        nodes[1].send_signal(signal.SIGTERM)  # Paddle's launcher passes it on to its rank
        for node in nodes:
            node.communicate(timeout=600)
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
