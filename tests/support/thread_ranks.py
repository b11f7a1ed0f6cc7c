"""Ranks that are threads of this process, for what gathers values and neither trains nor starts processes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


class ThreadRanks:
    """Ranks that call a function together; its methods stand in for the functions of ``paddlevit_dist.distributed``."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._own = threading.local()
        self._values: list[Any] = [None] * size

    def rank(self) -> int:
        return self._own.rank

    def world_size(self) -> int:
        return self._size

    def all_gather(self, value: object) -> list[Any]:
        self._values[self._own.rank] = value
        self._gate.wait()
        values = list(self._values)
        self._gate.wait()
        return values

    def reduce_dict(self, values: dict[str, float], average: bool = True) -> dict[str, float]:
        gathered = {name: self.all_gather(value) for name, value in values.items()}
        sums = {name: sum(of_ranks) for name, of_ranks in gathered.items()}
        return {name: total / self._size for name, total in sums.items()} if average else sums

    def run(self, function: Callable[[int], Any]) -> list[Any]:
        """Call a function in each rank with its number, and return the results, or raise the first rank's error."""
        self._gate = threading.Barrier(self._size, timeout=60)

        def call(rank: int) -> Any:
            self._own.rank = rank
            try:
                return function(rank)
            except BaseException:
                self._gate.abort()  # the others do not wait for this one
                raise

        with ThreadPoolExecutor(self._size) as pool:
            calls = [pool.submit(call, rank) for rank in range(self._size)]
        errors = [error for error in (done.exception() for done in calls) if error is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return [done.result() for done in calls]
