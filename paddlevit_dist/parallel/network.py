"""How ranks on several machines wait for one another and exchange messages."""

from __future__ import annotations

import struct
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import numpy as np
import paddle
import paddle.distributed as dist

from . import entrance, places, world
from .secret import key_name

Message = Union[bytes, memoryview]
Reader = Callable[[Any], Any]  # takes a message as a buffer that is only valid during the call


def late(rank: int, timeout: float, missing: List[int]) -> TimeoutError:
    """The error a rank raises once it has waited long enough."""
    return TimeoutError(f"rank {rank} waited {timeout:g} s at a barrier for rank(s) {missing}")


class Network:
    """Waits on the group's key-value store, served by rank 0; ``paddle.distributed`` carries the messages.

    A wait on the store may last for hours, whereas a gloo collective gives up after 30 seconds. Every rank must call
    the same methods in the same order.
    """

    _FRAME_BYTES = 1024  # every exchange starts with one frame of this size per rank
    _LENGTH = struct.Struct("<q")
    _BOARD = "paddlevit_dist/board"
    _ASKED = "paddlevit_dist/asked"
    _SAVE = 1 << 32  # what a request to save adds to the number of requests to stop
    _MEETINGS = "paddlevit_dist/meetings"
    _RANKS_PER_COUNTER = 60  # an int64 in the store holds one bit for each of these

    def __init__(self) -> None:
        self.store = paddle.base.core.create_or_get_global_tcp_store()
        self._rank, self._size = world.rank(), world.world_size()
        entrance.meet(self.store, self._rank, self._size)  # unless it has when it joined
        self._barriers_entered = 0
        self._meetings = 0
        self._posted = 0

    def post(self, number: int) -> None:
        """Publish a number to all ranks, replacing the last one. Main process only."""
        self.store.add(key_name(self._BOARD), number - self._posted)
        self._posted = number

    def posted(self) -> int:
        """The last number published by the main process; 0 before the first."""
        return self.store.add(key_name(self._BOARD), 0)

    def ask(self, stop: bool) -> None:
        """Ask all ranks to stop, or to save. Any rank may, at any time."""
        self.store.add(key_name(self._ASKED), 1 if stop else self._SAVE)

    def asked(self) -> Tuple[int, int]:
        """How often ranks were asked to stop, and to save."""
        saves, stops = divmod(self.store.add(key_name(self._ASKED), 0), self._SAVE)
        return stops, saves

    def wait_for_all(self, timeout: Optional[float] = None) -> None:
        """Return once every rank has arrived; TimeoutError after ``timeout`` seconds."""
        self._barriers_entered += 1
        own_counter, own_bit = divmod(self._rank, self._RANKS_PER_COUNTER)
        arrived = {own_counter: self.store.add(self._counter_name(own_counter), 1 << own_bit)}
        if self._missing_ranks(arrived):
            with places.waiting_for_ranks():
                self._wait_for_arrivals(arrived, timeout)

    def _wait_for_arrivals(self, arrived: Dict[int, int], timeout: Optional[float]) -> None:
        started, pause = time.monotonic(), 0.0002
        while True:
            missing = self._missing_ranks(arrived)
            if not missing:
                return
            # A counter not read yet does not mean that a rank is late.
            counter = missing[0] // self._RANKS_PER_COUNTER
            if counter in arrived:
                if timeout is not None and time.monotonic() - started > timeout:
                    raise late(self._rank, timeout, missing)
                time.sleep(pause)
                pause = min(pause * 1.5, 0.05)
            # Adding 0 reads the counter; unlike the store's `wait` it returns at once and so respects our timeout.
            arrived[counter] = self.store.add(self._counter_name(counter), 0)

    def meet(self) -> None:
        """As ``wait_for_all``, with one request to the store where all are there, and without a new entry in it: for
        every update of a training that lasts for weeks."""
        self._meetings += 1
        expected = self._meetings * self._size  # nobody adds to it for the next meeting before this one is complete
        if self.store.add(key_name(self._MEETINGS), 1) >= expected:
            return
        with places.waiting_for_ranks():
            started = time.monotonic()
            while self.store.add(key_name(self._MEETINGS), 0) < expected:
                time.sleep(min(max(0.0001, (time.monotonic() - started) / 32), 0.05))

    def _counter_name(self, number: int) -> str:
        return key_name(f"paddlevit_dist/barrier/{self._barriers_entered}/{number}")

    def _missing_ranks(self, arrived: Dict[int, int]) -> List[int]:
        per_counter = self._RANKS_PER_COUNTER
        return [r for r in range(self._size) if not arrived.get(r // per_counter, 0) >> (r % per_counter) & 1]

    def exchange(self, message: Message, read: Reader) -> List[Any]:
        """``read`` applied to all ranks' messages, in rank order: one gather of small frames, another for long ones."""
        self.wait_for_all()
        inline_bytes = self._FRAME_BYTES - self._LENGTH.size
        frames = self._gather(self._LENGTH.pack(len(message)) + message[:inline_bytes], self._FRAME_BYTES)
        lengths = [self._LENGTH.unpack_from(frame)[0] for frame in frames]
        if max(lengths) <= inline_bytes:
            start = self._LENGTH.size
            return [read(frame[start : start + length]) for frame, length in zip(frames, lengths)]
        return [read(part[:length]) for part, length in zip(self._gather(message, max(lengths)), lengths)]

    @staticmethod
    def _gather(content: Message, size: int) -> List[np.ndarray]:
        """Every rank's bytes, padded to ``size``, as uint8 arrays ``(size,)``."""
        payload = np.frombuffer(content, dtype=np.uint8)
        if len(content) < size:
            payload = np.concatenate([payload, np.zeros(size - len(content), dtype=np.uint8)])
        gathered: List[paddle.Tensor] = []
        dist.all_gather(gathered, paddle.to_tensor(payload))
        return [tensor.numpy() for tensor in gathered]
