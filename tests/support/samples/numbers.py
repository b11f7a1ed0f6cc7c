"""A data set of numbers, and its loader."""

import numpy as np

from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import TrainingSampler


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


def make_loader(samples, num_workers=0, seed=0, world_size=1, rank=0, batch_size=4, **named) -> DeviceLoader:
    sampler = TrainingSampler(samples, batch_size, rank=rank, world_size=world_size, seed=seed)
    return DeviceLoader(samples, sampler, collate, num_workers=num_workers, seed=seed, **named)


def readings(loader: DeviceLoader, first: int, last: int, consumed: int = 0) -> dict:
    """``{(epoch position, index): noise}`` of all samples of some epochs."""
    seen = {}
    for position, batch in enumerate(loader.epochs(first, last, consumed)):
        for index, noise in zip(batch["index"].tolist(), batch["noise"].tolist()):
            seen[(position, index)] = noise
    return seen
