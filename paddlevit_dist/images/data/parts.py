"""Pictures of which only the part is decoded that a crop needs; what is decoded has the pixels of the whole picture.

A training transform draws its crop from the size, then asks for the part. What lies outside is not looked at: a file
that is damaged there is found when another crop needs it, or by ``prepare images``. A file without its end is decoded
whole, and reported.
"""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple, Union

import numpy as np
from PIL import Image

from .jpeg_parts import Box, Layout, part_of_jpeg, read_layout
from .reading import decode_image

# What Pillow writes as PPM (three channels) or PGM (one) with 8 bits: a header, then the rows of pixels.
PAGE_SUFFIXES = (".ppm", ".pgm")
_PAGE_HEADER = re.compile(rb"P([56])\n(\d{1,6}) (\d{1,6})\n255\n")
_LONGEST_HEADER = 32


class Undecoded:
    """A picture that has not been decoded yet.

    Attributes:
        size: (width, height).
    """

    size: Tuple[int, int]

    def around(self, box: Box) -> Tuple[Union[Image.Image, np.ndarray], Box]:
        """A part that contains ``box``, and the box within it.

        The part is a Pillow image, or its pixels, uint8 (rows, columns, channels).

        Raises:
            UnreadablePicture: it cannot be decoded.
        """
        raise NotImplementedError


class UndecodedJpeg(Undecoded):
    """A JPEG file in memory."""

    def __init__(self, dataset: Any, encoded: bytes, path: str, layout: Layout) -> None:
        self.size = layout.width, layout.height
        self._encoded, self._layout, self._path = encoded, layout, path
        self._mode, self._reading = dataset.image_mode, dataset.reading

    def around(self, box: Box) -> Tuple[Image.Image, Box]:
        part, x, y = part_of_jpeg(self._encoded, self._layout, box)
        left, top, right, bottom = box
        image = decode_image(part, self._path, self._mode, self._reading)
        return image, (left - x, top - y, right - x, bottom - y)


class Page(Undecoded):
    """A decoded picture in a file, of which rows can be read; ``of`` says whether picture ``index`` is one."""

    def __init__(self, dataset: Any, index: int, header: re.Match) -> None:
        self.channels = 3 if header[1] == b"6" else 1
        self.size = int(header[2]), int(header[3])
        self._dataset, self._index, self._begin = dataset, index, header.end()

    @classmethod
    def of(cls, dataset: Any, index: int) -> Optional[Page]:
        """The page of picture ``index``; None if it is something else."""
        if not dataset.describe(index).endswith(PAGE_SUFFIXES):
            return None
        length = dataset.num_bytes(index)
        header = _PAGE_HEADER.match(dataset.part(index, 0, min(length, _LONGEST_HEADER)))
        if header is None:
            return None
        page = cls(dataset, index, header)
        width, height = page.size
        fits = 0 < width * height <= dataset.reading.max_pixels
        return page if fits and length == header.end() + width * height * page.channels else None

    def around(self, box: Box) -> Tuple[np.ndarray, Box]:
        left, top, right, bottom = box
        row_bytes = self.size[0] * self.channels
        content = self._dataset.part(self._index, self._begin + top * row_bytes, (bottom - top) * row_bytes)
        return content.reshape(bottom - top, self.size[0], self.channels), (left, 0, right, bottom - top)


class PartReader:
    """Reads training pictures of a dataset of picture files for transforms that take ``Undecoded``."""

    def __init__(self, dataset: Any) -> None:
        """``dataset`` has ``encoded``, ``part``, ``num_bytes``, ``describe``, ``labels`` and ``reading``."""
        self.dataset = dataset

    def __call__(self, index: int) -> Tuple[Union[Image.Image, Undecoded], int]:
        """``(picture, label)``, the picture undecoded where parts of it can be decoded.

        Raises:
            UnreadablePicture: it is missing, or damaged as a whole.
        """
        dataset, label = self.dataset, int(self.dataset.labels[index])
        page = Page.of(dataset, index)
        if page is not None:
            return page, label
        encoded, path = dataset.encoded(index), dataset.describe(index)
        # What is to be turned, or is too large, goes the usual way.
        layout = None if dataset.reading.exif_rotate else read_layout(encoded)
        if layout is None or layout.width * layout.height > dataset.reading.max_pixels:
            return decode_image(encoded, path, dataset.image_mode, dataset.reading), label
        return UndecodedJpeg(dataset, encoded, path, layout), label
