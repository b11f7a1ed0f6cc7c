"""Orders of an epoch that are computed, against sets, counts and the order in memory."""

import itertools
import tracemalloc

import numpy as np
import pytest

from paddlevit_dist.core.data import sampler
from paddlevit_dist.core.data.sampler import MOST_IN_MEMORY, KeyedPermutation, TrainingSampler, draw_permutation


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
    np.testing.assert_array_equal(orders[0], keyed(1000, 0, 1)[positions], strict=True)
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
    large = TrainingSampler(range(100_000_000), 64, rank=1, world_size=2, seed=3)
    batches = large.batches(1, 0)
    first = [next(batches) for _ in range(20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    indices = [key.index for batch in first for key in batch]
    assert len(set(indices)) == 20 * 64 and 40_000_000 < np.mean(indices) < 60_000_000


def test_ranks_share_a_computed_order():
    def read(consumed=0, rank=0, world_size=1):
        sampler = TrainingSampler(range(MOST_IN_MEMORY + 1), 6 // world_size, rank=rank, world_size=world_size)
        return list(itertools.islice(sampler.batches(2, consumed), 17 - consumed // 6))

    single = [[key.index for key in batch] for batch in read()]
    for world_size in (2, 3):
        ranks = [read(rank=rank, world_size=world_size) for rank in range(world_size)]
        joined = [[key.index for part in parts for key in part] for parts in zip(*ranks)]
        assert joined == single
    assert [[key.index for key in batch] for batch in read(30)] == single[5:]
    assert len({index for batch in single for index in batch}) == 102


def test_bits_are_mixed_as_splitmix64_does():
    """Its first numbers from the state 0, as published with it."""
    step = 0x9E3779B97F4A7C15
    states = np.array([step * number % 2**64 for number in (1, 2, 3)], np.uint64)
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(value) for value in sampler.mix_bits(states)] == expected


def test_a_computed_order_is_that_of_a_feistel_network():
    """Also of a run that is resumed years later: in Python's integers, and as it once was."""
    size, order = 37, keyed(37, 5, 2)
    keys = np.random.default_rng([5, 2]).integers(1 << 64, size=8, dtype=np.uint64).tolist()
    assert [keyed(number, 1)._half_bits for number in (2, 4, 5, 16, 17, 64, 65, 1 << 24)] == [1, 1, 2, 2, 3, 3, 4, 12]

    def permute(value: int) -> int:
        left, right = value >> 3, value & 7
        for key in keys:
            left, right = right, left ^ int(sampler.mix_bits(np.array([right ^ key], np.uint64))[0]) & 7
        return left << 3 | right

    expected = []
    for value in map(permute, range(size)):
        while value >= size:
            value = permute(value)
        expected.append(value)
    found = order[np.arange(size)]
    assert found.tolist() == expected and found.dtype == np.int64 and len(order) == size
    assert expected[:8] == [13, 1, 12, 32, 4, 11, 14, 21]


@pytest.mark.parametrize("more, is_computed", [(0, False), (1, True)])
def test_an_order_is_computed_for_more_than_16_million_samples(more, is_computed):
    size = 16 * 1024**2 + more
    assert TrainingSampler(range(size), 4, rank=0, world_size=1).computes_order is is_computed
    drawn = draw_permutation(size if is_computed else 50, np.random.default_rng(0))
    assert isinstance(drawn.indices, KeyedPermutation) is is_computed and drawn.occurrences is None
