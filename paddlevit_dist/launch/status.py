"""The place of each rank: a note for every step that it reaches, in a page of memory that its parent reads.

A note costs about a microsecond: one write into memory, no lock, no message.
"""

import contextlib
import multiprocessing
import os
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

NOT_STARTED, AT_END = "starting", "finished, at the end of its process"
_PAGE_BYTES = 512
_HEAD = struct.Struct("<qqq")  # how often this rank has moved, its process, whether it waits for other ranks
_MOVES = struct.Struct("<q")


class RankStatus(NamedTuple):
    """Note of a rank."""

    moves: int  # differs between any two notes
    process: int  # 0: not started yet
    waits: bool  # for other ranks: its standing still is not its own
    text: str  # such as "in epoch 1, 3 of 20 updates done: in the backward pass"


def new_pages(ranks: int) -> Any:
    """Memory that the processes of ranks 0 to ``ranks`` - 1 share with this one, which starts them, for their notes."""
    return multiprocessing.get_context("spawn").RawArray("c", _PAGE_BYTES * ranks)


def read(pages: Any, rank: int) -> RankStatus:
    """Read what a rank has noted last."""
    content = pages[rank * _PAGE_BYTES : (rank + 1) * _PAGE_BYTES]
    moves, process, waits = _HEAD.unpack_from(content)
    text = content[_HEAD.size :].rstrip(b"\0").decode("utf-8", errors="replace")
    return RankStatus(moves, process, bool(waits), text if process else NOT_STARTED)


class _StatusNotes:
    """This process's own notes."""

    def __init__(self) -> None:
        self.page: memoryview | None = None  # its own; None: kept in this process only
        self.moves = 0
        self.main = NOT_STARTED
        self.detail = ""
        self.waits = False

    def write(self) -> None:
        self.moves += 1
        if self.page is not None:
            moves, process, waits, text = own()
            content = _HEAD.pack(moves, process, waits) + text.encode("utf-8", "replace")
            # First cut, then filled: what an earlier, longer note has left must not show behind it.
            self.page[:] = content[:_PAGE_BYTES].ljust(_PAGE_BYTES, b"\0")


_own = _StatusNotes()


def publish(pages: Any, rank: int) -> None:
    """Write this process's notes into the page of ``rank`` from now on."""
    _own.page = memoryview(pages).cast("B")[rank * _PAGE_BYTES : (rank + 1) * _PAGE_BYTES]
    _own.write()


def own() -> RankStatus:
    """Return what this process has noted last."""
    text = f"{_own.main}: {_own.detail}" if _own.detail else _own.main
    return RankStatus(_own.moves, os.getpid(), _own.waits, text)


def note(text: str) -> None:
    """Note which step this process has reached."""
    _own.main, _own.detail, _own.waits = text, "", False
    _own.write()


def detail(text: str, may_wait: bool = False) -> None:
    """Note what this process does in this step, replacing the last detail; "" for none in particular.

    Args:
        may_wait: it may wait there for other ranks.
    """
    _own.detail, _own.waits = text, may_wait
    _own.write()


def move() -> None:
    """Note that something has moved here. May be called from any thread: it writes nothing else."""
    _own.moves += 1
    if _own.page is not None:
        _own.page[: _MOVES.size] = _MOVES.pack(_own.moves)


@contextlib.contextmanager
def during(text: str, may_wait: bool = False) -> Iterator[None]:
    """A detail for as long as the context lasts; the one before comes back."""
    before = _own.detail
    detail(text, may_wait)
    try:
        yield
    finally:
        detail(before)


@contextlib.contextmanager
def waiting_for_ranks() -> Iterator[None]:
    """This process waits for other ranks, which may take as long as they do."""
    _note_waiting(True)
    try:
        yield
    finally:
        _note_waiting(False)


def waiting_for_device() -> contextlib.AbstractContextManager[None]:
    """This process waits for its device, which may wait in an exchange for those of other ranks."""
    return during("waiting for its device", may_wait=True)


def _note_waiting(waits: bool) -> None:
    _own.waits = waits
    _own.write()
