"""The loader: per-sample randomness, consecutive epochs, and failures with their real reason."""

import gc
import os

import numpy as np
import paddle
import pytest
from paddle.io.dataloader import dataloader_iter

from paddlevit_dist.data.loader import Loader, SampleFailure
from paddlevit_dist.data.sampler import EvaluationSampler, TrainingSampler
from paddlevit_dist.launch.devices import default_workers
from paddlevit_dist.runtime.errors import UserError


class Numbers:
    """Sample ``i`` is ``(i, a random number of its generator)``."""

    def __init__(self, size: int, fails_at: int = -1, error: Exception = None) -> None:
        self.size, self.fails_at, self.error = size, fails_at, error

    def __len__(self):
        return self.size

    def sample(self, index, generator):
        if index == self.fails_at:
            raise self.error
        return index, generator.random()

    def describe(self, index):
        return f"number {index}"


def collate(samples):
    indices, noise = zip(*samples)
    return {"index": np.array(indices, dtype=np.int64), "noise": np.array(noise)}


def loader_of(samples, num_workers=0, seed=0, world_size=1, rank=0, batch_size=4, **named) -> Loader:
    sampler = TrainingSampler(samples, batch_size, rank=rank, world_size=world_size, seed=seed)
    return Loader(samples, sampler, collate, num_workers=num_workers, seed=seed, **named)


def readings(loader: Loader, first: int, last: int, consumed: int = 0) -> dict:
    """``{(epoch position, index): noise}`` of all samples of some epochs."""
    seen = {}
    for position, batch in enumerate(loader.epochs(first, last, consumed)):
        for index, noise in zip(batch["index"].tolist(), batch["noise"].tolist()):
            seen[(position, index)] = noise
    return seen


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_the_same_sample_is_the_same_array_with_any_number_of_workers(num_workers):
    expected = readings(loader_of(Numbers(23)), 1, 3)
    assert readings(loader_of(Numbers(23), num_workers), 1, 3) == expected
    assert len(set(expected.values())) == 3 * 20


def test_the_same_sample_is_the_same_array_for_any_world_size():
    def by_index(world_size, batch_size):
        loaders = [
            loader_of(Numbers(24), world_size=world_size, rank=rank, batch_size=batch_size)
            for rank in range(world_size)
        ]
        return {key[1]: noise for loader in loaders for key, noise in readings(loader, 2, 2).items()}

    assert by_index(1, 8) == by_index(2, 4) == by_index(4, 2)


def test_noise_is_new_in_each_epoch_and_for_each_seed():
    first, second = ({k[1]: v for k, v in readings(loader_of(Numbers(8)), e, e).items()} for e in (1, 2))
    other_seed = {k[1]: v for k, v in readings(loader_of(Numbers(8), seed=1), 1, 1).items()}
    assert all(first[i] != second[i] and first[i] != other_seed[i] for i in range(8))


def test_a_resumed_epoch_continues_with_the_same_samples_and_noise():
    whole = list(readings(loader_of(Numbers(24)), 1, 2).items())
    rest = list(readings(loader_of(Numbers(24)), 1, 2, consumed=8).items())
    assert [(key[1], noise) for key, noise in rest] == [(key[1], noise) for key, noise in whole[8:]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_exception_of_a_data_set_arrives_with_sample_and_traceback(num_workers):
    loader = loader_of(Numbers(16, 7, KeyError("colour")), num_workers)
    with pytest.raises(SampleFailure, match=r"sample 7 \(number 7\): KeyError: 'colour'[\s\S]*in sample"):
        list(loader.epochs(1, 1))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_user_error_of_a_data_set_stays_one(num_workers):
    loader = loader_of(Numbers(16, 7, UserError("a.jpg cannot be read")), num_workers)
    with pytest.raises(UserError, match="^a.jpg cannot be read$"):
        list(loader.epochs(1, 1))


def test_an_exception_while_collating_arrives_too():
    def broken(samples):
        raise ValueError("no batch from this")

    samples = Numbers(8)
    loader = Loader(samples, EvaluationSampler(samples, 4, rank=0, world_size=1), broken, num_workers=0, seed=0)
    with pytest.raises(SampleFailure, match="collating a batch: ValueError: no batch from this"):
        list(loader)


def test_a_rank_without_batches_ends_at_once():
    samples = Numbers(4)
    sampler = EvaluationSampler(samples, 4, rank=2, world_size=3)
    assert list(Loader(samples, sampler, collate, num_workers=0, seed=0)) == []


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_go_to_the_device_itself_and_ahead_of_their_use(num_workers, monkeypatch):
    """Paddle's reader leaves them in pinned memory unless it is told not to; see its ``buffered_reader.cc``."""
    core = dataloader_iter.core
    made, create = [], core.create_py_reader

    def noted(*arguments):
        made.append(arguments)
        return create(*arguments)

    monkeypatch.setattr(core, "create_py_reader", noted)
    assert len(list(loader_of(Numbers(8), num_workers))) == 2
    ((_, _, _, _, _, (place,), is_buffered, _, stays_pinned, *buffer_size),) = made
    assert is_buffered and not stays_pinned and buffer_size in ([], [2])
    assert str(place) == str(paddle.framework._current_expected_place())


@pytest.mark.parametrize("processes, cores, expected", [(1, 1, 0), (1, 2, 1), (2, 2, 0), (4, 64, 8), (8, 32, 3)])
def test_default_workers_leave_a_core_to_the_training_process(processes, cores, expected):
    assert default_workers(processes, cores) == expected


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
        assert len(list(loader_of(Collecting(8), num_workers=2))) == 2
    finally:
        gc.enable()
    gc.collect()
    assert destroyed.read_text() == f"{os.getpid()}\n"
