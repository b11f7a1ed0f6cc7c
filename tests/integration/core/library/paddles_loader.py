"""What Paddle's own loader reads of our data sets, samplers and transforms; tests call these, also as programs.

Its processes are forked, and its iterator has no limit: in a process of many tests, a lock that another thread holds at
the fork would stop the test. So ``workers`` above 0 are for a program of its own, which reads every batch.
"""

import sys
from pathlib import Path

import numpy as np
import paddle

import paddlevit_dist as pv
from paddlevit_dist.core.data.loader import DeviceLoader


class Squares(paddle.io.Dataset):
    """A data set that knows nothing of our keys."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = np.arange(50) ** 2

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index):
        return self.numbers[index], index


def give_indices(workers: int) -> None:
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


def read_batches_of_a_training(workers: int) -> None:
    samples = pv.open_dataset("vit_digits", seed=5)
    sampler = pv.TrainingSampler(samples, 32, seed=samples.seed)
    sampler.set_epoch(2)
    ours = DeviceLoader(samples, sampler, samples.collate, num_workers=0, seed=samples.seed)
    theirs = paddle.io.DataLoader(samples, batch_sampler=sampler, collate_fn=samples.collate, num_workers=workers)
    pairs = list(zip(ours, theirs, strict=True))
    assert len(pairs) == len(sampler)
    for one, other in pairs:
        for name in ("images", "labels"):
            np.testing.assert_array_equal(one[name].numpy(), other[name].numpy())


def read_transformed_images(folder: str) -> None:
    from PIL import Image

    for index in range(4):
        (Path(folder) / f"class {index % 2}").mkdir(exist_ok=True)
        pixels = np.random.default_rng(index).integers(0, 256, (50, 60, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(Path(folder) / f"class {index % 2}" / f"{index}.png")
    with paddle.LazyGuard():
        transform = pv.create_transform(pv.create_model("resnet18"))
    images = paddle.vision.datasets.DatasetFolder(folder, transform=transform.pixels)
    (batch, labels), *_ = paddle.io.DataLoader(images, batch_size=4, num_workers=1)
    assert labels.tolist() == [0, 0, 1, 1]
    for row, (path, _) in enumerate(images.samples):
        np.testing.assert_array_equal(transform.normalize(batch)[row].numpy(), transform(path).numpy())


if __name__ == "__main__":
    give_indices(2)
    read_batches_of_a_training(2)
    read_transformed_images(sys.argv[1])
