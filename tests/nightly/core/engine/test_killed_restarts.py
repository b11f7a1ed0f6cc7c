"""A run that starts again from an earlier checkpoint is killed at every change of its folder, and then resumed.

The score that the folder tells is always that of the weights that it gives.
"""

import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from integration.core.engine.test_trainer_checkpoints import require_score_after_killed_restarts
from support.trainings import small_runs

from paddlevit_dist import load_weights
from paddlevit_dist.core.logging.record import RunLog
from paddlevit_dist.core.runtime.metrics_file import recorded_events
from paddlevit_dist.extensions.compare.groups import find_best
from paddlevit_dist.extensions.report.runs import read_run

RUN = "-batch_size=16 TRAIN.WARMUP_EPOCHS 0 VALIDATE_FREQ 1 SAVE_IN_BACKGROUND False REPORT_FREQ 10 -epochs=4".split()
FIRST = ["TRAIN.BASE_LR", "0.003", "KEEP_EPOCHS", "4"]  # its last epoch is the best
AGAIN = ["TRAIN.BASE_LR", "0.01", "-allow_changes"]  # to other weights


class Killed(BaseException):
    """Ends a run in place of a signal."""


def build(folder: Path, *words: str) -> Any:
    return small_runs.build(str(folder), *RUN, *words)


def kill_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise Killed in place of the ``number``-th change of the run's folder, and of all that follow."""
    counted = itertools.count(1)

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def change(*args: Any, **kwargs: Any) -> Any:
            if next(counted) >= number:
                raise Killed
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, change)

    for name in ("replace", "symlink", "unlink"):
        wrap(os, name)
    wrap(RunLog, "_write")
    wrap(shutil, "rmtree")


def require_score_of_weights(folder: Path, trainer: Any) -> None:
    best = find_best(folder, "top-1")
    assert best["epoch"] == int((folder / "checkpoints" / "best").resolve().name[-4:])
    load_weights(trainer.model, str(folder))
    assert trainer.evaluator("evaluation")[0]["top-1"] == best["value"]
    told = read_run(folder, "").metrics.best
    assert (told["epoch"], told["value"]) == (best["epoch"], best["value"])


def evaluated(folder: Path) -> list[int]:
    rows = [event for event in recorded_events(folder) if event["kind"] == "evaluation"]
    return [event["epoch"] for event in rows if "superseded" not in event]


@pytest.mark.parametrize("kept", [[], ["SAVE_FREQ", "1"]], ids=["newest", "every epoch"])
def test_the_score_is_that_of_the_weights_wherever_a_restart_is_killed(tmp_path, kept):
    first = tmp_path / "first"
    build(first, *FIRST).train()
    trainer = build(tmp_path / "evaluated", "-eval", f"-pretrained={first}")
    require_score_of_weights(first, trainer)
    assert (first / "checkpoints" / "best").resolve().name == "epoch_0004"
    for number in itertools.count(1 + bool(kept), 2):
        folder = tmp_path / f"killed_{number}"
        shutil.copytree(first, folder, symlinks=True)
        again = build(folder, *AGAIN, *kept, f"-resume={folder}/checkpoints/epoch_0002")
        with pytest.MonkeyPatch.context() as patches:
            kill_at(number, patches)
            try:
                again.train()
                break
            except Killed:
                pass
        require_score_of_weights(folder, trainer)
        if number % 6 < 2:
            build(folder, *AGAIN, *kept, "-resume=auto").train()
            require_score_of_weights(folder, trainer)
            assert evaluated(folder) == [1, 2, 3, 4]
        shutil.rmtree(folder)
    assert number > 30
    require_score_of_weights(folder, trainer)
    assert evaluated(folder) == [1, 2, 3, 4]


def test_a_restart_from_an_epoch_killed_while_it_saves_leaves_the_score_of_the_weights(tmp_path, monkeypatch):
    require_score_after_killed_restarts(tmp_path, monkeypatch, "epoch_0002")
