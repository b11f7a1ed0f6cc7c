"""Samples of images with annotations, and how a split is opened."""

from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import count
from ...core.tasks.dataset import TransformedDataset, dataset_class, format_place
from ...core.tasks.opened_dataset import wrap_dataset
from ..settings import ImageSettings
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


def open_share(
    config: ImageSettings,
    base: type[ImageDataset],
    split: str,
    cache_folder: Path,
    part: type[DatasetPart] = DatasetPart,
) -> tuple[Any, str]:
    """Open the dataset of ``split``, which DATA.VAL_FRACTION may take from the training set.

    ``base`` is the class of the dataset, ``part`` of a part of it; indexes go to ``cache_folder``. Also return the key
    that holds out a share, with its value; empty if none does. A ``UserError`` says that the data are missing, damaged
    or of another kind, or that a user's dataset has no images, or more or fewer labels.
    """
    data, fraction, key = config.DATA, config.DATA.VAL_FRACTION, "VAL_FRACTION"
    kind = dataset_class(config, base)
    can_split = fraction is None and split in SPLITS and data.VAL_FRACTION_IF_MISSING and data.DATA_PATH
    if can_split and not data.get("VAL_ANNOTATIONS") and not kind.has_validation(data.DATA_PATH):
        fraction, key = data.VAL_FRACTION_IF_MISSING, "VAL_FRACTION_IF_MISSING"
    open_whole = getattr(kind, "whole", None)  # of class folders, which need no training folder then
    if fraction is not None and open_whole is not None:
        whole = open_whole(data.DATA_PATH, cache_folder)
        dataset = wrap_dataset(whole, "train", f"dataset {data.DATASET}")
    else:
        dataset = kind.open(config, split if fraction is None else "train", cache_folder)
    _require_equal_numbers(dataset, split, data)
    is_turned = dataset.reading is not None and dataset.reading.exif_rotate
    dataset.read_with(ReadConfig(is_turned if data.EXIF_ROTATE is None else data.EXIF_ROTATE, data.MAX_PIXELS))
    if (gigabytes := data.get("REMOTE_CACHE_GIGABYTES")) is not None:
        dataset.limit_cache(gigabytes)
    if fraction is None:
        return dataset, ""
    return hold_out(dataset, split, fraction, data.VAL_SEED, cache_folder, part), f"DATA.{key} {fraction:g}"


def _require_equal_numbers(dataset: ImageDataset, split: str, data: Any) -> None:
    if not len(dataset):
        raise UserError(f"dataset {data.DATASET} has no {split} images{format_place(data.DATA_PATH)}")
    for name in ("labels", "label_matrix"):
        labels = getattr(dataset, name)
        if labels is not None and len(labels) != len(dataset):
            raise UserError(
                f"dataset {data.DATASET} has {count(len(dataset), 'image')}, but {len(labels):,} in its attribute "
                f"'{name}'; expected labels of each image"
            )


def open_dataset(
    config: ImageSettings, base: type[ImageDataset], part: type[DatasetPart], split: str, cache_folder: Path
) -> tuple[Any, list[str]]:
    """Open the dataset of ``split`` as ``open_share`` does; also return log lines."""
    dataset, share = open_share(config, base, split, cache_folder, part)
    if not share:
        return dataset, list(dataset.notices)
    line = f"{split}: {count(len(dataset), 'image')} of the {len(dataset.dataset):,} training images; {share} "
    line += f"holds out some for validation (VAL_SEED {config.DATA.VAL_SEED}){dataset.describe_groups()}"
    return dataset, [*dataset.notices, line]
