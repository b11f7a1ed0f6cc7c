"""From the configuration to the samples of a split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....contracts.dataset import dataset_class
from ...data.left_out import printable
from ...data.reading import Reading
from .detection_dataset import DetectionDataset
from .samples import DetectionSamples
from .transforms import evaluation_transform, training_transform


def open_samples(
    config: Any, split: str, cache_folder: Path, is_training: bool, with_masks: bool = False
) -> DetectionSamples:
    """The pictures of ``split``, with the transform for training or for an evaluation, and lines about them in their
    ``notices``.

    Args:
        is_training: samples carry what is annotated; otherwise their indices and sizes, see ``samples``.
        with_masks: those for training carry masks.
    Raises:
        UserError: the data are missing or damaged, or hold no pictures with boxes, or no masks where these are asked
            for.
    """
    data = config.DATA
    dataset = dataset_class(config, DetectionDataset).open(config, split, cache_folder)
    dataset.read_with(Reading(data.EXIF_ROTATE, data.MAX_PIXELS))
    transform = training_transform(data) if is_training else evaluation_transform(data)
    samples = DetectionSamples(dataset, transform, is_training, with_masks, data.GROUP_BY_SHAPE if is_training else 0)
    samples.notices = [printable(line) for line in dataset.notices]
    return samples
