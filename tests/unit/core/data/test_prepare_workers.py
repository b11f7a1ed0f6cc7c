"""Jobs of a preparation: all are done and counted, and an error or an interruption ends the others."""

import contextlib
import os
import signal
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.data import prepare_workers
from paddlevit_dist.core.data.prepare_workers import PreparationStopped, check_stop, spans, work


class Pool:
    """Runs each job at once, in this process."""

    def __init__(self, workers, context, initializer, arguments):
        self.start, self.workers, self.ended = (initializer, arguments), workers, None
        self.handlers = []

    def submit(self, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **options):
        self.ended = options
        self.handlers.append(signal.getsignal(signal.SIGINT))


@pytest.fixture
def pools(monkeypatch):
    """The pools that were made, and the progress bars."""
    made = SimpleNamespace(pools=[], bars=[])

    def make(*arguments):
        made.pools.append(Pool(*arguments))
        return made.pools[-1]

    class Bar(contextlib.AbstractContextManager):
        def __init__(self, **options):
            self.options, self.steps = options, []
            self.update = self.steps.append
            made.bars.append(self)

        def __exit__(self, *error):
            self.is_closed = True

    monkeypatch.setattr(prepare_workers, "ProcessPoolExecutor", make)
    monkeypatch.setattr(prepare_workers, "tqdm", Bar)
    return made


def divide(dividend, divisor):
    return dividend / divisor


def test_all_jobs_are_done_and_counted(pools):
    jobs = [(5, (6, 2)), (1, (8, 2)), (7, (10, 2))]
    assert sorted(work(divide, iter(jobs), 3, 13, "decoding")) == [3.0, 4.0, 5.0]
    (pool,), (bar,) = pools.pools, pools.bars
    (initializer, (stopping, parent)) = pool.start
    assert (pool.workers, initializer, parent) == (3, prepare_workers.start_worker, os.getpid())
    assert pool.ended == {"wait": True, "cancel_futures": False} and not stopping.is_set()
    assert sorted(bar.steps) == [1, 5, 7] and bar.is_closed
    assert bar.options == {"total": 13, "desc": "decoding", "unit": "image", "disable": None, "leave": False}
    assert pool.handlers == [signal.SIG_IGN] and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    list(work(divide, [], 1, 0, "x", "scene"))
    assert pools.bars[1].options["unit"] == "scene"


def broken():
    raise BrokenProcessPool


@pytest.mark.parametrize("function, arguments, kind", [(divide, (1, 0), ZeroDivisionError), (broken, (), UserError)])
def test_a_job_that_fails_stops_the_others(pools, function, arguments, kind):
    with pytest.raises(kind) as raised:
        list(work(function, [(1, arguments)], 2, 1, "decoding"))
    (pool,) = pools.pools
    assert pool.ended == {"wait": True, "cancel_futures": True} and pool.start[1][0].is_set()
    if kind is UserError:
        assert str(raised.value) == (
            "a preparation process was killed, perhaps because memory ran out; run the same command with fewer "
            "--workers to continue"
        )


def test_a_reader_that_leaves_early_stops_the_others(pools):
    results = work(divide, [(1, (6, 2)), (1, (8, 2))], 2, 2, "decoding")
    next(results)
    results.close()
    assert pools.pools[0].start[1][0].is_set()


def test_a_second_interrupt_is_held_in_the_main_thread_only(pools):
    thread = threading.Thread(target=lambda: list(work(divide, [(1, (6, 2))], 1, 1, "x")))
    thread.start()
    thread.join()
    assert pools.pools[0].handlers == [signal.getsignal(signal.SIGINT)]


def test_a_worker_stops_at_its_next_item_and_with_its_parent(libraries, own_signals, exit_codes):
    calls, stopping = [], threading.Event()
    libraries[None] = SimpleNamespace(prctl=lambda *words: calls.append(words))
    check_stop()
    prepare_workers.start_worker(stopping, os.getppid())
    check_stop()
    stopping.set()
    with pytest.raises(PreparationStopped):
        check_stop()
    stopping.clear()
    assert calls == [(1, signal.SIGKILL)] and signal.getsignal(signal.SIGTERM) == signal.SIG_IGN and exit_codes == []


@pytest.mark.parametrize(
    "total, size, expected", [(7, 3, [(0, 3), (3, 6), (6, 7)]), (6, 3, [(0, 3), (3, 6)]), (0, 3, [])]
)
def test_ranges_cover_all_items_once(total, size, expected):
    assert spans(total, size) == expected
