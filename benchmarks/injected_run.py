"""``main_multi_gpu.py``, in which one rank ends in a given place: the FAULT variable says which, where and how.

    FAULT="forward 1 killed MARKER" python benchmarks/injected_run.py ...

The rank first writes the time into the file MARKER. Whatever spawns workers imports this file again in each of them, so
the fault is in place before the work begins.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

VARIABLE = "FAULT"
WAYS = ("killed", "raises", "leaves")
PHASES = ("start", "joined", "model", "loading", "forward", "update", "report", "saving", "evaluation")
_AT = {"loading": 150, "forward": 7, "update": 7, "report": 2, "saving": 2, "evaluation": 2}  # the n-th time; else 1


class Injected(Exception):
    """What a rank raises because it was told to."""


def end(way: str, marker: str) -> None:
    """End this process in one of ``WAYS``."""
    Path(marker).write_text(str(time.time()), encoding="utf-8")
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if way == "leaves":
        os._exit(0)
    raise Injected("as the series asks")


def _before(holder: Any, name: str, phase: str, way: str, marker: str) -> None:
    original: Callable[..., Any] = getattr(holder, name)
    calls = 0

    def injected(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == _AT.get(phase, 1):
            end(way, marker)
        return original(*arguments, **named)

    setattr(holder, name, injected)


def inject(phase: str, way: str, marker: str) -> None:
    """Make this process, which has joined the group, end when it gets to ``phase``."""
    import paddle

    from paddlevit_dist.core.engine import checkpointing, trainer
    from paddlevit_dist.core.logging import meters
    from paddlevit_dist.images.classification import task

    holder, name = {
        "joined": (trainer.Trainer, "__init__"),
        "model": (task.Classification, "build_model"),
        "loading": (task.ClassificationSamples, "sample"),
        "forward": (task.Classification, "train_step"),
        "update": (paddle.optimizer.AdamW, "step"),
        "report": (meters.StepMeters, "reduce"),
        "saving": (checkpointing.Checkpointer, "save_epoch"),
        "evaluation": (task.Classification, "eval_step"),
    }[phase]
    _before(holder, name, phase, way, marker)


def _inject_into_workers() -> None:
    """A worker knows its rank only when it joins the group, so this is where the fault is put in place."""
    from paddlevit_dist.core.launch import rendezvous

    join_group = rendezvous.join_group
    phase, rank, way, marker = os.environ[VARIABLE].split(" ", 3)

    def join_with_fault(*arguments: Any, **named: Any) -> None:
        is_meant = os.environ.get("PADDLE_TRAINER_ID") == rank
        if is_meant and phase == "start":
            end(way, marker)
        join_group(*arguments, **named)
        if is_meant:
            inject(phase, way, marker)

    rendezvous.join_group = join_with_fault


if VARIABLE in os.environ and __name__ == "__mp_main__":  # what a spawned worker calls this file
    _inject_into_workers()

if __name__ == "__main__":
    from paddlevit_dist.core.commands import train
    from paddlevit_dist.core.runtime.errors import run_and_report

    sys.exit(run_and_report(lambda: train.run(sys.argv[1:])))
