"""How much memory a run takes."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Iterator, Optional

import paddle

_MIB = 1 << 20
_SECONDS = 1.0  # between looks at many processes, which take some milliseconds
_looked_at = -_SECONDS
_seen: Optional[float] = None


def memory_mib() -> Optional[float]:
    """On a GPU the most that Paddle has had allocated on this process's device at a time; else the resident memory of
    this machine's processes of the run, their loader processes included. None where the system does not tell.

    Asks the host only, and waits for no device.
    """
    if paddle.get_device().startswith("gpu"):
        return round(paddle.device.cuda.max_memory_allocated() / _MIB, 1)
    global _looked_at, _seen
    if time.monotonic() - _looked_at > _SECONDS:
        spawned = multiprocessing.parent_process() is not None  # then other ranks are children of the same process
        _seen, _looked_at = resident_mib(os.getppid() if spawned else os.getpid()), time.monotonic()
    return _seen


def resident_mib(root: int) -> Optional[float]:
    """Resident memory of the process ``root`` and of all below it. What processes share, such as libraries, counts in
    the first only; what a fork still shares with its parent counts in both."""
    pages = 0
    for number, process in enumerate(_tree(root)):
        try:
            resident, shared = map(int, Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1:3])
        except (OSError, ValueError):  # it has just ended, or there is no such file
            continue
        pages += resident - (shared if number else 0)
    return round(pages * os.sysconf("SC_PAGE_SIZE") / _MIB, 1) if pages else None


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        for thread in os.listdir(f"/proc/{root}/task"):
            for child in Path(f"/proc/{root}/task/{thread}/children").read_text(encoding="ascii").split():
                yield from _tree(int(child))
    except OSError:
        return
