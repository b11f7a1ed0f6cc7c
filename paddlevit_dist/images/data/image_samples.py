"""Samples of images with annotations, and how a split is opened."""

from pathlib import Path
from typing import Any

import numpy as np

from ...tasks.dataset import TransformedDataset, dataset_class
from ..settings import ImageSettings
from .data_warnings import count
from .held_out import DatasetPart, hold_out
from .image_dataset import ImageDataset
from .quarantine import ReplacementReader
from .reading import SPLITS, ReadConfig


class ImageSamples(TransformedDataset):
    """Samples of an image dataset; subclasses read and transform one image in ``read_sample``."""

    dataset: Any

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.notices: list[str] = []
        self.replacements: ReplacementReader | None = None  # replaces unreadable images

    # the dataset knows them
    labeled = property(lambda samples: samples.dataset.labeled)
    class_names = property(lambda samples: samples.dataset.class_names)
    is_random_split = property(lambda samples: samples.dataset.is_random_split)

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read sample ``index``, or in training a replacement if it is unreadable."""
        if self.replacements is not None:
            return self.replacements.read(lambda index: self.read_sample(index, generator), index, self.dataset)
        return self.read_sample(index, generator)

    def read_sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read and transform sample ``index``."""
        raise NotImplementedError


def open_dataset(
    config: ImageSettings, base: type[ImageDataset], part: type[DatasetPart], split: str, cache_folder: Path
) -> tuple[Any, list[str]]:
    """Open the dataset of ``split``, which DATA.VAL_FRACTION may take from the training set; also return log lines.

    ``base`` is the class of the dataset, ``part`` of a part of it; indexes go to ``cache_folder``. A ``UserError`` says
    that the data are missing, damaged or of another kind.
    """
    data, fraction, key = config.DATA, config.DATA.VAL_FRACTION, "VAL_FRACTION"
    kind = dataset_class(config, base)
    if_missing, can_split = data.get("VAL_FRACTION_IF_MISSING"), fraction is None and split in SPLITS
    if can_split and if_missing and not data.get("VAL_ANNOTATIONS") and not kind.has_validation(data.DATA_PATH):
        fraction, key = if_missing, "VAL_FRACTION_IF_MISSING"
    whole = kind.open(config, split if fraction is None else "train", cache_folder)
    is_turned = whole.reading is not None and whole.reading.exif_rotate
    whole.read_with(ReadConfig(is_turned if data.EXIF_ROTATE is None else data.EXIF_ROTATE, data.MAX_PIXELS))
    if fraction is None:
        return whole, list(whole.notices)
    dataset = hold_out(whole, split, fraction, data.VAL_SEED, cache_folder, part)
    line = f"{split}: {count(len(dataset), 'image')} of the {len(whole):,} training images; DATA.{key} "
    line += f"{fraction:g} holds out some for validation (VAL_SEED {data.VAL_SEED}){dataset.describe_groups()}"
    return dataset, [*whole.notices, line]
