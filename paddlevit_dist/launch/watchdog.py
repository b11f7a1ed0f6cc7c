"""Who stands still: what a watcher has seen of each rank, which one keeps the others waiting, and what a parent does.

A rank that stands in C code with Python's lock held, or that is stopped, can do nothing itself; so its parent judges,
by the ranks' notes (``status``) and by what the kernel tells of their processes: it asks the one for its stack, and
ends it.
"""

import faulthandler
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import failures, status
from .status import AT_END, NOT_STARTED, RankStatus

_MOVED_BYTES = 1 << 20  # read or written: a save or a read of this size is progress, a line of the log is not
_STOPPED = ("T", "t")
_STACK_SECONDS = 3.0  # for a process to write its stack, on a busy machine
_GLOO_SECONDS = 20.0  # standing still this long, a rank can be the reason for gloo's giving up after 30


class ProcessInfo(NamedTuple):
    """The kernel's words on a process."""

    state: str  # such as "T (stopped)"; "" if nothing is known
    waits_in: str  # the kernel's function that it sleeps in; "" if nothing is known
    bytes_moved: int  # read and written since it started
    ticks: int  # of the processor, since it started

    @classmethod
    def look(cls, process: int) -> "ProcessInfo":
        fields = _text(f"/proc/{process}/stat").rpartition(")")[2].split()  # the third field and those behind it
        return cls(
            _first(f"/proc/{process}/status", "State:"),
            _text(f"/proc/{process}/wchan").strip().strip("0"),
            sum(int(_first(f"/proc/{process}/io", name) or 0) for name in ("rchar:", "wchar:")),
            int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0,
        )

    @property
    def is_stopped(self) -> bool:
        return self.state.startswith(_STOPPED)

    def __str__(self) -> str:
        if self.is_stopped:
            return f"{self.state}: something has sent it SIGSTOP, SIGTSTP or the like"
        return f"{self.state or 'gone'}{f' in {self.waits_in}' if self.waits_in else ''}"


class RankState(NamedTuple):
    """A watcher's knowledge of one rank."""

    status: RankStatus
    since: float  # by the watcher's clock: when it was last seen to move
    bytes_moved: int  # by then
    ticks: int  # likewise
    is_stopped: bool
    is_heard: bool  # False: nothing has come from it for long, whatever its last note says


def follow(before: RankState | None, found: RankStatus, process: ProcessInfo, now: float) -> RankState:
    """Return what is known of a rank after another look at it.

    Reading and writing much counts as moving, since a large file takes as long as it takes. So does computing before
    the first note, while modules are imported, and after the last. Neither counts for a rank that waits for others:
    ranks that wait for one another are to be noticed.
    """
    moved = before is None or before.status.moves != found.moves or before.status.waits != found.waits
    if before is not None and not moved and not found.waits:
        moved = process.bytes_moved - before.bytes_moved > _MOVED_BYTES
        moved = moved or (found.text in (NOT_STARTED, AT_END) and process.ticks > before.ticks)
    if before is None or moved:
        return RankState(found, now, process.bytes_moved, process.ticks, process.is_stopped, True)
    return before._replace(status=found, is_stopped=process.is_stopped)


def find_stalled_rank(seen: dict[int, RankState], seconds: float, now: float) -> int | None:
    """The rank that has stood still for ``seconds`` and keeps the others waiting, or None if all is well.

    A stopped or silent rank comes first: another may stand inside a collective, which its notes do not show as
    waiting. Then the one that has stood still longest by itself. If every rank waits for the others, the first.
    """
    late = [rank for rank, known in seen.items() if now - known.since > seconds]
    for ranks in (
        [rank for rank in late if seen[rank].is_stopped or not seen[rank].is_heard],
        [rank for rank in late if not seen[rank].status.waits],
        late if len(late) == len(seen) else [],
    ):
        if ranks:
            return min(ranks, key=lambda rank: seen[rank].since)
    return None


def describe(rank: int, seen: dict[int, RankState], now: float, process: str, limit: str = "WATCHDOG_SECONDS") -> str:
    """One line about a rank that stands still.

    Args:
        process: what is known of its process, or "".
        limit: whose patience has ended.
    """
    known = seen[rank]
    stood = f"{now - known.since:.0f} s ({limit})"
    about = f"; its process is {process}" if process else ""
    if not known.is_heard:
        return (
            f"not heard of for {stood}: its process or its machine stands still or has ended; last {known.status.text}"
        )
    if known.status.waits and not known.is_stopped and len(seen) > 1:
        ranks = ", ".join(f"rank {other} {each.status.text}" for other, each in sorted(seen.items()))
        return f"every rank has waited for the others for {stood}: {ranks}"
    return f"stood still for {stood} {known.status.text}{about}"


def stacks() -> str:
    """The stacks of this process's threads without those that only watch."""
    with open(os.memfd_create("stacks"), "w+b") as file:  # folders may be full, or not for writing
        faulthandler.dump_traceback(file)
        file.seek(0)
        return _own_stacks(file.read())


def _own_stacks(dump: bytes) -> str:
    stacks = [part.strip("\n") for part in dump.decode("utf-8", errors="replace").split("\n\n")]
    kept: list[str] = [part for part in stacks if part and not _is_a_watcher(part)]
    return "\n\n".join(kept) + "\n" if kept else ""


def _is_a_watcher(stack: str) -> bool:
    frames = [line for line in stack.splitlines() if line.startswith("  File")]
    return any(line.endswith((" in _watch", " in _run_watch")) for line in frames)


def _first(path: str, name: str) -> str:
    return next((line[len(name) :].strip() for line in _text(path).splitlines() if line.startswith(name)), "")


def _text(path: str) -> str:
    """A file of /proc; empty where there is none, or the process has gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class MonotonicClock:
    """Time that stops while this process is stopped itself, as by Ctrl-Z: a watcher must not take that for a
    standstill of the others."""

    def __init__(self, longest_step: float) -> None:
        self._longest_step = longest_step
        self._last = time.monotonic()
        self._lost = 0.0

    def now(self) -> float:
        """Call at least every ``longest_step`` seconds: what a step takes longer is left out."""
        last, self._last = self._last, time.monotonic()
        self._lost += max(0.0, self._last - last - self._longest_step)
        return self._last - self._lost


def answer_with_stacks(folder: Path, rank: int) -> None:
    """Have this process write the stacks of its threads into ``folder`` when the parent asks, whatever it is doing."""
    # C code writes them, without Python's lock. The file must stay open for the lifetime of the process.
    faulthandler.register(signal.SIGUSR2, file=os.open(_stack_file(folder, rank), os.O_WRONLY | os.O_CREAT, 0o600))


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack_{rank}.txt"


class Watchdog:
    """Watches the ranks of one machine.

    Args:
        pages: their notes, from ``status.new_pages``.
        processes: of ranks 0, 1, and so on.
        seconds: how long a rank may stand still; None: for ever.
        folder: where ranks record how they end.
    """

    def __init__(self, pages: Any, processes: list[Any], seconds: float | None, folder: Path) -> None:
        self._pages = pages
        self._processes = processes
        self._seconds = seconds
        self._folder = folder
        self._poll = min(1.0, (seconds or 10.0) / 10)
        self._clock = MonotonicClock(longest_step=max(2.0, 4 * self._poll))
        self._next_look = 0.0
        self._seen: dict[int, RankState] = {}

    def look(self, running: Mapping[int, Any]) -> dict[str, Any] | None:
        """The end of the rank that stands still, as in ``failures``, or None. Call it often; most calls do nothing."""
        if self._seconds is None or time.monotonic() < self._next_look:
            return None
        self._next_look = time.monotonic() + self._poll
        now = self._look(running)
        rank = find_stalled_rank(self._seen, self._seconds, now)
        return None if rank is None else self._describe_end(rank, now)

    def explain(self, failed: list[dict[str, Any]], running: Mapping[int, Any]) -> list[dict[str, Any]]:
        """``failed``, and the end of the rank that has made them fail if they only report that a peer is gone: on CPUs
        a collective gives up after 30 s, whatever WATCHDOG_SECONDS is."""
        if not failed or not running or not all(failures.looks_like_a_lost_peer(end) for end in failed):
            return failed
        now = self._look(running)
        rank = find_stalled_rank(self._seen, _GLOO_SECONDS, now)
        return failed if rank is None else [*failed, self._describe_end(rank, now, "an exchange gives up after 30")]

    def kill(self, failed: list[dict[str, Any]]) -> None:
        """End the ranks that stand still: asked politely, they would not hear."""
        for end in failed:
            if end["kind"] == failures.STANDSTILL:
                self._processes[end["rank"]].kill()

    def _look(self, running: Mapping[int, Any]) -> float:
        now = self._clock.now()
        self._seen = {
            rank: follow(self._seen.get(rank), status.read(self._pages, rank), ProcessInfo.look(process.pid), now)
            for rank, process in running.items()
        }
        return now

    def _describe_end(self, rank: int, now: float, limit: str = "WATCHDOG_SECONDS") -> dict[str, Any]:
        process = ProcessInfo.look(self._processes[rank].pid)
        message = describe(rank, self._seen, now, str(process), limit)
        stacks = "" if process.is_stopped else self._get_stacks(rank)
        kind = failures.STANDSTILL
        return {"kind": kind, "rank": rank, "message": message, "traceback": stacks, "time": time.time()}

    def _get_stacks(self, rank: int) -> str:
        """The Python stacks of a rank; empty if it does not answer, or has not come so far as to be able to."""
        file = _stack_file(self._folder, rank)
        if not file.exists():
            return ""
        os.kill(self._processes[rank].pid, signal.SIGUSR2)
        deadline = time.monotonic() + _STACK_SECONDS
        before = b""
        while time.monotonic() < deadline:
            time.sleep(0.05)
            content = file.read_bytes()
            if content and content == before:
                break
            before = content
        return _own_stacks(before)
