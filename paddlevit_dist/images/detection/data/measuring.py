"""How large pictures are, from the beginnings of their files."""

from __future__ import annotations

from typing import List, Sequence

import numpy as np

from ...data.opening import in_threads
from ...data.reading import Reading, UnreadablePicture, open_image, read_file


def measure(files: Sequence[str]) -> np.ndarray:
    """int64 (files, 2): height and width of each as it is stored; 0 where it cannot be read, which is told when it is
    opened."""
    numbers = range(len(files))
    return np.array(list(in_threads(_size, list(files), numbers, "measuring", len(files), np.inf)), np.int64).reshape(
        -1, 2
    )


def _size(files: List[str], index: int) -> List[int]:
    try:
        with open_image(read_file(files[index]), files[index], Reading(max_pixels=2**31)) as image:
            return [image.size[1], image.size[0]]
    except UnreadablePicture:
        return [0, 0]
