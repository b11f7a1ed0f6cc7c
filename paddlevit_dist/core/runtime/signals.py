"""Signals that this process receives, and how it ends: at once while it starts, after a save once it trains.

A handler raises ``ProcessInterrupted`` until ``record_only`` is called. From then on requests are only recorded, and
the work polls ``stop_reason``. Needs nothing but Python, so that an entry point can use it before any other import.

Path of a SIGTERM in training: worker -> parent (``launch/spawn.SignalRelay``) -> all workers ->
``distributed/stops.SyncPoint`` agrees on an update -> ``Trainer._save_and_stop`` -> ``Stopped`` -> exit code 75. A
SIGTERM to the parent enters this path there. A wait for data or an evaluation ends by ``StopRequested`` instead, which
``Trainer.train`` turns into ``_save_and_stop``.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from types import CodeType, FrameType, ModuleType
from typing import Any

from . import process_exit

_STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
_SAVING = signal.SIGUSR1
_ALL = [*_STOPPING, _SAVING]
_IMPORT_POLL_SECONDS = 0.02
_STUCK_SECONDS = 10.0  # for a start inside a library, where no handler runs
_ENOUGH = b"\0"  # not a signal: ends the watching thread
_HANDLES_SIGTERM = "paddle"
_STARTED = "PADDLEVIT_DIST_STARTED"  # process id and monotonic time; survives the replacement of a process


class ProcessInterrupted(KeyboardInterrupt):
    """The process has to end at once, by the signal ``number``; ``again``: a second SIGINT, so nothing is awaited."""

    def __init__(self, number: int, again: bool = False) -> None:
        super().__init__(get_name(number))
        self.number = number
        self.again = again


class _SignalState:
    """The signals that this process has received, and its mode."""

    def __init__(self) -> None:
        self.installed = False
        self.is_training = False
        self.only_records = False
        self.number: int | None = None  # of the first signal that requests a stop
        self.interrupts = 0
        self.saves = 0
        self.due: int | None = None  # a signal whose exception has not been raised yet
        self.raised = False
        self.holding = 0  # nested blocks without exceptions
        self.deadline: float | None = None  # by the monotonic clock
        self.deadline_name = ""
        self.ends_workers = False  # a parent that ends its workers before itself
        self.parent: int | None = None  # of a worker, which forwards requests to it
        self.forwards_saves = False
        self.watcher: threading.Thread | None = None  # records signals, too
        self.code: int | None = None  # with which this process will exit
        self.woken = -1  # the previous wakeup descriptor
        self.exit_now: Callable[[int, bool], None] = _exit_now


def get_name(number: int) -> str:
    """Return the name of a signal, such as SIGTERM."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def exit_code(error: KeyboardInterrupt) -> int:
    """Return 130 for Ctrl-C, 128 plus the signal's number for another one."""
    return 128 + getattr(error, "number", signal.SIGINT)


def stop_reason() -> str | None:
    """Return why this process has to stop, such as "SIGTERM"; None if it does not."""
    first = number()
    if first is not None:
        return get_name(first)
    if _state.deadline is not None and time.monotonic() > _state.deadline:
        return _state.deadline_name
    return None


def number() -> int | None:
    """Return the first signal that has requested a stop of this process."""
    return _state.due if _state.number is None else _state.number  # the watching thread may be late


def is_ending() -> bool:
    """Return whether a signal ends this process at once: what it still waits for is not needed."""
    return number() is not None and not _state.only_records


def interrupts() -> int:
    """Return how often SIGINT has arrived."""
    return _state.interrupts


def save_requested() -> bool:
    """Return whether SIGUSR1 has arrived since the last ``clear_save_request``."""
    return _state.saves > 0


def request_save() -> None:
    """Request a save, like SIGUSR1 to this process."""
    _state.saves += 1


def clear_save_request() -> None:
    """Clear the request, as a save is in progress."""
    _state.saves = 0


def has_parent() -> bool:
    """Return whether this is a worker whose parent forwards requests to all others."""
    return _state.parent is not None


def set_mode(training: bool) -> None:
    """Set whether this process trains: a training run ends with another exit code than other commands."""
    _state.is_training = training


def is_training() -> bool:
    """Return whether this process trains, as set by ``set_mode``."""
    return _state.is_training


def looks_like_training(words: list) -> bool:
    """Return whether the main job with these options trains, judging before the configuration is read."""
    others = {"eval", "h", "help", "version", "show_config"}
    return not any(word.startswith("-") and word.lstrip("-").partition("=")[0] in others for word in words)


def record_only() -> None:
    """Record requests from now on instead of raising: the caller polls ``stop_reason``, and has no workers."""
    _state.only_records = True
    _state.ends_workers = False
    _cancel_retry()


def check() -> None:
    """Raise ``ProcessInterrupted`` if it could not be raised when the signal arrived."""
    _cancel_retry()
    if _state.due is not None and not _state.only_records and not _state.raised and not _state.holding:
        _state.raised = True
        raise ProcessInterrupted(_state.due)


def stop_after(seconds: float, name: str) -> None:
    """Request a stop ``seconds`` after the command's start; ``name`` is reported as the reason."""
    _state.deadline = _find_start() + seconds
    _state.deadline_name = name


def record_only_as_parent() -> None:
    """Record requests only, in a parent of workers: the caller ends the workers."""
    check()
    _state.only_records = True
    _state.ends_workers = True


def forward_to_parent(parent: int, forwards_saves: bool, exit_now: Callable[[int, bool], None]) -> None:
    """Forward requests to the parent, in a worker.

    Args:
        parent: process id of the parent.
        forwards_saves: whether to forward SIGUSR1, too.
        exit_now: ``exit_now(number, again)`` ends the worker in an emergency.
    """
    _state.parent = parent
    _state.forwards_saves = forwards_saves
    _state.exit_now = exit_now


def block() -> None:
    """Block signals until ``install``, also in a process that replaces this one or is started by it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """Block signals inside the block; processes started in it begin with blocked signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    if not _in_main_thread():  # where no handler runs
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    with held():  # a signal may have arrived just before: a fork's callbacks would swallow its exception
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Raise the exception of a signal after the block, in the main thread; a second Ctrl-C ends the process at once."""
    _state.holding += 1
    try:
        yield
    finally:
        _state.holding -= 1
        if _state.due is not None:
            _raise_outside_imports(sys._getframe())


def install() -> None:
    """Handle signals from now on, except those that were ignored at the process's start.

    Call it again after ``paddle.disable_signal_handler``, which resets some. Does nothing outside the main thread.
    """
    if not _in_main_thread():
        return
    if not _state.installed:
        _state.installed = True
        _ignored.update(signum for signum in _ALL if signal.getsignal(signum) is signal.SIG_IGN)
        atexit.register(_finish)  # runs after functions that are registered later
        if not os.environ.get(_STARTED, "").startswith((f"{os.getpid()} ", f"{os.getppid()} ")):
            os.environ[_STARTED] = f"{os.getpid()} {time.monotonic()}"
    if _HANDLES_SIGTERM not in sys.modules and _paddle_finder not in sys.meta_path:
        sys.meta_path.insert(0, _paddle_finder)
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN if number in _ignored else _handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


class _PaddleFinder:
    """Lets signals wait while Paddle is imported, wherever that is, and handles them again afterwards.

    Paddle installs its own handler of SIGTERM, which prints a dump that looks like a crash.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return where Paddle is, with a loader that does so; None for other modules, which other finders find."""
        spec = PathFinder.find_spec(name, path) if name == _HANDLES_SIGTERM else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                with blocked():
                    if self in sys.meta_path:
                        sys.meta_path.remove(self)
                    execute(module)
                    if _state.installed:
                        install()

            spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Handle signals inside the block, and restore a program's own handlers afterwards."""
    if _state.installed or not _in_main_thread():
        yield
        return
    before = {signum: signal.getsignal(signum) for signum in _ALL}
    _state.__init__()  # type: ignore[misc]  # a program's own training may have left a mode and a deadline
    install()
    try:
        yield
    finally:
        descriptor = signal.set_wakeup_fd(_state.woken)
        if _state.watcher is not None:
            os.write(descriptor, _ENOUGH)
            os.close(descriptor)
            _state.watcher.join()  # it would record a signal after the reset below
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        _state.__init__()  # type: ignore[misc]


def note_end(code: int) -> None:
    """Record that the work is done, and with which code this process will exit."""
    _state.code = code


def _finish() -> None:
    """Ignore signals from now on: Python is about to restore their default actions, which would replace the exit code.

    After a SIGINT the process ends at once, as a second one has to exit with its own code.
    """
    if not _state.installed:
        return
    if _state.interrupts and _state.code is not None:
        process_exit.leave(_state.code)
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)


def ignore_all() -> None:
    """Ignore all signals, which terminals and schedulers send to all, in a helper that ends with its parent."""
    for number in _ALL:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)


def poll_in_thread() -> None:
    """Record signals in a thread, too: while the main thread is inside a library, no Python handler runs."""
    if _state.watcher is not None or not _state.installed or not _in_main_thread():
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _state.woken = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _state.watcher = threading.Thread(target=_watch, args=(reading,), name="signals", daemon=True)
    _state.watcher.start()


def _watch(reading: int) -> None:
    while _ENOUGH not in (numbers := os.read(reading, 256)):
        for number in numbers:
            is_first = _state.number is None
            _record_signal(number)
            if is_first and _state.number is not None and not _state.only_records:
                timer = threading.Timer(_STUCK_SECONDS, _exit_if_stuck, (number,))
                timer.daemon = True
                timer.start()
    os.close(reading)


def _exit_if_stuck(number: int) -> None:
    is_current = _state.number == number  # a program may have caught the exception, and be at other work
    if is_current and not _state.raised and not _state.only_records:
        _state.exit_now(number, False)


def _handle(number: int, frame: FrameType | None) -> None:
    if _state.watcher is None:
        _record_signal(number)
    if number in _STOPPING and not _state.only_records and not _state.raised:
        _state.due = number if _state.due is None else _state.due
        _raise_outside_imports(frame)


def _try_again(_: int, frame: FrameType | None) -> None:
    _raise_outside_imports(frame)


def _record_signal(number: int) -> None:
    """Record a signal, in a handler or the watching thread: no locks, no prints."""
    if number == _SAVING:
        _state.saves += 1
        if _state.parent is not None and _state.forwards_saves:
            os.kill(_state.parent, number)
    elif number in _STOPPING:
        _state.interrupts += number == signal.SIGINT
        if _state.ends_workers and number == signal.SIGINT:
            _state.number = number  # a terminal's, even if a worker forwarded its copy first
        if _state.number is None:
            _state.number = number
            if _state.parent is not None:
                # A terminal's SIGINT also reaches the parent, which counts it.
                os.kill(_state.parent, signal.SIGTERM if number == signal.SIGINT else number)
        if _state.interrupts > 1 and not _state.ends_workers:
            _state.exit_now(number, True)


def _raise_outside_imports(frame: FrameType | None) -> None:
    """Raise now, or a moment later inside code that would lose the exception."""
    inner = frame
    while inner is not None and not _loses_exceptions(inner.f_code):
        inner = inner.f_back
    if inner is not None:
        signal.signal(signal.SIGALRM, _try_again)
        signal.setitimer(signal.ITIMER_REAL, _IMPORT_POLL_SECONDS)
        return
    check()


def _loses_exceptions(code: CodeType) -> bool:
    """Return whether exceptions raised in this code are lost.

    Extension modules lose or replace them during their import; Python prints and drops exceptions of weak-reference
    callbacks, of ``__del__``, and of what a library calls by ctypes, such as numba's compiler.
    """
    is_callback = code.co_name in ("_remove", "remove") and code.co_filename.endswith(("_weakrefset.py", "weakref.py"))
    is_called_by_library = f"{os.sep}llvmlite{os.sep}binding{os.sep}" in code.co_filename
    is_import = code.co_filename.startswith("<frozen importlib")
    return is_import or is_callback or is_called_by_library or code.co_name == "__del__"


def _cancel_retry() -> None:
    if _in_main_thread() and signal.getsignal(signal.SIGALRM) is _try_again:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _exit_now(number: int, again: bool) -> None:
    """End this process from any code."""
    is_stop = _state.is_training and not again
    os.write(2, f"{describe(number, is_stop)}\n".encode())
    os._exit(STOPPED if is_stop else 128 + number)


STOPPED = 75  # exit code of a stopped training run: start it again


def describe(number: int, starting_training: bool) -> str:
    """Format the last line of a run that was interrupted before there was anything to save, or a second time."""
    if starting_training:
        return (
            f"stopped: asked to stop ({get_name(number)}) before the first update: nothing new was saved; the same "
            "command starts again"
        )
    return "interrupted" if number == signal.SIGINT else f"interrupted ({get_name(number)})"


def _find_start() -> float:
    """Return when the command was started, as ``time.monotonic`` counts: a clock that is set changes nothing."""
    process, _, moment = os.environ.get(_STARTED, "").partition(" ")
    return float(moment) if process in (str(os.getpid()), str(os.getppid())) else _loaded


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def begin_child() -> None:
    """Reset a forked process: its parent's requests and handlers do not apply to it."""
    if not _state.installed:
        return
    _state.__init__()  # type: ignore[misc]
    with contextlib.suppress(ValueError):  # outside the main thread
        signal.set_wakeup_fd(-1)
        for number in _ALL:
            if number not in _ignored:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@contextlib.contextmanager
def child_handler_kept() -> Iterator[None]:
    """Restore the SIGCHLD handler after the block, in which Paddle installs one.

    Paddle's raises at any place in the main thread when a loader process dies. The loader reports it instead.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)


_ignored: set[int] = set()
_loaded = time.monotonic()
_state = _SignalState()
_paddle_finder: Any = _PaddleFinder()
os.register_at_fork(after_in_child=begin_child)
