"""Loader processes: the same samples with any number of them, and failures with their real reason."""

import gc
import multiprocessing
import os
import threading
from multiprocessing.reduction import ForkingPickler

import paddle
import pytest
from paddle.io.dataloader import dataloader_iter
from support.processes import HANG_SECONDS
from support.samples.numbers import Numbers, make_loader, readings

from paddlevit_dist import UserError
from paddlevit_dist.core.data.loader import SampleFailure


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_the_same_sample_is_the_same_array_with_any_number_of_workers(num_workers):
    expected = readings(make_loader(Numbers(23)), 1, 3)
    assert readings(make_loader(Numbers(23), num_workers), 1, 3) == expected
    assert len(set(expected.values())) == 3 * 20


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_of_a_data_set_arrives_with_sample_and_traceback(num_workers):
    loader = make_loader(Numbers(16, 7, KeyError("color")), num_workers)
    with pytest.raises(SampleFailure, match=r"sample 7 \(number 7\): KeyError: 'color'[\s\S]*in sample"):
        list(loader.epochs(1, 1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_user_error_of_a_data_set_stays_one(num_workers):
    loader = make_loader(Numbers(16, 7, UserError("a.jpg cannot be read")), num_workers)
    with pytest.raises(UserError, match="^a.jpg cannot be read$"):
        list(loader.epochs(1, 1))


def test_reading_that_ends_early_leaves_no_process():
    """Of Paddle's iterator they would remain: its thread refers to it for as long as it waits for batches."""
    before = multiprocessing.active_children()
    batches = iter(make_loader(Numbers(4000), 2))
    next(batches)
    started = [process for process in multiprocessing.active_children() if process not in before]
    batches.close()
    assert len(started) == 2 and not any(process.is_alive() for process in started)


def test_the_thread_that_trains_unpickles_no_batch(monkeypatch):
    """A thread of Paddle fetches them: queuing work for a GPU is all that the main thread has to do."""
    threads, loads = [], ForkingPickler.loads
    monkeypatch.setattr(
        ForkingPickler, "loads", lambda *given: threads.append(threading.current_thread()) or loads(*given)
    )
    batches = list(make_loader(Numbers(16), 1))
    assert len(batches) == 4 and len(threads) >= 4  # a thread of an earlier loader may end meanwhile
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_go_to_the_device_itself_and_ahead_of_their_use(num_workers, monkeypatch):
    """Paddle's reader leaves them in pinned memory unless it is told not to; see its ``buffered_reader.cc``."""
    core = dataloader_iter.core
    made, create = [], core.create_py_reader

    def noted(*arguments):
        made.append(arguments)
        return create(*arguments)

    monkeypatch.setattr(core, "create_py_reader", noted)
    assert len(list(make_loader(Numbers(8), num_workers))) == 2
    ((_, _, _, _, _, (place,), is_buffered, _, stays_pinned, *buffer_size),) = made
    assert is_buffered and not stays_pinned and buffer_size in ([], [2])
    assert str(place) == str(paddle.framework._current_expected_place())


def test_batches_are_fetched_and_unpickled_beside_the_training(monkeypatch):
    """By a thread of Paddle's reader, which ends with the batches: the thread that trains takes what is ready.

    From Python 3.12 on, cProfile shows the waits of that thread as those of the thread that is profiled.
    """
    threads, loads = [], ForkingPickler.loads

    def noted(*arguments):
        threads.append(threading.current_thread())
        return loads(*arguments)

    monkeypatch.setattr(ForkingPickler, "loads", staticmethod(noted))
    assert len(list(make_loader(Numbers(40), num_workers=2))) == 10
    (fetching,) = set(threads)
    assert len(threads) == 10 and fetching is not threading.current_thread()
    fetching.join(HANG_SECONDS)
    assert not fetching.is_alive()


class Circle:
    """Garbage that only the collector can find; it notes the process that destroyed it."""

    def __init__(self, path):
        self.itself, self.path = self, path

    def __del__(self):
        with open(self.path, "a", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")


class Collecting(Numbers):
    """Samples at whose reading the collector happens to run."""

    def sample(self, index, generator):
        gc.collect()
        return super().sample(index, generator)


def test_a_loader_process_does_not_destroy_what_it_has_inherited(tmp_path):
    """Executors and queues of Paddle would wait there for threads that a fork does not take along."""
    destroyed = tmp_path / "destroyed"
    gc.disable()
    try:
        Circle(destroyed)
        assert len(list(make_loader(Collecting(8), num_workers=2))) == 2
    finally:
        gc.enable()
    gc.collect()
    assert destroyed.read_text() == f"{os.getpid()}\n"
