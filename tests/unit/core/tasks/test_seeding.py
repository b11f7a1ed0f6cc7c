"""What a user's code draws follows from seed, epoch, index and repeat, whatever it draws from."""

import random
import sys
from types import ModuleType

import numpy as np
import pytest

from paddlevit_dist.core.data.sampler import SampleKey, TrainingSampler
from paddlevit_dist.core.tasks.dataset import TransformedDataset, reading_generator
from paddlevit_dist.core.tasks.listed_samples import ListedSamples
from paddlevit_dist.core.tasks.seeding import OwnRandomness, seed_objects

of_module = np.random.default_rng(3)


class Flip:
    """Draws as MONAI's transforms do, from a state of its own."""

    def __init__(self):
        self.state = np.random.RandomState()

    def set_random_state(self, seed=None, state=None):
        self.state = np.random.RandomState(seed)

    def __call__(self):
        return self.state.normal()


class Drawing:
    """Draws one number from each source."""

    def __init__(self):
        self.generator = np.random.default_rng(0)
        self.parts = {"steps": [random.Random(0), Flip()]}
        self.late = None
        self.epochs = []

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if self.late is None:
            self.late = Flip()
        own, flip = self.parts["steps"]
        draws = [np.random.normal(), random.random(), self.generator.normal(), own.random(), flip(), self.late()]
        return [*draws, of_module.normal()]

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def draw_order(self, generator):
        return generator.permutation(4) if self.epochs[-1] == 1 else np.zeros(4, int)


def read(samples, *key, seed=5):
    samples.seed = seed
    return samples[SampleKey(*key)]


def test_all_sources_follow_from_the_key_of_a_reading_and_from_nothing_else():
    first = read(ListedSamples(Drawing()), 1, 2, 0)
    for _ in range(3):  # another process, with other numbers drawn before
        np.random.normal(size=3)
        of_module.normal()
        assert read(ListedSamples(Drawing()), 1, 2, 0) == first
    for key, seed in (((1, 2, 1), 5), ((2, 2, 0), 5), ((1, 3, 0), 5), ((1, 2, 0), 6)):
        other = read(ListedSamples(Drawing()), *key, seed=seed)
        assert all(one != two for one, two in zip(first, other, strict=True))
    assert len(set(first)) == len(first)


def test_what_a_dataset_and_its_module_hold_is_seeded_in_a_package_of_many_objects(monkeypatch):
    crowded = ModuleType(f"{__name__.partition('.')[0]}.crowded")
    vars(crowded).update({f"value_{number}": random.Random(number) for number in range(12_000)})
    monkeypatch.setitem(sys.modules, crowded.__name__, crowded)
    of_module.normal()
    first = read(ListedSamples(Drawing()), 1, 2, 0)
    of_module.normal()
    assert read(ListedSamples(Drawing()), 1, 2, 0) == first


def test_the_libraries_are_seeded_with_the_first_number_of_the_reading():
    seed = int(reading_generator(5, 1, 2, 0).integers(1 << 32))
    expected = np.random.RandomState(seed).normal(), random.Random(seed).random()
    assert tuple(read(ListedSamples(Drawing()), 1, 2, 0)[:2]) == expected


def test_transforms_of_albumentations_draw_numbers_of_their_own():
    albumentations = pytest.importorskip("albumentations")
    steps = [albumentations.RandomBrightnessContrast(p=1), albumentations.RandomBrightnessContrast(p=1)]
    composed = albumentations.Compose(steps)
    image = np.random.default_rng(0).integers(60, 200, (8, 8, 3), dtype=np.uint8)

    def augment(seed):
        seed_objects([composed], seed)
        return composed(image=image)["image"].tolist(), [float(step.random_generator.random()) for step in steps]

    assert augment(1) == augment(1) != augment(2) and len(set(augment(1)[1])) == 2


class BuiltIn(TransformedDataset):
    __module__ = TransformedDataset.__module__  # as one of the package

    def __len__(self):
        return 4

    def sample(self, index, generator):
        return np.random.normal()


def test_nothing_is_seeded_where_no_code_of_a_user_reads():
    np.random.seed(1)
    expected = np.random.RandomState(1).normal(size=2).tolist()
    assert [read(BuiltIn(), 1, index, 0) for index in (0, 0)] == expected


def test_a_task_that_collates_itself_is_a_users_code():
    class Task:
        transform = Flip()

        def collate(self, samples):
            return {}

    assert OwnRandomness(BuiltIn(), Task().collate)._roots and not OwnRandomness(BuiltIn(), BuiltIn().sample)._roots


def test_an_order_of_a_plain_object_depends_on_the_epoch_it_is_told():
    samples = ListedSamples(Drawing())
    sampler = TrainingSampler(samples, 4, rank=0, world_size=1)
    orders = [[int(key) for batch in sampler.batches(epoch, 0) for key in batch] for epoch in (1, 2)]
    assert sorted(orders[0]) == [0, 1, 2, 3] and orders[1] == [0] * 4 and samples.dataset.epochs == [1, 2]
