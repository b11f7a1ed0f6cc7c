"""Images without labels, or with labels that are not read, at one or several places."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ..data.class_trees import find_class_tree
from ..data.formats import SkippedFiles, list_folders
from ..data.image_dataset import ImageDataset
from ..data.reading import ReadConfig
from .unlabeled_sources import LAYOUT, UNKNOWN, open_place


class UnlabeledImages(ImageDataset):
    """Images at one or several places, in the order of the places; labels of training images are not read.

    Folders that hold ``train`` and ``val`` are split so; of any other place all images are training images. Validation
    images in two or more folders have these as classes.
    """

    reading = ReadConfig()
    reads_parts = True

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, more_paths: Sequence[str] = ()) -> None:
        """List the images of ``split`` at all places; indexes go to ``cache_folder``.

        A ``UserError`` says that a place does not exist or has no images, or that there are no images of the split.
        """
        if data_path is None:
            raise UserError(f"dataset unlabeled needs -data_path: {LAYOUT}")
        self.split = split
        sources = open_place(os.fspath(data_path), split, cache_folder)
        for place in more_paths if split == "train" else ():
            try:
                sources += open_place(os.fspath(place), split, cache_folder)
            except UserError as error:
                raise UserError(f"PRETRAINING.MORE_PATHS: {error}") from None
        self._sources = [source for source in sources if len(source)]
        if not self._sources:
            raise UserError(
                f"{data_path} has no {split} images: hold out some with DATA.VAL_FRACTION 0.01, or name images with "
                "classes with PRETRAINING.LABELED_PATH"
            )
        self._ends = np.cumsum([len(source) for source in self._sources])
        self.is_remote = any(source.is_remote for source in self._sources)
        self.notices = [line for source in sources for line in source.notices]
        self.skipped_files = _merge_skipped(data_path, [source.skipped_files for source in sources])
        only = self._sources[0] if len(self._sources) == 1 else None
        self.root = None if only is None else only.root
        if only is not None and only.labels is not None and split != "train":
            self.labels, self.class_names, self.num_classes = only.labels, only.class_names, only.num_classes

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "UnlabeledImages":
        """Open the images that the configuration names."""
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.PRETRAINING.MORE_PATHS)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there are tar files, or next to training images a folder, of validation images."""
        if data_path is None or not os.path.isdir(data_path):
            return False
        folders = find_class_tree(data_path).splits
        return "train" in folders and bool({"val", "test"} & set(folders))

    @staticmethod
    def has_validation_classes(data_path: str | None) -> bool:
        """Return whether there is a folder of validation images with two or more folders, which are their classes."""
        if data_path is None or not UnlabeledImages.has_validation(data_path):
            return False
        folders = find_class_tree(data_path).splits
        return len(list_folders(os.path.join(data_path, folders.get("val", folders.get("test", ""))))) > 1

    def __getstate__(self) -> Any:
        # They may be many, and only the process that listed the data reports them.
        return {**self.__dict__, "skipped_files": None}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of an image's source, and its index there."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        return number, index - (int(self._ends[number - 1]) if number else 0)

    def _find(self, index: int) -> tuple[Any, int]:
        """Return the source of an image and its index there."""
        number, row = self._locate(index)
        return self._sources[number], row

    # What the task sets once, in all sources.

    def read_with(self, reading: ReadConfig) -> None:
        """Set how image files are decoded."""
        self.reading = reading
        for source in self._sources:
            source.read_with(reading)

    def limit_cache(self, gigabytes: float) -> None:
        """Set the size of the cache of images at an address."""
        for source in self._sources:
            source.limit_cache(gigabytes)
        self.notices = [line for source in self._sources for line in source.notices]

    # What the loader calls for each image: ``read``, or the methods below it if only a part of the image is decoded
    # (``images/data/parts.py``). Each asks the source of the image.

    def label_at(self, index: int) -> int:
        """Return the class of a validation image, -1 without one."""
        return UNKNOWN if self.labels is None else int(self.labels[index])

    def read(self, index: int) -> tuple[Image.Image, int]:
        """Decode image ``index``: (RGB image, label); an ``UnreadableImage`` if the file is missing or damaged."""
        source, row = self._find(index)
        return source.read(row)[0], self.label_at(index)

    def encoded(self, index: int) -> bytes:
        """Read the file of image ``index``; raises what ``part`` does."""
        source, row = self._find(index)
        return source.encoded(row)

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        """Read ``length`` bytes of the file of image ``index``, uint8; an ``UnreadableImage`` if that fails."""
        source, row = self._find(index)
        return source.part(row, start, length)

    def num_bytes(self, index: int) -> int:
        """Return the file size of image ``index``; -1 if it is missing."""
        source, row = self._find(index)
        return source.num_bytes(row)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch images at an address together."""
        rows: dict[int, list[int]] = {}
        for index in indices:
            number, row = self._locate(index)
            rows.setdefault(number, []).append(row)
        for number, own in rows.items():
            self._sources[number].prefetch(own)

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        source, row = self._find(index)
        return source.describe(row)

    # What checks and comparisons of data call.

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of image ``index``."""
        source, row = self._find(index)
        return source.peek(row, length)

    def identity(self, index: int) -> str:
        """Return the path of image ``index`` below its place, after the number of the place if there are several."""
        number, row = self._locate(index)
        name = self._sources[number].identity(row)
        return name if len(self._sources) == 1 else f"{number}/{name}"

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: the paths of all places."""
        return {"names": (part for source in self._sources for part in source.listed()["names"])}


def _merge_skipped(place: str, parts: Sequence[SkippedFiles | None]) -> SkippedFiles:
    """Return the other files of all sources together; None is of a source where they are not searched for."""
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    merged = SkippedFiles(os.fspath(place))
    for part in known:
        merged.merge(part)
    return merged
