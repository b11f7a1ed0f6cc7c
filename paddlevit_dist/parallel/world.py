"""Which process this is: rank, world size, and joining the group."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any, Callable, Optional

import paddle
import paddle.distributed as dist

from . import entrance


def rank() -> int:
    """This process's number in ``[0, world_size)``; 0 without a group."""
    return dist.get_rank() if world_size() > 1 else 0


def world_size() -> int:
    """Number of processes training together; 1 without a group."""
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    """True on the one process that prints and writes."""
    return rank() == 0


def join_group(uses_gpu: bool, spawned: bool, at_store: Optional[Callable[[], Any]] = None) -> None:
    """Select this process's device and, if it is one of several, join their group. Every rank must call this.

    Args:
        uses_gpu: each process drives one GPU; otherwise the CPU with gloo.
        spawned: this machine's parent process started us. Rendezvous variables that a cluster's shell may have
        exported are then not meant for us and are dropped.
        at_store: as in ``entrance.enter``.
    """
    paddle.set_device("gpu" if uses_gpu else "cpu")
    if int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) < 2:
        return
    if spawned:
        for name in ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER"):
            os.environ.pop(name, None)
    if not uses_gpu:
        os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    entrance.enter(int(os.environ["PADDLE_TRAINER_ID"]), int(os.environ["PADDLE_TRAINERS_NUM"]), at_store)
    messages = io.StringIO()  # Paddle 3 lists its modified flags on every start
    try:
        with contextlib.redirect_stderr(messages):
            dist.init_parallel_env()
    except BaseException:
        print(messages.getvalue(), end="", file=sys.stderr)
        raise
