"""How a process ends where the destructors of native libraries may abort it (SIGABRT), which would fail a run that has
done its work: those of a group did so in one of thirty runs on a busy machine, and those of a library in which a thread
is still at work. Needs nothing but Python."""

import atexit
import contextlib
import gc
import io
import os
import sys
import threading
from typing import Any, NoReturn

_LAST_SECONDS = 1.0  # for a thread that only needs to notice that nobody wants its result

_left_running: list[Any] = []
_has_group = False


def leave_running(thread: Any) -> None:
    """Note a thread that nobody waits for, and that may be inside a library."""
    _left_running.append(thread)


def note_group() -> None:
    """Note that this process joins a group."""
    global _has_group
    _has_group = True


def end_if_in_danger(code: int) -> None:
    """End this process with ``code`` if it has joined a group, or a thread is left running: then at once, as that may
    wait for other threads, and exit handlers would clear libraries beneath it."""
    for thread in _left_running:
        thread.join(_LAST_SECONDS)
    if any(thread.is_alive() for thread in _left_running):
        _flush_and_leave(code)
    if _has_group:
        end(code)


def end(code: int) -> NoReturn:
    """End this process as Python does, exit handlers and open files included, but for the destructors."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are no daemons
    atexit._run_exitfuncs()
    _flush_and_leave(code)


def _flush_and_leave(code: int) -> NoReturn:
    left_open = [thing for thing in gc.get_objects() if issubclass(type(thing), io.IOBase)]  # Python would close these
    for stream in [sys.stdout, sys.stderr, *left_open]:
        with contextlib.suppress(Exception):  # not for writing, nobody reads it any more, or somebody's class fails
            stream.flush()
    os._exit(code)
