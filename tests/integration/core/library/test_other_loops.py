"""Our samplers and data sets under other loops, and other data sets under our samplers."""

import pickle

import numpy as np
import paddle
import pytest

import paddlevit_dist as pv
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import SampleKey
from paddlevit_dist.core.registry.lookup import resolve


class Squares(paddle.io.Dataset):
    """A data set that knows nothing of our keys."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = np.arange(50) ** 2

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index):
        return self.numbers[index], index


@pytest.mark.parametrize("workers", [0, 2])
def test_our_samplers_give_any_data_set_its_indices(workers):
    sampler = pv.TrainingSampler(Squares(), 5, seed=3)
    epochs = []
    for epoch in (1, 2):
        sampler.set_epoch(epoch)
        batches = list(paddle.io.DataLoader(Squares(), batch_sampler=sampler, num_workers=workers))
        numbers, indices = (np.concatenate([batch[part].numpy() for batch in batches]) for part in (0, 1))
        np.testing.assert_array_equal(numbers, indices**2)
        assert sorted(indices) == list(range(50))
        epochs.append(indices.tolist())
    assert epochs[0] != epochs[1]
    evaluated = paddle.io.DataLoader(Squares(), batch_sampler=pv.EvaluationSampler(Squares(), 8), num_workers=workers)
    assert np.concatenate([batch[1].numpy() for batch in evaluated]).tolist() == list(range(50))


def test_a_key_is_its_index_and_keeps_its_epoch_and_repeat():
    key = SampleKey(3, 7, 1)
    assert [*range(10)][key] == key.index == 7 and isinstance(key, int) and type(key.index) is int
    again = pickle.loads(pickle.dumps(key))
    assert (again.epoch, again.index, again.repeat) == (3, 7, 1) and again == key
    assert key != SampleKey(3, 7, 2) and key != SampleKey(4, 7, 1) and len({key, SampleKey(3, 7, 2)}) == 2


def test_paddles_loader_has_the_batches_of_a_training():
    samples = pv.open_dataset("vit_digits", seed=5)
    sampler = pv.TrainingSampler(samples, 32, seed=samples.seed)
    sampler.set_epoch(2)
    ours = DeviceLoader(samples, sampler, samples.collate, num_workers=0, seed=samples.seed)
    for workers in (0, 2):
        theirs = paddle.io.DataLoader(samples, batch_sampler=sampler, collate_fn=samples.collate, num_workers=workers)
        for _, one, other in zip(range(3), ours, theirs):
            for name in ("images", "labels"):
                np.testing.assert_array_equal(one[name].numpy(), other[name].numpy())
    (images, labels), first = next(iter(paddle.io.DataLoader(samples, batch_sampler=sampler))), next(iter(ours))
    np.testing.assert_array_equal(images.numpy(), first["images"].numpy())  # without a collate_fn of ours
    assert labels.tolist() == first["labels"].tolist()


def test_data_sets_are_indexed_and_end():
    stored = resolve("dataset", "digits")(None, "val", None)
    assert len(list(stored)) == len(stored) == 360
    np.testing.assert_array_equal(np.asarray(stored[-1][0]), np.asarray(stored.read(359)[0]))
    for index in (360, -361):
        with pytest.raises(IndexError, match=f"index {index} of 360"):
            stored[index]
    samples = pv.open_dataset("vit_digits", "val")
    assert samples[0][0].dtype == np.uint8 and len(samples.class_names) == 10


def test_transforms_run_in_paddles_loader_processes(tmp_path):
    from PIL import Image

    for index in range(4):
        (tmp_path / f"class {index % 2}").mkdir(exist_ok=True)
        pixels = np.random.default_rng(index).integers(0, 256, (50, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"class {index % 2}" / f"{index}.png")
    with paddle.LazyGuard():
        transform = pv.create_transform(pv.create_model("resnet18"))
    images = paddle.vision.datasets.DatasetFolder(str(tmp_path), transform=transform.pixels)
    (batch, labels), *_ = paddle.io.DataLoader(images, batch_size=4, num_workers=1)
    assert labels.tolist() == [0, 0, 1, 1]
    for row, (path, _) in enumerate(images.samples):
        np.testing.assert_array_equal(transform.normalize(batch)[row].numpy(), transform(path).numpy())
