"""Work that a training does not wait for."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Callable, List, Optional

_LOWER_BY = 10  # of nice: a tenth of the time of a processor that a training also wants, all of one that nothing wants


class Background:
    """Does one piece of work after the other in a thread, or each at once where there is to be none.

    On Linux the thread gives way to the training's threads, those of other ranks too, until somebody waits for it: a
    rank that shares its processor with the thread would keep all other ranks waiting in every update.

    Once a piece has failed, those after it are left out until ``take_failure`` is called. The thread is no daemon: the
    interpreter does not end before the work is done.

    Args:
        in_thread: whether ``do`` returns before the work is done.
    """

    def __init__(self, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._threads: List[threading.Thread] = []  # each waits for the one before it
        self._failure: Optional[BaseException] = None

    def do(self, work: Callable[[], None]) -> None:
        """Do this after what was given before; it may not use Paddle."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        before = self._threads[-1:]

        def run() -> None:
            for thread in before:
                thread.join()
            self._attempt(work)

        if self._in_thread:
            thread = threading.Thread(target=run, name="saving")
            thread.start()
            _give_way(thread, _LOWER_BY)
            self._threads.append(thread)
        else:
            self._attempt(work)

    def wait(self) -> None:
        """Return when everything is done."""
        for thread in self._threads:
            _give_way(thread, 0)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def take_failure(self) -> Optional[BaseException]:
        """What has gone wrong so far, once."""
        failure, self._failure = self._failure, None
        return failure

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                work()
            except BaseException as error:
                self._failure = error


def _give_way(thread: threading.Thread, lower_by: int) -> None:
    """Have a thread run ``lower_by`` steps of nice behind the calling one, where the system has that for threads."""
    if sys.platform == "linux" and thread.is_alive() and thread.native_id is not None:
        own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        # The thread may have ended by now; and some users may lower a thread but not raise it again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, min(19, own + lower_by))
