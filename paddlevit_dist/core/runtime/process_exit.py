"""The end of a process: with its parent, or where the destructors of native libraries may abort (SIGABRT).

An abort would fail a run that has done its work. The destructors of a process group did this in one of thirty runs on a
busy machine; a library in which a thread is still running may do the same. Needs nothing but Python.
"""

import atexit
import contextlib
import ctypes
import gc
import io
import os
import signal
import sys
import threading
from typing import NoReturn

PARENT = "PADDLEVIT_DIST_PARENT"  # in a command: process id of the parent with which it ends
_PR_SET_PDEATHSIG = 1
_STREAM = io.IOBase.__mro__[1]  # io.IOBase itself is abstract: a million objects asked take 0.4 s, of its base 0.05 s
_LAST_SECONDS = 1.0  # for a thread that only has to notice that its result is not needed

_left_running: list[threading.Thread] = []
_has_group = False


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, for any reason (Linux)."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl was called
        os._exit(1)


def die_with_command() -> None:
    """Call ``die_with_parent`` if another command of this package has started this one."""
    parent = os.environ.pop(PARENT, None)  # not for the processes that this one starts
    if parent is not None:
        die_with_parent(int(parent))


def leave_running(thread: threading.Thread) -> None:
    """Register a thread that nothing waits for, and that may be inside a library."""
    _left_running.append(thread)


def note_group() -> None:
    """Record that this process joins a group."""
    global _has_group
    _has_group = True


def end_if_in_danger(code: int) -> None:
    """End this process with ``code`` if it has joined a group or a registered thread is still running.

    With such a thread it ends at once: waiting might take long, and exit handlers would clear libraries in use.
    """
    for thread in _left_running:
        thread.join(_LAST_SECONDS)
    if any(each.is_alive() for each in _left_running):
        leave(code)
    if _has_group:
        end(code)


def end(code: int) -> NoReturn:
    """End this process like Python, with exit handlers and flushed files, but without destructors."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    leave(code)


def leave(code: int) -> NoReturn:
    """End this process with flushed files, without exit handlers and destructors."""
    left_open = [item for item in gc.get_objects() if issubclass(type(item), _STREAM)]  # Python would close these
    for stream in [sys.stdout, sys.stderr, *left_open]:
        with contextlib.suppress(Exception):  # read-only, without a reader, or a class that fails
            stream.flush()
    os._exit(code)
