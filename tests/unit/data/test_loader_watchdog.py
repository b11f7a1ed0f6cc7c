"""When the loader's watchdog ends the process, leaves a wait or says that a batch is slow, on a clock of the test."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from support.thread_ranks import acting_as

from paddlevit_dist.data import loader
from paddlevit_dist.data.loader import CollateFunction, LoaderWatchdog

LATE = "no batch arrived for 8 s (DATA.LOADER_TIMEOUT_SECONDS); loader processes: "


class Ended(Exception):
    """The process would have ended."""


class Ticks:
    """An event that is set after some waits."""

    def __init__(self, number: int) -> None:
        self.left, self.waits = number, []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.left -= 1
        return self.left < 0


class Watched:
    """A watchdog whose thread has ended, so that the test looks in its place; ``now`` is the time."""

    def __init__(self, monkeypatch, seconds=8.0, due=1, workers=()) -> None:
        self.now, self.moves, self.abandoned, self.reason = 100.0, [], [], None
        self.batches = SimpleNamespace(_workers=list(workers))
        self.watchdog = LoaderWatchdog(self.batches, seconds, due)
        self.watchdog.stop()
        assert not self.watchdog._thread.is_alive() and self.watchdog._thread.daemon
        assert (self.watchdog._batches, self.watchdog._workers) == (None, ())
        self.watchdog._batches, self.watchdog._workers = self.batches, self.batches._workers

        def end(reason):
            raise Ended(reason)

        monkeypatch.setattr(loader, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(loader, "end_process", end)
        monkeypatch.setattr(loader, "abandon", self.abandoned.append)
        monkeypatch.setattr(loader.status, "move", lambda: self.moves.append(self.now))
        monkeypatch.setattr(loader.signals, "stop_reason", lambda: self.reason)

    def look(self, *times: float) -> list[float]:
        """Look at each of these times, and return how long was waited before each look."""
        waits = []
        for self.now in times:
            self.watchdog._stopped = Ticks(1)
            self.watchdog._watch()
            waits += self.watchdog._stopped.waits[:1]
        return waits


@pytest.mark.parametrize(("seconds", "between"), [(8.0, 1.0), (2.0, 0.5)])
def test_a_batch_has_its_seconds_from_the_start_of_the_wait(monkeypatch, seconds, between):
    watched = Watched(monkeypatch, seconds)
    with watched.watchdog:
        assert watched.look(100, 100 + seconds) == [between] * 2
        with pytest.raises(Ended) as ended:
            watched.look(100.5 + seconds)
    assert str(ended.value) == LATE.replace("8", f"{seconds:g}") + "none, a thread reads the data"
    assert watched.moves == [100, 100 + seconds, 100.5 + seconds]  # the run's own watchdog is told each time
    watched.look(1e6)  # nothing is waited for
    assert len(watched.moves) == 3


def test_the_states_of_loader_processes_are_told(monkeypatch):
    ended = 2**22 + 1  # above the largest number of a process
    workers = [SimpleNamespace(pid=pid, exitcode=None) for pid in (os.getpid(), ended)]
    watched = Watched(monkeypatch, workers=workers)
    with watched.watchdog, pytest.raises(Ended) as told:
        watched.look(200)
    own, other = str(told.value).removeprefix(LATE).split(", ")
    assert own.startswith(f"{os.getpid()} ") and own.split()[1] not in ("gone", "None") and other == f"{ended} gone"


@pytest.mark.parametrize(
    ("codes", "due", "told"),
    [
        ((None, -7, 3), 0, "process 1 with exit code -7, process 2 with exit code 3"),
        ((None, 0), 1, "process 1 with exit code 0"),
        ((None, 0), 0, None),
        ((None, None), 5, None),
    ],
)
def test_a_loader_process_that_died_ends_the_wait_at_once(monkeypatch, codes, due, told):
    workers = [SimpleNamespace(pid=number, exitcode=code) for number, code in enumerate(codes)]
    watched = Watched(monkeypatch, due=due, workers=workers)
    with watched.watchdog:
        if told is None:
            watched.look(101)
            return
        with pytest.raises(Ended) as ended:
            watched.look(101)
    assert str(ended.value).startswith(f"loader {told} ended while batches were due (")
    by_itself = "code 0: the dataset's code, or a library that it uses, has called os._exit"
    assert (by_itself in str(ended.value)) == (told == "process 1 with exit code 0")


def test_a_wait_is_left_when_the_run_is_asked_to_stop_unless_it_may_not(monkeypatch):
    watched = Watched(monkeypatch)
    watched.reason = "SIGTERM"
    watched.watchdog.may_leave = False
    with watched.watchdog:
        watched.look(101)
        assert not watched.watchdog.has_left and watched.moves == [101]
        watched.watchdog.may_leave = True
        watched.watchdog._stopped = Ticks(5)
        watched.watchdog._watch()
        assert len(watched.watchdog._stopped.waits) == 1  # nothing is watched any more
    assert watched.watchdog.has_left and watched.abandoned == [watched.batches] and watched.moves == [101]


def test_a_wait_that_has_just_ended_is_not_left(monkeypatch):
    watched = Watched(monkeypatch)

    def arrive_meanwhile():
        watched.watchdog._deadline = None
        return "SIGTERM"

    monkeypatch.setattr(loader.signals, "stop_reason", arrive_meanwhile)
    with watched.watchdog:
        watched.watchdog._stopped = Ticks(5)
        watched.watchdog._watch()
        assert len(watched.watchdog._stopped.waits) == 6
    assert not watched.watchdog.has_left and not watched.abandoned and not watched.moves


def test_a_slow_batch_is_told_once_if_other_ranks_wait(monkeypatch, capsys):
    watched = Watched(monkeypatch, 600.0)
    with watched.watchdog:
        watched.look(150)
        with acting_as(1, 2):
            watched.look(119.5)
            assert capsys.readouterr().err == ""
            watched.look(120, 160)
    assert capsys.readouterr().err == (
        "note: rank 1 has been waiting for a batch for 20 s, and the other ranks for this one (use faster storage, "
        "more DATA.NUM_WORKERS or smaller samples)\n"
    )


@pytest.mark.parametrize(("numbers", "releases"), [((5, 5), 0), ((6, 5), 2), ((11, 0), 2)])
def test_memory_is_returned_before_and_after_a_large_batch_is_shared(monkeypatch, numbers, releases):
    events = []
    assert loader.LARGE_BYTES == 32 * 1024**2
    monkeypatch.setattr(loader, "LARGE_BYTES", 80)
    monkeypatch.setattr(loader.tuning, "release_memory", lambda: events.append("release"))
    monkeypatch.setattr(loader, "share", lambda array, prefix: events.append(prefix) or len(array))
    readings = [1, 2]
    batch = CollateFunction(
        lambda given: {"a": np.zeros(numbers[0]), "names": list(given), "b": np.ones(numbers[1])}, "own"
    )(readings)
    assert batch == {"a": numbers[0], "names": [1, 2], "b": numbers[1]} and readings == []
    assert events == ["release"] * (releases // 2) + ["own", "own"] + ["release"] * (releases // 2)


@pytest.mark.parametrize("error", [SystemError, RuntimeError])
def test_an_error_of_the_queue_has_the_dead_process_as_its_reason_or_stays(error):
    def batches(exitcode):
        def next_batch(_):
            raise error("Blocking queue is killed")

        return type("Batches", (), {"__next__": next_batch, "_workers": [SimpleNamespace(pid=7, exitcode=exitcode)]})()

    with pytest.raises(error, match="^Blocking queue is killed$"):
        loader.next_batch(batches(None))
    for code in (0, -9):
        with pytest.raises(RuntimeError, match=rf"^loader process 7 with exit code {code} ended") as told:
            loader.next_batch(batches(code))
        assert isinstance(told.value.__cause__, error)
    assert loader.next_batch(iter(())) is None


@pytest.mark.parametrize("has_queue", [True, False])
@pytest.mark.parametrize(("workers", "thread"), [(2, "one"), (0, "one"), (0, None)])
def test_an_abandoned_wait_leaves_no_process_and_its_thread_alone(monkeypatch, workers, thread, has_queue):
    events = []

    def note(what):
        return SimpleNamespace(**dict.fromkeys(("set", "kill", "close"), lambda: events.append(what)))

    monkeypatch.setattr(loader.process_exit, "leave_running", lambda left: events.append(f"thread {left}"))
    batches = SimpleNamespace(
        _thread_done_event=note("done"),
        _workers=[note(f"worker {number}") for number in range(workers)],
        _blocking_queue=note("queue") if has_queue else None,
        _thread=thread,
    )
    loader.abandon(batches)
    is_left = not workers and thread is not None
    ended = ["done", *[f"worker {number}" for number in range(workers)], *["queue"] * has_queue]
    assert events == [*ended, *["thread one"] * is_left]
    assert batches._thread == (None if is_left else thread)


def test_loaders_that_are_no_longer_read_are_closed_or_killed(monkeypatch):
    class Batches:
        """What remains of a loader with two processes."""

        def __init__(self, name: str) -> None:
            def note(what):
                return lambda *_: events.append(f"{what} {name}")

            self._thread_done_event = SimpleNamespace(set=note("done"))
            self._workers = [SimpleNamespace(kill=note("kill"))] * 2
            self._indices_queues = [SimpleNamespace(close=note("queue"))] * 2
            self._try_shutdown_all = note("shutdown")

    events = []
    monkeypatch.setattr(loader, "_unfinished", {Batches("a"), Batches("b")})
    loader.end_unfinished()
    once, twice = ["shutdown a", "shutdown b"], ["queue a", "queue b"] * 2
    assert sorted(events) == sorted([*once, *twice])
    events.clear()
    loader.end_loader_processes()
    assert sorted(events) == sorted(["done a", "done b", *["kill a", "kill b"] * 2])
