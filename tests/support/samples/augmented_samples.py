"""Augmented samples with everything enabled, from loaders or drawn one by one."""

import numpy as np
from PIL import Image

from paddlevit_dist.core import settings
from paddlevit_dist.core.data.loader import DeviceLoader
from paddlevit_dist.core.data.sampler import TrainingSampler, sample_generator
from paddlevit_dist.images.classification.augmentation import build_augmentation
from paddlevit_dist.images.classification.task import Classification, ClassificationSamples
from paddlevit_dist.images.transforms.crops import TrainingTransform
from paddlevit_dist.images.transforms.on_device import BOXES, COLORS, ROWS

EVERYTHING = (
    "TRAIN.AUTO_AUGMENT 3a TRAIN.COLOR_JITTER 0.3 "
    "TRAIN.RANDOM_ERASE_PROB 0.5 TRAIN.RANDOM_ERASE_MODE rand TRAIN.RANDOM_ERASE_COUNT 2 "
    "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.SMOOTHING 0.1"
).split()


TINY = "DATA.IMAGE_SIZE 16 MODEL.EMBED_DIM 16 MODEL.DEPTH 1 MODEL.NUM_HEADS 2 MODEL.PATCH_SIZE 4".split()


class Images:
    """Images of 40 x 30 noise, every fourth one gray."""

    kind, image_mode, num_classes, skipped_files = "photo", "RGB", 10, None

    def __len__(self):
        return 24

    def read(self, index):
        shape = (30, 40) if index % 4 == 0 else (30, 40, 3)
        return Image.fromarray(np.random.default_rng(index).integers(0, 256, shape, dtype=np.uint8)), index % 10

    def describe(self, index):
        return f"image {index}"


def make_task(*words) -> Classification:
    return Classification(settings.load([*TINY, *words]).values)


def make_samples(task) -> ClassificationSamples:
    augment = build_augmentation(task.config.TRAIN, task.config.DATA.IMAGENET_MEAN)
    return ClassificationSamples(Images(), TrainingTransform(16, augment=augment), task.erasing)


def loaded_by(calls, batch_size):
    """Of several numbers of loader processes and of ranks, which share a batch."""
    return [loaded(num_workers, ranks, batch_size // ranks) for num_workers, ranks in calls]


def loaded(num_workers, world_size, batch_size):
    """What loaders hand over for each sample of two epochs, over all ranks."""
    task = make_task(*EVERYTHING)
    found = []
    for rank in range(world_size):
        sampler = make_sampler(rank, world_size, batch_size)
        loader = DeviceLoader(make_samples(task), sampler, task.collate, num_workers=num_workers, seed=4)
        for number, batch in enumerate(loader.epochs(1, 2)):
            arrays = {name: tensor.numpy() for name, tensor in batch.items()}
            assert set(arrays) == {"images", "labels", ROWS, BOXES, COLORS} and arrays["images"].dtype == np.uint8
            erased = {row: k for k, row in enumerate(arrays[ROWS].tolist()) if arrays[BOXES][k].any()}
            for row in range(batch_size):
                sample = [number, arrays["images"][row].tobytes(), int(arrays["labels"][row])]
                if row in erased:
                    sample += [arrays[name][erased[row]].tobytes() for name in (BOXES, COLORS)]
                found.append(tuple(sample))
    return sorted(found)


def make_sampler(rank, world_size, batch_size):
    return TrainingSampler(Images(), batch_size, rank=rank, world_size=world_size, seed=4, repeats=3)


def drawn(world_size, batch_size):
    """The same without any loader: each sample from a generator of the seed and its key."""
    samples = make_samples(make_task(*EVERYTHING))
    found = []
    for rank in range(world_size):
        sampler, number = make_sampler(rank, world_size, batch_size), 0
        for epoch in (1, 2):
            sampler.set_position(epoch, 0)
            for keys in sampler:
                for key in keys:
                    image, label, erased = samples.sample(key.index, sample_generator(4, key))
                    sample = [number, image.tobytes(), label]
                    if erased[BOXES].any():
                        sample += [erased[name].tobytes() for name in (BOXES, COLORS)]
                    found.append(tuple(sample))
                number += 1
    return sorted(found)
