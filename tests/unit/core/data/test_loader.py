"""The loader: per-sample randomness, consecutive epochs, and failures with their real reason."""

import contextlib
import gc
import itertools
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from support.processes import wait_until
from support.samples.numbers import Numbers, collate, make_loader, readings
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core.data import loader as loader_module
from paddlevit_dist.core.data.loader import (
    CollateFunction,
    DeviceLoader,
    SampleFailure,
    begin_worker,
    build_loader,
)
from paddlevit_dist.core.data.loader_watchdog import LoaderWatchdog
from paddlevit_dist.core.data.sampler import EvaluationSampler, TrainingSampler
from paddlevit_dist.core.distributed import StopRequested
from paddlevit_dist.core.launch.devices import default_workers
from paddlevit_dist.core.launch.status import get_status
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.tasks.measured_task import stack_samples
from paddlevit_dist.core.tasks.sample_checks import BadSample


def test_the_same_sample_is_the_same_array_for_any_world_size():
    def by_index(world_size, batch_size):
        loaders = [
            make_loader(Numbers(24), world_size=world_size, rank=rank, batch_size=batch_size)
            for rank in range(world_size)
        ]
        return {key[1]: noise for loader in loaders for key, noise in readings(loader, 2, 2).items()}

    assert by_index(1, 8) == by_index(2, 4) == by_index(4, 2)


def test_noise_is_new_in_each_epoch_and_for_each_seed():
    first, second = ({k[1]: v for k, v in readings(make_loader(Numbers(8)), e, e).items()} for e in (1, 2))
    other_seed = {k[1]: v for k, v in readings(make_loader(Numbers(8), seed=1), 1, 1).items()}
    assert all(first[i] != second[i] and first[i] != other_seed[i] for i in range(8))


def test_a_resumed_epoch_continues_with_the_same_samples_and_noise():
    whole = list(readings(make_loader(Numbers(24)), 1, 2).items())
    rest = list(readings(make_loader(Numbers(24)), 1, 2, consumed=8).items())
    assert [(key[1], noise) for key, noise in rest] == [(key[1], noise) for key, noise in whole[8:]]


def test_an_exception_while_collating_arrives_too():
    def broken(samples):
        raise ValueError("no batch from this")

    samples = Numbers(8)
    loader = DeviceLoader(samples, EvaluationSampler(samples, 4, rank=0, world_size=1), broken, num_workers=0, seed=0)
    with pytest.raises(SampleFailure, match="collating a batch: ValueError: no batch from this"):
        list(loader)


def test_two_samples_that_no_batch_can_hold_are_named():
    class Sized(Numbers):
        def sample(self, index, generator):
            return np.ones(2 if index < 6 else 3)

        def describe(self, index):
            return f"{index}.npy"

    samples = Sized(8)
    loader = DeviceLoader(
        samples, EvaluationSampler(samples, 4, rank=0, world_size=1), stack_samples, num_workers=0, seed=0
    )
    batches = iter(loader)
    assert next(batches)["inputs"].shape == [4, 2]
    said = r"^sample 4 \(4.npy\) and sample 6 \(6.npy\): the part 'inputs' has shapes \(2,\) and \(3,\) in a batch"
    with pytest.raises(UserError, match=said):
        next(batches)


def test_a_batch_that_stays_in_this_process_is_handed_on_as_it_is():
    batch = {"index": np.arange(3), "words": ["a"]}
    assert CollateFunction(lambda samples: batch if samples == [7] else None, None)([7]) is batch
    assert batch["index"].tolist() == [0, 1, 2]


def test_reading_that_ends_early_leaves_no_thread():
    threads = set(threading.enumerate())
    batches = iter(make_loader(Numbers(4000)))
    next(batches)
    (thread,) = [thread for thread in set(threading.enumerate()) - threads if thread.name != "loader watchdog"]
    batches.close()
    assert not thread.is_alive()


def test_a_rank_without_batches_ends_at_once():
    samples = Numbers(4)
    sampler = EvaluationSampler(samples, 4, rank=2, world_size=3)
    assert list(DeviceLoader(samples, sampler, collate, num_workers=0, seed=0)) == []


@pytest.mark.parametrize("processes, cores, expected", [(1, 1, 0), (1, 2, 1), (2, 2, 0), (4, 64, 8), (8, 32, 3)])
def test_default_workers_leave_a_core_to_the_training_process(processes, cores, expected):
    assert default_workers(processes, cores) == expected


def test_an_error_while_waiting_is_passed_over_only_if_the_wait_was_left():
    watchdog = LoaderWatchdog(iter(()), 600.0, 3)
    for has_left, error, is_raised in (
        (False, ValueError, True),
        (True, ValueError, False),
        (False, KeyboardInterrupt, True),
        (True, KeyboardInterrupt, True),
    ):
        watchdog.has_left = has_left
        context = pytest.raises(error) if is_raised else contextlib.nullcontext()
        with context, watchdog:
            raise error("a test")


@pytest.mark.parametrize("consumed", [0, 8, 23])
def test_the_batches_of_several_epochs_are_counted_before_they_are_read(consumed):
    sampler = TrainingSampler(Numbers(26), 4, rank=0, world_size=1, accumulation_steps=2)
    batches = loader_module.EpochSampler(sampler, 2, 4, consumed)
    read = [list(batch) for batch in batches]
    assert len(batches) == len(read) == {0: 18, 8: 16, 23: 12}[consumed]
    assert [read[place][0].epoch for place in (0, -7, -6, -1)] == [2 if consumed < 20 else 3, 3, 4, 4]
    second = [list(batch) for batch in loader_module.EpochSampler(sampler, 3, 3, 0)]
    assert [batch for batch in read if batch[0].epoch == 3] == second


def fail(error: BaseException, at: int = 6, **named):
    samples = Numbers(8, at, error)
    sampler = EvaluationSampler(samples, 4, rank=0, world_size=1)
    return DeviceLoader(samples, sampler, collate, num_workers=0, seed=0, **named)


@pytest.mark.parametrize("error", [ValueError("no such pixel"), SystemExit(3), MemoryError()])
def test_a_sample_that_cannot_be_read_is_named_with_the_traceback(error):
    batches = iter(fail(error))
    assert next(batches)["index"].tolist() == [0, 1, 2, 3]
    with pytest.raises(SampleFailure) as failed:
        next(batches)
    first, trace, *_, last = str(failed.value).rstrip("\n").split("\n")
    assert first == f"sample 6 (number 6): {type(error).__name__}: {error}"
    assert trace == "Traceback (most recent call last):" and last.startswith(type(error).__name__)


def test_a_mistake_of_the_user_and_a_bad_sample_are_one_line():
    with pytest.raises(UserError, match="^copy the data$"):
        list(fail(UserError("copy the data")))
    checked = []

    def check(sample) -> None:
        checked.append(sample[0])
        if sample[0] == 2:
            raise BadSample("it is NaN")

    with pytest.raises(UserError, match=r"^sample 2 \(number 2\), read by rank 0: it is NaN$"):
        list(fail(ValueError(), at=-1, check=check))
    assert checked[:3] == [0, 1, 2]


class AwaitedNumbers(Numbers):
    """Reading a sample takes 10 ms from when somebody waits for it."""

    def sample(self, index, generator):
        wait_until(lambda: get_status().text == "starting: waiting for a batch", "nobody waits")
        time.sleep(0.01)
        return super().sample(index, generator)


def test_waits_are_timed_and_are_progress_of_the_run(fresh_status):
    loader, begun = make_loader(AwaitedNumbers(12)), time.perf_counter()
    for batch in loader.epochs(1, 1):
        assert batch["index"].shape == [4] and get_status().text == "starting"
    assert 12 * 0.01 <= loader.seconds_waited <= time.perf_counter() - begun


@pytest.mark.parametrize("may_leave", [True, False])
def test_a_wait_that_was_left_ends_the_loop(own_handlers, exit_codes, may_leave):
    class Stuck(Numbers):
        """Asks the run to stop while the second batch is read, which never ends if the wait may be left."""

        def sample(self, index, generator):
            if next(numbers) == 4:
                signals.stop_after(-1e6, "TIME_LIMIT")
                is_over.wait(60 if may_leave else 0)
            return super().sample(index, generator)

    numbers, is_over, read = itertools.count(), threading.Event(), []
    loader = make_loader(Stuck(12), timeout_seconds=2.0)
    loader.may_leave = may_leave
    with pytest.raises(StopRequested) if may_leave else contextlib.nullcontext():
        read.extend(batch["index"].shape for batch in loader.epochs(1, 1))
    is_over.set()
    assert loader.may_leave is may_leave and len(read) == (1 if may_leave else 3) and exit_codes == []


def test_memory_for_the_queues_of_all_loader_processes_is_needed_first(monkeypatch):
    asked = []

    def require(*words) -> None:
        asked.append(words)
        raise UserError("full")

    monkeypatch.setattr(loader_module, "require_semaphores", require)
    loader = make_loader(Numbers(12), num_workers=3, prefetch=7)
    assert (make_loader(Numbers(12)).prefetch, loader.timeout_seconds) == (2, 600.0)
    assert loader.num_workers == 3
    with pytest.raises(UserError, match="full") as raised:
        next(loader.epochs(1, 1))
    paddles = next(entry.locals["loader"] for entry in reversed(raised.traceback) if "loader" in entry.locals)
    assert (paddles.num_workers, paddles.prefetch_factor, paddles.use_shared_memory) == (3, 7, False)
    assert (len(paddles.dataset), paddles.collate_fn.collate, paddles.pin_memory) == (12, collate, False)
    assert paddles.collate_fn.prefix is not None
    start = paddles.worker_init_fn
    assert (start.func, start.args, paddles.return_list) == (loader_module.begin_worker, (os.getpid(),), True)
    assert asked == [(17, "the queues of the loader processes", "lower DATA.NUM_WORKERS")]


def test_a_loader_process_ends_with_its_parent_and_leaves_signals_to_it(libraries, own_signals, exit_codes):
    calls = []
    libraries[None] = SimpleNamespace(prctl=lambda *words: calls.append(words))
    try:
        begin_worker(os.getppid(), 2)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    assert signal.getsignal(signal.SIGTERM) == signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert calls == [(1, signal.SIGKILL)] and exit_codes == []  # PR_SET_PDEATHSIG
    begin_worker(os.getppid() + 1, 2)
    gc.unfreeze()
    assert exit_codes == [1]


def configure(workers, is_evaluation=False) -> SimpleNamespace:
    data = SimpleNamespace(NUM_WORKERS=workers, PREFETCH=7, LOADER_TIMEOUT_SECONDS=11.0)
    return SimpleNamespace(DATA=data, SEED=13, EVAL=is_evaluation, TRAIN=SimpleNamespace(NUM_EPOCHS=17))


@pytest.mark.parametrize(
    "key, argument, is_evaluation, workers",
    [(None, None, False, 3), (None, 5, False, 5), (2, None, True, 2), (0, None, False, 0), (2, 0, True, 0)],
)
def test_a_loader_has_the_processes_that_are_configured(machine, key, argument, is_evaluation, workers):
    machine.cores = 9
    with acting_as(0, 2):
        loader = build_loader(configure(key, is_evaluation), Numbers(4), None, collate, num_workers=argument)
    assert (loader.num_workers, loader.prefetch, loader.timeout_seconds) == (workers, 7, 11.0)


@pytest.mark.parametrize("is_evaluation", [True, False])
def test_samples_are_drawn_and_checked_as_configured(is_evaluation):
    class Drawn(Numbers):
        def sample(self, index, generator):
            epochs_left.append(generator.epochs_left)
            return super().sample(index, generator)

    epochs_left, checked, samples = [], [], Drawn(8)
    loader = build_loader(
        configure(0, is_evaluation), samples, make_loader(samples, seed=13).sampler, collate, check=checked.append
    )
    assert readings(loader, 1, 1) == readings(make_loader(Numbers(8), seed=13), 1, 1)
    assert set(epochs_left) == {None if is_evaluation else 16} and len(checked) == 8


def test_only_remote_data_is_fetched_in_batches():
    samples = Numbers(4)
    samples.dataset = object()
    assert sum(batch["index"].shape[0] for batch in make_loader(samples).epochs(1, 1)) == 4
