"""Functions in a thread: in order, behind the training, and not after one that failed."""

import os
import threading

import pytest

from paddlevit_dist.core.engine.background_worker import BackgroundWorker


@pytest.mark.parametrize("in_thread", [True, False])
def test_functions_run_in_order_and_stop_after_the_first_failure(in_thread):
    worker, done, threads = BackgroundWorker(in_thread), [], set()

    def work(number: int) -> None:
        threads.add(threading.get_native_id())
        done.append(number)
        if number in (3, 4):
            raise ValueError(number)

    for number in range(6):
        worker.do(lambda number=number: work(number))
    worker.wait()
    assert done == [0, 1, 2, 3]
    assert (threading.get_native_id() in threads) is not in_thread
    assert worker.take_failure().args == (3,) and worker.take_failure() is None
    worker.do(lambda: work(7))
    worker.wait()
    assert done[-1] == 7 and worker.take_failure() is None


def test_the_caller_goes_on_and_the_thread_is_nicer_until_it_is_waited_for():
    worker, begins, seen = BackgroundWorker(True), threading.Event(), []

    def look() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work() -> None:
        begins.wait(60)
        seen.append(look())

    def list_threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "saving"]

    worker.do(work)
    worker.do(lambda: seen.append("second"))
    try:
        assert seen == [] and len(list_threads()) == 2
        for thread in list_threads():
            assert os.getpriority(os.PRIO_PROCESS, thread.native_id) == min(19, look() + 10)
    finally:
        begins.set()
    worker.wait()
    assert seen[1] == "second" and look() <= seen[0] <= look() + 10 and list_threads() == []
