"""Which samples each rank reads, against sets worked out by hand."""

import operator
import pickle

import numpy as np
import pytest
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core.data import sampler as sampler_module
from paddlevit_dist.core.data.sampler import EvaluationSampler, SampleKey, SampleKeys, TrainingSampler
from paddlevit_dist.core.tasks.dataset import TransformedDataset, reading_generator
from paddlevit_dist.images import ImageDataset
from paddlevit_dist.images.classification.samples import ClassificationSamples

DATA = range(103)


def training(rank=0, world_size=1, batch_size=4, accumulation_steps=1, seed=0, data=DATA, repeats=1) -> TrainingSampler:
    return TrainingSampler(
        data,
        batch_size,
        rank=rank,
        world_size=world_size,
        accumulation_steps=accumulation_steps,
        seed=seed,
        repeats=repeats,
    )


def indices(sampler) -> list:
    return [[key.index for key in batch] for batch in sampler]


def updates(world_size: int, batch_size: int, accumulation_steps: int, consumed: int = 0, seed: int = 0) -> list:
    """The set of samples of each update, over all ranks."""
    ranks = []
    for rank in range(world_size):
        sampler = training(rank, world_size, batch_size, accumulation_steps, seed)
        sampler.set_position(3, consumed)
        batches = indices(sampler)
        assert len(batches) == len(sampler)
        ranks.append([sum(batches[k : k + accumulation_steps], []) for k in range(0, len(batches), accumulation_steps)])
    return [set().union(*group) for group in zip(*ranks)]


@pytest.mark.parametrize("layout", [(2, 4, 1), (4, 2, 1), (1, 4, 2), (2, 2, 2), (1, 1, 8)])
def test_updates_take_the_same_samples_for_any_layout_of_the_same_global_batch(layout):
    assert updates(*layout) == updates(1, 8, 1)


def test_epochs_and_seeds_shuffle_differently_and_repeatably():
    def order(epoch, seed):
        sampler = training(seed=seed)
        sampler.set_epoch(epoch)
        return indices(sampler)

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(2, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != [list(range(first, first + 4)) for first in range(0, 100, 4)]


def test_iterating_does_not_advance_the_epoch():
    sampler = training()
    assert indices(sampler) == indices(sampler)


def test_keys_name_the_epoch():
    sampler = training()
    sampler.set_epoch(5)
    assert {(key.epoch, key.repeat) for batch in sampler for key in batch} == {(5, 0)}


@pytest.mark.parametrize("layout", [(2, 4, 1), (1, 2, 2), (3, 2, 1)])
def test_a_resumed_epoch_reads_what_is_left_also_with_another_layout(layout):
    whole = updates(1, 8, 1)
    rest = updates(*layout, consumed=40)
    size = layout[0] * layout[1] * layout[2]
    left = set().union(*rest)
    assert not left & set().union(*whole[:5])
    assert len(left) == (103 - 40) // size * size
    if size == 8:
        assert rest == whole[5:]


def test_a_data_set_smaller_than_one_update_is_the_users_to_mend():
    with pytest.raises(UserError, match=r"takes 104 samples .*only 103.*-batch_size or -accum_iter"):
        training(world_size=2, batch_size=26, accumulation_steps=2)


def repeated_updates(world_size, batch_size, accumulation_steps, repeats, consumed=0):
    """The (index, repeat) pairs of each update: a list with one sorted list per rank."""
    ranks = []
    for rank in range(world_size):
        sampler = training(rank, world_size, batch_size, accumulation_steps, repeats=repeats)
        sampler.set_position(3, consumed)
        batches = [[(key.index, key.repeat) for key in batch] for batch in sampler]
        assert len(batches) == len(sampler) and {len(batch) for batch in batches} == {batch_size}
        ranks.append([sum(batches[k : k + accumulation_steps], []) for k in range(0, len(batches), accumulation_steps)])
    return list(zip(*ranks))


@pytest.mark.parametrize("layout", [(2, 4, 1), (4, 2, 1), (1, 4, 2), (2, 2, 2), (1, 1, 8), (8, 1, 1)])
def test_repeated_augmentation_takes_the_same_readings_for_any_layout(layout):
    def readings(updates):
        return [sorted(sum(ranks, [])) for ranks in updates]

    assert readings(repeated_updates(*layout, repeats=3)) == readings(repeated_updates(1, 8, 1, repeats=3))


@pytest.mark.parametrize("repeats", [2, 3])
def test_an_epoch_of_repeats_has_the_usual_length_and_each_sample_that_often(repeats):
    updates = repeated_updates(2, 4, 1, repeats)
    assert len(updates) == 103 // 8
    readings = [pair for ranks in updates for rank in ranks for pair in rank]
    assert len(set(readings)) == len(readings) == 96
    by_index = {}
    for index, repeat in readings:
        by_index.setdefault(index, set()).add(repeat)
    complete = [index for index, found in by_index.items() if found == set(range(repeats))]
    assert len(by_index) == -(-96 // repeats) and len(complete) == 96 // repeats


@pytest.mark.parametrize("world_size, repeats", [(2, 2), (4, 3), (4, 4), (8, 3), (2, 3)])
def test_repeats_of_a_sample_go_to_different_ranks(world_size, repeats):
    for ranks in repeated_updates(world_size, 8 // world_size, 1, repeats):
        places = {}
        for rank, pairs in enumerate(ranks):
            for index, _ in pairs:
                places.setdefault(index, []).append(rank)
        for found in places.values():
            assert len(set(found)) == min(len(found), world_size)


def test_repeats_follow_deits_order():
    """Of the permutation with each index three times, rank r has the positions r, r + ranks, ... of its first part."""
    single = [index for ranks in repeated_updates(1, 8, 1, repeats=3) for index, _ in ranks[0]]
    sampler = training()
    sampler.set_epoch(3)
    permutation = [i for batch in indices(sampler) for i in batch]
    listed = [index for index in permutation for _ in range(3)][:96]
    assert single == listed
    for rank in range(4):
        own = [index for ranks in repeated_updates(4, 2, 1, repeats=3) for index, _ in ranks[rank]]
        assert own == listed[rank::4]


@pytest.mark.parametrize("layout", [(2, 4, 1), (1, 2, 2), (4, 2, 1)])
def test_a_resumed_epoch_of_repeats_reads_what_is_left(layout):
    whole = [pair for ranks in repeated_updates(1, 8, 1, repeats=3) for pair in ranks[0]]
    rest = [pair for ranks in repeated_updates(*layout, repeats=3, consumed=40) for rank in ranks for pair in rank]
    assert not set(rest) & set(whole[:40])
    if layout[0] * layout[1] * layout[2] == 8:
        assert sorted(rest) == sorted(whole[40:])


@pytest.mark.parametrize("size", [1, 31, 32, 33, 1003])
@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_evaluation_reads_each_sample_once_in_the_same_batches(size, world_size):
    ranks = []
    for rank in range(world_size):
        sampler = EvaluationSampler(range(size), 32, rank=rank, world_size=world_size)
        ranks.append(indices(sampler))
        assert len(sampler) == len(ranks[-1])
    batches = sorted(batch for rank in ranks for batch in rank)
    assert batches == [list(range(first, min(first + 32, size))) for first in range(0, size, 32)]


def test_counted_updates_lead_through_an_epoch_and_on_to_the_next():
    sampler = training(batch_size=8)  # 12 updates of 103 samples
    sampler.load_state_dict({"epoch": 2, "consumed": 40})
    batches = iter(sampler)
    for left in range(7, 0, -1):
        assert (sampler.updates_left, sampler.updates_made) == (left, 36 - left)
        assert {key.epoch for key in next(batches)} == {3}  # reading goes its own way
        sampler.count_update()
    assert sampler.state_dict() == {"epoch": 3, "consumed": 0}
    assert (sampler.epoch, sampler.updates_left, sampler.updates_made) == (4, 12, 36)


def test_what_is_left_of_an_epoch_and_fills_no_update_is_left_out():
    sampler = training(batch_size=80)
    sampler.load_state_dict({"epoch": 2, "consumed": 40})
    assert sampler.state_dict() == {"epoch": 3, "consumed": 0}


@pytest.mark.parametrize("sampler", [training(repeats=3), EvaluationSampler(DATA, 4, rank=1, world_size=2)])
def test_the_process_that_trains_creates_no_key(sampler, monkeypatch):
    """They would hold its interpreter for a millisecond in each update; loader processes read them."""
    with monkeypatch.context() as patch:
        patch.setattr(SampleKey, "__new__", lambda *arguments: pytest.fail("a key is created"))
        pickles = [pickle.dumps(batch) for batch in sampler]
    batches = [list(batch) for batch in sampler]
    assert [list(pickle.loads(batch)) for batch in pickles] == batches
    assert [[batch[place] for place in range(len(batch))] for batch in sampler] == batches
    assert len(batches) == len(sampler) and all(type(key) is SampleKey for batch in batches for key in batch)


def test_a_key_is_its_index_and_equals_only_the_same_reading():
    key = SampleKey(3, 7, 2)
    assert (key.epoch, key.index, key.repeat, key.batch) == (3, 7, 2, None) and type(key.index) is int
    assert repr(key) == "SampleKey(epoch=3, index=7, repeat=2)" and hash(key) == hash(7) and "abcdefgh"[key] == "h"
    copy = pickle.loads(pickle.dumps(key))
    for other in (7, copy):
        assert (operator.eq(key, other), operator.ne(key, other)) == (True, False)
    for other in (8, SampleKey(4, 7, 2), SampleKey(3, 8, 2), SampleKey(3, 7, 1)):
        assert (operator.eq(key, other), operator.ne(key, other)) == (False, True)
    assert (copy.epoch, copy.repeat) == (3, 2)


def test_keys_of_a_batch_carry_its_indices_once():
    keys = SampleKeys(3, np.array([5, 9, 5]), np.array([0, 1, 2]))
    assert len(keys) == 3 and keys[1] == SampleKey(3, 9, 1) and keys[1].batch is None
    found = list(keys)
    assert found == [SampleKey(3, 5, 0), SampleKey(3, 9, 1), SampleKey(3, 5, 2)]
    assert [key.batch for key in found] == [[5, 9, 5], None, None]


def test_repeated_indices_are_counted_in_their_order():
    order = np.random.default_rng(0).integers(0, 5, 40)
    drawn = sampler_module.count_occurrences(order)
    expected = [order[:place].tolist().count(index) for place, index in enumerate(order.tolist())]
    assert drawn.indices is order and drawn.occurrences.tolist() == expected
    found, occurrences = drawn.at(np.array([7, 3]))
    assert (found.tolist(), occurrences.tolist()) == ([order[7], order[3]], [expected[7], expected[3]])


class Weighted(ImageDataset):
    """A dataset of a user that draws the order of an epoch itself."""

    weights = np.arange(12) % 3 / 12

    def __len__(self):
        return 12

    def read(self, index):
        return None

    def draw_order(self, generator):
        return generator.choice(12, 12, p=self.weights).tolist()


class Plain(TransformedDataset):
    def __init__(self, dataset):
        self.dataset = dataset


@pytest.mark.parametrize("kind", [Plain, lambda dataset: ClassificationSamples(dataset, None)])
def test_the_order_that_a_dataset_draws_is_that_of_its_samples(kind):
    dataset = Weighted(None, "train", None)
    drawn = Weighted(None, "train", None).draw_order(np.random.default_rng([0, 1]))
    sampler = training(data=kind(dataset), batch_size=4)
    sampler.set_position(1, 0)
    assert indices(sampler) == [drawn[:4], drawn[4:8], drawn[8:]]


@pytest.mark.parametrize(
    "order", [[0, 1], np.arange(12.0), np.arange(1, 13), np.arange(-1, 11), np.zeros((12, 1), int)]
)
def test_an_order_has_an_index_for_each_sample(order):
    dataset = type("Odd", (Weighted,), {"draw_order": lambda self, generator: order})(None, "train", None)
    with pytest.raises(
        UserError, match=r"^draw_order of the training samples returns .*, expected 12 indices from 0 to 11"
    ):
        list(training(data=Plain(dataset)))


@acting_as(1, 3)
def test_samplers_are_those_of_this_process_by_default():
    sampler = TrainingSampler(DATA, 4)
    assert (sampler.local_rank, sampler.nranks, sampler.global_batch_size) == (1, 3, 12)
    assert (sampler.seed, sampler.repeats, sampler.accumulation_steps, sampler.consumed_before) == (0, 1, 1, 0)
    assert [sampler.updates_after(consumed) for consumed in (0, 91, 92, 103, 200)] == [8, 1, 0, 0, 0]
    sampler.set_position(1, 12)
    sampler.count_update()
    assert (sampler.consumed, sampler.consumed_before, sampler.computes_order) == (24, 12, False)
    evaluation = EvaluationSampler(DATA, 4)
    assert evaluation.indices() == [index for first in range(4, 103, 12) for index in range(first, min(first + 4, 103))]
    assert {(key.epoch, key.repeat) for batch in evaluation for key in batch} == {(0, 0)}


def test_randomness_of_a_reading_follows_from_its_key():
    for epochs in (9, None):
        found = sampler_module.sample_generator(5, SampleKey(3, 7, 2), epochs)
        expected = reading_generator(5, 3, 7, 2, epochs)
        assert found.random() == expected.random() and found.epochs_left == expected.epochs_left
