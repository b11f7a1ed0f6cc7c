"""A process that is killed at any line of a save leaves a good checkpoint, and the next start cleans up after it."""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.forks import start_child
from support.trainings.runs import STATE

from paddlevit_dist.core.checkpoint import array_files, directory_names, finding, integrity, records, store
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.store import HostTensor
from paddlevit_dist.core.runtime import files

TRACED = {
    module.__file__ for module in (files, array_files, directory_names, finding, integrity, records, store, shutil)
}
BEST = {"name": "loss", "value": 0.5, "epoch": 1, "line": "loss 0.5"}


def save(folder: Path, epoch: int, value: float) -> None:
    """All that a run does for a checkpoint, from the first file to the removal of the one before."""
    weights = {"weight": HostTensor(np.full(2000, value, np.float32), "linear_0.w_0")}
    state = checkpoint_store.RunState({"epoch": epoch, "consumed": 0, "update": epoch}, {"moment": np.ones(9)}, STATE)
    directory = checkpoint_store.save(
        folder, checkpoint_store.epoch_name(epoch), weights, state, weights, {"input": {}}
    )
    checkpoint_store.link(folder, "last", directory)
    checkpoint_store.write_evaluation(directory, BEST)
    checkpoint_store.link(folder, "best", directory)
    checkpoint_store.prune(folder, lambda epoch: False, update=epoch, keep_updates=1, epoch=epoch, good=directory)


class Lines:
    """Counts the lines that are executed, and kills the process at one of them."""

    def __init__(self, last: int = 0) -> None:
        self.count, self.last = 0, last

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            self.count += 1
            if self.count == self.last:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def traced(act: Callable[[], None], last: int = 0) -> int:
    """Lines of ``act``."""
    lines, before = Lines(last), sys.gettrace()
    sys.settrace(lines)
    try:
        act()
    finally:
        sys.settrace(before)
    return lines.count


def killed_at(line: int, act: Callable[[], None]) -> None:
    child = start_child(lambda: traced(act, line))
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, f"it has fewer than {line} lines"


def values(directory: Path) -> list[float]:
    return np.unique(paddle.load(str(directory / "model.pdparams"))["weight"].numpy()).tolist()


def check(folder: Path, allowed: list[list[float]], always_linked: bool) -> None:
    good = checkpoint_store.newest_good(folder, lambda line: None)
    assert good is not None, sorted(os.listdir(folder))
    assert checkpoint_store.read(good).position["consumed"] == 0 and values(good) in allowed
    if always_linked:
        checkpoint_store.verify((folder / "last").resolve())


def killed_at_lines(place: Path, way: str, points: int) -> None:
    """Kill a save at so many of its lines, and check what is left each time."""
    before = place / "before"
    save(before, 1, 1.0)
    epoch = 2 if way == "another epoch" else 1
    shutil.copytree(before, place / "counted", symlinks=True)
    total = traced(lambda: save(place / "counted", epoch, 2.0))
    assert total > 150
    for line in range(1, total + 1, max(1, total // points)):
        folder = place / f"{line}"
        shutil.copytree(before, folder, symlinks=True)
        killed_at(line, lambda folder=folder: save(folder, epoch, 2.0))
        check(folder, [[1.0], [2.0]], always_linked=epoch == 2)
        checkpoint_store.remove_leftovers(folder)
        check(folder, [[1.0], [2.0]], always_linked=True)
        save(folder, epoch, 3.0)
        assert sorted(os.listdir(folder)) == ["best", f"epoch_000{epoch}", "last"]
        assert not any(files.is_temporary(path.name) for path in folder.rglob("*"))
        check(folder, [[3.0]], always_linked=True)
        shutil.rmtree(folder)


@pytest.fixture
def no_waiting_for_disks(monkeypatch):
    """Takes most of the time, and only matters without power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.usefixtures("no_waiting_for_disks")
@pytest.mark.parametrize("way", ["another epoch", "the same epoch"])
def test_after_a_kill_at_any_line_there_is_a_good_checkpoint_and_the_next_start_cleans_up(tmp_path, way):
    """Killed, that is: what the kernel has is written. While one of the same name is replaced, ``last`` dangles
    between two renames, until the next start. At 20 of the lines here, at 200 at night."""
    killed_at_lines(tmp_path, way, 20)
