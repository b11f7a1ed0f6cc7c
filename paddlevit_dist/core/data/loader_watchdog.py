"""Watches over loader processes: one that died or stopped ends the run, which would wait for its batch forever."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..distributed import rank, world_size
from ..launch import status
from ..launch.failures import end_process, explain_kill
from ..launch.watchdog import ProcessInfo
from ..runtime import process_exit, signals

_SLOW_SECONDS = 20.0


def abandon(batches: Any) -> None:
    """End loader processes, and another thread's wait for them, without waiting for samples in progress."""
    batches._thread_done_event.set()
    for worker in list_workers(batches):
        worker.kill()
    queue = batches._blocking_queue
    if queue is not None:
        queue.close()
    if not list_workers(batches) and batches._thread is not None:  # otherwise already abandoned
        process_exit.leave_running(batches._thread)  # may be in native code, or in a slow sample
        batches._thread = None


def list_workers(batches: Any) -> Sequence[Any]:
    """Return the processes of an iterator of Paddle; none if a thread reads the data."""
    return getattr(batches, "_workers", [])


def describe_dead(workers: Sequence[Any], are_due: bool) -> str:
    """Describe loader processes that ended prematurely, unless with code 0 and no batches ``are_due``; may be empty."""
    codes = {worker.pid: worker.exitcode for worker in workers}
    dead = {pid: code for pid, code in codes.items() if code or (code == 0 and are_due)}
    if not dead:
        return ""
    if not any(dead.values()):
        meaning = "code 0: the dataset's code, or a library that it uses, has called os._exit"
    else:
        meaning = f"a negative code is a signal; -9: {explain_kill()}; -7: /dev/shm may be full"
    processes = ", ".join(f"process {pid} with exit code {code}" for pid, code in dead.items())
    return f"loader {processes} ended while batches were due ({meaning})"


class LoaderWatchdog:
    """Ends this process if a worker has died or a batch of Paddle's iterator takes longer than ``seconds``.

    Paddle's ``timeout`` does not notice a stopped worker. The waiting thread is inside Paddle's queue and cannot be
    interrupted, so a second thread watches the clock. ``may_leave``: whether a wait ends early once the run is asked to
    stop; then ``has_left`` is true and there are no more batches. ``seconds_between`` its looks at the clock.
    """

    def __init__(self, batches: Any, seconds: float, number: int) -> None:
        self.batches_due = number
        self.may_leave = True
        self.has_left = False
        self.seconds_between = min(1.0, seconds / 4)
        self._batches, self._workers, self._seconds = batches, list_workers(batches), seconds
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._has_logged_slow = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loader watchdog", daemon=True)

    def __enter__(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def __exit__(self, _: object, error: object, __: object) -> bool:
        with self._lock:
            self._deadline = None
        return self.has_left and isinstance(error, Exception)  # Paddle may have raised any exception

    def start(self) -> None:
        """Watch from now on, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching and drop references to the loader, so that the caller's thread destroys it."""
        self._stopped.set()
        self._thread.join()
        self._batches, self._workers = None, ()

    def _watch(self) -> None:
        while not self._stopped.wait(self.seconds_between):
            self.look()
            if self.has_left:
                return

    def look(self) -> None:
        """Look at the wait that is under way, if there is one: leave it, end this process, or note that it is alive."""
        deadline = self._deadline
        if deadline is None:
            return
        if self.may_leave and signals.stop_reason() is not None:
            self._leave()
            return
        reason = describe_dead(self._workers, self.batches_due > 0)
        if reason:
            end_process(reason)
        status.move()  # this watchdog has its own limit; the run's watchdog only needs a sign of life
        self._log_slow(deadline)
        if time.monotonic() > deadline:
            states = ", ".join(
                f"{worker.pid} {ProcessInfo.read(worker.pid).state or 'gone'}" for worker in self._workers
            )
            end_process(
                f"no batch arrived for {self._seconds:g} s (DATA.LOADER_TIMEOUT_SECONDS); "
                f"loader processes: {states or 'none, a thread reads the data'}"
            )

    def _leave(self) -> None:
        with self._lock:
            if self._deadline is not None:
                self.has_left = True
                abandon(self._batches)

    def _log_slow(self, deadline: float) -> None:
        """Log once that this rank delays the others."""
        waited = self._seconds - (deadline - time.monotonic())
        if self._has_logged_slow or waited < _SLOW_SECONDS or world_size() == 1:
            return
        self._has_logged_slow = True
        print(
            f"note: rank {rank()} has been waiting for a batch for {waited:.0f} s, and the other ranks for this one "
            "(use faster storage, more DATA.NUM_WORKERS or smaller samples)",
            file=sys.stderr,
            flush=True,
        )
