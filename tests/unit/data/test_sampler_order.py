"""Orders of an epoch that are computed, against sets, counts and the order in memory."""

import tracemalloc

import numpy as np
import pytest

from paddlevit_dist.data.sampler import KeyedPermutation, TrainingSampler, draw_permutation


def keyed(size, *seed):
    return KeyedPermutation(size, np.random.default_rng(seed))


@pytest.mark.parametrize("size", [2, 3, 5, 16, 17, 1000, 1024, 1025, 4097])
def test_each_index_occurs_once(size):
    order = keyed(size, 7, 1)
    assert sorted(order[np.arange(size)].tolist()) == list(range(size))
    assert order[np.array([size - 1, 0])].tolist() == [order[np.array([k])].item() for k in (size - 1, 0)]


def test_order_changes_with_seed_and_epoch_and_repeats():
    positions = np.arange(1000)
    orders = [keyed(1000, *seed)[positions] for seed in ((0, 1), (0, 2), (1, 1))]
    assert np.array_equal(orders[0], keyed(1000, 0, 1)[positions])
    # two independent permutations agree at one position on average (a Poisson number)
    assert all(np.count_nonzero(orders[a] == orders[b]) < 8 for a, b in ((0, 1), (0, 2), (1, 2)))


def test_order_is_as_mixed_as_a_random_permutation():
    """Over 400 permutations of 37 indices, each pair (position, index) occurs 400 / 37 times: chi-squared."""
    size, draws = 37, 400
    counts = np.zeros((size, size))
    steps = np.zeros(size)
    for draw in range(draws):
        order = keyed(size, 5, draw)[np.arange(size)]
        counts[np.arange(size), order] += 1
        np.add.at(steps, np.diff(order) % size, 1)
    expected = draws / size
    statistic = ((counts - expected) ** 2).sum() / expected
    degrees = (size - 1) ** 2
    assert abs(statistic - degrees) < 4 * np.sqrt(2 * degrees)  # mean and deviation of the chi-squared distribution
    assert steps[0] == 0
    expected = draws * (size - 1) / (size - 1)  # differences of neighbors, cyclic: 36 values, all as likely
    assert ((steps[1:] - expected) ** 2).sum() / expected < 36 + 5 * np.sqrt(72)


def test_few_samples_keep_numpys_permutation():
    order = draw_permutation(1000, np.random.default_rng([3, 2]))
    indices, occurrences = order.at(np.arange(1000))
    assert np.array_equal(indices, np.random.default_rng([3, 2]).permutation(1000)) and occurrences == 0


def test_hundred_million_samples_take_no_array():
    tracemalloc.start()
    sampler = TrainingSampler(range(100_000_000), 64, rank=1, world_size=2, seed=3)
    batches = sampler.batches(1, 0)
    first = [next(batches) for _ in range(20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    indices = [key.index for batch in first for key in batch]
    assert len(set(indices)) == 20 * 64 and 40_000_000 < np.mean(indices) < 60_000_000


def test_ranks_share_a_computed_order(monkeypatch):
    monkeypatch.setattr("paddlevit_dist.data.sampler.MOST_IN_MEMORY", 50)
    data = range(103)

    single = [[key.index for key in batch] for batch in TrainingSampler(data, 6, rank=0, world_size=1).batches(2, 0)]
    for world_size in (2, 3):
        ranks = [
            list(TrainingSampler(data, 6 // world_size, rank=rank, world_size=world_size).batches(2, 0))
            for rank in range(world_size)
        ]
        joined = [[key.index for part in parts for key in part] for parts in zip(*ranks)]
        assert joined == single
    resumed = TrainingSampler(data, 6, rank=0, world_size=1).batches(2, 30)
    assert [[key.index for key in batch] for batch in resumed] == single[5:]
    assert len({index for batch in single for index in batch}) == 102
