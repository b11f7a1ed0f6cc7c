"""Open the images of a split, perhaps after the training set is divided, and choose the number of classes."""

from pathlib import Path
from typing import Any

from ...core.registry.required_methods import is_builtin
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.printing import one_line
from ...core.tasks.class_names import require_classes
from ...core.tasks.dataset import format_place
from ..data.held_out import DatasetPart
from ..data.image_dataset import ImageDataset
from ..data.image_samples import open_share
from .settings import ClassificationSettings

VAL_FILES = "val_files.txt"


def open_images(config: ClassificationSettings, split: str, cache_folder: Path) -> tuple[ImageDataset, list[str]]:
    """Open the dataset of DATA.DATASET for ``split``; also return notes for the run's record.

    A ``UserError`` says that the data are missing or corrupt.
    """
    dataset, share = open_share(config, ImageDataset, split, cache_folder)
    notes = list(dataset.notices)
    if share and split == "val":
        notes.append(_list_part(config, dataset, share))
    return dataset, notes


def choose_num_classes(config: ClassificationSettings, dataset: Any, num_classes: int | None, fewest: int = 2) -> int:
    """Return ``num_classes``, or the dataset's if that is None.

    A ``UserError`` says that the dataset has more classes, fewer than ``fewest``, or does not say how many.
    """
    data = config.DATA
    whole = getattr(dataset, "dataset", dataset)  # not a held-out part of it
    is_own = isinstance(whole, ImageDataset) and not is_builtin(whole.own_class)
    if dataset.num_classes is None or (is_own and not dataset.num_classes):
        require_classes(whole, f"dataset {data.DATASET}")
    found = int(dataset.num_classes)
    if num_classes is None and found < fewest:
        name = f", {one_line(dataset.class_names[0])}" if dataset.class_names else ""
        has = f"has only one class{name}" if found else "has no classes"
        raise UserError(
            f"dataset {data.DATASET}{format_place(data.DATA_PATH)} {has}: a classifier needs two or more, one folder "
            "each"
        )
    if num_classes is not None and num_classes < found:
        raise UserError(
            f"dataset {data.DATASET} has labels 0 to {found - 1} but MODEL.NUM_CLASSES (-num_classes) is "
            f"{num_classes}; set it to {found} or remove it"
        )
    return found if num_classes is None else num_classes


def _list_part(config: ClassificationSettings, part: DatasetPart, share: str) -> str:
    file = Path(config.SAVE, VAL_FILES)
    with atomic_file(file) as out:
        for index in range(len(part)):
            out.write(f"{part.identity(index)}\n".encode("utf-8", "surrogateescape"))
    return (
        f"note: {len(part):,} of {len(part.dataset):,} training images are held out for validation "
        f"({share}, VAL_SEED {config.DATA.VAL_SEED}), listed in {file}{part.describe_groups()}"
    )
