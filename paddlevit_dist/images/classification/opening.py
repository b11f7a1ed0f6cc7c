"""Opens the images of a split, perhaps after the training set is divided."""

from pathlib import Path

from ...runtime.files import atomic_file
from ...tasks.dataset import dataset_class
from ..data.held_out import DatasetPart, hold_out
from ..data.image_dataset import ImageDataset
from ..data.reading import ReadConfig
from .settings import ClassificationSettings

VAL_FILES = "val_files.txt"


def open_images(config: ClassificationSettings, split: str, cache_folder: Path) -> tuple[ImageDataset, list[str]]:
    """Open the dataset of DATA.DATASET for ``split``; also return notes for the run's record.

    Raises:
        UserError: the data are missing or corrupt.
    """
    data = config.DATA
    kind = dataset_class(config, ImageDataset)
    fraction = data.VAL_FRACTION
    if fraction is None and data.DATA_PATH is not None and not kind.has_validation(data.DATA_PATH):
        fraction = data.VAL_FRACTION_IF_MISSING
    dataset = kind.open(config, split, cache_folder) if fraction is None else kind.whole(data.DATA_PATH, cache_folder)
    dataset.read_with(ReadConfig(bool(data.EXIF_ROTATE), data.MAX_PIXELS))
    dataset.limit_cache(data.REMOTE_CACHE_GIGABYTES)
    notes = list(dataset.notices)
    if fraction is not None:
        dataset = hold_out(dataset, split, fraction, data.VAL_SEED, cache_folder)
        if split == "val":
            notes.append(_list_part(config, dataset, fraction))
    return dataset, notes


def _list_part(config: ClassificationSettings, part: DatasetPart, fraction: float) -> str:
    data = config.DATA
    file = Path(config.SAVE, VAL_FILES)
    with atomic_file(file) as out:
        for index in range(len(part)):
            out.write(f"{part.identity(index)}\n".encode("utf-8", "surrogateescape"))
    return (
        f"note: {len(part):,} of {len(part.dataset):,} training images are held out for validation "
        f"(DATA.VAL_FRACTION {fraction:g}, VAL_SEED {data.VAL_SEED}), listed in {file}{part.describe_groups()}"
    )
