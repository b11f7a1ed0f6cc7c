"""What a unit test sets for its whole process: time, machine, libraries, status, variables, and that it does not end.

``tests/unit/conftest.py`` has these fixtures for all unit tests. Paddle is imported by those that need it.
"""

import atexit
import contextlib
import ctypes
import glob
import importlib.util
import itertools
import multiprocessing.connection
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from paddlevit_dist.core.launch import failures, secret, status, tuning
from paddlevit_dist.core.runtime import processor, signals
from paddlevit_dist.core.runtime.compiled import has_numba

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class SimulatedTime:
    """Attributes:
    now: what ``time.monotonic``, ``time.perf_counter`` and ``time.time`` return, in seconds.
    readings: what they return before, one after the other.
    waits: for how long sleeps, events and connections that did not come were waited for, in seconds, in order.
    meanwhile: called after each of them, with how many there were.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.readings: Iterator[float] = iter(())
        self.waits: list[float] = []
        self.meanwhile: Callable[[int], object] = lambda number: None

    def read(self) -> float:
        return next(self.readings, self.now)

    def take(self, durations: Iterable[float]) -> None:
        """Let what is timed from now on take so many seconds, one after the other."""
        self.readings = itertools.accumulate(seconds for duration in durations for seconds in (1.0, duration))

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now = round(self.now + seconds, 6)
        self.meanwhile(len(self.waits))


@pytest.fixture
def simulated_time(monkeypatch) -> SimulatedTime:
    """The time passes only when a test sets it, or this process sleeps or waits for something that does not come.

    Other threads wait and sleep as ever: the time would pass as often as the machine gives them a turn.
    """
    simulated, wait, wait_for_any = SimulatedTime(), threading.Event.wait, multiprocessing.connection.wait
    sleep = time.sleep
    own_thread = threading.get_ident()

    def wait_for_event(event: threading.Event, seconds: float | None = None) -> bool:
        if seconds is None or threading.get_ident() != own_thread:
            return wait(event, seconds)
        if not event.is_set():
            simulated.sleep(seconds)
        return event.is_set()

    def wait_for_objects(objects, timeout: float | None = None) -> list:
        if threading.get_ident() != own_thread:
            return wait_for_any(objects, timeout)
        ready = wait_for_any(objects, None if timeout is None else -1.0)
        if not ready:
            simulated.sleep(timeout)
        return ready

    def sleep_for(seconds: float) -> None:
        (simulated.sleep if threading.get_ident() == own_thread else sleep)(seconds)

    monkeypatch.setattr(multiprocessing.connection, "wait", wait_for_objects)
    for name in ("monotonic", "perf_counter", "time"):
        monkeypatch.setattr(time, name, simulated.read)
    monkeypatch.setattr(time, "sleep", sleep_for)
    monkeypatch.setattr(threading.Event, "wait", wait_for_event)
    return simulated


class DescribedMachine:
    """Attributes:
    gpus: how many NVIDIA GPUs the kernel lists and Paddle can use; None: as it is.
    is_usable: whether Paddle can use them; False: it sees what it sees.
    cores: how many this process may use; None: as they are.
    cpu: its processor, as ``processor.processor`` returns it; None: as it is.
    libc: the name of its C library; None: as it is.
    has_dxg: whether it is one of Windows Subsystem for Linux with a GPU.
    pinned: processes that were given cores since these are described, with their cores.
    """

    def __init__(self) -> None:
        self.gpus: int | None = None
        self.is_usable = True
        self.cores: int | None = None
        self.cpu: dict | None = None
        self.libc: str | None = None
        self.has_dxg = False
        self.pinned: list[tuple[int, set[int]]] = []


@pytest.fixture
def machine(monkeypatch) -> DescribedMachine:
    """What this process is told of its machine, once a test has set it."""
    from paddlevit_dist.core.runtime import device_kinds

    find, describe_cpu, find_libc = os.path.exists, processor.processor, platform.libc_ver
    described, list_files, list_cores, pin = DescribedMachine(), glob.glob, os.sched_getaffinity, os.sched_setaffinity
    count_gpus = device_kinds.count_gpus
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def list_described(pattern: str, **options) -> list[str]:
        if described.gpus is None or pattern != "/dev/nvidia[0-9]*":
            return list_files(pattern, **options)
        return [f"/dev/nvidia{number}" for number in range(described.gpus)]

    def list_usable(process: int) -> set[int]:
        return list_cores(process) if described.cores is None else set(range(described.cores))

    def note_pinned(process: int, cores: Iterable[int]) -> None:
        pin(process, cores) if described.cores is None else described.pinned.append((process, set(cores)))

    monkeypatch.setattr(glob, "glob", list_described)
    monkeypatch.setattr(os, "sched_getaffinity", list_usable)
    monkeypatch.setattr(os.path, "exists", lambda path: described.has_dxg if path == "/dev/dxg" else find(path))
    for module in (processor, tuning):
        monkeypatch.setattr(module, "processor", lambda: describe_cpu() if described.cpu is None else described.cpu)
    monkeypatch.setattr(platform, "libc_ver", lambda: find_libc() if described.libc is None else (described.libc, ""))
    monkeypatch.setattr(os, "sched_setaffinity", note_pinned)

    def count_described() -> int:
        return count_gpus() if described.gpus is None or not described.is_usable else described.gpus

    monkeypatch.setattr(device_kinds, "count_gpus", count_described)
    return described


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


class StandInStore:
    """Attributes:
    served: the number of ranks in the environment, each time that Paddle's store was opened.
    error, group_error: raised when the store is opened, after words on stderr, and when its group is joined.
    """

    def __init__(self) -> None:
        self.served: list[str] = []
        self.error: BaseException | None = None
        self.group_error: BaseException | None = None

    def open(self) -> None:
        self.served.append(os.environ["PADDLE_TRAINERS_NUM"])
        if self.error is not None:
            print("of Paddle", file=sys.stderr)
            raise self.error

    def join(self) -> None:
        if self.group_error is not None:
            raise self.group_error


@pytest.fixture
def store(monkeypatch) -> StandInStore:
    """Stands in for Paddle's store of a group, which nobody serves."""
    stand_in = StandInStore()
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "1")
    monkeypatch.setattr("paddle.base.core.create_or_get_global_tcp_store", stand_in.open)
    monkeypatch.setattr("paddle.distributed.init_parallel_env", stand_in.join)
    return stand_in


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
def exit_codes(monkeypatch) -> list[int]:
    """The codes with which the process would have ended at once; it goes on instead."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.fixture
def at_exit(monkeypatch) -> list[Callable[[], object]]:
    """The functions that are to run at the end of the process."""
    functions: list[Callable[[], object]] = []
    monkeypatch.setattr(atexit, "register", functions.append)
    return functions


@pytest.fixture
def kills(monkeypatch) -> list[tuple[int, int]]:
    """The signals that this process sends, each after the process that it is for."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    return sent


@pytest.fixture
def fresh_status(monkeypatch) -> Callable[[], None]:
    """Let this process be one that has noted nothing, now and whenever the function is called."""

    def forget() -> None:
        monkeypatch.setattr(status, "_notes", status._StatusNotes())

    forget()
    return forget


@pytest.fixture
def fresh_rank(monkeypatch) -> None:
    """Let this process be a rank that has met no other, has no secret and records nothing, and is told none."""
    variables = ("MASTER_ADDR", "MASTER_PORT", "PADDLE_MASTER", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINER_ID")
    for name in (*variables, "PADDLE_TRAINERS_NUM", secret.VARIABLE, secret.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("paddlevit_dist.core.launch.rendezvous._has_met", False)
    monkeypatch.setattr(failures, "_own_records", None)
    for name in ("_run_secret", "_session_key"):
        monkeypatch.setattr(secret, name, None)


@pytest.fixture
def act_as() -> Iterator[Callable[[int, int], None]]:
    """Return a function that makes this process a rank among so many, for what asks for numbers only."""
    from .thread_ranks import acting_as

    with contextlib.ExitStack() as ranks:
        yield lambda rank, size: ranks.enter_context(acting_as(rank, size))


@pytest.fixture
def command_line(monkeypatch) -> Callable[..., None]:
    """Return a function that gives this process other words, of which the first is the program."""
    return lambda *words: monkeypatch.setattr(sys, "argv", list(words))


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
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.fixture
def signals_sent(monkeypatch, kills, fresh_rank, fresh_status, simulated_time):
    """What this process, which handles signals and has received none, sends to others."""
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} 1.0")
    with signals.installed():
        yield kills


@pytest.fixture
def replacements(monkeypatch, own_signals, own_environment) -> list[tuple[str, list[str]]]:
    """The programs, with their words, by which the process would have been replaced; it goes on instead."""
    programs: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: programs.append((program, words)))
    return programs
