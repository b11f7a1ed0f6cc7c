"""Work on many images or scenes in several processes that end together, with progress on a terminal."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from tqdm import tqdm

from ..launch.spawn import die_with_parent
from ..launch.stale_resources import named_semaphores
from ..runtime.errors import UserError

_stopping: Any = None  # in a worker: an event that says to stop at the next item


class PreparationStopped(Exception):
    """The work was interrupted; discard what is half done."""


def check_stop() -> None:
    """To be called by a worker before each item.

    Raises:
        Stopped: the whole work is to end.
    """
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
    """Results of ``function(*arguments)`` for every job ``(items, arguments)``, in the order in which they end.

    An exception of a job, or Ctrl-C, ends the others at their next item.

    Args:
        total: items, of which finished jobs count theirs.
        label: of the progress bar.
        unit: what the progress bar calls an item.

    Raises:
        UserError: a process was ended from outside.
    """
    context = multiprocessing.get_context("spawn")  # tqdm has a thread, and a fork copies its locks as they are
    with named_semaphores():
        stopping = context.Event()
        pool = ProcessPoolExecutor(workers, context, _start, (stopping, os.getpid()))
    done = False
    try:
        with tqdm(total=total, desc=label, unit=unit, disable=None, leave=False) as bar:
            with _hold_sigint():
                pending = {pool.submit(function, *arguments): items for items, arguments in jobs}
            for future in as_completed(pending):
                result = future.result()
                bar.update(pending[future])
                yield result
        done = True
    except BrokenProcessPool as error:
        raise UserError(
            "a preparation process was killed, perhaps because memory ran out; use fewer "
            "--workers; the same command continues"
        ) from error
    finally:
        if not done:
            stopping.set()
        with _hold_interrupts():
            pool.shutdown(wait=True, cancel_futures=not done)


def _start(stopping: Any, parent: int) -> None:
    global _stopping
    _stopping = stopping
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process handles it
    die_with_parent(parent)


@contextlib.contextmanager
def _hold_sigint() -> Iterator[None]:
    """Ctrl-C waits until the processes are started; they inherit that it does not reach them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hold_interrupts() -> Iterator[None]:
    """A second Ctrl-C does not leave processes behind: they end within one item."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def spans(total: int, size: int) -> list[tuple[int, int]]:
    """``(first, end)`` of consecutive runs of at most ``size``."""
    return [(first, min(first + size, total)) for first in range(0, total, size)]
