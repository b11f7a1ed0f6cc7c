"""The loader: per-sample randomness, consecutive epochs, and failures with their real reason."""

import contextlib

import pytest
from support.samples.numbers import Numbers, collate, make_loader, readings

from paddlevit_dist.data.loader import DeviceLoader, SampleFailure, _LoaderWatchdog
from paddlevit_dist.data.sampler import EvaluationSampler
from paddlevit_dist.launch.devices import default_workers


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


def test_a_rank_without_batches_ends_at_once():
    samples = Numbers(4)
    sampler = EvaluationSampler(samples, 4, rank=2, world_size=3)
    assert list(DeviceLoader(samples, sampler, collate, num_workers=0, seed=0)) == []


@pytest.mark.parametrize("processes, cores, expected", [(1, 1, 0), (1, 2, 1), (2, 2, 0), (4, 64, 8), (8, 32, 3)])
def test_default_workers_leave_a_core_to_the_training_process(processes, cores, expected):
    assert default_workers(processes, cores) == expected


def test_an_error_while_waiting_is_passed_over_only_if_the_wait_was_left():
    watchdog = _LoaderWatchdog(iter(()), 600.0, 3)
    try:
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
    finally:
        watchdog.stop()
