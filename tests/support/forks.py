"""Functions that run in a fork of the test's process, which always ends: with a value, a traceback or its limit."""

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

SECONDS = 60


def start_child(act: Callable[[], Any], seconds: int = SECONDS) -> int:
    """Call ``act`` in a forked process; returns its number.

    An exception must not leave the child, or it would go on with the tests of its parent. The kernel ends a child that
    overruns: a thread of its own might wait for a lock that the child was forked with.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            signal.alarm(seconds)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def in_child(compute: Callable[[], Any], seconds: int = SECONDS) -> Callable[[], Any]:
    """Start a forked process; return a function that waits for the value of ``compute`` there."""
    reading, writing = os.pipe()

    def send() -> None:
        os.close(reading)
        with os.fdopen(writing, "wb") as file:
            pickle.dump(compute(), file)

    child = start_child(send, seconds)
    os.close(writing)

    def wait() -> Any:
        with os.fdopen(reading, "rb") as file:
            content = file.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code == 0, f"the forked process ended with {code} ({-signal.SIGALRM}: it overran {seconds} s)"
        return pickle.loads(content)

    return wait
