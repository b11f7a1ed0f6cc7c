"""Ranks that are threads of this process, for what exchanges values and neither trains nor starts processes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from paddlevit_dist.core.distributed import collectives, world
from paddlevit_dist.core.launch import status


@contextlib.contextmanager
def acting_as(rank: int, size: int, channel: Any = None) -> Iterator[None]:
    """Let this process be a rank among ``size``, which exchanges values by ``channel``, if at all."""
    with _placed(lambda: (rank, size), channel):
        yield


@contextlib.contextmanager
def _placed(place: Callable[[], tuple[int, int]], channel: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "place", place)
        patch.setattr(collectives, "_channel", channel)
        yield


class ThreadRanks:
    """Ranks that call a function together; ``paddlevit_dist.core.distributed`` exchanges host values between them.

    It takes the place of ``StoreChannel``: messages are packed, signed and read as between processes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._own = threading.local()
        self._messages: list[Any] = [b""] * size

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """Call a function in each rank with its number, and return the results, or raise the first rank's error."""
        self._gate = threading.Barrier(self._size, timeout=60)

        def call(rank: int) -> Any:
            self._own.rank, self._own.exchanges = rank, 0
            try:
                return function(rank)
            except BaseException:
                self._gate.abort()  # the others do not wait for this one
                raise

        place = _placed(lambda: (getattr(self._own, "rank", 0), self._size), self)
        with place, status.during("on ranks that are threads"), ThreadPoolExecutor(self._size) as pool:
            calls = [pool.submit(call, rank) for rank in range(self._size)]
        errors = [error for error in (done.exception() for done in calls) if error is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return [done.result() for done in calls]

    @property
    def exchanges(self) -> int:
        return self._own.exchanges

    @exchanges.setter
    def exchanges(self, number: int) -> None:
        self._own.exchanges = number

    def exchange(self, message: bytes | memoryview, read: Callable[[int, Any], Any]) -> list[Any]:
        self._messages[self._own.rank] = np.frombuffer(message, np.uint8).copy()
        self._gate.wait()
        values = [read(rank, part) for rank, part in enumerate(self._messages)]
        self._gate.wait()
        return values

    def count_requests(self) -> tuple[int, int]:
        return 0, 0  # to stop, and to save

    def wait_for_all(self, timeout: float | None = None) -> None:
        self._gate.wait(timeout)
