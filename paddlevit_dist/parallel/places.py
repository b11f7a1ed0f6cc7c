"""Where each rank is: a note for every place it reaches, in a page of memory that its parent reads.

A note costs about a microsecond: one write into memory, no lock, no message.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional

NOT_STARTED = "starting"
_NAME = "paddlevit_dist_places"
_PAGE_BYTES = 512
_HEAD = struct.Struct("<qqq")  # how often this rank has moved, its process, whether it waits for other ranks
_MOVES, _WAITS = struct.Struct("<q"), struct.Struct("<q")
_WAITS_AT, _LONGEST = 16, _PAGE_BYTES - _HEAD.size


class Place(NamedTuple):
    """What a rank has noted."""

    moves: int  # differs between any two notes
    process: int  # 0: not started yet
    waits: bool  # for other ranks: its standing still is not its own
    text: str  # such as "in epoch 1, 3 of 20 updates done: in the backward pass"


class Pages:
    """The pages of this machine's ranks, made by their parent.

    Args:
        path: what ``create`` has returned ``path`` of.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def create(cls, folder: Path, ranks: int) -> "Pages":
        """Pages for ranks 0 to ``ranks`` - 1: in memory on Linux, elsewhere in a file in ``folder``.

        Memory has no name, so nothing is left behind by a parent that is killed, and no disk can make a note slow.
        """
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create(_NAME)
            pages = cls(f"/proc/{os.getpid()}/fd/{descriptor}", descriptor)
        else:
            path = folder / _NAME
            pages = cls(str(path), os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        blank = _HEAD.pack(0, 0, 0) + NOT_STARTED.encode()
        os.pwrite(pages.descriptor, blank.ljust(_PAGE_BYTES, b"\0") * ranks, 0)
        return pages

    @classmethod
    def open(cls, path: str) -> "Pages":
        """The pages that another process has made."""
        return cls(path, os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0)))

    def read(self, rank: int) -> Place:
        content = os.pread(self.descriptor, _PAGE_BYTES, rank * _PAGE_BYTES)
        moves, process, waits = _HEAD.unpack_from(content)
        text = content[_HEAD.size :].rstrip(b"\0").decode("utf-8", errors="replace")
        return Place(moves, process, bool(waits), text)

    def close(self) -> None:
        os.close(self.descriptor)


def pages_of(process: int) -> Optional[Pages]:
    """The pages of a running command by its process id, or None if it has none (Linux): for a look at it from
    outside."""
    for entry in os.listdir(f"/proc/{process}/fd"):
        path = f"/proc/{process}/fd/{entry}"
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(path).startswith(f"/memfd:{_NAME}"):
                return Pages.open(path)
    return None


class _Notes:
    """This process's own notes."""

    def __init__(self) -> None:
        self.descriptor = -1  # of its pages; negative: kept in this process only
        self.start = 0
        self.process = 0
        self.moves = 0
        self.main = NOT_STARTED
        self.detail = ""
        self.waits = 0
        self.listener: Optional[Callable[[str, bool], None]] = None

    def write(self) -> None:
        self.moves += 1
        if self.descriptor >= 0:
            text = f"{self.main}: {self.detail}" if self.detail else self.main
            # Text first cut, then filled: what an earlier, longer note has left must not show behind it.
            content = text.encode("utf-8", "replace")[:_LONGEST].ljust(_LONGEST, b"\0")
            os.pwrite(self.descriptor, _HEAD.pack(self.moves, self.process, self.waits) + content, self.start)


_own = _Notes()


def keep(pages: Pages, number: int) -> None:
    """Write this process's notes into page ``number`` from now on."""
    _own.process = os.getpid()
    _own.descriptor, _own.start = pages.descriptor, number * _PAGE_BYTES
    _own.write()


def own() -> Place:
    """What this process has noted last."""
    text = f"{_own.main}: {_own.detail}" if _own.detail else _own.main
    return Place(_own.moves, _own.process, bool(_own.waits), text)


def note(text: str) -> None:
    """Note where this process is now."""
    _own.main, _own.detail, _own.waits = text, "", 0
    _own.write()


def detail(text: str, may_wait: bool = False) -> None:
    """Note what this process does at its place, replacing the last detail; "" for none in particular.

    Args:
        may_wait: it may wait there for other ranks.
    """
    _own.detail, _own.waits = text, int(may_wait)
    _own.write()
    if _own.listener is not None:
        _own.listener(text, False)


def listen(listener: Optional[Callable[[str, bool], None]]) -> None:
    """From now on call ``listener(detail, whether this process waits for other ranks)`` when either changes; None: end
    that."""
    _own.listener = listener


def move() -> None:
    """Note that something has moved here. May be called from any thread."""
    _own.moves += 1
    if _own.descriptor >= 0:
        os.pwrite(_own.descriptor, _MOVES.pack(_own.moves), _own.start)


@contextlib.contextmanager
def at(text: str) -> Iterator[None]:
    """A detail for as long as the context lasts; the one before comes back."""
    before = _own.detail
    detail(text)
    try:
        yield
    finally:
        detail(before)


@contextlib.contextmanager
def waiting_for_ranks() -> Iterator[None]:
    """This process waits for other ranks, which may take as long as they do."""
    _note_waiting(1)
    try:
        yield
    finally:
        _note_waiting(0)


@contextlib.contextmanager
def waiting_for_device() -> Iterator[None]:
    """This process waits for its device, which may wait in an exchange for those of other ranks."""
    before = _own.detail
    detail("waiting for its device", may_wait=True)
    try:
        yield
    finally:
        detail(before)


def _note_waiting(waits: int) -> None:
    _own.waits = waits
    if _own.descriptor >= 0:
        os.pwrite(_own.descriptor, _WAITS.pack(waits), _own.start + _WAITS_AT)
    move()
    if _own.listener is not None:
        _own.listener(_own.detail, bool(waits))
