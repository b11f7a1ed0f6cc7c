"""Images with a file of labels each, in a memory-mapped list: what datasets of label maps and of segments share."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ...core.data.path_index import PathIndex, ensure_path_index, make_batch
from ...core.tasks.dataset import peek_files
from .image_dataset import ImageDataset
from .reading import ReadConfig, WrongSize


class MapFiles(ImageDataset):
    """A dataset of images with files of labels: three entries of a list for each, image, labels and a note."""

    root: str
    reading: ReadConfig
    _index: PathIndex

    def _store_files(
        self, cache_folder: Path, kind: str, split: str, files: tuple[Sequence[str], Sequence[str], Sequence[bytes]]
    ) -> None:
        """Store the paths of a split's images and label files, and notes as bytes."""
        images, labels, notes = files
        start = f"{self.root}{os.sep}"
        paths = [[os.fsencode(path.removeprefix(start)) for path in part] for part in (images, labels)]
        entries = [entry for row in zip(*paths, notes) for entry in row]
        key = hashlib.sha256(f"{kind} 1\0".encode() + b"\0".join(entries)).digest()
        name = f"{kind.replace(' ', '-')}-{split}"
        self._index = ensure_path_index(cache_folder, name, key, lambda: [make_batch(entries, 0)])

    def __len__(self) -> int:
        return len(self._index) // 3

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        return os.path.join(self.root, self._index.path(3 * index))

    def _describe_labels(self, index: int) -> str:
        """Return the file of the labels of image ``index``."""
        return os.path.join(self.root, self._index.path(3 * index + 1))

    def _note(self, index: int) -> bytes:
        """Return the note of image ``index``."""
        return os.fsencode(self._index.path(3 * index + 2))

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of image ``index`` and of its labels."""
        return peek_files((os.path.join(self.root, self._index.path(3 * index + part)) for part in (0, 1)), length)

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: the names of the files."""
        return {"names": self._index.buffers()}

    def _require_equal_sizes(self, index: int, image: tuple[int, ...], labels: tuple[int, ...]) -> None:
        """Raise ``WrongSize`` unless an image and its labels have the same height and width."""
        if image == labels:
            return
        remedy = "labels would be misplaced: replace the image, or its label map"
        if image == labels[::-1]:
            value = "false" if self.reading.exif_rotate else "true"
            remedy = f"the image was turned before or after it was labeled: try DATA.EXIF_ROTATE {value}"
        sizes = [f"{width} x {height}" for height, width in (image, labels)]
        file = self._describe_labels(index)
        raise WrongSize(
            self.describe(index), f"has {sizes[0]} pixels (width x height), but {file} has {sizes[1]}; {remedy}"
        )
