"""Detection of ranks that hang: the observed state of each rank, the rank that blocks the others, the parent's actions.

A rank that is stopped, or in C code with Python's lock held, can do nothing itself. So its parent judges by the ranks'
notes (``status``) and the kernel's data about their processes, requests the stack of the hanging rank and ends it.
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

_MOVED_BYTES = 1 << 20  # read or written: this much is progress, a log line is not
_STOPPED = ("T", "t")
_STACK_SECONDS = 3.0  # time for a process on a busy machine to write its stack
_GLOO_SECONDS = 20.0  # after this time without progress a rank can be why gloo gives up after 30 s


class ProcessInfo(NamedTuple):
    """The kernel's data about a process."""

    state: str  # such as "T (stopped)"; "" if nothing is known
    waits_in: str  # the kernel function that it sleeps in; "" if unknown
    bytes_moved: int  # read and written since it started
    ticks: int  # processor time since it started

    @classmethod
    def read(cls, process: int, kernel: Path = Path("/proc")) -> "ProcessInfo":
        """Read the data of a process as the ``kernel`` lists it."""
        folder = kernel / str(process)
        fields = _read_text(folder / "stat").rpartition(")")[2].split()  # from the third field on
        return cls(
            _read_field(folder / "status", "State:"),
            _read_text(folder / "wchan").strip().strip("0"),
            sum(int(_read_field(folder / "io", name) or 0) for name in ("rchar:", "wchar:")),
            int(fields[11]) + int(fields[12]) if len(fields) > 12 else 0,
        )

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped by a signal or a debugger."""
        return self.state.startswith(_STOPPED)

    def __str__(self) -> str:
        if self.is_stopped:
            return f"{self.state}: it has received SIGSTOP, SIGTSTP or a similar signal"
        return f"{self.state or 'gone'}{f' in {self.waits_in}' if self.waits_in else ''}"


class RankState(NamedTuple):
    """The state of one rank as a watcher has observed it."""

    status: RankStatus
    since: float  # time of its last progress, by the watcher's clock
    bytes_moved: int  # until then
    ticks: int  # until then
    is_stopped: bool
    is_heard: bool  # False: no message from it for long, regardless of its last note


def update_state(before: RankState | None, latest: RankStatus, process: ProcessInfo, now: float) -> RankState:
    """Return the state of a rank after another observation, at ``now`` by the watcher's clock, in seconds.

    Reading and writing much counts as progress, since large files take time. So does computing before the first note,
    while modules are imported, and after the last. Neither counts for a rank that waits for others: ranks that wait for
    one another must be detected. ``process`` is the kernel's data about it.
    """
    moved = before is None or before.status.moves != latest.moves or before.status.waits != latest.waits
    if before is not None and not moved and not latest.waits:
        moved = process.bytes_moved - before.bytes_moved > _MOVED_BYTES
        moved = moved or (latest.text in (NOT_STARTED, AT_END) and process.ticks > before.ticks)
    if before is None or moved:
        return RankState(latest, now, process.bytes_moved, process.ticks, process.is_stopped, True)
    return before._replace(status=latest, is_stopped=process.is_stopped)


def find_stalled_rank(states: dict[int, RankState], seconds: float, now: float) -> int | None:
    """Return the rank without progress for ``seconds`` that blocks the others, or None if all is well.

    A stopped or silent rank comes first: another may be in a collective, which its notes do not show as waiting. Then
    the rank longest without progress that does not wait. If every rank waits for the others, the first.
    """
    late = [rank for rank, state in states.items() if now - state.since > seconds]
    for ranks in (
        [rank for rank in late if states[rank].is_stopped or not states[rank].is_heard],
        [rank for rank in late if not states[rank].status.waits],
        late if len(late) == len(states) else [],
    ):
        if ranks:
            return min(ranks, key=lambda rank: states[rank].since)
    return None


def describe(rank: int, states: dict[int, RankState], now: float, process: str, limit: str = "WATCHDOG_SECONDS") -> str:
    """Format one line about a rank that hangs at ``now``, with the time limit and the kernel's data or ""."""
    state = states[rank]
    duration = f"{now - state.since:.0f} s ({limit})"
    about = f"; its process is {process}" if process else ""
    if not state.is_heard:
        return f"no message for {duration}: its process or its machine hangs or has ended; last {state.status.text}"
    if state.status.waits and not state.is_stopped and len(states) > 1:
        ranks = ", ".join(f"rank {other} {each.status.text}" for other, each in sorted(states.items()))
        return f"every rank has waited for the others for {duration}: {ranks}"
    return f"no progress for {duration} {state.status.text}{about}"


def format_stacks() -> str:
    """Return the stacks of this process's threads except for watching threads."""
    with open(os.memfd_create("stacks"), "w+b") as file:  # folders may be full or read-only
        faulthandler.dump_traceback(file)
        file.seek(0)
        return _drop_watchers(file.read())


def _drop_watchers(dump: bytes) -> str:
    stacks = [part.strip("\n") for part in dump.decode("utf-8", errors="replace").split("\n\n")]
    remaining: list[str] = [part for part in stacks if part and not _is_a_watcher(part)]
    return "\n\n".join(remaining) + "\n" if remaining else ""


def _is_a_watcher(stack: str) -> bool:
    frames = [line for line in stack.splitlines() if line.startswith("  File")]
    return any(line.endswith((" in _watch", " in _run_watch")) for line in frames)


def _read_field(path: Path, name: str) -> str:
    return next((line[len(name) :].strip() for line in _read_text(path).splitlines() if line.startswith(name)), "")


def _read_text(path: Path) -> str:
    """Read a file of the kernel; empty if there is none, or if the process is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


class MonotonicClock:
    """A clock that stops while this process is stopped itself, by Ctrl-Z, so that the others do not seem to hang."""

    def __init__(self, longest_step: float) -> None:
        self._longest_step = longest_step
        self._last = time.monotonic()
        self._lost = 0.0

    def now(self) -> float:
        """Return the time in seconds. Call at least every ``longest_step`` seconds: more of a step is ignored."""
        last, self._last = self._last, time.monotonic()
        self._lost += max(0.0, self._last - last - self._longest_step)
        return self._last - self._lost


def dump_stacks_on_request(folder: Path, rank: int) -> None:
    """Let this process write the stacks of its threads into ``folder`` when the parent requests it, at any time."""
    # C code writes them, without Python's lock. The file must stay open for the lifetime of the process.
    faulthandler.register(signal.SIGUSR2, file=os.open(_stack_file(folder, rank), os.O_WRONLY | os.O_CREAT, 0o600))


def _stack_file(folder: Path, rank: int) -> Path:
    return folder / f"stack_{rank}.txt"


class Watchdog:
    """Watches the ranks 0, 1, ... of one machine, which may make no progress for ``seconds`` (None: forever).

    In ``folder``, they record how they end.
    """

    def __init__(self, pages: status.Pages, processes: list[Any], seconds: float | None, folder: Path) -> None:
        self._pages = pages
        self._processes = processes
        self._seconds = seconds
        self._folder = folder
        self._poll_seconds = min(1.0, (seconds or 10.0) / 10)
        self._clock = MonotonicClock(longest_step=max(2.0, 4 * self._poll_seconds))
        self._next_poll = 0.0
        self._states: dict[int, RankState] = {}

    def poll(self, running: Mapping[int, Any]) -> dict[str, Any] | None:
        """Return the record of a hanging rank, as in ``failures``, or None. Call it often; most calls do nothing."""
        if self._seconds is None or time.monotonic() < self._next_poll:
            return None
        self._next_poll = time.monotonic() + self._poll_seconds
        now = self._update(running)
        rank = find_stalled_rank(self._states, self._seconds, now)
        return None if rank is None else self._describe_end(rank, now)

    def explain(self, failed: list[dict[str, Any]], running: Mapping[int, Any]) -> list[dict[str, Any]]:
        """Return ``failed``, with the record of the rank that caused failures which only report that a peer is gone.

        On CPUs a collective gives up after 30 s, independent of WATCHDOG_SECONDS.
        """
        if not failed or not running or not all(failures.looks_like_a_lost_peer(end) for end in failed):
            return failed
        now = self._update(running)
        rank = find_stalled_rank(self._states, _GLOO_SECONDS, now)
        return failed if rank is None else [*failed, self._describe_end(rank, now, "a collective gives up after 30 s")]

    def _update(self, running: Mapping[int, Any]) -> float:
        now = self._clock.now()
        self._states = {
            rank: update_state(
                self._states.get(rank), status.read(self._pages, rank), ProcessInfo.read(process.pid), now
            )
            for rank, process in running.items()
        }
        return now

    def _describe_end(self, rank: int, now: float, limit: str = "WATCHDOG_SECONDS") -> dict[str, Any]:
        process = ProcessInfo.read(self._processes[rank].pid)
        message = describe(rank, self._states, now, str(process), limit)
        stacks = "" if process.is_stopped else self.get_stacks(rank)
        kind = failures.STANDSTILL
        waits = self._states[rank].status.waits and not process.is_stopped
        record = {"kind": kind, "rank": rank, "message": message, "traceback": stacks, "time": time.time()}
        return {**record, "waits": waits}

    def get_stacks(self, rank: int) -> str:
        """Return the Python stacks of a rank; empty if it does not answer, or cannot do so yet."""
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
        return _drop_watchers(before)
