"""Pytest's plugin that tells coverage which test runs, in the processes that tests start, too.

``tools/mutants.py`` loads it. What each test executes is in the file when it ends, and the test in a list of finished
ones, so that an interrupted measurement goes on where it was.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.prepared import CONTEXT, set_context

FOLDER = "MEASURED_FOLDER"  # variable of the environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what an earlier measurement has finished."""
    skipped = set(Path(os.environ[FOLDER], "skipped").read_text(encoding="utf-8").splitlines())
    items[:] = [item for item in items if item.nodeid not in skipped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test, and note that it has ended."""
    set_context(item.nodeid.partition("[")[0])
    result = yield
    set_context("")
    with Path(os.environ[FOLDER], f"finished.{os.getpid()}").open("a", encoding="utf-8") as finished:
        finished.write(f"{item.nodeid}\n")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Iterator[Any]:
    """Count what a fixture of several tests executes for all tests of the file."""
    is_shared = fixturedef.scope != "function"
    before = set_context(os.environ[CONTEXT].partition("::")[0]) if is_shared else ""
    result = yield
    if is_shared:
        set_context(before)
    return result
