"""The samples of a split, as a loader process reads them, and the arrays of a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ...tasks.sample_checks import BadSample
from ..data.held_out import DatasetPart, of_row
from ..data.image_samples import ImageSamples
from .data.segmentation_dataset import SegmentationDataset

HOST = "__host__"  # key of a batch: what a step knows without asking the device


class LabelMapsPart(DatasetPart, SegmentationDataset):  # type: ignore[misc] # what both have is the first one's
    """Images of another dataset: those held out for validation, or the others."""

    dataset: Any
    labels = None  # type: ignore[assignment] # of an image there are many
    read_labels = of_row("read_labels")

    def __init__(self, dataset: Any, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labeled, self.palette = dataset.labeled, dataset.palette


class SegmentationSample(NamedTuple):
    """An image as the network sees it, and the class of each pixel.

    Attributes:
        image: uint8 (3, height, width).
        labels: uint8, from 0, or ``IGNORED``: in training (height, width), else of the image as stored; none of a new
            image.
        index: of the sample.
        original_size: height and width of the stored image.
        is_training: it goes through the network in a batch, else alone.
    """

    image: np.ndarray
    labels: np.ndarray
    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    original_size: tuple[int, int]
    is_training: bool = False


class SegmentationSamples(ImageSamples):
    """A dataset of images with label maps with its transform.

    Args:
        transform: for training, of an image and its labels with a generator; else of an image.
    """

    def __init__(self, dataset: SegmentationDataset, transform: Callable[..., Any], is_training: bool) -> None:
        super().__init__(dataset)
        self.transform, self.is_training = transform, is_training

    def read_sample(self, index: int, generator: np.random.Generator) -> SegmentationSample:
        stored, labels = self.dataset.read(index)
        size = (stored.height, stored.width)
        if labels.shape != size or labels.dtype != np.uint8:
            raise BadSample(f"its labels are {labels.dtype} {labels.shape}: expected uint8 {size}, as the image")
        if self.is_training:
            image, labels = self.transform(stored, labels, generator)
        else:
            image = self.transform(stored)
        return SegmentationSample(image, labels, index, size, self.is_training)


def collate(samples: Sequence[SegmentationSample]) -> dict[str, Any]:
    """A batch of N images.

    Returns:
        In training ``images`` uint8 (N, 3, H, W) and ``labels`` uint8 (N, H, W). In an evaluation, where sizes differ
        and no image is padded, ``pixels`` and ``labels`` uint8 (of all images one after the other,), see
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
    """An image of an evaluation's batch.

    Attributes:
        index: of the sample.
        image: uint8 (1, 3, height, width), as the network sees it.
        labels: uint8 of ``original_size``; of a new image there are none, (0, 0).
        original_size: height and width of the stored image.
    """

    index: int  # type: ignore[assignment]  # a method of tuples that nobody calls on this one
    image: paddle.Tensor
    labels: paddle.Tensor
    original_size: tuple[int, int]


def split_batch(batch: dict[str, Any]) -> list[EvaluatedImage]:
    """The images of an evaluation's batch, each by itself: no number depends on the company that it keeps."""
    images = []
    pixel = label = 0
    for index, (height, width), labeled, original_size in batch[HOST]:
        pixels, labels = 3 * height * width, labeled[0] * labeled[1]
        image = batch["pixels"][pixel : pixel + pixels].reshape([1, 3, height, width])
        own = batch["labels"][label : label + labels].reshape(list(labeled))
        images.append(EvaluatedImage(index, image, own, original_size))
        pixel, label = pixel + pixels, label + labels
    return images
