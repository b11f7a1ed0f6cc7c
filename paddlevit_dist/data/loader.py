"""Batches from loader processes, with the real reason when one of them fails.

Built on ``paddle.io.DataLoader``, in which an exception of a dataset hangs the run forever (no worker processes) or
shows only as ``SystemError: Blocking queue is killed``, and a stopped worker hangs it too. So an exception
travels inside a batch as data, and a watchdog watches for workers that stay silent.
"""

import contextlib
import functools
import gc
import multiprocessing.util
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from ..distributed import StopRequested, rank, world_size
from ..launch import status, tuning
from ..launch.devices import cpu_cores, default_workers, explain_no_loaders
from ..launch.failures import end_process, explain_kill
from ..launch.spawn import die_with_parent
from ..launch.stale_resources import require_semaphores
from ..launch.watchdog import ProcessInfo
from ..runtime import process_exit, signals
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..tasks.dataset import reading_generator
from ..tasks.sample_checks import BadSample
from .sampler import SampleKey, TrainingSampler
from .shared_arrays import new_prefix, remove_leftovers, require_room, share

_FAILURE = "__failure__"
_LARGE_BYTES = 32 << 20  # for batches whose creation leaves much unused memory behind: scenes and volumes, not images
_SEMAPHORES, _SEMAPHORES_PER_WORKER = 8, 3  # of the queues and events that Paddle makes
_SLOW_SECONDS = 20.0


class SampleFailure(RuntimeError):
    """A sample could not be read or collated; the message has its index, its description and the original traceback."""


def sample_generator(seed: int, key: SampleKey, epochs: int | None = None) -> np.random.Generator:
    """The generator of everything random about one reading of one sample, in a training of so many ``epochs``."""
    return reading_generator(seed, key.epoch, key.index, key.repeat, epochs)


class _ReadingDataset(paddle.io.Dataset):
    """The function of a loader process: read one sample with its own generator; failures come back as values."""

    def __init__(self, samples: Any, seed: int, check: Callable[[Any], None] | None, epochs: int | None) -> None:
        super().__init__()
        self.samples = samples
        self.seed, self.epochs = seed, epochs
        self.check = check
        self.rank = rank()

    def __getitem__(self, key: SampleKey) -> Any:
        try:
            sample = self.samples.sample(key.index, sample_generator(self.seed, key, self.epochs))
            if self.check is not None:
                self.check(sample)
            return sample
        except (Exception, SystemExit) as error:  # sys.exit would end this process without a word
            return _SampleFailure(error, f"sample {key.index} ({describe_sample(self.samples, key.index)})", self.rank)

    def __len__(self) -> int:
        return len(self.samples)


def describe_sample(samples: Any, index: int) -> str:
    """Ask a data set what a sample is; where that fails, say why: it must not hide what is to be told of the sample."""
    try:
        return str(samples.describe(index))
    except Exception as error:  # a data set may raise anything
        return f"no description: {error}"


class _SampleFailure:
    def __init__(self, error: BaseException, where: str, rank_number: int) -> None:
        self.is_user_error = isinstance(error, UserError)
        if isinstance(error, BadSample):
            self.message = f"{where}, read by rank {rank_number}: {error}"
            return
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.message = str(error) if self.is_user_error else f"{where}: {type(error).__name__}: {error}\n{trace}"

    def as_batch(self) -> dict[str, np.ndarray]:
        """A batch with one array: Paddle's queues carry nothing else."""
        return {_FAILURE: np.frombuffer(pickle.dumps((self.is_user_error, self.message)), dtype=np.uint8).copy()}


class _CollateFunction:
    def __init__(self, collate: Callable[[Sequence[Any]], dict[str, Any]], prefix: str | None) -> None:
        self.collate = collate
        self.prefix = prefix  # of files in shared memory; None: batches stay in this process

    def __call__(self, readings: list[Any]) -> dict[str, Any]:
        for reading in readings:
            if isinstance(reading, _SampleFailure):
                return reading.as_batch()
        try:
            batch = self.collate(readings)
            if self.prefix is None:
                return batch
            is_large = sum(value.nbytes for value in batch.values() if isinstance(value, np.ndarray)) > _LARGE_BYTES
            readings.clear()
            if is_large:
                tuning.release_memory()  # what creation has left, before there are copies
            for name in list(batch):  # one by one: an array goes as soon as its copy is in shared memory
                if isinstance(batch[name], np.ndarray):
                    batch[name] = share(batch[name], self.prefix)
            if is_large:
                tuning.release_memory()
            return batch
        except (Exception, SystemExit) as error:
            return _SampleFailure(error, "collating a batch", rank()).as_batch()


class _EpochSampler(paddle.io.BatchSampler):
    """The micro-batches of several epochs in sequence, so that loader processes fetch across an epoch's end."""

    def __init__(self, sampler: TrainingSampler, first: int, last: int, consumed: int) -> None:
        self.sampler, self.first, self.last, self.consumed = sampler, first, last, consumed

    def __iter__(self) -> Iterator[list[SampleKey]]:
        for epoch in range(self.first, self.last + 1):
            yield from self.sampler.batches(epoch, self.consumed if epoch == self.first else 0)

    def __len__(self) -> int:  # asked for once, before iteration
        updates = self.sampler.updates_after(self.consumed) + self.sampler.updates_per_epoch * (self.last - self.first)
        return updates * self.sampler.accumulation_steps


class DeviceLoader:
    """Batches on this process's device.

    On a GPU a thread of Paddle's copies each array to pinned memory and from there, on a stream of its own, to the
    device, two batches ahead of the one that is asked for: copies run while the device computes, and a step that uses
    its batch neither waits nor copies it again. The device holds two batches more for it. That is so with and without
    loader processes, and in evaluation and prediction too. (By default Paddle's batches stay in pinned memory, and the
    first operator that uses an array stops until it has been copied.)

    Args:
        samples: has ``__len__``, ``sample(index, generator)`` and ``describe(index)``.
        sampler: yields lists of ``SampleKey``.
        collate: list of samples -> dictionary; runs in the loader process. Numpy arrays become tensors on the device;
            numbers, text and lists of them stay on the host, for what a step must know without asking the device.
        check: raises ``BadSample`` for a sample that must not be used; runs in the loader process.
        num_workers: loader processes; 0 reads in a thread of this process, which is also done, and told, where no
            processes can be started.
        prefetch: batches that each of them has ready or in progress in advance.
        seed: of the run.
        epochs: of the training, for samples that are read otherwise in its last ones; None: nothing is trained.
        timeout_seconds: give up when no batch arrives for this long.

    Attributes:
        may_leave: whether a wait for a batch ends with ``StopRequested`` once the run is asked to stop.
    """

    def __init__(
        self,
        samples: Any,
        sampler: Any,
        collate: Callable[[Sequence[Any]], dict[str, Any]],
        *,
        check: Callable[[Any], None] | None = None,
        num_workers: int,
        prefetch: int = 2,
        seed: int,
        epochs: int | None = None,
        timeout_seconds: float = 600.0,
    ) -> None:
        self.sampler = sampler
        self.num_workers = num_workers = _startable(num_workers)
        self.prefetch = prefetch
        self.timeout_seconds = timeout_seconds
        self.may_leave = True
        self.seconds_waited = 0.0  # for data, since it was last set to 0
        self._readings = _ReadingDataset(samples, seed, check, epochs)
        self._prefix = new_prefix() if num_workers else None
        self._collate = _CollateFunction(collate, self._prefix)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        """One pass over the sampler."""
        yield from self._batches(self.sampler)

    def epochs(self, first: int, last: int, consumed: int = 0) -> Generator[dict[str, Any], None, None]:
        """All micro-batches of the epochs ``first`` to ``last``, the first one after ``consumed`` samples."""
        yield from self._batches(_EpochSampler(self.sampler, first, last, consumed))

    def _batches(self, batch_sampler: Any) -> Iterator[dict[str, Any]]:
        loader = paddle.io.DataLoader(
            self._readings,
            batch_sampler=batch_sampler,
            collate_fn=self._collate,
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch,
            worker_init_fn=functools.partial(_begin_worker, os.getpid()),
            return_list=True,
            use_shared_memory=False,  # ours instead: see shared_arrays
        )
        loader.pin_memory = False  # to the device itself; Paddle has no argument for it
        if not len(batch_sampler):
            return
        if self.num_workers:
            needed = _SEMAPHORES + _SEMAPHORES_PER_WORKER * self.num_workers
            require_semaphores(needed, "the queues of the loader processes", "lower DATA.NUM_WORKERS")
        with signals.blocked(), _keep_child_handler():
            batches = iter(loader)
        _unfinished.add(batches)
        is_first = True
        watchdog = _LoaderWatchdog(batches, self.timeout_seconds, len(batch_sampler))
        try:
            while True:
                started = time.perf_counter()
                watchdog.may_leave = self.may_leave
                with status.during("waiting for a batch"), watchdog:
                    batch = _next(batches)
                if watchdog.has_left:
                    raise StopRequested
                self.seconds_waited += time.perf_counter() - started
                if batch is None:
                    return
                watchdog.batches_due -= 1
                if _FAILURE in batch:
                    _raise(batch[_FAILURE])
                if is_first and self._prefix is not None:
                    tensors = [value for value in batch.values() if isinstance(value, paddle.Tensor)]
                    require_room(tensors, self.prefetch * self.num_workers, self._prefix)
                is_first = False
                yield batch
        finally:
            watchdog.stop()
            if signals.stop_reason() is not None:
                _abandon(batches)
            batches = None  # ends the loader processes that are left
            if self._prefix is not None:
                remove_leftovers(self._prefix)


def _startable(num_workers: int) -> int:
    """Return how many of the loader processes can be started here."""
    reason = explain_no_loaders() if num_workers else ""
    if reason:
        _log_once(f"note: {reason}: samples are read in a thread (DATA.NUM_WORKERS 0), which may be slower")
    return 0 if reason else num_workers


@functools.cache
def _log_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _begin_worker(parent: int, worker_id: int) -> None:
    # This process must not collect what it inherited: some of Paddle's objects, such as executors, wait at their end
    # for threads that a fork does not copy (observed: forever).
    gc.freeze()
    signals.ignore_all()  # the main process handles them, and needs batches until it has come to an end
    die_with_parent(parent)


@contextlib.contextmanager
def _keep_child_handler() -> Iterator[None]:
    """Remove the SIGCHLD handler that Paddle installs: it raises wherever the main thread happens to be when a
    loader process dies. The watchdog reports it instead."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)


_unfinished: weakref.WeakSet[Any] = weakref.WeakSet()


def _end_loader_processes() -> None:
    """End what still runs at the end of this process: Python would ask with SIGTERM, and wait for ever."""
    for batches in list(_unfinished):
        batches._thread_done_event.set()  # else Paddle's thread, if it still looks, tells of unexpected ends
        for worker in _list_workers(batches):
            worker.kill()


def end_unfinished() -> None:
    """End the processes, threads and queues of loaders that nobody reads any more, in a process that goes on."""
    for batches in list(_unfinished):
        batches._try_shutdown_all()
        for queue in getattr(batches, "_indices_queues", ()):
            queue.close()


# Before Python joins its children, in the main process and in workers alike: ``atexit`` would come after that in these.
multiprocessing.util.Finalize(None, _end_loader_processes, exitpriority=100)


def _abandon(batches: Any) -> None:
    """End loader processes, and a wait for them in another thread, however long a sample may still take."""
    batches._thread_done_event.set()
    for worker in _list_workers(batches):
        worker.kill()
    queue = batches._blocking_queue
    if queue is not None:
        queue.close()
    if not _list_workers(batches) and batches._thread is not None:  # else it was abandoned before
        process_exit.leave_running(batches._thread)  # in native code, or in a sample that takes its time
        batches._thread = None


def _list_workers(batches: Any) -> Sequence[Any]:
    return getattr(batches, "_workers", [])


def _next(batches: Iterator[Any]) -> dict[str, Any] | None:
    try:
        return next(batches)
    except StopIteration:
        return None
    except (SystemError, RuntimeError) as error:
        reason = _describe_dead(_list_workers(batches), are_due=True)
        if not reason:
            raise
        raise RuntimeError(reason) from error


def _describe_dead(workers: Sequence[Any], are_due: bool) -> str:
    """Say what ended loader processes prematurely; empty if all are alive.

    Args:
        are_due: batches are still to come; without, a process may have ended by itself, with exit code 0.
    """
    codes = {worker.pid: worker.exitcode for worker in workers}
    dead = {pid: code for pid, code in codes.items() if code or (code == 0 and are_due)}
    if not dead:
        return ""
    if not any(dead.values()):
        meaning = "code 0: the data set's own code, or a library that it uses, has called os._exit"
    else:
        meaning = f"a negative code is a signal; -9: {explain_kill()}; -7: /dev/shm may be full"
    named = ", ".join(f"process {pid} with exit code {code}" for pid, code in dead.items())
    return f"loader {named} ended while batches were due ({meaning})"


def _raise(failure: paddle.Tensor) -> None:
    is_user_error, message = pickle.loads(failure.numpy().tobytes())
    raise UserError(message) if is_user_error else SampleFailure(message)


class _LoaderWatchdog:
    """Ends this process when a worker has died or a wait for data takes too long: Paddle's own ``timeout`` does not
    notice a stopped worker.

    The waiting thread is inside Paddle's queue and cannot be interrupted, so a second thread watches the clock.
    """

    def __init__(self, batches: Any, seconds: float, number: int) -> None:
        self.batches_due = number
        self.may_leave = True  # a wait ends early once the run is asked to stop
        self.has_left = False  # one has; there are no more batches
        self._batches, self._workers, self._seconds = batches, _list_workers(batches), seconds
        self._lock = threading.Lock()
        self._deadline: float | None = None
        self._is_slow_told = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loader watchdog", daemon=True)
        self._thread.start()

    def __enter__(self) -> None:
        self._deadline = time.monotonic() + self._seconds

    def __exit__(self, _: Any, error: Any, __: Any) -> bool:
        with self._lock:
            self._deadline = None
        return self.has_left and isinstance(error, Exception)  # whatever the end of the wait looked like to Paddle

    def stop(self) -> None:
        """End the watch. Nothing here keeps the loader alive any more: its end has to come in the caller's thread."""
        self._stopped.set()
        self._thread.join()
        self._batches, self._workers = None, ()

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self._seconds / 4)):
            deadline = self._deadline
            if deadline is None:
                continue
            if self.may_leave and signals.stop_reason() is not None:
                self._leave()
                if self.has_left:
                    return
                continue
            reason = _describe_dead(self._workers, self.batches_due > 0)
            if reason:
                end_process(reason)
            status.move()  # this watchdog has its own limit; the run's must only see that this process is alive
            self._log_slow(deadline)
            if time.monotonic() > deadline:
                states = ", ".join(
                    f"{worker.pid} {ProcessInfo.read(worker.pid).state or 'gone'}" for worker in self._workers
                )
                end_process(
                    f"no batch arrived for {self._seconds:g} s (DATA.LOADER_TIMEOUT_SECONDS); "
                    f"loader processes: {states or 'none, a thread reads the data'}"
                )

    def _leave(self) -> None:
        with self._lock:
            if self._deadline is not None:
                self.has_left = True
                _abandon(self._batches)

    def _log_slow(self, deadline: float) -> None:
        """Say once that this rank keeps the others waiting."""
        waited = self._seconds - (deadline - time.monotonic())
        if self._is_slow_told or waited < _SLOW_SECONDS or world_size() == 1:
            return
        self._is_slow_told = True
        print(
            f"note: rank {rank()} has been waiting for a batch for {waited:.0f} s, and the other ranks for this one "
            "(use faster storage, more DATA.NUM_WORKERS or smaller samples)",
            file=sys.stderr,
            flush=True,
        )


def build_loader(
    config: RunSettings,
    samples: Any,
    sampler: Any,
    collate: Callable[[Sequence[Any]], dict[str, Any]],
    *,
    check: Callable[[Any], None] | None = None,
    num_workers: int | None = None,
) -> DeviceLoader:
    """A loader as the configuration says; the arguments are those of ``DeviceLoader``.

    Args:
        num_workers: None: DATA.NUM_WORKERS, or by the number of cores.
    """
    data = config.DATA
    workers = data.NUM_WORKERS if num_workers is None else num_workers
    return DeviceLoader(
        samples,
        sampler,
        collate,
        check=check,
        num_workers=default_workers(world_size(), cpu_cores()) if workers is None else workers,
        prefetch=data.PREFETCH,
        seed=config.SEED,
        epochs=None if config.EVAL else config.TRAIN.NUM_EPOCHS,
        timeout_seconds=data.LOADER_TIMEOUT_SECONDS,
    )
