"""What data sets of single picture files have in common: a path index, and pictures opened one by one."""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

import numpy as np
from PIL import Image

from ...loading.path_index import PathIndex
from .left_out import LeftOut
from .reading import Reading, decode_image, read_file


class IndexedImages:
    """Pictures named by a path index; nothing is known about a picture until it is read."""

    kind = "photo"
    image_mode = "RGB"
    reading = Reading()

    def __init__(self, root: str, index: PathIndex, num_classes: int, left_out: Optional[LeftOut] = None) -> None:
        """Serve the entries of ``index``, whose relative paths start at ``root``; ``left_out`` is what lies beside."""
        self.root = root
        self.num_classes = num_classes
        self.left_out = left_out  # known where the data were listed; other processes have no use for it
        self._index = index

    def __getstate__(self) -> Any:
        return {**self.__dict__, "left_out": None}

    def __len__(self) -> int:
        return len(self._index)

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Decode picture ``index``: (RGB picture, label).

        Raises:
            UnreadablePicture: the file is missing or cannot be decoded; the message names it.
        """
        path = self.describe(index)
        return decode_image(read_file(path), path, self.image_mode, self.reading), self._index.label(index)

    def encoded(self, index: int) -> bytes:
        """The file of picture ``index`` as it is.

        Raises:
            UnreadablePicture: the file is missing or may not be read.
        """
        return read_file(self.describe(index))

    def describe(self, index: int) -> str:
        """The file of picture ``index``."""
        return os.path.join(self.root, self._index.path(index))

    def num_bytes(self, index: int) -> int:
        """Size of the file of picture ``index``; -1 where it is missing."""
        try:
            return os.stat(self.describe(index)).st_size
        except (OSError, ValueError):
            return -1

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) int32, read-only."""
        return self._index.labels

    @property
    def class_names(self) -> Optional[List[str]]:
        """Name of each class, None for a bare list of paths and labels."""
        return self._index.class_names

    @property
    def fingerprint(self) -> str:
        """Changes with the list of pictures and labels, not with where they lie."""
        return self._index.key.hex()
