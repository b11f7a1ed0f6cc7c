"""Requests of signals to this process, and how it ends: at once while it starts, at a good moment once it trains.

A handler raises ``ProcessInterrupted`` until ``defer`` is called; from then on requests are only noted, and whoever
works looks at ``stop_reason``. Needs nothing but Python, so that an entry can use it before anything else is imported.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

_STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_SAVING = signal.SIGUSR1
_ALL = [*_STOPPING, _SAVING]
_IMPORT_POLL_SECONDS = 0.02
_STUCK_SECONDS = 10.0  # for a start that is inside a library, where no handler runs
_ENOUGH = b"\0"  # no signal: ends the thread that watches
_STARTED = "PADDLEVIT_DIST_STARTED"  # process and time; outlives the replacement of a process


class ProcessInterrupted(KeyboardInterrupt):
    """The process is to end at once.

    Args:
        number: the signal.
        again: it is the second SIGINT, so that nothing is waited for.
    """

    def __init__(self, number: int, again: bool = False) -> None:
        super().__init__(get_name(number))
        self.number = number
        self.again = again


class _SignalState:
    """Everything that has happened so far in this process."""

    def __init__(self) -> None:
        self.installed = False
        self.is_training = False
        self.only_notes = False
        self.number: int | None = None  # of the first signal that asks to stop
        self.interrupts = 0
        self.saves = 0
        self.due: int | None = None  # a signal for which an exception is to be raised
        self.raised = False
        self.holding = 0  # blocks in which none is raised
        self.deadline: float | None = None  # by the monotonic clock
        self.deadline_name = ""
        self.ends_workers = False  # a parent: it ends its workers before itself
        self.parent: int | None = None  # of a worker, which passes requests on to it
        self.passes_saves = False
        self.is_watched = False  # a thread takes note of signals
        self.woken = -1  # what signals were written to before
        self.leave: Callable[[int, bool], None] = _leave


def get_name(number: int) -> str:
    """Such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(error: KeyboardInterrupt) -> int:
    """130 for Ctrl-C, 128 plus the signal's number for another one."""
    return 128 + getattr(error, "number", signal.SIGINT)


# ---- what was asked ------------------------------------------------------------------------------------------------


def stop_reason() -> str | None:
    """Why this process is to stop, such as "SIGTERM"; None if it is not."""
    first = number()
    if first is not None:
        return get_name(first)
    if _state.deadline is not None and time.monotonic() > _state.deadline:
        return _state.deadline_name
    return None


def number() -> int | None:
    """The first signal that has asked this process to stop."""
    return _state.due if _state.number is None else _state.number  # the thread that watches may be late


def interrupts() -> int:
    """How often SIGINT has come."""
    return _state.interrupts


def save_requested() -> bool:
    """Whether SIGUSR1 has come since the last ``clear_save_request``."""
    return _state.saves > 0


def ask_for_save() -> None:
    """The same as SIGUSR1 to this process."""
    _state.saves += 1


def clear_save_request() -> None:
    """Note that a save is under way."""
    _state.saves = 0


def has_parent() -> bool:
    """Whether this is a worker whose parent passes requests on to all others."""
    return _state.parent is not None


# ---- what becomes of it --------------------------------------------------------------------------------------------


def set_mode(training: bool) -> None:
    """Say whether this process carries out a training, which ends with another code than other commands."""
    _state.is_training = training


def is_training() -> bool:
    """Return what ``set_mode`` was told last."""
    return _state.is_training


def looks_like_training(words: list) -> bool:
    """Whether the main job with these options trains, as far as can be told before the configuration is read."""
    others = {"eval", "h", "help", "version", "show_config"}
    return not any(word.startswith("-") and word.lstrip("-").partition("=")[0] in others for word in words)


def defer() -> None:
    """From now on a request raises nothing: the caller looks at ``stop_reason``."""
    _state.only_notes = True
    _try_no_more()


def check() -> None:
    """Raise ``ProcessInterrupted`` if one is due that could not be raised where the signal came."""
    _try_no_more()
    if _state.due is not None and not _state.only_notes and not _state.raised and not _state.holding:
        _state.raised = True
        raise ProcessInterrupted(_state.due)


def stop_after(seconds: float, name: str) -> None:
    """Count as asked to stop this long after the command was started; ``name`` says by what."""
    _state.deadline = time.monotonic() + seconds - (time.time() - _find_start())
    _state.deadline_name = name


def supervise() -> None:
    """For a parent of workers: only note requests, and leave it to the caller to end the workers."""
    check()
    _state.only_notes = True
    _state.ends_workers = True


def work_for(parent: int, passes_saves: bool, leave: Callable[[int, bool], None]) -> None:
    """For a worker: pass requests on to its parent; ``leave(number, again)`` is how it ends in an emergency."""
    _state.parent = parent
    _state.passes_saves = passes_saves
    _state.leave = leave


# ---- handlers ------------------------------------------------------------------------------------------------------


def block() -> None:
    """Let signals wait until ``install``, also in a process that replaces this one or that is started by it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Let signals wait while the block runs; processes started in it begin with them waiting."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    if not _in_main_thread():  # where no handler runs
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    _state.holding += 1  # one may have come just before: a fork's callbacks would swallow its exception
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _state.holding -= 1
        if _state.due is not None:
            _raise_outside_imports(sys._getframe())


def install() -> None:
    """Handle signals from now on, but those that were ignored at the start of the process. Call it again after
    ``paddle.disable_signal_handler``, which sets some of them back. Does nothing outside the main thread."""
    if not _in_main_thread():
        return
    if not _state.installed:
        _state.installed = True
        _ignored.update(number for number in _ALL if signal.getsignal(number) is signal.SIG_IGN)
        if not os.environ.get(_STARTED, "").startswith((f"{os.getpid()} ", f"{os.getppid()} ")):
            os.environ[_STARTED] = f"{os.getpid()} {time.time()}"
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN if number in _ignored else _handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """The same for a program that does not want them handled otherwise: its own handlers come back afterwards."""
    if _state.installed or not _in_main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ALL}
    install()
    try:
        yield
    finally:
        own = signal.set_wakeup_fd(_state.woken)
        if _state.is_watched:
            os.write(own, _ENOUGH)
            os.close(own)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _state.__init__()  # type: ignore[misc]


def install_again() -> None:
    """Handle them again, if they were, after an import of Paddle, which takes SIGTERM for itself."""
    if _state.installed:
        install()


def ignore_all() -> None:
    """For a helper process that ends when its parent tells it to, or with it: a terminal and a scheduler send their
    signals to all processes."""
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


def poll_in_thread() -> None:
    """Take note of signals in a thread, too: while the main thread is inside a library, no handler of Python runs."""
    if _state.is_watched or not _state.installed or not _in_main_thread():
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _state.woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _state.is_watched = True
    threading.Thread(target=_watch, args=(reading,), name="signals", daemon=True).start()


def _watch(reading: int) -> None:
    while _ENOUGH not in (noted := os.read(reading, 256)):
        for number in noted:
            is_first = _state.number is None
            _note(number)
            if is_first and _state.number is not None and not _state.only_notes:
                timer = threading.Timer(_STUCK_SECONDS, _leave_if_stuck, (number,))
                timer.daemon = True
                timer.start()
    os.close(reading)


def _leave_if_stuck(number: int) -> None:
    if not _state.raised and not _state.only_notes:
        _state.leave(number, False)


def _handle(number: int, frame: Any) -> None:
    if not _state.is_watched:
        _note(number)
    if number in _STOPPING and not _state.only_notes and not _state.raised:
        _state.due = number if _state.due is None else _state.due
        _raise_outside_imports(frame)


def _try_again(_: int, frame: Any) -> None:
    _raise_outside_imports(frame)


def _note(number: int) -> None:
    """Called in a handler or the watching thread: no locks, no prints."""
    if number == _SAVING:
        _state.saves += 1
        if _state.parent is not None and _state.passes_saves:
            os.kill(_state.parent, number)
    elif number in _STOPPING:
        _state.interrupts += number == signal.SIGINT
        if _state.ends_workers and number == signal.SIGINT:
            _state.number = number  # a terminal's, even if a worker that had it first was quicker to pass it on
        if _state.number is None:
            _state.number = number
            if _state.parent is not None:
                # A terminal's SIGINT reaches the parent, too, where it counts.
                os.kill(_state.parent, signal.SIGTERM if number == signal.SIGINT else number)
        if _state.interrupts > 1 and not _state.ends_workers:
            _state.leave(number, True)


def _raise_outside_imports(frame: Any) -> None:
    """Raise where an exception arrives. Elsewhere, try again a moment later."""
    inner = frame
    while inner is not None and not _loses_exceptions(inner.f_code):
        inner = inner.f_back
    if inner is not None:
        signal.signal(signal.SIGALRM, _try_again)
        signal.setitimer(signal.ITIMER_REAL, _IMPORT_POLL_SECONDS)
        return
    check()


def _loses_exceptions(code: Any) -> bool:
    """Whether what is raised in there does not arrive: extension modules lose it in the middle of their import, or make
    another one of it; Python prints and forgets what callbacks of weak references and ``__del__`` raise."""
    is_callback = code.co_name in ("_remove", "remove") and code.co_filename.endswith(("_weakrefset.py", "weakref.py"))
    return code.co_filename.startswith("<frozen importlib") or is_callback or code.co_name == "__del__"


def _try_no_more() -> None:
    if _in_main_thread() and signal.getsignal(signal.SIGALRM) is _try_again:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _leave(number: int, again: bool) -> None:
    """End this process from wherever it is."""
    is_stop = _state.is_training and not again
    os.write(2, f"{describe(number, is_stop)}\n".encode())
    os._exit(STOPPED if is_stop else 128 + number)


STOPPED = 75  # what the exit code of a training that was asked to stop says: start me again


def describe(number: int, starting_training: bool) -> str:
    """The line that a run ends with which was interrupted before there was anything to save, or for good."""
    if starting_training:
        return (
            f"stopped: asked to stop ({get_name(number)}) before the first update: nothing new was saved; the same "
            "command starts again"
        )
    return "interrupted" if number == signal.SIGINT else f"interrupted ({get_name(number)})"


def _find_start() -> float:
    """When the command was started, in seconds since 1970."""
    process, _, moment = os.environ.get(_STARTED, "").partition(" ")
    return float(moment) if process in (str(os.getpid()), str(os.getppid())) else _loaded


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _begin_child() -> None:
    """In a forked process: its parent's requests and handlers are not its own."""
    if not _state.installed:
        return
    _state.__init__()  # type: ignore[misc]
    with contextlib.suppress(ValueError):  # not in a main thread
        signal.set_wakeup_fd(-1)
        for number in _ALL:
            if number not in _ignored:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


_ignored: set[int] = set()
_loaded = time.time()
_state = _SignalState()
os.register_at_fork(after_in_child=_begin_child)
