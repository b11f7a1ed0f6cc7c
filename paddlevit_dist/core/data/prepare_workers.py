"""Preparation of many images or scenes in several processes that end together, with a progress bar."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ..launch.stale_resources import named_semaphores
from ..runtime import process_exit, signals
from ..runtime.errors import UserError
from ..runtime.printing import hide_known_warnings

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

_stopping: "Event | None" = None  # in a worker: an event that is set to stop at the next item


class PreparationStopped(Exception):
    """The work was interrupted; discard the current item."""


def check_stop() -> None:
    """Raise PreparationStopped if the work was interrupted; a worker calls this before each item."""
    if _stopping is not None and _stopping.is_set():
        raise PreparationStopped


def work(
    function: Callable[..., Any],
    jobs: Iterable[tuple[int, tuple]],
    workers: int,
    total: int,
    label: str,
    unit: str = "image",
) -> Iterator[Any]:
    """Yield ``function(*arguments)`` for every job ``(items, arguments)``, in the order in which jobs finish.

    An exception in a job, or Ctrl-C, ends the other jobs at their next item. Raises UserError if a process was killed.
    ``function`` can be pickled; ``total`` items, called ``unit``, are in the progress bar.
    """
    context = multiprocessing.get_context("spawn")  # tqdm has a thread, whose locks a fork would copy in any state
    with named_semaphores():
        stopping = context.Event()
        pool = ProcessPoolExecutor(workers, context, start_worker, (stopping, os.getpid()))
    done = False
    try:
        with tqdm(total=total, desc=label, unit=unit, disable=None, leave=False) as bar:
            with signals.blocked():  # the processes inherit it until they ignore signals
                pending = {pool.submit(function, *arguments): items for items, arguments in jobs}
            for future in as_completed(pending):
                result = future.result()
                bar.update(pending[future])
                yield result
        done = True
    except BrokenProcessPool as error:
        raise UserError(
            "a preparation process was killed, perhaps because memory ran out; run the same command with fewer "
            "--workers to continue"
        ) from error
    finally:
        if not done:
            stopping.set()
        with _hold_interrupts():
            pool.shutdown(wait=True, cancel_futures=not done)


def start_worker(stopping: "Event", parent: int) -> None:
    """Prepare a process of the pool."""
    global _stopping
    _stopping = stopping
    hide_known_warnings()
    signals.ignore_all()  # the main process handles them
    process_exit.die_with_parent(parent)


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C, so that no processes stay behind: they end within one item."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def spans(total: int, size: int) -> list[tuple[int, int]]:
    """Return ``(first, end)`` of consecutive ranges of at most ``size`` items."""
    return [(first, min(first + size, total)) for first in range(0, total, size)]
