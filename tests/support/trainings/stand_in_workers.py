"""Workers of this package that this process starts: a stand-in notes them, and does what a test plans for them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from paddlevit_dist.core.launch import ProcessPlan, spawn


class StartedWorkers(NamedTuple):
    """What workers were started with; ``in_child``: none of them is this process."""

    worker: Callable[..., None]
    arguments: tuple[Any, ...]
    plan: ProcessPlan
    watchdog_seconds: float | None
    in_child: bool


class StandInWorkers:
    """Attributes:
    started: what workers were started with, in order.
    work: called with each of them in place of the workers.
    """

    def __init__(self) -> None:
        self.started: list[StartedWorkers] = []
        self.work: Callable[[StartedWorkers], object] = lambda started: None

    def start(self, started: StartedWorkers) -> None:
        self.started.append(started)
        self.work(started)


@pytest.fixture
def workers(monkeypatch) -> StandInWorkers:
    """Stand in for the workers that this process starts, and for those that it is itself."""
    stand_ins = StandInWorkers()
    for name, in_child in (("_run_workers", True), ("_run_in_place", False)):
        monkeypatch.setattr(
            spawn, name, lambda *given, in_child=in_child: stand_ins.start(StartedWorkers(*given, in_child))
        )
    return stand_ins
