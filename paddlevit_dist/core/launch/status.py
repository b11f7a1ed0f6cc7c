"""The status of each rank: a note of a microsecond for every step that it reaches, in memory that its parent reads."""

import contextlib
import multiprocessing
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import ctypes

NOT_STARTED, AT_END = "starting", "finished, at the end of its process"
_PAGE_BYTES = 512  # the last page has the number of a ``SharedNumber``
Pages: TypeAlias = "ctypes.Array[ctypes.c_char]"
_HEAD = struct.Struct("<qqq")  # number of moves, process id, whether it waits for other ranks
_MOVES = struct.Struct("<q")


class RankStatus(NamedTuple):
    """The latest note of a rank."""

    moves: int  # differs between any two notes
    process: int  # 0: not started yet
    waits: bool  # for other ranks, which are the cause if it makes no progress
    text: str  # such as "in epoch 1, 3 of 20 updates done: in the backward pass"


def new_pages(ranks: int) -> Pages:
    """Return memory for the notes of ranks 0 to ``ranks`` - 1, which they share with this process, their parent."""
    return multiprocessing.get_context("spawn").RawArray("c", _PAGE_BYTES * (ranks + 1))


def read(pages: Any, rank: int) -> RankStatus:
    """Read the latest note of a rank."""
    content = pages[rank * _PAGE_BYTES : (rank + 1) * _PAGE_BYTES]
    moves, process, waits = _HEAD.unpack_from(content)
    text = content[_HEAD.size :].rstrip(b"\0").decode("utf-8", errors="replace")
    return RankStatus(moves, process, bool(waits), text if process else NOT_STARTED)


class SharedNumber:
    """A number that rank 0 posts in an integer of 64 bits, atomic, in memory that all its parent's processes share."""

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory

    def post(self, number: int) -> None:
        """Replace the number; rank 0 only."""
        self._memory[0] = number

    def posted(self) -> int:
        """Return the last number that rank 0 posted; 0 before the first."""
        return self._memory[0]


class _StatusNotes:
    def __init__(self) -> None:
        self.page: memoryview | None = None  # the page of this rank; None: notes stay in this process
        self.number: SharedNumber | None = None
        self.moves = 0
        self.main = NOT_STARTED
        self.detail = ""
        self.waits = False

    def write(self) -> None:
        self.moves += 1
        if self.page is not None:
            moves, process, waits, text = get_status()
            content = _HEAD.pack(moves, process, waits) + text.encode("utf-8", "replace")
            # Truncated, then padded: no rest of an earlier, longer note may remain.
            self.page[:] = content[:_PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")


_notes = _StatusNotes()


def publish(pages: Pages, rank: int) -> None:
    """Write this process's notes into the page of ``rank`` from now on."""
    memory = memoryview(pages).cast("B")
    _notes.page = memory[rank * _PAGE_BYTES : (rank + 1) * _PAGE_BYTES]
    _notes.number = SharedNumber(memory[-_PAGE_BYTES:].cast("q"))
    _notes.write()


def shared_number() -> SharedNumber | None:
    """Return the number that all ranks share; None if this process has no parent that shares memory with all ranks."""
    return _notes.number


def get_status() -> RankStatus:
    """Return the latest note of this process."""
    text = f"{_notes.main}: {_notes.detail}" if _notes.detail else _notes.main
    return RankStatus(_notes.moves, os.getpid(), _notes.waits, text)


def note(text: str) -> None:
    """Record the step that this process has reached."""
    _notes.main, _notes.detail, _notes.waits = text, "", False
    _notes.write()


def set_detail(text: str, may_wait: bool = False) -> None:
    """Record the activity of this process within its step, such as "in its forward pass"; "" for none.

    ``may_wait``: it may wait there for other ranks.
    """
    _notes.detail, _notes.waits = text, may_wait
    _notes.write()


def move() -> None:
    """Record progress. Any thread may call this: it writes nothing else."""
    _notes.moves += 1
    if _notes.page is not None:
        _notes.page[: _MOVES.size] = _MOVES.pack(_notes.moves)


@contextlib.contextmanager
def during(text: str, may_wait: bool = False) -> Iterator[None]:
    """Set a detail for the duration of the context; the previous one is restored."""
    before = _notes.detail
    set_detail(text, may_wait)
    try:
        yield
    finally:
        set_detail(before)


@contextlib.contextmanager
def waiting_for_ranks() -> Iterator[None]:
    """Mark this process as waiting for other ranks, which may take any time."""
    _note_waiting(True)
    try:
        yield
    finally:
        _note_waiting(False)


def waiting_for_device() -> contextlib.AbstractContextManager[None]:
    """Mark this process as waiting for its device, which may wait in a collective for the devices of other ranks."""
    return during("waiting for its device", may_wait=True)


def _note_waiting(waits: bool) -> None:
    _notes.waits = waits
    _notes.write()
