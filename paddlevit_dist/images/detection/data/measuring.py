"""How large pictures are, from the beginnings of their files."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import numpy as np

from ...data.opening import in_threads
from ...data.reading import Reading, UnreadablePicture, open_image, orientation, read_file
from .views import Size


def announced_size(path: str, reading: Reading) -> Size:
    """Height and width that a picture will have once it is decoded.

    Raises:
        UnreadablePicture: it is missing, or no picture.
    """
    with open_image(read_file(path), path, reading) as image:
        width, height = image.size
        is_turned = reading.exif_rotate and orientation(image) in (5, 6, 7, 8)
    return (width, height) if is_turned else (height, width)


def turns(configured: Optional[bool], measured: int, total: int) -> Tuple[bool, str]:
    """Whether boxes are taken to be drawn on pictures as their EXIF orientation turns them, and what to tell of that.

    Nobody wrote down sizes of stored pictures where no size is there; where some are, those decide for all.

    Args:
        configured: DATA.EXIF_ROTATE.
        measured: pictures, of ``total``, whose size is not said.
    """
    if configured is not None or measured == total:
        return configured is not False, ""
    return False, " as stored, like those whose size is said (DATA.EXIF_ROTATE true: as EXIF turns them)"


def measure(files: Sequence[str], turned: bool) -> np.ndarray:
    """int64 (files, 2): height and width of each; 0 where it cannot be read, which is told when it is opened.

    Args:
        turned: as its EXIF orientation says; else as it is stored.
    """

    def size(files: List[str], index: int) -> Size:
        try:
            return announced_size(files[index], Reading(turned, max_pixels=2**31))
        except UnreadablePicture:
            return 0, 0

    sizes = in_threads(size, list(files), range(len(files)), "measuring", len(files), np.inf)
    return np.array(list(sizes), np.int64).reshape(-1, 2)
