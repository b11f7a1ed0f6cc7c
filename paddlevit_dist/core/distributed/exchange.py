"""Waiting for ranks and exchanging messages between them.

On CPUs, a gloo collective fails after 30 seconds if one rank is late. So ranks first wait at the group's store, where
there is no time limit.
"""

import contextlib
import json
import multiprocessing.util
import os
import secrets
import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from ..launch import rendezvous, secret, status
from ..launch.failures import PeerGone
from ..launch.lock import find_start
from ..launch.secret import key_name
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.transfers import read, to_device

Message = bytes | memoryview
Reader = Callable[[int, Any], Any]  # takes a rank and its message, a buffer that is valid during the call only

_PREFIX = "paddlevit_dist/"
_NUMBER = struct.Struct("<q")


class StoreChannel:
    """Channel between ranks: they wait at the group's key-value ``store``, and ``paddle.distributed`` carries messages.

    Rank 0 of ``size`` serves the store. A wait may last for hours. Every rank must call the same methods in the same
    order.
    """

    _FRAME_BYTES = 1024  # size of the first frame that each rank sends in an exchange
    _SAVE = 1 << 32  # a request to save adds this to the counter of requests to stop
    _CHECK_SECONDS = 1.0  # between checks that missing ranks of this machine are alive
    _LEAVE_SECONDS = 5.0

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store, self._rank, self._size = store, rank, size
        self.exchanges = 0  # of values, so far
        self._meetings = self._waited_in = 0
        self._posted = 0
        self._processes: list[str] = []  # ``this_process`` of all ranks, after the first barrier
        if not rendezvous.has_met():
            rendezvous.send_small_messages_at_once()
            self._begin_session()
        self.store.set(self._process_key(self._rank), this_process())
        # Processes that ``multiprocessing`` starts call no other exit handlers.
        multiprocessing.util.Finalize(None, self.leave, exitpriority=0)

    def _begin_session(self) -> None:
        """Agree on a session in a user's own program, under store keys that only ranks with the same secret know."""
        if self._rank == 0:
            secret.print_missing_protection()
        self.store.set(f"{_PREFIX}hello/{self._rank}", json.dumps([secret.fingerprint(), secrets.token_hex(16)]))
        self.store.add(f"{_PREFIX}came", 1)
        with status.waiting_for_ranks():
            while self.store.add(f"{_PREFIX}came", 0) < self._size:
                time.sleep(0.01)
        hellos = [json.loads(self.store.get(f"{_PREFIX}hello/{rank}")) for rank in range(self._size)]
        fingerprint = secret.fingerprint()
        others = {rank: theirs for rank, (theirs, _) in enumerate(hellos) if theirs != fingerprint}
        if others:
            raise UserError(secret.describe_mismatch(self._rank, others))
        secret.begin_session(*(nonce for _, nonce in hellos))

    def _ask_store(self, method: str, *arguments: object) -> Any:
        """Call a method of the store with signals blocked: Paddle takes an interrupted call for a lost connection."""
        with signals.blocked():
            return getattr(self.store, method)(*arguments)

    def _add(self, name: str, number: int) -> int:
        return self._ask_store("add", key_name(_PREFIX + name), number)

    def post(self, number: int) -> None:
        """Publish a number to all ranks, replacing the previous one; rank 0 only."""
        self._add("board", number - self._posted)
        self._posted = number

    def posted(self) -> int:
        """Return the last number that rank 0 published; 0 before the first."""
        return self._add("board", 0)

    def send_request(self, stop: bool) -> None:
        """Send all ranks a request to stop, or to save. Any rank may call this at any time."""
        self._add("asked", 1 if stop else self._SAVE)

    def count_requests(self) -> tuple[int, int]:
        """Return how often ranks were asked to stop, and to save."""
        saves, stops = divmod(self._add("asked", 0), self._SAVE)
        return stops, saves

    @staticmethod
    def _process_key(rank: int) -> str:
        return key_name(f"{_PREFIX}process/{rank}")

    def leave(self) -> None:
        """Keep rank 0, which serves the store, alive for up to 5 seconds until the other ranks have left."""
        deadline = time.monotonic() + self._LEAVE_SECONDS
        with contextlib.suppress(RuntimeError, ValueError, OSError):  # the store is closed
            num_left = self._add("left", 1)
            while self._rank == 0 and num_left < self._size and time.monotonic() < deadline:
                if len(self._find_ended()) + 1 >= self._size:
                    return
                time.sleep(0.005)
                num_left = self._add("left", 0)

    def wait_for_all(self, timeout: float | None = None) -> None:
        """Wait until every rank has arrived.

        Raises TimeoutError if some have not within ``timeout`` seconds, and ConnectionError, without a limit, if a rank
        of this machine ended without arriving.
        """
        self._meetings += 1
        expected = self._meetings * self._size  # ranks arrive at the next barrier only after this one is complete
        if self._add("arrived", 1) >= expected:
            return
        self._add(f"waits/{self._rank}", self._meetings - self._waited_in)  # for error messages
        self._waited_in = self._meetings
        started = last_check = time.monotonic()
        with status.waiting_for_ranks():
            while self._add("arrived", 0) < expected:
                now = time.monotonic()
                if timeout is not None and now - started > timeout:
                    raise TimeoutError(
                        f"rank {self._rank} waited {timeout:g} s at a barrier for rank(s) {self._missing()}"
                    )
                if timeout is None and now - last_check > self._CHECK_SECONDS:
                    last_check = now
                    self._check_missing(expected)
                time.sleep(min(max(0.0001, (now - started) / 32), 0.05))

    def _missing(self) -> list[int]:
        return [rank for rank in range(self._size) if self._add(f"waits/{rank}", 0) < self._meetings]

    def _find_ended(self) -> list[int]:
        """Return the ranks of this machine whose process has ended after the first barrier."""
        if self._meetings > 1 and not self._processes:
            self._processes = [self._ask_store("get", self._process_key(rank)).decode() for rank in range(self._size)]
        return [rank for rank, process in enumerate(self._processes) if has_ended(process)]

    def _check_missing(self, expected: int) -> None:
        ended = self._find_ended()
        ended = [rank for rank in ended if rank in self._missing()]
        if ended and self._add("arrived", 0) < expected:  # a rank may have arrived before it ended
            raise PeerGone(f"rank {self._rank} waits at a barrier for rank(s) {ended}, whose process has ended")

    def exchange(self, message: Message, read: Reader) -> list[Any]:
        """Send ``message`` to all ranks and return ``read`` of every rank's message, in rank order.

        One gather carries short messages in frames of 1,024 bytes; longer ones need a second gather. ``read`` is called
        with a rank and its message, a buffer that is valid during the call only.
        """
        self.wait_for_all()
        inline_bytes = self._FRAME_BYTES - _NUMBER.size
        frames = self._gather(_NUMBER.pack(len(message)) + message[:inline_bytes], self._FRAME_BYTES)
        lengths = [_NUMBER.unpack_from(frame)[0] for frame in frames]
        if max(lengths) <= inline_bytes:
            parts = [frame[_NUMBER.size :] for frame in frames]
        else:
            parts = self._gather(message, max(lengths))
        return [read(rank, part[:length]) for rank, (part, length) in enumerate(zip(parts, lengths, strict=True))]

    def _gather(self, content: Message, size: int) -> list[np.ndarray]:
        """Gather every rank's bytes, padded to ``size``, as uint8 arrays ``(size,)``; the host waits for a GPU once."""
        payload = np.frombuffer(content, dtype=np.uint8)
        if len(content) < size:
            payload = np.concatenate([payload, np.zeros(size - len(content), dtype=np.uint8)])
        gathered: list[paddle.Tensor] = []
        dist.all_gather(gathered, to_device(payload))
        del gathered[self._rank]  # equals payload
        others = read(*gathered)
        return [*others[: self._rank], payload, *others[self._rank :]]


def this_process() -> str:
    """Identify this process: boot id, PID namespace, process id and start time; empty if unknown (not Linux)."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')} {os.getpid()} {find_start(os.getpid())}"
    except OSError:
        return ""


def has_ended(described: str) -> bool:
    """Return whether a process of this machine and container, as ``this_process`` describes it, has ended."""
    if not described:
        return False
    *place, process, start = described.split(" ")
    return place == this_process().split(" ")[:2] and str(find_start(int(process))) != start
