"""What data sets of single picture files have in common: a path index, and pictures opened one by one."""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

import numpy as np
from PIL import Image

from ...loading.path_index import PathIndex
from .reading import read_image


class IndexedImages:
    """Pictures named by a path index; nothing is known about a picture until it is read."""

    kind = "photo"
    image_mode = "RGB"

    def __init__(self, root: str, index: PathIndex, num_classes: int) -> None:
        """Serve the entries of ``index``, whose relative paths start at ``root``."""
        self.root = root
        self.num_classes = num_classes
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Decode picture ``index``: (RGB picture, label).

        Raises:
            UserError: the file is missing or cannot be decoded; the message names it.
        """
        return read_image(self.describe(index), self.image_mode), self._index.label(index)

    def describe(self, index: int) -> str:
        """The file of picture ``index``."""
        return os.path.join(self.root, self._index.path(index))

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) int32, read-only."""
        return self._index.labels

    @property
    def class_names(self) -> Optional[List[str]]:
        """Name of each class, None for a bare list of paths and labels."""
        return self._index.class_names
