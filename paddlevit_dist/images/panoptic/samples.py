"""Samples of panoptic segmentation, as loader processes read them, and the arrays of a batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.held_out import DatasetPart, make_row_method
from ..data.image_samples import ImageSamples
from ..mask_queries.segments import MaskView
from .data.panoptic_dataset import PanopticDataset
from .data.segments import Segments

HOST = "__host__"  # key of a batch for values that a step reads without the device


class SegmentsPart(DatasetPart, PanopticDataset):
    """A part of another dataset: the images held out for validation, or the others."""

    dataset: PanopticDataset
    labels = None  # an image has many
    read_segments = make_row_method("read_segments")
    image_id = make_row_method("image_id")

    def __init__(self, dataset: PanopticDataset, rows_file: Path, is_share: bool = False) -> None:
        super().__init__(dataset, rows_file, is_share)
        self.labeled, self.palette = dataset.labeled, dataset.palette
        self.is_thing, self.category_ids = dataset.is_thing, dataset.category_ids


class PanopticSample(NamedTuple):
    """The network's input for an image, and its segments."""

    image: np.ndarray  # uint8 (3, height, width), padded at the right and the bottom
    segments: Segments | None  # in training of the input, without crowds and hidden ones; else as stored; None: unknown
    index: int  # type: ignore[assignment]  # hides a method of tuples that is not used
    view: MaskView  # where the stored image is in the input; in training without meaning
    is_training: bool = False


class PanopticSamples(ImageSamples):
    """A dataset of images with segments, and its transform: in training of images, segments and a generator."""

    def __init__(self, dataset: PanopticDataset, transform: Callable[..., Any], is_training: bool) -> None:
        super().__init__(dataset)
        self.transform, self.is_training = transform, is_training

    def read_sample(self, index: int, generator: np.random.Generator) -> PanopticSample:
        """Read and transform sample ``index``."""
        stored, segments = self.dataset.read(index)
        size = (stored.height, stored.width)
        if self.is_training:
            image, segments = self.transform(stored, segments, generator)
            return PanopticSample(image, segments, index, MaskView(size, size, size), True)
        image, inner = self.transform(stored)
        truth = segments if self.dataset.labeled else None
        return PanopticSample(image, truth, index, MaskView(image.shape[1:], inner, size))


class EvaluatedSegments(NamedTuple):
    """What an evaluation's batch has of an image on the host; loaders turn arrays into tensors, but not bytes."""

    index: int  # type: ignore[assignment]  # hides a method of tuples that is not used
    view: MaskView
    packed: tuple[bytes, list[list[int]]] | None  # its segments: places as int16, and the other columns

    @classmethod
    def pack(cls, sample: PanopticSample) -> "EvaluatedSegments":
        """Pack the host's part of a sample."""
        segments = sample.segments
        if segments is None:
            return cls(sample.index, sample.view, None)
        columns = [column.tolist() for column in segments[1:5]]
        return cls(sample.index, sample.view, (segments.places.astype(np.int16).tobytes(), columns))

    def segments(self) -> Segments | None:
        """Return the segments; None if they are not known."""
        if self.packed is None:
            return None
        places = np.frombuffer(self.packed[0], np.int16).reshape(self.view[2]).astype(np.int32)
        labels, crowds, areas, ids = self.packed[1]
        return Segments(places, *(np.array(column, np.int64) for column in (labels, crowds, areas, ids)))._replace(
            is_crowd=np.array(crowds, bool)
        )


def collate(samples: Sequence[PanopticSample]) -> dict[str, Any]:
    """Collate N images to a batch, in training with M objects in the image with most, at least 1.

    Returns:
        ``images`` uint8 (N, 3, H, W), and in training also ``places`` int16 (N, H, W), the row of each pixel's object
        in ``labels`` int64 (N, M), which is -1 where there are fewer. On the host: in training, the number of objects
        of each image; else an ``EvaluatedSegments`` of each, as a tuple.
    """
    images = np.stack([sample.image for sample in samples])
    if not samples[0].is_training:
        return {"images": images, HOST: [tuple(EvaluatedSegments.pack(sample)) for sample in samples]}
    own = [sample.segments for sample in samples if sample.segments is not None]
    counts = [len(segments.labels) for segments in own]
    labels = np.full((len(samples), max(1, *counts)), -1, np.int64)
    for row, segments in zip(labels, own):
        row[: len(segments.labels)] = segments.labels
    places = np.stack([segments.places for segments in own]).astype(np.int16)
    return {"images": images, "places": places, "labels": labels, HOST: counts}
