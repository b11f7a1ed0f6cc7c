"""Who stands still: what a watcher has seen of each rank, and which one keeps the others waiting."""

from __future__ import annotations

import time
from typing import Dict, List, NamedTuple, Optional

from .places import NOT_STARTED, Place

_MOVED_BYTES = 1 << 20  # read or written: a save or a read of this size is progress, a line of the log is not
_STOPPED = ("T", "t")


class Process(NamedTuple):
    """What the kernel tells of a process."""

    state: str  # such as "T (stopped)"; "" if nothing is known
    waits_in: str  # the kernel's function that it sleeps in; "" if nothing is known
    bytes_moved: int  # read and written since it started
    ticks: int  # of the processor, since it started

    @classmethod
    def look(cls, process: int) -> "Process":
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


class Seen(NamedTuple):
    """What a watcher knows of one rank."""

    place: Place
    since: float  # by the watcher's clock: when it was last seen to move
    bytes_moved: int  # by then
    ticks: int  # likewise
    is_stopped: bool
    is_heard: bool  # False: nothing has come from it for long, whatever its last place is


def follow(before: Optional[Seen], place: Place, process: Process, now: float) -> Seen:
    """What is known of a rank after another look at it.

    Reading and writing much counts as moving, since a large file takes as long as it takes. So does computing before
    the first note, while modules are imported. Neither counts for a rank that waits for others: ranks that wait for
    one another are to be noticed.
    """
    moved = before is None or before.place.moves != place.moves or before.place.waits != place.waits
    if before is not None and not moved and not place.waits:
        moved = process.bytes_moved - before.bytes_moved > _MOVED_BYTES
        moved = moved or (place.text == NOT_STARTED and process.ticks > before.ticks)
    if before is None or moved:
        return Seen(place, now, process.bytes_moved, process.ticks, process.is_stopped, True)
    return before._replace(place=place, is_stopped=process.is_stopped)


def culprit(seen: Dict[int, Seen], seconds: float, now: float) -> Optional[int]:
    """The rank that has stood still for ``seconds`` and keeps the others waiting, or None if all is well.

    A stopped or silent rank comes first: another may stand inside a collective, which its notes do not show as
    waiting. Then the one that has stood still longest by itself. If every rank waits for the others, the first.
    """
    late = [rank for rank, known in seen.items() if now - known.since > seconds]
    for ranks in (
        [rank for rank in late if seen[rank].is_stopped or not seen[rank].is_heard],
        [rank for rank in late if not seen[rank].place.waits],
        late if len(late) == len(seen) else [],
    ):
        if ranks:
            return min(ranks, key=lambda rank: seen[rank].since)
    return None


def describe(rank: int, seen: Dict[int, Seen], now: float, process: str, limit: str = "WATCHDOG_SECONDS") -> str:
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
            f"not heard of for {stood}: its process or its machine stands still or has ended; last {known.place.text}"
        )
    if known.place.waits and not known.is_stopped and len(seen) > 1:
        places = ", ".join(f"rank {other} {each.place.text}" for other, each in sorted(seen.items()))
        return f"every rank has waited for the others for {stood}: {places}"
    return f"stood still for {stood} {known.place.text}{about}"


def own_stacks(text: str) -> str:
    """The stacks of faulthandler's dump ``text`` without those of threads that only watch."""
    stacks = [part.strip("\n") for part in text.split("\n\n")]
    kept: List[str] = [part for part in stacks if part and not _is_a_watcher(part)]
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


class Clock:
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
