"""The datasets in the folder given to ``prepare images``, by layout and split, and which of their images cannot be
read."""

import os
from pathlib import Path
from typing import Any

from ...data.prepare_workers import check_stop, spans, work
from ...registry import resolve
from ...runtime.errors import UserError
from ..data.class_folders import ClassFolders
from ..data.image_dataset import ImageDataset
from ..data.imagenet import FIRST_OF_KIT, LISTS
from ..data.quarantine import UnreadableFile
from ..data.reading import ReadConfig, UnreadableImage
from ..data.tar_files import find_shards

READABLE = ("folder", "imagenet2012", "tar")
_IMAGES_PER_JOB = 128


def open_input(root: str, layout: str | None, max_pixels: int, cache: Path) -> dict[str, ImageDataset]:
    """The datasets of ``root`` by split.

    Args:
        layout: one of READABLE; None: detect it.
        max_pixels: a larger image counts as unreadable.

    Raises:
        UserError: there are no images in any of these layouts.
    """
    if not os.path.isdir(root):
        raise UserError(
            f"data path {root} is not a folder; expected one of images in class folders, lists or tar files"
        )
    name = layout or find_layout(root)
    if name == "folder" and not os.path.isdir(os.path.join(root, "train")):
        datasets: dict[str, ImageDataset] = {"train": ClassFolders.whole(root, cache)}
    else:
        datasets = {split: resolve("dataset", name)(root, split, cache) for split in find_splits(root, name)}
    for dataset in datasets.values():
        dataset.read_with(ReadConfig(max_pixels=max_pixels))
    return datasets


def find_layout(root: str) -> str:
    """Which dataset reads ``root``: a list of training images decides, then tar files, then validation's form."""
    lists = {split for split, name in LISTS.items() if os.path.exists(os.path.join(root, name))}
    if "train" not in lists and any(find_shards(root, split) for split in LISTS):
        return "tar"
    return "imagenet2012" if lists or os.path.exists(os.path.join(root, "val", FIRST_OF_KIT)) else "folder"


def find_splits(root: str, name: str) -> list[str]:
    """The splits that ``root`` has in the layout ``name``; "train" if it seems to have none."""
    if name == "tar":
        found = [split for split in LISTS if find_shards(root, split)]
    elif name == "folder":
        found = ["train", *(["val"] if ClassFolders.has_validation(root) else [])]
    else:
        found = [split for split, file in LISTS.items() if os.path.exists(os.path.join(root, file))]
        found = found or [split for split in LISTS if os.path.isdir(os.path.join(root, split))]
    return found or ["train"]  # the dataset reports its absence


def check_images(datasets: dict[str, Any], workers: int) -> list[UnreadableFile]:
    """The images of all ``datasets`` that cannot be read, in their order."""
    jobs = [
        (end - first, (number, dataset, first, end))
        for number, dataset in enumerate(datasets.values())
        for first, end in spans(len(dataset), _IMAGES_PER_JOB)
    ]
    found: list[tuple[int, int, UnreadableFile]] = []
    for bad in work(_check, jobs, workers, sum(map(len, datasets.values())), "checking"):
        found += bad
    return [unreadable for _, _, unreadable in sorted(found)]


def _check(number: int, dataset: Any, first: int, end: int) -> list[tuple[int, int, UnreadableFile]]:
    bad = []
    for index in range(first, end):
        check_stop()
        try:
            dataset.read(index)
        except UnreadableImage as error:
            bad.append((number, index, UnreadableFile.of(error)))
    return bad
