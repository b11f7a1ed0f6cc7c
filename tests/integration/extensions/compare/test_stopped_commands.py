"""Commands that start training runs: their runs save and stop with them, and die with them.

Each is seen with one of both commands, which start runs alike; with the other one at night.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import left_behind, start_command, wait_until

SMALL = (
    "-cfg=vit_digits -ngpus=1 -epochs=60 MODEL.EMBED_DIM 32 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 DATA.NUM_WORKERS 1 "
    "VALIDATE_FREQ 1 TRAIN.WARMUP_EPOCHS 0 REPORT False"
).split()
SEEDS = (["train", *SMALL, "-seeds=2"], "seed_0")
SEARCH = (["search", *SMALL, "TRAIN.BASE_LR=1e-3..2e-3:log", "-trials=2"], "trial_0000")


def start(words: list[str], output: Path) -> subprocess.Popen:
    if words[0] == "search":
        pytest.importorskip("optuna")
    return start_command([sys.executable, "-m", "paddlevit_dist", *words, f"-output={output}"])


def saved(run: Path) -> list[str]:
    return [path.name for path in (run / "checkpoints").glob("[eu]*_*")]


def stop_repeatedly(process: subprocess.Popen) -> str:
    """What a command writes to stderr that gets SIGTERM ten times a second until it ends."""
    while True:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=0.1)[1]


def test_repeated_requests_stop_the_run_and_the_command(tmp_path):
    require_stop_after_repeated_requests(*SEARCH, tmp_path)


def require_stop_after_repeated_requests(words, run, tmp_path):
    process = start(words, tmp_path)
    wait_until(lambda: saved(tmp_path / run), "the run saves nothing", process=process)
    process.send_signal(signal.SIGUSR1)
    wait_until(
        lambda: any("update" in name for name in saved(tmp_path / run)), "SIGUSR1 is not forwarded", process=process
    )
    err = stop_repeatedly(process)
    assert process.returncode == 75 and err.splitlines()[-1].startswith("stopped: asked to stop (SIGTERM): "), err
    assert left_behind(process.pid) == []


def test_runs_are_killed_with_the_command(tmp_path):
    require_end_with_a_killed_command(*SEEDS, tmp_path)


def require_end_with_a_killed_command(words, run, tmp_path):
    process = start(words, tmp_path)
    wait_until(lambda: (tmp_path / run / "run.json").exists(), "no run starts", process=process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert left_behind(process.pid) == []


def test_a_run_whose_command_was_killed_at_once_does_not_begin(tmp_path):
    program = (
        "import os, signal; from paddlevit_dist.core.launch import training_commands\n"
        f"training_commands.start({[*SMALL, f'-output={tmp_path}/run']!r}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = start_command([sys.executable, "-c", program])
    process.communicate()
    assert left_behind(process.pid) == [] and not (tmp_path / "run").exists()
