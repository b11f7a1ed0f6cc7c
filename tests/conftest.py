"""Shared by all tests: this repository's package first, one thread, no output from Paddle's own logging."""

import gc
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

os.environ.setdefault("FLAGS_paddle_num_threads", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GLOG_minloglevel", "2")
os.environ.setdefault("TRITON_INTERPRET", "1")  # CPUs interpret kernels; read whenever Triton is imported first
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
# A script's `make test &` ignores Ctrl-C, and `nohup make test` the end of its terminal; whatever a test starts would
# inherit that, and tests send both.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def pytest_configure() -> None:
    """Refuse to start where file names of some scripts cannot be written."""
    if sys.getfilesystemencoding() != "utf-8":
        raise pytest.UsageError("tests write file names of many scripts: run `make test`, or set PYTHONUTF8=1")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect thousands of tests without looking for garbage among them, then or later: that takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """Run a test without reports of short setups and teardowns that passed.

    Processes of xdist send each report: 3,000 empty tests take a quarter less processor time without them.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > 0.1:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds of each folder's tests: a slow test is seen here, and fails on no machine."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                depth = 4 if re.match("tests/[a-z]+/(core|extensions)/", report.nodeid) else 3
                seconds["/".join(report.nodeid.split("/")[:depth]).partition("::")[0]] += report.duration
    terminalreporter.write_sep("=", "seconds by folder")
    for folder, total in seconds.most_common(20):
        terminalreporter.write_line(f"{total:6.1f} s  {folder}")


@pytest.fixture(autouse=True, scope="module")
def registered_names() -> Iterator[None]:
    """Forget what the tests of a module register: tests run in any order, several modules in one process."""
    from support.registrations import forgotten

    with forgotten():
        yield
