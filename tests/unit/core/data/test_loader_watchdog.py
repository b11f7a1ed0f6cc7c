"""When the loader's watchdog ends the process, leaves a wait or says that a batch is slow, on a clock of the test."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
from support.thread_ranks import acting_as

from paddlevit_dist.core.data import loader, shared_arrays
from paddlevit_dist.core.data.loader import CollateFunction
from paddlevit_dist.core.data.loader_watchdog import LoaderWatchdog, abandon
from paddlevit_dist.core.data.shared_arrays import FOLDER
from paddlevit_dist.core.launch import status
from paddlevit_dist.core.runtime import process_exit, signals

LATE = "error: no batch arrived for 8 s (DATA.LOADER_TIMEOUT_SECONDS); loader processes: "


@pytest.fixture
def watch(simulated_time, fresh_status, exit_codes, own_handlers, capsys):
    """Return a function that lets a watchdog look at some times, and returns the lines that it prints."""

    def look(watchdog, *times: float) -> str:
        for simulated_time.now in times:
            watchdog.look()
        return capsys.readouterr().err

    simulated_time.now = 100.0
    return look


def make_batches(*workers):
    def note():
        batches.ended = True

    batches = SimpleNamespace(_workers=workers, _blocking_queue=None, _thread=None, ended=False)
    batches._thread_done_event = SimpleNamespace(set=note)
    return batches


@pytest.mark.parametrize(("seconds", "between"), [(8.0, 1.0), (2.0, 0.5)])
def test_a_batch_has_its_seconds_from_the_start_of_the_wait(watch, exit_codes, seconds, between):
    watchdog = LoaderWatchdog(make_batches(), seconds, 1)
    assert watchdog.seconds_between == between
    with watchdog:
        before = status.get_status().moves
        assert watch(watchdog, 100, 100 + seconds) == "" and exit_codes == []
        assert status.get_status().moves > before  # the run's own watchdog is told
        told = watch(watchdog, 100.5 + seconds)
    assert told == LATE.replace("8", f"{seconds:g}") + "none, a thread reads the data\n" and exit_codes == [1]
    before = status.get_status().moves
    assert watch(watchdog, 1e6) == "" and status.get_status().moves == before  # nothing is waited for


def test_the_states_of_loader_processes_are_told(watch):
    ended = 2**22 + 1  # above the largest number of a process
    watchdog = LoaderWatchdog(
        make_batches(*(SimpleNamespace(pid=pid, exitcode=None) for pid in (os.getpid(), ended))), 8.0, 1
    )
    with watchdog:
        own, other = watch(watchdog, 109).removeprefix(LATE).split(", ")
    assert own.startswith(f"{os.getpid()} ") and own.split()[1] not in ("gone", "None") and other == f"{ended} gone\n"


@pytest.mark.parametrize(
    ("codes", "due", "told"),
    [
        ((None, -7, 3), 0, "process 1 with exit code -7, process 2 with exit code 3"),
        ((None, 0), 1, "process 1 with exit code 0"),
        ((0, None, -9), 1, "process 0 with exit code 0, process 2 with exit code -9"),
        ((None, 0), 0, None),
        ((None, None), 5, None),
    ],
)
def test_a_loader_process_that_died_ends_the_wait_at_once(watch, exit_codes, codes, due, told):
    workers = [SimpleNamespace(pid=number, exitcode=code) for number, code in enumerate(codes)]
    watchdog = LoaderWatchdog(make_batches(*workers), 8.0, due)
    with watchdog:
        line = watch(watchdog, 101)
    if told is None:
        assert (line, exit_codes) == ("", [])
        return
    assert line.startswith(f"error: loader {told} ended while batches were due (") and exit_codes == [1]
    by_itself = "code 0: the dataset's code, or a library that it uses, has called os._exit"
    assert (by_itself in line) == (told == "process 1 with exit code 0")


def test_a_wait_is_left_when_the_run_is_asked_to_stop_unless_it_may_not(watch):
    batches = make_batches()
    watchdog = LoaderWatchdog(batches, 8.0, 1)
    watch(watchdog, 200)
    signals.stop_after(-1e6, "TIME_LIMIT")
    watch(watchdog, 300)
    assert signals.stop_reason() == "TIME_LIMIT" and not watchdog.has_left  # nothing is waited for
    with watchdog:
        watchdog.may_leave = False
        watch(watchdog, 301)
        assert not watchdog.has_left and not batches.ended
        watchdog.may_leave = True
        watch(watchdog, 302)
    assert watchdog.has_left and batches.ended


class ArrivingBatch(LoaderWatchdog):
    """Watches a wait that ends while the watchdog looks, after it has seen the wait."""

    @property
    def may_leave(self):
        self.__exit__(None, None, None)
        return True

    @may_leave.setter
    def may_leave(self, value):
        """Leave waits that have not ended."""


def test_a_wait_that_has_just_ended_is_not_left(watch):
    batches = make_batches()
    watchdog = ArrivingBatch(batches, 8.0, 1)
    signals.stop_after(-1e6, "TIME_LIMIT")
    with watchdog:
        before = status.get_status().moves
        assert watch(watchdog, 300) == "" and signals.stop_reason() == "TIME_LIMIT"
    assert not watchdog.has_left and not batches.ended and status.get_status().moves == before


def test_a_slow_batch_is_told_once_if_other_ranks_wait(watch):
    watchdog = LoaderWatchdog(make_batches(), 600.0, 1)
    with watchdog:
        assert watch(watchdog, 150) == ""
        with acting_as(1, 2):
            assert watch(watchdog, 119.5) == ""
            told = watch(watchdog, 120, 160)
    assert told == (
        "note: rank 1 has been waiting for a batch for 20 s, and the other ranks for this one (use faster storage, "
        "more DATA.NUM_WORKERS or smaller samples)\n"
    )


@pytest.mark.parametrize(("more", "releases"), [(0, 0), (1, 2)])
def test_memory_is_returned_before_and_after_a_large_batch_is_shared(libraries, more, releases):
    prefix, half = shared_arrays.new_prefix(), 16 * 1024**2
    shared = []
    libraries[None] = SimpleNamespace(malloc_trim=lambda _: shared.append(len(list(FOLDER.glob(f"{prefix}*")))))
    readings = [1, 2]
    batch = CollateFunction(
        lambda given: {"a": np.zeros(half, "i1"), "names": list(given), "b": np.zeros(half + more, "i1")}, prefix
    )(readings)
    assert batch["names"] == [1, 2] and readings == []
    assert shared == [0, 2][:releases]
    assert len(list(FOLDER.glob(f"{prefix}*"))) == 2
    shared_arrays.remove_leftovers(prefix)


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
def test_an_abandoned_wait_leaves_no_process_and_its_thread_alone(workers, thread, has_queue):
    events = []

    def note(what):
        return SimpleNamespace(**dict.fromkeys(("set", "kill", "close"), lambda: events.append(what)))

    left = thread and SimpleNamespace(join=lambda seconds: events.append(f"thread {thread}"), is_alive=lambda: False)
    batches = SimpleNamespace(
        _thread_done_event=note("done"),
        _workers=[note(f"worker {number}") for number in range(workers)],
        _blocking_queue=note("queue") if has_queue else None,
        _thread=left,
    )
    abandon(batches)
    process_exit.end_if_in_danger(0)
    is_left = not workers and thread is not None
    ended = ["done", *[f"worker {number}" for number in range(workers)], *["queue"] * has_queue]
    assert events == [*ended, *["thread one"] * is_left]
    assert batches._thread is (None if is_left else left)


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
    for name in "ab":
        ended = [event for event in events if event.endswith(name)]
        assert ended == [f"shutdown {name}", *[f"kill {name}"] * 2, *[f"queue {name}"] * 2]
    events.clear()
    loader._unfinished.update({Batches("a"), Batches("b")})
    loader.end_loader_processes()
    assert sorted(events) == sorted(["done a", "done b", *["kill a", "kill b"] * 2])
