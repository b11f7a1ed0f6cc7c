"""Fails a unit test that starts a process."""

import importlib
import multiprocessing.util
import platform
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import prepared
from support.children import commands, pools_in_this_process, workers  # noqa: F401
from support.simulated import (  # noqa: F401
    act_as,
    at_exit,
    command_line,
    exit_codes,
    fresh_rank,
    fresh_status,
    kills,
    libraries,
    machine,
    module_specs,
    other_paddle,
    own_environment,
    own_signals,
    replacements,
    set_versions,
    signals_sent,
    simulated_time,
    store,
)
from tqdm import tqdm

import paddlevit_dist  # noqa: F401  (before Paddle: it chooses MKL's instructions)
from paddlevit_dist.core.runtime import signals

_START_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_started: list[str] = []  # what the current test has started


def _note_event(name: str, arguments: tuple) -> None:
    if name in _START_EVENTS:
        _started.append(f"{name} {arguments[0] if arguments else ''}".strip())


def _note_calls(module: Any, name: str, is_start: Any) -> None:
    """Note the calls of a function that starts processes without an audit event of Python's."""
    original = getattr(module, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if is_start(*arguments):
            _started.append(name)
        return original(*arguments, **options)

    setattr(module, name, call)


_make_bar = tqdm.__init__


def _make_checked_bar(bar: tqdm, iterable: Any = None, *arguments: Any, **options: Any) -> None:
    """Make a bar that names what it counts, of how many, on terminals alone, and leaves nothing there.

    Those of other libraries have classes of their own, and a run's, which has a format, is tested on a terminal.
    """
    if type(bar) is tqdm and "bar_format" not in options:
        assert options.get("desc") and options.get("unit") and options.get("leave") is False, options
        assert options.get("disable", False) is None, options
        assert "total" in options or hasattr(iterable, "__len__"), options
    _make_bar(bar, iterable, *arguments, **options)


tqdm.__init__ = _make_checked_bar
tqdm.monitor_interval = 0  # no thread that waits every ten seconds, also in a test's simulated time
sys.addaudithook(_note_event)
_note_calls(multiprocessing.util, "spawnv_passfds", lambda path, words, *_: "resource_tracker" not in str(words))
_note_calls(prepared, "start", lambda *_: True)


def pytest_collection_finish() -> None:
    """Do what takes seconds at first: it belongs to no test, and a process that only directs others need not do it."""
    importlib.import_module("paddle")
    platform.processor()  # Python starts uname for it
    importlib.import_module("numpy.testing")  # NumPy 1 starts lscpu for it


def pytest_itemcollected(item: pytest.Item) -> None:
    """Fail a test in which the package divides by 0 or overflows and NumPy says so: a user would read it."""
    item.add_marker(pytest.mark.filterwarnings("error::RuntimeWarning:paddlevit_dist"))


@pytest.fixture(autouse=True)
def no_process() -> Iterator[None]:
    """Fail a test that starts a process."""
    _started.clear()
    yield
    assert not _started, f"a unit test started a process ({_started[0]}): move it to integration"


@pytest.fixture
def own_handlers():
    """Restore the handlers of signals, which a command replaces for its whole process."""
    with signals.installed():
        yield
