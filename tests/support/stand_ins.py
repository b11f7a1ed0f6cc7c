"""What stands in for the parts of this machine and of Paddle that a test cannot have."""

import ctypes
import importlib.util
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import pytest

from paddlevit_dist.core.runtime.compiled import has_numba

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def other_paddle(monkeypatch) -> Callable[[dict[str, object]], None]:
    """Return a function that gives Paddle other functions by dotted name; what is no function is what they return.

    ``{"device.cuda.device_count": 3, "CUDAPlace": make_place}`` are those of a build with 3 GPUs. ``__version__`` is
    the only value.
    """

    def replace(functions: dict[str, object]) -> None:
        for name, function in functions.items():
            is_given = callable(function) or name == "__version__"
            answer = function if is_given else lambda *_, answer=function, **__: answer
            monkeypatch.setattr(f"paddle.{name}", answer, raising=False)

    return replace


@pytest.fixture
def libraries(monkeypatch) -> dict[str | None, object]:
    """Shared libraries that a test puts here stand in for those of their names; None: the functions of this process.

    An error is raised when the library is loaded.
    """
    stand_ins: dict[str | None, object] = {}
    load = ctypes.CDLL

    def load_stand_in(name: str | None, *arguments, **options) -> object:
        found = stand_ins[name] if name in stand_ins else load(name, *arguments, **options)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(ctypes, "CDLL", load_stand_in)
    return stand_ins


@pytest.fixture
def set_versions(monkeypatch) -> Callable[..., None]:
    """Return a function that gives packages other versions: ``set_versions(paddle="9.8", numpy="2.4.6")``."""

    def replace(**versions: str) -> None:
        for name, version in versions.items():
            monkeypatch.setattr(importlib.import_module(name), "__version__", version)

    return replace


@pytest.fixture
def module_specs(monkeypatch) -> Iterator[dict[str, object]]:
    """What ``importlib.util.find_spec`` returns for modules that a test puts here; None: it is not installed."""
    specs: dict[str, object] = {}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *given: specs[name] if name in specs else find(name, *given)
    )
    has_numba.cache_clear()
    yield specs
    has_numba.cache_clear()


@pytest.fixture
def clock(monkeypatch) -> Callable[[Callable[[], float]], None]:
    """Return a function that sets what ``time.perf_counter``, ``time.monotonic`` and ``time.time`` return."""

    def set_clock(now: Callable[[], float]) -> None:
        for name in ("perf_counter", "monotonic", "time"):
            monkeypatch.setattr(time, name, now)

    return set_clock


@pytest.fixture
def own_environment() -> Iterator[None]:
    """Afterwards the process has the variables that it has now."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Afterwards the process handles and blocks the signals that it handles and blocks now."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.fixture
def replacements(monkeypatch, own_signals, own_environment) -> list[tuple[str, list[str]]]:
    """The programs, with their words, by which the process would have been replaced; it goes on instead."""
    programs: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: programs.append((program, words)))
    return programs


@pytest.fixture
def pools_in_this_process(monkeypatch) -> None:
    """Pools of processes start none: what they are given is pickled, and computed at once in this process."""

    def submit(pool: ProcessPoolExecutor, *job: Any) -> Future:
        function, *arguments = pickle.loads(pickle.dumps(job))
        future: Future = Future()
        try:
            future.set_result(pickle.loads(pickle.dumps(function(*arguments))))
        except Exception as error:
            future.set_exception(error)
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
