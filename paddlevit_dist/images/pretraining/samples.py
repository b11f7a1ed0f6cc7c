"""Samples of learning without labels: images, and what a task draws for each."""

from typing import Any

import numpy as np

from ..data.image_samples import ImageSamples
from ..data.parts import PartReader
from ..transforms.crops import TrainingTransform
from .unlabeled_sources import UNKNOWN

_SEED_OF_EVALUATION = 917


class PretrainingSamples(ImageSamples):
    """Images of a split with their transform, as loader processes read them; no label of a training image is read.

    Args:
        dataset: an ``ImageDataset``.
        transform: maps an image and a generator to an array, uint8 (channels, height, width), or to several.
        is_training: random numbers are of (seed, epoch, image); else of the image alone, in every evaluation the same.
    """

    def __init__(self, dataset: Any, transform: Any, is_training: bool) -> None:
        super().__init__(dataset)
        self.transform, self.is_training, self.reader = transform, is_training, dataset.read

    def read_parts(self) -> None:
        """Decode only the part of an image that its crop needs, if the dataset has files."""
        if self.dataset.reads_parts and isinstance(self.transform, TrainingTransform):
            self.reader = PartReader(self.dataset)

    def read_sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return the transformed image, its class (-1: unknown, and in training), and what ``draw`` returns."""
        if not self.is_training:
            generator = np.random.default_rng([_SEED_OF_EVALUATION, index])
        image, label = self.reader(index)
        label = int(label) if self.has_classes and not self.is_training else UNKNOWN
        return self.transform(image, generator), label, *self.draw(generator)

    def draw(self, generator: np.random.Generator) -> tuple[Any, ...]:
        """Draw what a task needs for an image in addition to it."""
        return ()

    @property
    def has_classes(self) -> bool:
        """Whether each image has one class, by which an evaluation counts neighbors."""
        return self.dataset.labels is not None
