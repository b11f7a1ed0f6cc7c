"""A thread that runs functions one after the other, with a lower priority than the training."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable

import numpy.ma  # noqa: F401 - np.unique and np.isin import it at their first call, see ``BackgroundWorker``

_LOWER_BY = 10  # steps of nice: a tenth of the time of a busy processor, all the time of an idle one


class BackgroundWorker:
    """Runs functions one after the other in a thread, or immediately if not ``in_thread``.

    On Linux, the thread has a lower priority than the training threads of all ranks until a caller waits for it: with
    equal priority, it would delay all ranks in every step. After a function has failed, later ones are skipped until
    ``take_failure`` is called. The thread is non-daemonic: the interpreter waits for it at exit. Functions should
    import nothing: a loader process that is forked during an import in another thread never gets that module's lock.
    """

    def __init__(self, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._threads: list[threading.Thread] = []  # each waits for the one before it
        self._failure: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Run ``work`` after the functions passed earlier; it must not use Paddle."""
        self._threads = [earlier for earlier in self._threads if earlier.is_alive()]
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
        """Wait until all functions have run."""
        for thread in self._threads:
            _give_way(thread, 0)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def take_failure(self) -> BaseException | None:
        """Return the first failure since the last call, or None, and forget it."""
        failure, self._failure = self._failure, None
        return failure

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                work()
            except BaseException as error:
                self._failure = error


def _give_way(thread: threading.Thread, lower_by: int) -> None:
    """Set a thread's nice value to the caller's plus ``lower_by``, on systems that have one per thread."""
    if sys.platform == "linux" and thread.is_alive() and thread.native_id is not None:
        priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        # The thread may have ended, and unprivileged users may lower a priority but not raise it again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, min(19, priority + lower_by))
