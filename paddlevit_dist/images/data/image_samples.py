"""Images of which it is known what is where: what their samples have in common, and how a split is opened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...tasks.dataset import TransformedDataset, dataset_class
from ..settings import ImageSettings
from .held_out import DatasetPart, hold_out
from .image_dataset import ImageDataset
from .odd_data import count
from .quarantine import ReplacementReader
from .reading import SPLITS, ReadConfig


class ImageSamples(TransformedDataset):
    """A dataset of images; what is done to one and to what is known of it, a subclass says in ``read_sample``."""

    dataset: Any

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.notices: list[str] = []
        self.replacements: ReplacementReader | None = None  # replaces unreadable images

    @property
    def labeled(self) -> bool:  # type: ignore[override] # the dataset knows
        return self.dataset.labeled

    @property
    def class_names(self) -> Sequence[str] | None:
        """Name of each class, in the order of labels."""
        return self.dataset.class_names

    @property
    def is_random_split(self) -> bool:  # type: ignore[override] # the dataset knows
        return self.dataset.is_random_split

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        if self.replacements is not None:
            return self.replacements.read(lambda index: self.read_sample(index, generator), index, self.dataset)
        return self.read_sample(index, generator)

    def read_sample(self, index: int, generator: np.random.Generator) -> Any:
        """Return what ``sample`` returns where no other takes its place."""
        raise NotImplementedError


def open_dataset(
    config: ImageSettings, contract: type[ImageDataset], part: type[DatasetPart], split: str, cache_folder: Path
) -> tuple[Any, list[str]]:
    """The dataset of ``split``, or what DATA.VAL_FRACTION leaves to it of the one for training, and lines about it.

    Args:
        contract: of the dataset.
        part: what some of its images become.
    Raises:
        UserError: the data are missing or damaged, or hold something else.
    """
    data, fraction, key = config.DATA, config.DATA.VAL_FRACTION, "VAL_FRACTION"
    kind = dataset_class(config, contract)
    if_missing, is_asked = data.get("VAL_FRACTION_IF_MISSING"), fraction is None and split in SPLITS
    if is_asked and if_missing and not data["VAL_ANNOTATIONS"] and not kind.has_validation(data.DATA_PATH):
        fraction, key = if_missing, "VAL_FRACTION_IF_MISSING"
    whole = kind.open(config, split if fraction is None else "train", cache_folder)
    of_images = whole.reading is not None and whole.reading.exif_rotate
    whole.read_with(ReadConfig(of_images if data.EXIF_ROTATE is None else data.EXIF_ROTATE, data.MAX_PIXELS))
    if fraction is None:
        return whole, list(whole.notices)
    dataset = hold_out(whole, split, fraction, data.VAL_SEED, cache_folder, part)
    told = f"{split}: {count(len(dataset), 'image')} of the {len(whole):,} for training, of which DATA.{key} "
    told += f"{fraction:g} holds out some for validation (VAL_SEED {data.VAL_SEED}){dataset.told()}"
    return dataset, [*whole.notices, told]
