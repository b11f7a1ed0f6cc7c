"""Work that a training does not wait for."""

from __future__ import annotations

import threading
from typing import Callable, Optional


class Background:
    """Does one piece of work after the other in a thread, or each at once where there is to be none.

    Once a piece has failed, those after it are left out until ``take_failure`` is called. The thread is no daemon: the
    interpreter does not end before the work is done.

    Args:
        in_thread: whether ``do`` returns before the work is done.
    """

    def __init__(self, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[BaseException] = None

    def do(self, work: Callable[[], None]) -> None:
        """Do this after what was given before; it may not use Paddle."""
        before = self._thread

        def run() -> None:
            if before is not None:
                before.join()
            self._attempt(work)

        if self._in_thread:
            self._thread = threading.Thread(target=run, name="saving")
            self._thread.start()
        else:
            self._attempt(work)

    def wait(self) -> None:
        """Return when everything is done."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

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
