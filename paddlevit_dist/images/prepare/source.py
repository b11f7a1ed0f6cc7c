"""The datasets in the folder given to ``prepare images``, by layout and split, and their unreadable images."""

import functools
import os
from pathlib import Path
from typing import Any

from ...core.data.prepare_workers import check_stop, spans, work
from ...core.registry.lookup import resolve
from ...core.runtime.errors import UserError
from ...core.runtime.outages import read_through_outages
from ..data.class_folders import ClassFolders
from ..data.class_trees import find_class_tree
from ..data.image_dataset import ImageDataset
from ..data.imagenet import FIRST_OF_KIT, LISTS
from ..data.quarantine import UnreadableFile
from ..data.reading import ReadConfig, UnreadableImage
from ..data.tar_files import find_shards

READABLE = ("folder", "imagenet2012", "tar")
_IMAGES_PER_JOB = 128


def open_input(root: str, layout: str | None, max_pixels: int, cache: Path) -> dict[str, ImageDataset]:
    """Open the datasets of ``root`` by split; raise UserError if there are no images in any of these layouts.

    ``layout`` is one of READABLE, or None to detect it; an image above ``max_pixels`` counts as unreadable.
    """
    if not os.path.isdir(root):
        raise UserError(
            f"data path {root} is not a folder; expected a folder of images in class folders, lists or tar files"
        )
    name = layout or find_layout(root)
    if name == "folder" and "train" not in find_class_tree(root).splits:
        datasets: dict[str, ImageDataset] = {"train": ClassFolders.whole(root, cache)}
    else:
        datasets = {split: resolve("dataset", name)(root, split, cache) for split in find_splits(root, name)}
    for dataset in datasets.values():
        dataset.read_with(ReadConfig(max_pixels=max_pixels))
    return datasets


def find_layout(root: str) -> str:
    """Return the dataset that reads ``root``: by lists of training images, else tar files, else validation files."""
    lists = {split for split, name in LISTS.items() if os.path.exists(os.path.join(root, name))}
    if "train" not in lists and any(find_shards(root, split) for split in LISTS):
        return "tar"
    return "imagenet2012" if lists or os.path.exists(os.path.join(root, "val", FIRST_OF_KIT)) else "folder"


def find_splits(root: str, name: str) -> list[str]:
    """Return the splits of ``root`` in the layout ``name``; "train" if there seem to be none."""
    if name == "tar":
        splits = [split for split in LISTS if find_shards(root, split)]
    elif name == "folder":
        labeled = find_class_tree(root).labeled
        splits = ["train", *[split for split in ("val", "test") if split in labeled][:1]]
    else:
        splits = [split for split, file in LISTS.items() if os.path.exists(os.path.join(root, file))]
        splits = splits or [split for split in LISTS if os.path.isdir(os.path.join(root, split))]
    return splits or ["train"]  # the dataset reports that it is missing


def check_images(datasets: dict[str, Any], workers: int) -> list[UnreadableFile]:
    """Return the images of all ``datasets`` that cannot be read, in their order."""
    jobs = [
        (end - first, (number, dataset, first, end))
        for number, dataset in enumerate(datasets.values())
        for first, end in spans(len(dataset), _IMAGES_PER_JOB)
    ]
    unreadable_files: list[tuple[int, int, UnreadableFile]] = []
    for bad in work(_check, jobs, workers, sum(map(len, datasets.values())), "checking"):
        unreadable_files += bad
    return [unreadable for _, _, unreadable in sorted(unreadable_files)]


def _check(number: int, dataset: ImageDataset, first: int, end: int) -> list[tuple[int, int, UnreadableFile]]:
    bad = []
    for index in range(first, end):
        check_stop()
        try:
            read_through_outages(functools.partial(dataset.read, index), was_there=True)
        except UnreadableImage as error:
            bad.append((number, index, UnreadableFile.from_error(error)))
    return bad
