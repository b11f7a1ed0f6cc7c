"""How ranks wait for one another and exchange messages: on one machine through memory, otherwise over the network.

On CPUs a collective of gloo fails after 30 seconds if one rank is late, and on GPUs it would wait for the device. So
ranks first wait where they may for as long as it takes, and exchange objects through memory where all can read it.
"""

import contextlib
import json
import mmap
import os
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.distributed as dist

from ..runtime.errors import UserError
from . import joining, secret, status, world
from .failures import PeerGone
from .secret import key_name

Message = bytes | memoryview
Reader = Callable[[int, Any], Any]  # takes a rank and its message, a buffer that is only valid during the call

_PREFIX = "paddlevit_dist/"
_NUMBER = struct.Struct("<q")


def _late(rank: int, timeout: float, missing: list[int]) -> TimeoutError:
    return TimeoutError(f"rank {rank} waited {timeout:g} s at a barrier for rank(s) {missing}")


class Network:
    """Waits on the group's key-value store, served by rank 0; ``paddle.distributed`` carries the messages.

    A wait on the store may last for hours. Every rank must call the same methods in the same order.
    """

    _FRAME_BYTES = 1024  # every exchange starts with one frame of this size per rank
    _SAVE = 1 << 32  # what a request to save adds to the number of requests to stop

    def __init__(self) -> None:
        self.store = paddle.base.core.create_or_get_global_tcp_store()
        self._rank, self._size = world.rank(), world.world_size()
        self._meetings = self._waited_in = 0
        self._posted = 0
        if not joining.has_met():
            joining.send_small_messages_at_once()
            self._begin_session()

    def _begin_session(self) -> None:
        """In a program of the user's own: agree on a session, under names that those with another secret know."""
        if self._rank == 0:
            secret.tell_what_is_missing()
        self.store.set(f"{_PREFIX}hello/{self._rank}", json.dumps([secret.fingerprint(), secrets.token_hex(16)]))
        self.store.add(f"{_PREFIX}came", 1)
        with status.waiting_for_ranks():
            while self.store.add(f"{_PREFIX}came", 0) < self._size:
                time.sleep(0.01)
        hellos = [json.loads(self.store.get(f"{_PREFIX}hello/{rank}")) for rank in range(self._size)]
        others = {rank: shown for rank, (shown, _) in enumerate(hellos) if shown != secret.fingerprint()}
        if others:
            raise UserError(secret.disagreement(self._rank, others))
        secret.begin_session(*(nonce for _, nonce in hellos))

    def _add(self, name: str, number: int) -> int:
        return self.store.add(key_name(_PREFIX + name), number)

    def post(self, number: int) -> None:
        """Publish a number to all ranks, replacing the last one. Main process only."""
        self._add("board", number - self._posted)
        self._posted = number

    def posted(self) -> int:
        """The last number published by the main process; 0 before the first."""
        return self._add("board", 0)

    def ask(self, stop: bool) -> None:
        """Ask all ranks to stop, or to save. Any rank may, at any time."""
        self._add("asked", 1 if stop else self._SAVE)

    def asked(self) -> tuple[int, int]:
        """How often ranks were asked to stop, and to save."""
        saves, stops = divmod(self._add("asked", 0), self._SAVE)
        return stops, saves

    def texts(self, name: str, own: str) -> list[str]:
        """Every rank's text, in rank order, through the store alone."""
        self.store.set(key_name(f"{_PREFIX}{name}/{self._rank}"), own)
        self.wait_for_all()
        return [self.store.get(key_name(f"{_PREFIX}{name}/{rank}")).decode() for rank in range(self._size)]

    def wait_for_all(self, timeout: float | None = None) -> None:
        """Return once every rank has arrived; TimeoutError after ``timeout`` seconds."""
        self._meetings += 1
        expected = self._meetings * self._size  # nobody adds to it for the next meeting before this one is complete
        if self._add("arrived", 1) >= expected:
            return
        self._add(f"waits/{self._rank}", self._meetings - self._waited_in)  # for the message
        self._waited_in = self._meetings
        started = time.monotonic()
        with status.waiting_for_ranks():
            while self._add("arrived", 0) < expected:
                waited = time.monotonic() - started
                if timeout is not None and waited > timeout:
                    missing = [rank for rank in range(self._size) if self._add(f"waits/{rank}", 0) < self._meetings]
                    raise _late(self._rank, timeout, missing)
                time.sleep(min(max(0.0001, waited / 32), 0.05))

    def exchange(self, message: Message, read: Reader) -> list[Any]:
        """``read`` applied to all ranks' messages, in rank order: one gather of small frames, another for long ones."""
        self.wait_for_all()
        inline_bytes = self._FRAME_BYTES - _NUMBER.size
        frames = self._gather(_NUMBER.pack(len(message)) + message[:inline_bytes], self._FRAME_BYTES)
        lengths = [_NUMBER.unpack_from(frame)[0] for frame in frames]
        if max(lengths) <= inline_bytes:
            parts = [frame[_NUMBER.size :] for frame in frames]
        else:
            parts = self._gather(message, max(lengths))
        return [read(rank, part[:length]) for rank, (part, length) in enumerate(zip(parts, lengths, strict=True))]

    @staticmethod
    def _gather(content: Message, size: int) -> list[np.ndarray]:
        """Every rank's bytes, padded to ``size``, as uint8 arrays ``(size,)``."""
        payload = np.frombuffer(content, dtype=np.uint8)
        if len(content) < size:
            payload = np.concatenate([payload, np.zeros(size - len(content), dtype=np.uint8)])
        gathered: list[paddle.Tensor] = []
        dist.all_gather(gathered, paddle.to_tensor(payload))
        return [tensor.numpy() for tensor in gathered]


class _Memory(NamedTuple):
    """One rank's memory."""

    readable: int  # descriptor in this process
    process: int
    descriptor: int  # in that process

    def number(self, at: int) -> int:
        return _NUMBER.unpack(os.pread(self.readable, _NUMBER.size, at).ljust(_NUMBER.size, b"\0"))[0]


class SharedMemory:
    """A small piece of memory per rank that all others read (Linux). Same methods as ``Network``.

    It starts with the number of meetings this rank has reached, followed by two message slots used alternately: the
    meeting in between guarantees that everyone has read a slot before it is overwritten. Behind them is room for a
    message too long for its slot, until a second meeting ends that exchange.

    None of it has a name in a file system: the kernel frees it with the last process that has it open, however that
    process ends. It is accessed by system calls rather than mapped: they preserve the order of writes as seen by other
    cores, and turn a lack of memory into an error instead of a signal.
    """

    _HEADER = struct.Struct("<qq")  # meeting, length of the message
    _ARRIVED_AT, _TOKEN_AT, _BOARD_AT, _SLOTS_AT = 0, 64, 128, 4096
    _SLOT_BYTES = 16 * 1024
    _MOST_IN_SLOT = _SLOT_BYTES - _HEADER.size
    _LONG_AT = 1 << 16  # a multiple of any page
    _CHECK_SECONDS = 1.0  # between checks that an awaited rank is still alive

    @classmethod
    def of_group(cls, network: Network) -> "SharedMemory | None":
        """The memory of all ranks, or None, on every rank alike, unless all can read all. Every rank must call this.

        The offers go through the group's store, so nothing passes through ``paddle.distributed``.
        """
        with contextlib.ExitStack() as opened:
            own, offer = -1, ""
            if hasattr(os, "memfd_create"):
                own = os.memfd_create(_NAME)
                opened.callback(os.close, own)
                token = secrets.token_hex(16)  # a process on another machine may have the same numbers
                os.pwrite(own, token.encode(), cls._TOKEN_AT)
                offer = f"{os.getpid()} {own} {token}"
            offers = network.texts("memory", offer)
            memories: list[_Memory] = []
            with contextlib.suppress(OSError, ValueError):  # not readable, or none offered
                for process, descriptor, token in map(str.split, offers):
                    memory = _Memory(_open_of(int(process), int(descriptor)), int(process), int(descriptor))
                    opened.callback(os.close, memory.readable)
                    if os.pread(memory.readable, len(token), cls._TOKEN_AT) != token.encode():
                        break
                    memories.append(memory)
            if set(network.texts("readable", str(len(memories)))) != {str(len(offers))}:
                return None
            opened.pop_all()  # they stay open for the lifetime of the process
        return cls(own, memories)

    def __init__(self, own: int, memories: list[_Memory]) -> None:
        self._rank = world.rank()
        self._own = own
        self._memories = memories
        self._meetings = 0

    def post(self, number: int) -> None:
        """Publish a number to all ranks, replacing the last one. Main process only."""
        os.pwrite(self._own, _NUMBER.pack(number), self._BOARD_AT)

    def posted(self) -> int:
        """The last number published by the main process; 0 before the first."""
        return self._memories[0].number(self._BOARD_AT)

    def wait_for_all(self, timeout: float | None = None) -> None:
        """Return once every rank has arrived.

        Raises:
            TimeoutError: some did not arrive within ``timeout`` seconds.
            ConnectionError: no timeout was given, and a rank ended without arriving.
        """
        self._meetings += 1
        os.pwrite(self._own, _NUMBER.pack(self._meetings), self._ARRIVED_AT)
        missing = self._missing(list(range(len(self._memories))))
        if missing:
            with status.waiting_for_ranks():
                self._wait_for(missing, timeout)

    def _wait_for(self, missing: list[int], timeout: float | None) -> None:
        started = last_check = time.monotonic()
        while missing := self._missing(missing):
            now = time.monotonic()
            if timeout is not None and now - started > timeout:
                raise _late(self._rank, timeout, missing)
            if timeout is None and now - last_check > self._CHECK_SECONDS:
                last_check = now
                self._see_that_they_live(missing)
            # Whoever waits is held up by one or two percent of its wait, not by a third as with pauses that double.
            time.sleep(min(max(0.00002, (now - started) / 64), 0.01))

    def _missing(self, ranks: list[int]) -> list[int]:
        return [rank for rank in ranks if self._memories[rank].number(self._ARRIVED_AT) < self._meetings]

    def _see_that_they_live(self, ranks: list[int]) -> None:
        # A process that has ended has no open files, even before its parent collects its exit code.
        ended = [rank for rank in ranks if not os.path.lexists(_path_of(*self._memories[rank][1:]))]
        ended = self._missing(ended)  # its last act may have been to arrive
        if ended:
            raise PeerGone(f"rank {self._rank} waits at a barrier for rank(s) {ended}, whose process has ended")

    def exchange(self, message: Message, read: Reader) -> list[Any]:
        """``read`` applied to every rank's message, in rank order."""
        meeting = self._meetings + 1
        slot = self._SLOTS_AT + meeting % 2 * self._SLOT_BYTES
        in_slot, rest, at = message, memoryview(b""), self._LONG_AT
        if len(message) > self._MOST_IN_SLOT:
            in_slot, rest = b"", memoryview(message)
        os.pwrite(self._own, self._HEADER.pack(meeting, len(message)) + in_slot, slot)
        while rest:  # the system writes 2 GiB at a time
            written = os.pwrite(self._own, rest, at)
            rest, at = rest[written:], at + written
        self.wait_for_all()
        slots = [os.pread(memory.readable, self._SLOT_BYTES, slot) for memory in self._memories]
        meetings, lengths = zip(*map(self._HEADER.unpack_from, slots))
        if set(meetings) != {meeting}:
            raise RuntimeError("the ranks did not call the same collectives in the same order")
        try:
            return [
                read(rank, slots[rank][self._HEADER.size :][:length])
                if length <= self._MOST_IN_SLOT
                else self._read_long(rank, length, read)
                for rank, length in enumerate(lengths)
            ]
        finally:
            if max(lengths) > self._MOST_IN_SLOT:
                self.wait_for_all()
                os.ftruncate(self._own, self._LONG_AT)

    def _read_long(self, rank: int, length: int, read: Reader) -> Any:
        where = {"offset": self._LONG_AT, "prot": mmap.PROT_READ}
        with mmap.mmap(self._memories[rank].readable, length, **where) as content:
            return read(rank, content)


_NAME = "paddlevit_dist"


def _path_of(process: int, descriptor: int) -> str:
    return f"/proc/{process}/fd/{descriptor}"


def _open_of(process: int, descriptor: int) -> int:
    """Open another process's memory for reading.

    Raises:
        OSError: this system does not allow it, or it is something else, e.g. because the process is on another machine.
    """
    path = _path_of(process, descriptor)
    target = os.readlink(path)
    if not target.startswith(f"/memfd:{_NAME}"):
        raise OSError(f"{path} is {target}")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
