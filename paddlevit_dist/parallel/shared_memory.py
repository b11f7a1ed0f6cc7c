"""How ranks on one machine wait for one another and exchange messages: through memory, with no server in between."""

from __future__ import annotations

import contextlib
import mmap
import os
import secrets
import struct
import time
from typing import Any, List, NamedTuple, Optional

from . import places, world
from .failures import PeerGone
from .network import Message, Network, Reader, late
from .secret import key_name


class SharedMemory:
    """A small piece of memory per rank that all others read (Linux). Same methods as ``Network``.

    It starts with the number of meetings this rank has reached, followed by two message slots used alternately: the
    meeting in between guarantees that everyone has read a slot before it is overwritten. A message too long for its
    slot gets its own memory for one exchange, which ends with a second meeting.

    None of it has a name in a file system: the kernel frees it with the last process that has it open, however that
    process ends. It is accessed by system calls rather than mapped: they preserve the order of writes as seen by other
    cores, and turn a lack of memory into an error instead of a signal.
    """

    _ARRIVED = struct.Struct("<q")
    _HEADER = struct.Struct("<qqq")  # meeting, length of the message, where it is
    _IN_SLOT, _NO_ROOM = -1, -2  # where it is, if not a descriptor number of the writer's
    _SLOTS_AT = 4096
    _SLOT_BYTES = 16 * 1024
    _TOKEN_AT = 64
    _BOARD = struct.Struct("<q")
    _BOARD_AT = 128
    _CHECK_SECONDS = 1.0  # between checks that an awaited rank is still alive

    @classmethod
    def of_group(cls, network: Network) -> Optional["SharedMemory"]:
        """The memory of all ranks, or None, on every rank alike, unless all can read all. Every rank must call this.

        The offers go through the group's store, so nothing passes through ``paddle.distributed``.
        """
        rank, size, store = world.rank(), world.world_size(), network.store
        with contextlib.ExitStack() as opened:
            own, offer = -1, "none"
            with contextlib.suppress(OSError):
                own = _new_memory()
                opened.callback(os.close, own)
                token = secrets.token_hex(16)  # a process on another machine may have the same numbers
                os.pwrite(own, token.encode(), cls._TOKEN_AT)
                offer = f"{os.getpid()} {own} {token}"
            store.set(key_name(f"paddlevit_dist/memory/{rank}"), offer)
            network.wait_for_all()
            offers = [store.get(key_name(f"paddlevit_dist/memory/{other}")).decode() for other in range(size)]
            memories = cls._open_offers(offers, opened)
            store.add(key_name("paddlevit_dist/memory/readable"), int(len(memories) == size))
            network.wait_for_all()
            if store.add(key_name("paddlevit_dist/memory/readable"), 0) < size:
                return None
            opened.pop_all()  # they stay open for the lifetime of the process
        return cls(network, own, memories)

    @classmethod
    def _open_offers(cls, offers: List[str], opened: contextlib.ExitStack) -> List["_Memory"]:
        """The memory of each offer, up to the first that cannot be read."""
        memories: List[_Memory] = []
        with contextlib.suppress(OSError):
            for offer in offers:
                if offer == "none":
                    break
                process, descriptor, token = offer.split()
                memory = _open_of(int(process), int(descriptor))
                opened.callback(os.close, memory)
                if os.pread(memory, len(token), cls._TOKEN_AT) != token.encode():
                    break
                memories.append(_Memory(memory, int(process), int(descriptor)))
        return memories

    def __init__(self, network: Network, own: int, memories: List["_Memory"]) -> None:
        self.network = network  # for what does not fit
        self._rank = world.rank()
        self._own = own
        self._memories = memories
        self._meetings = 0

    def post(self, number: int) -> None:
        """Publish a number to all ranks, replacing the last one. Main process only."""
        os.pwrite(self._own, self._BOARD.pack(number), self._BOARD_AT)

    def posted(self) -> int:
        """The last number published by the main process; 0 before the first."""
        content = os.pread(self._memories[0].readable, self._BOARD.size, self._BOARD_AT)
        return self._BOARD.unpack(content.ljust(self._BOARD.size, b"\0"))[0]

    def wait_for_all(self, timeout: Optional[float] = None) -> None:
        """Return once every rank has arrived.

        Raises:
            TimeoutError: some did not arrive within ``timeout`` seconds.
            ConnectionError: no timeout was given, and a rank ended without arriving.
        """
        self._meetings += 1
        os.pwrite(self._own, self._ARRIVED.pack(self._meetings), 0)
        missing = self._missing(list(range(len(self._memories))))
        if missing:
            with places.waiting_for_ranks():
                self._wait_for(missing, timeout)

    def _wait_for(self, missing: List[int], timeout: Optional[float]) -> None:
        started = last_check = time.monotonic()
        while True:
            missing = self._missing(missing)
            if not missing:
                return
            now = time.monotonic()
            if timeout is not None and now - started > timeout:
                raise late(self._rank, timeout, missing)
            if timeout is None and now - last_check > self._CHECK_SECONDS:
                last_check = now
                self._see_that_they_live(missing)
            # Whoever waits is held up by one or two percent of its wait, not by a third as with pauses that double.
            time.sleep(min(max(0.00002, (now - started) / 64), 0.01))

    def _missing(self, ranks: List[int]) -> List[int]:
        return [rank for rank in ranks if self._arrived(rank) < self._meetings]

    meet = wait_for_all  # as cheap as it gets

    def _arrived(self, rank: int) -> int:
        return self._ARRIVED.unpack(os.pread(self._memories[rank].readable, self._ARRIVED.size, 0).ljust(8, b"\0"))[0]

    def _see_that_they_live(self, ranks: List[int]) -> None:
        # A process that has ended has no open files, even before its parent collects its exit code.
        ended = [rank for rank in ranks if not os.path.lexists(_path_of(*self._memories[rank][1:]))]
        ended = [rank for rank in ended if self._arrived(rank) < self._meetings]  # its last act may have been to arrive
        if ended:
            raise PeerGone(f"rank {self._rank} waits at a barrier for rank(s) {ended}, whose process has ended")

    def exchange(self, message: Message, read: Reader) -> List[Any]:
        """``read`` applied to every rank's message, in rank order."""
        meeting = self._meetings + 1
        place = self._SLOTS_AT + meeting % 2 * self._SLOT_BYTES
        with contextlib.ExitStack() as until_all_have_read:
            if len(message) <= self._SLOT_BYTES - self._HEADER.size:
                where, inline = self._IN_SLOT, message
            else:
                where, inline = self._keep_long_message(message, until_all_have_read), memoryview(b"")
            os.pwrite(self._own, self._HEADER.pack(meeting, len(message), where) + inline, place)
            self.wait_for_all()
            slots = [os.pread(memory.readable, self._SLOT_BYTES, place) for memory in self._memories]
            headers = [self._HEADER.unpack_from(slot) for slot in slots]
            if any(header[0] != meeting for header in headers):
                raise RuntimeError("the ranks did not call the same collectives in the same order")
            places = [where for _, _, where in headers]
            if self._NO_ROOM in places:
                return self.network.exchange(message, read)
            try:
                return [
                    self._read_long_message(rank, where, length, read)
                    if where != self._IN_SLOT
                    else read(memoryview(slots[rank])[self._HEADER.size : self._HEADER.size + length])
                    for rank, (_, length, where) in enumerate(headers)
                ]
            finally:
                if any(where != self._IN_SLOT for where in places):
                    self.wait_for_all()

    def _keep_long_message(self, message: Message, until_all_have_read: contextlib.ExitStack) -> int:
        """Put a message into its own memory; return the descriptor, or ``_NO_ROOM``."""
        try:
            memory = _new_memory()
            until_all_have_read.callback(os.close, memory)
            rest = memoryview(message)
            while rest:
                rest = rest[os.write(memory, rest) :]
        except OSError:
            return self._NO_ROOM
        return memory

    def _read_long_message(self, rank: int, descriptor: int, length: int, read: Reader) -> Any:
        memory = _open_of(self._memories[rank].process, descriptor)
        try:
            with mmap.mmap(memory, length, prot=mmap.PROT_READ) as content:
                return read(content)
        finally:
            os.close(memory)


class _Memory(NamedTuple):
    """One rank's memory."""

    readable: int  # descriptor in this process
    process: int
    descriptor: int  # in that process


_NAME = "paddlevit_dist"
_FOLDER = "/dev/shm"


def _new_memory() -> int:
    """A descriptor for new, unnamed memory.

    Raises:
        OSError: this system has none to give.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create(_NAME)
    if hasattr(os, "O_TMPFILE"):  # Linux too, but this Python was built for an old C library
        return os.open(_FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    raise OSError("this system has no files in memory")


def _path_of(process: int, descriptor: int) -> str:
    return f"/proc/{process}/fd/{descriptor}"


def _open_of(process: int, descriptor: int) -> int:
    """Open another process's memory for reading.

    Raises:
        OSError: this system does not allow it, or it is something else, e.g. because the process is on another machine.
    """
    path = _path_of(process, descriptor)
    target = os.readlink(path)
    if not target.startswith((f"/memfd:{_NAME}", f"{_FOLDER}/#")):
        raise OSError(f"{path} is {target}")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
