"""Batches from loader processes, with the cause if one of them fails.

``paddle.io.DataLoader``, on which this module is built, hangs forever on an exception of a dataset (without worker
processes) or shows only ``SystemError: Blocking queue is killed``, and it hangs if a worker is stopped. So an exception
travels inside a batch as data, and a watchdog checks for workers that do not respond.
"""

import functools
import gc
import multiprocessing.util
import os
import pickle
import time
import traceback
import weakref
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import paddle

from ..distributed import StopRequested, rank, world_size
from ..launch import status, tuning
from ..launch.devices import cpu_cores, default_workers, startable_loaders
from ..launch.stale_resources import require_semaphores
from ..registry.required_methods import require_methods
from ..runtime import process_exit, signals
from ..runtime.errors import UserError
from ..runtime.outages import StorageOutage, read_through_outages
from ..settings.every_run import RunSettings
from ..tasks.dataset import DescribedSamples
from ..tasks.opened_dataset import name_sample
from ..tasks.sample_checks import BadSample, UnlikeSamples
from ..tasks.seeding import OwnRandomness
from .loader_watchdog import LoaderWatchdog, abandon, describe_dead, list_workers
from .sampler import SampleKey, SampleKeys, TrainingSampler, sample_generator
from .shared_arrays import new_prefix, remove_leftovers, require_room, share

_FAILURE = "__failure__"
LARGE_BYTES = 32 << 20  # creating larger batches leaves much unused memory: scenes and volumes, not images
_SEMAPHORES, _SEMAPHORES_PER_WORKER = 8, 3  # of Paddle's queues and events
_SECONDS_TO_END = 5.0  # of a loader process or thread that is no longer needed


class SampleFailure(RuntimeError):
    """A sample could not be read or collated; the message has its index, its description and the original traceback."""


class _Samples(DescribedSamples, Protocol):
    def sample(self, index: int, generator: np.random.Generator) -> Any: ...


class _ReadingDataset(paddle.io.Dataset):
    """Reads samples in a loader process, each with its own random generator; exceptions are returned as values."""

    def __init__(
        self,
        samples: _Samples,
        seed: int,
        check: Callable[[Any], None] | None,
        epochs: int | None,
        collate: Callable[[Sequence[Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        require_methods(samples.__class__, "")
        self.samples = samples
        dataset = getattr(samples, "dataset", None)
        self.remote = dataset if getattr(dataset, "is_remote", False) else None
        self.seed, self.epochs = seed, epochs
        self.check = check
        self.rank = rank()
        self._own = OwnRandomness(samples, collate)
        self._epoch: int | None = None  # of the last ``set_epoch`` in this process
        self._indices: list[int] = []  # of the samples read since the last batch, in this process

    def take_indices(self) -> list[int]:
        """Return the indices of the samples that were read for the batch that is collated next."""
        indices, self._indices = self._indices, []
        return indices

    def __getitem__(self, key: SampleKey) -> Any:
        self._indices.append(key.index)
        try:
            if key.batch is not None and self.remote is not None:
                self.remote.prefetch(key.batch)
            if key.epoch != self._epoch:
                if hasattr(self.samples, "set_epoch"):  # not of files to predict
                    self.samples.set_epoch(key.epoch)
                self._epoch = key.epoch
            make_generator = functools.partial(sample_generator, self.seed, key, self.epochs)
            read = functools.partial(self._own.read, self.samples, key.index, make_generator)
            sample = read_through_outages(read, was_there=True)
            if self.check is not None:
                self.check(sample)
            return sample
        except (Exception, SystemExit) as error:  # sys.exit would end this process silently
            return _SampleFailure(error, name_sample(self.samples, key.index), self.rank)

    def __len__(self) -> int:
        return len(self.samples)


class _SampleFailure:
    def __init__(self, error: BaseException, where: str, rank_number: int) -> None:
        self.exit_code = error.exit_code if isinstance(error, (UserError, StorageOutage)) else None
        if isinstance(error, BadSample):
            self.message = f"{where}, read by rank {rank_number}: {error.reason}"
            return
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        whole = f"{where}: {type(error).__name__}: {error}\n{trace}"
        self.message = whole if self.exit_code is None else str(error)

    def as_batch(self) -> dict[str, np.ndarray]:
        """Return a batch with one array, the pickled error: Paddle's queues carry nothing else."""
        return {_FAILURE: np.frombuffer(pickle.dumps((self.exit_code, self.message)), dtype=np.uint8).copy()}


class CollateFunction:
    """Collates readings, in a worker into shared memory; a failed reading makes the batch a failure."""

    def __init__(
        self,
        collate: Callable[[Sequence[Any]], dict[str, Any]],
        prefix: str | None,
        dataset: "_ReadingDataset | None" = None,
    ) -> None:
        self.collate = collate
        self.dataset = dataset  # that made the readings just before, in this process; None: samples have no names
        self.prefix = prefix  # of the names of files in shared memory; None: batches stay in this process

    def __call__(self, readings: list[Any]) -> dict[str, Any]:
        """Return the batch of these readings."""
        indices = self.dataset.take_indices() if self.dataset is not None else []
        for reading in readings:
            if isinstance(reading, _SampleFailure):
                return reading.as_batch()
        try:
            batch = self.collate(readings)
            if self.prefix is None:
                return batch
            is_large = sum(value.nbytes for value in batch.values() if isinstance(value, np.ndarray)) > LARGE_BYTES
            readings.clear()
            if is_large:
                tuning.release_memory()  # free what creating the batch left, before copying it
            for name in list(batch):  # one by one, so that each array is freed once it is copied
                if isinstance(batch[name], np.ndarray):
                    batch[name] = share(batch[name], self.prefix)
            if is_large:
                tuning.release_memory()
            return batch
        except (Exception, SystemExit) as error:
            if isinstance(error, UnlikeSamples) and self.dataset is not None:
                names = [name_sample(self.dataset.samples, indices[position]) for position in error.positions]
                error = UserError(f"{' and '.join(names)}: {error}")
            return _SampleFailure(error, "collating a batch", rank()).as_batch()


class EpochSampler(paddle.io.BatchSampler):
    """The micro-batches of several epochs in sequence, so that loader processes prefetch across the end of an epoch."""

    def __init__(self, sampler: TrainingSampler, first: int, last: int, consumed: int) -> None:
        self.sampler, self.first, self.last, self.consumed = sampler, first, last, consumed

    def __iter__(self) -> Iterator[SampleKeys]:
        for epoch in range(self.first, self.last + 1):
            yield from self.sampler.batches(epoch, self.consumed if epoch == self.first else 0)

    def __len__(self) -> int:  # Paddle calls it once, before iteration
        updates = self.sampler.updates_after(self.consumed) + self.sampler.updates_per_epoch * (self.last - self.first)
        return updates * self.sampler.accumulation_steps


class DeviceLoader:
    """Batches on this process's device.

    On a GPU, a thread of Paddle copies each array to pinned memory and from there, on a separate stream, to the device,
    two batches ahead, so that a step neither waits for its batch nor copies it again. The device holds two more batches
    for this, also without loader processes, and in evaluation and prediction. (By default, Paddle's batches stay in
    pinned memory, and the first operator that uses an array waits until it has been copied.)

    Args:
        samples: has ``__len__``, ``sample(index, generator)`` and ``describe(index)``.
        sampler: yields a sequence of ``SampleKey`` for each batch.
        collate: maps a list of samples to a dictionary; runs in the loader process. Numpy arrays become tensors on the
            device. Numbers, text and lists of them stay on the host, for values that a step reads without waiting.
        check: raises ``BadSample`` for a sample that must not be used; runs in the loader process.
        num_workers: loader processes. 0 reads samples in a thread of this process, which also happens, with a note, if
            processes cannot be started.
        prefetch: batches that each loader process prepares in advance.
        epochs: epochs of the training run, for augmentations that are off in the last ones; None: nothing is trained.
        timeout_seconds: end the process if no batch arrives for this long.

    Attributes:
        may_leave: whether a wait for a batch ends with ``StopRequested`` once the run is asked to stop.
        seconds_waited: seconds spent waiting for batches since it was last set to 0.
    """

    def __init__(
        self,
        samples: _Samples,
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
        self.num_workers = num_workers = startable_loaders(num_workers)
        self.prefetch = prefetch
        self.timeout_seconds = timeout_seconds
        self.may_leave = True
        self.seconds_waited = 0.0
        self._readings = _ReadingDataset(samples, seed, check, epochs, collate)
        self._prefix = new_prefix() if num_workers else None
        self._collate = CollateFunction(collate, self._prefix, self._readings)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Generator[dict[str, Any], None, None]:
        """Iterate once over the batches of the sampler."""
        return self._batches(self.sampler)

    def epochs(self, first: int, last: int, consumed: int = 0) -> Generator[dict[str, Any], None, None]:
        """Iterate over the micro-batches of epochs ``first`` to ``last``, the first after ``consumed`` samples."""
        return self._batches(EpochSampler(self.sampler, first, last, consumed))

    def _batches(self, batch_sampler: Collection[Sequence[SampleKey]]) -> Generator[dict[str, Any], None, None]:
        loader = paddle.io.DataLoader(
            self._readings,
            batch_sampler=batch_sampler,
            collate_fn=self._collate,
            num_workers=self.num_workers,
            prefetch_factor=self.prefetch,
            worker_init_fn=functools.partial(begin_worker, os.getpid()),
            return_list=True,
            use_shared_memory=False,  # shared_arrays replaces it
        )
        loader.pin_memory = False  # copy to the device itself; Paddle has no argument for it
        if not len(batch_sampler):
            return
        if self.num_workers:
            needed = _SEMAPHORES + _SEMAPHORES_PER_WORKER * self.num_workers
            require_semaphores(needed, "the queues of the loader processes", "lower DATA.NUM_WORKERS")
        with signals.blocked(), signals.child_handler_kept():
            batches = iter(loader)
        _unfinished.add(batches)
        is_first = True
        watchdog = LoaderWatchdog(batches, self.timeout_seconds, len(batch_sampler))
        watchdog.start()
        try:
            while True:
                started = time.perf_counter()
                watchdog.may_leave = self.may_leave
                with status.during("waiting for a batch"), watchdog:
                    batch = next_batch(batches)
                if watchdog.has_left:
                    raise StopRequested
                self.seconds_waited += time.perf_counter() - started
                if batch is None:
                    return
                watchdog.batches_due -= 1
                if _FAILURE in batch:
                    exit_code, message = pickle.loads(batch[_FAILURE].numpy().tobytes())
                    kinds: dict[int | None, type[Exception]] = {
                        None: SampleFailure,
                        StorageOutage.exit_code: StorageOutage,
                    }
                    raise kinds.get(exit_code, UserError)(message)
                if is_first and self._prefix is not None:
                    tensors = [value for value in batch.values() if isinstance(value, paddle.Tensor)]
                    require_room(tensors, self.prefetch * self.num_workers, self._prefix)
                is_first = False
                yield batch
        finally:
            watchdog.stop()
            # Closing waits for samples in progress, and reads queues to their end: a killed process may have left half
            # of a message in one.
            if signals.stop_reason() is not None or describe_dead(list_workers(batches), are_due=False):
                abandon(batches)
            else:
                _end(batches)
            if self._prefix is not None:
                remove_leftovers(self._prefix)


def begin_worker(parent: int, worker_id: int) -> None:
    """Prepare a loader process, which Paddle has forked."""
    # This process must not collect inherited objects: some of Paddle's, such as executors, wait in their destructor
    # for threads that a fork does not copy (observed: forever).
    gc.freeze()
    signals.ignore_all()  # the main process handles signals, and needs batches until it ends
    process_exit.die_with_parent(parent)


_unfinished: weakref.WeakSet[Any] = weakref.WeakSet()


def end_loader_processes() -> None:
    """Kill loader processes that still run when this process ends: Python would send SIGTERM and wait forever."""
    for batches in list(_unfinished):
        batches._thread_done_event.set()  # otherwise Paddle's thread may report unexpected exits
        for worker in list_workers(batches):
            worker.kill()


def end_unfinished() -> None:
    """Close processes, threads and queues of loaders that are no longer read, in a process that continues."""
    for batches in list(_unfinished):
        _end(batches)


def _end(batches: Any) -> None:
    """End processes and thread of Paddle's iterator: its thread refers to it, so that it is never garbage."""
    workers = list_workers(batches)
    if workers:
        batches._try_shutdown_all(_SECONDS_TO_END)
        for worker in workers:
            worker.kill()  # unless it has ended: its sample takes long
        for queue in batches._indices_queues:
            queue.close()
    else:
        if batches._thread is not None:  # Paddle sleeps for a second if the thread does not end at once
            batches._thread_done_event.set()
            if batches._blocking_queue is not None:
                batches._blocking_queue.close()
            batches._thread.join(_SECONDS_TO_END)
        batches._try_shutdown_all()
    _unfinished.discard(batches)


# Runs before Python joins its children, in the main process and in workers; in workers, ``atexit`` runs after that.
multiprocessing.util.Finalize(None, end_loader_processes, exitpriority=100)


def next_batch(batches: Iterator[Any]) -> dict[str, Any] | None:
    """Return the next batch, or None after the last. Raises an error if a loader process has died."""
    try:
        return next(batches)
    except StopIteration:
        return None
    except (SystemError, RuntimeError) as error:
        reason = describe_dead(list_workers(batches), are_due=True)
        if not reason:
            raise
        raise RuntimeError(reason) from error


def build_loader(
    config: RunSettings,
    dataset: _Samples,
    sampler: Any,
    collate: Callable[[Sequence[Any]], dict[str, Any]],
    *,
    check: Callable[[Any], None] | None = None,
    num_workers: int | None = None,
) -> DeviceLoader:
    """Build a ``DeviceLoader`` as configured; without DATA.NUM_WORKERS, ``num_workers`` follows from the cores."""
    data = config.DATA
    workers = data.NUM_WORKERS if num_workers is None else num_workers
    return DeviceLoader(
        dataset,
        sampler,
        collate,
        check=check,
        num_workers=default_workers(world_size(), cpu_cores()) if workers is None else workers,
        prefetch=data.PREFETCH,
        seed=config.SEED,
        epochs=None if config.EVAL else config.TRAIN.NUM_EPOCHS,
        timeout_seconds=data.LOADER_TIMEOUT_SECONDS,
    )
