"""Samples of segmentation, as loader processes read them, and the arrays of a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..data.held_out import DatasetPart, make_row_method
from ..data.image_samples import ImageSamples
from ..transforms.albumentations_file import AlbumentationsFile
from .data.segmentation_dataset import SegmentationDataset

HOST = "__host__"  # key of a batch for values that a step reads without the device


class LabelMapsPart(DatasetPart, SegmentationDataset):
    """A part of another dataset: the images held out for validation, or the others."""

    dataset: SegmentationDataset
    labels = None  # an image has many labels
    read_labels = make_row_method("read_labels")

    def __init__(self, dataset: SegmentationDataset, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labeled, self.palette = dataset.labeled, dataset.palette


class SegmentationSample(NamedTuple):
    """The network's input for an image, and the class of each pixel."""

    image: np.ndarray  # uint8 (3, height, width)
    labels: np.ndarray  # uint8, from 0, or ``IGNORED``: in training (height, width), else as stored, or empty
    index: int  # type: ignore[assignment]  # hides a method of tuples that is not used
    original_size: tuple[int, int]  # height and width of the stored image
    is_training: bool = False  # it is part of a batch, else evaluated alone


class SegmentationSamples(ImageSamples):
    """A dataset of images with label maps, and its transform: in training of images, labels and a generator."""

    def __init__(self, dataset: SegmentationDataset, transform: Callable[..., Any], is_training: bool) -> None:
        super().__init__(dataset)
        self.transform, self.is_training = transform, is_training
        self.augmentation: AlbumentationsFile | None = None  # applied to training samples before the transform

    def read_sample(self, index: int, generator: np.random.Generator) -> SegmentationSample:
        """Read and transform sample ``index``."""
        stored, labels = self.dataset.read(index)
        size = (stored.height, stored.width)
        if self.augmentation is not None:
            stored, labels = self.augmentation.augment_label_map(stored, labels, generator)
        if self.is_training:
            image, labels = self.transform(stored, labels, generator)
        else:
            image = self.transform(stored)
        return SegmentationSample(image, labels, index, size, self.is_training)


def collate(samples: Sequence[SegmentationSample]) -> dict[str, Any]:
    """Collate N images to a batch.

    Returns, in training, ``images`` uint8 (N, 3, H, W) and ``labels`` uint8 (N, H, W). In an evaluation, where sizes
    differ and no image is padded, ``pixels`` and ``labels`` uint8 (all images one after the other,), see
    ``split_batch``.
    """
    if samples[0].is_training:
        return {
            "images": np.stack([sample.image for sample in samples]),
            "labels": np.stack([sample.labels for sample in samples]),
        }
    facts = [(sample.index, sample.image.shape[1:], sample.labels.shape, sample.original_size) for sample in samples]
    return {
        "pixels": np.concatenate([sample.image.ravel() for sample in samples]),
        "labels": np.concatenate([sample.labels.ravel() for sample in samples]),
        HOST: facts,
    }


class EvaluatedImage(NamedTuple):
    """An image of an evaluation's batch."""

    index: int  # type: ignore[assignment]  # hides a method of tuples that is not used
    image: paddle.Tensor  # uint8 (1, 3, height, width), the network's input
    labels: paddle.Tensor  # uint8 of ``original_size``; (0, 0) for an image without labels
    original_size: tuple[int, int]  # height and width of the stored image


def split_batch(batch: dict[str, Any]) -> list[EvaluatedImage]:
    """Split an evaluation's batch into images, so that each result is independent of the other images."""
    images = []
    pixel = label = 0
    for index, (height, width), labels_shape, original_size in batch[HOST]:
        pixels, labels = 3 * height * width, labels_shape[0] * labels_shape[1]
        image = batch["pixels"][pixel : pixel + pixels].reshape([1, 3, height, width])
        image_labels = batch["labels"][label : label + labels].reshape(list(labels_shape))
        images.append(EvaluatedImage(index, image, image_labels, original_size))
        pixel, label = pixel + pixels, label + labels
    return images
