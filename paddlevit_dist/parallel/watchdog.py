"""What a parent does about a rank of its machine that stands still: it finds out which, asks for its stack, ends it.

A rank that stands in C code with Python's lock held, or that is stopped, can do nothing itself; so the parent judges,
by the ranks' notes (``places``) and by what the kernel tells of their processes.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from . import failures, standstill
from .places import Pages
from .standstill import Clock, Process, Seen

_STACK_SIGNAL = getattr(signal, "SIGUSR2", None)
_STACK_SECONDS = 3.0  # for a process to write its stack, on a busy machine
_GLOO_SECONDS = 20.0  # standing still this long, a rank can be the reason for gloo's giving up after 30


def answer_with_stacks(folder: Path, rank: int) -> None:
    """Have this process write the stacks of its threads into ``folder`` when the parent asks, whatever it is doing."""
    if _STACK_SIGNAL is not None:
        # C code writes them, without Python's lock. The file must stay open for the lifetime of the process.
        faulthandler.register(_STACK_SIGNAL, file=os.open(_stack_file(folder, rank), os.O_WRONLY | os.O_CREAT, 0o600))


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack_{rank}.txt"


class Watchdog:
    """Watches the ranks of one machine.

    Args:
        pages: their notes.
        processes: of ranks 0, 1, and so on.
        seconds: how long a rank may stand still; None: for ever.
        folder: where ranks record how they end.
    """

    def __init__(self, pages: Pages, processes: List[Any], seconds: Optional[float], folder: Path) -> None:
        self._pages = pages
        self._processes = processes
        self._seconds = seconds
        self._folder = folder
        self._poll = min(1.0, (seconds or 10.0) / 10)
        self._clock = Clock(longest_step=max(2.0, 4 * self._poll))
        self._next_look = 0.0
        self._seen: Dict[int, Seen] = {}

    def look(self, running: Mapping[int, Any]) -> Optional[Dict[str, Any]]:
        """The end of the rank that stands still, as in ``failures``, or None. Call it often; most calls do nothing."""
        if self._seconds is None or time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + self._poll
        now = self._look(running)
        rank = standstill.culprit(self._seen, self._seconds, now)
        return None if rank is None else self._end_of(rank, now)

    def explain(self, failed: List[Dict[str, Any]], running: Mapping[int, Any]) -> List[Dict[str, Any]]:
        """``failed``, and the end of the rank that has made them fail if they only report that a peer is gone: on CPUs
        a collective gives up after 30 s, whatever WATCHDOG_SECONDS is."""
        if not failed or not running or not all(failures.looks_like_a_lost_peer(end) for end in failed):
            return failed
        now = self._look(running)
        rank = standstill.culprit(self._seen, _GLOO_SECONDS, now)
        return failed if rank is None else [*failed, self._end_of(rank, now, "an exchange gives up after 30")]

    def kill(self, failed: List[Dict[str, Any]]) -> None:
        """End the ranks that stand still: asked politely, they would not hear."""
        for end in failed:
            if end["kind"] == failures.STANDSTILL:
                self._processes[end["rank"]].kill()

    def _look(self, running: Mapping[int, Any]) -> float:
        now = self._clock.now()
        self._seen = {
            rank: standstill.follow(self._seen.get(rank), self._pages.read(rank), Process.look(process.pid), now)
            for rank, process in running.items()
            if self._is_followed(rank)
        }
        return now

    def _is_followed(self, rank: int) -> bool:
        """Whether a rank could open its page, as far as it has come: it does so right after making its other file."""
        return bool(self._pages.read(rank).process) or not _stack_file(self._folder, rank).exists()

    def _end_of(self, rank: int, now: float, limit: str = "WATCHDOG_SECONDS") -> Dict[str, Any]:
        process = Process.look(self._processes[rank].pid)
        message = standstill.describe(rank, self._seen, now, str(process), limit)
        stacks = "" if process.is_stopped else self._stacks_of(rank)
        kind = failures.STANDSTILL
        return {"kind": kind, "rank": rank, "message": message, "traceback": stacks, "time": time.time()}

    def _stacks_of(self, rank: int) -> str:
        """The Python stacks of a rank; empty if it does not answer, or has not come so far as to be able to."""
        file = _stack_file(self._folder, rank)
        if _STACK_SIGNAL is None or not file.exists():
            return ""
        os.kill(self._processes[rank].pid, _STACK_SIGNAL)
        deadline = time.monotonic() + _STACK_SECONDS
        before = b""
        while time.monotonic() < deadline:
            time.sleep(0.05)
            content = file.read_bytes()
            if content and content == before:
                break
            before = content
        return standstill.own_stacks(before.decode("utf-8", errors="replace"))
