"""How a training that is asked to stop is started here, and how it ends."""

import time
from pathlib import Path

from support.processes import (
    Finished,
    run_workers,
)

STOPPED = 75


def train(output: Path, processes: int, *arguments: str, signals_at: dict = {}) -> Finished:  # noqa: B006
    words = ["-epochs=2", *arguments]
    return run_workers(
        "integration.core.distributed.stopped_runs:train", str(output), words, signals_at, processes=processes
    )


def saved_by(ended: Finished, name: str = "SIGTERM") -> str:
    """The checkpoint that a stopped training names in its one line."""
    assert ended.code == STOPPED, f"exit code {ended.code}\n{ended.out[-2000:]}\n{ended.err[-5000:]}"
    (line,) = ended.err.splitlines()
    assert line.startswith(f"stopped: asked to stop ({name}): saved "), line
    assert line.endswith("; the same command with -resume=auto continues from there"), line
    return line.partition("saved ")[2].partition(";")[0].rpartition("/")[2]


def require_end_at_the_second_interrupt(output: Path, processes: int) -> None:
    target = "integration.core.distributed.stopped_runs:interrupt_twice"
    ended = run_workers(target, str(output), processes > 1, processes=processes)
    seconds = time.time() - float(Path(f"{output}.when").read_text())
    assert (ended.code, ended.err) == (130, "interrupted\n")
    assert seconds < 120  # its update takes 300 s
    assert not (output / "checkpoints").exists()


def require_end_of_a_wait_for_data(output: Path, loader_processes: int) -> None:
    ended = run_workers(
        "integration.core.distributed.stopped_runs:train_on_data_that_stall", str(output), loader_processes, processes=1
    )
    assert saved_by(ended) == "update_00000002"
