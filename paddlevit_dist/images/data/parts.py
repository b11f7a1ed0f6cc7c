"""Training images that are decoded only where a crop needs them; the decoded part has the pixels of the whole image.

The training transform draws its crop from the size, then requests the part. Damage outside the part is found when
another crop needs it, or by ``prepare images``. A file without its end is decoded whole, and reported.

If a JPEG header (ITU-T T.81) announces fewer rows, a decoder ignores what comes after the crop's last row. A decoder
that interpolates color reads at most one color sample (two pixels) beyond a pixel, so two more rows are included.
"""

import re
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from .reading import decode_image

Box = tuple[int, int, int, int]  # left, top, right, bottom

_MARGIN_PX = 2
_END = b"\xff\xd9"
_BASELINE = (0xC0, 0xC1)  # sequential, Huffman coding
_OTHER_FRAMES = frozenset(range(0xC2, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN, _SEVERAL_IMAGES = 0xDA, 0xE2
# Pillow's PPM (three channels) or PGM (one) with 8 bits: a header, then the rows of pixels.
PAGE_SUFFIXES = (".ppm", ".pgm")
_PAGE_HEADER = re.compile(rb"P([56])\n(\d{1,6}) (\d{1,6})\n255\n")
_LONGEST_HEADER = 32


class UndecodedImage:
    """An image that has not been decoded yet; ``size`` is (width, height)."""

    size: tuple[int, int]

    def around(self, box: Box) -> tuple[Image.Image | np.ndarray, Box]:
        """Return a part that contains ``box``, and the box within it; an ``UnreadableImage`` if it cannot be decoded.

        The part is a Pillow image, or its pixels, uint8 (rows, columns, channels).
        """
        raise NotImplementedError


class UndecodedJpeg(UndecodedImage):
    """A JPEG file in memory."""

    def __init__(self, dataset: Any, encoded: bytes, path: str, layout: "JpegLayout") -> None:
        self.size = layout.width, layout.height
        self._encoded, self._layout, self._path = encoded, layout, path
        self._mode, self._reading = dataset.image_mode, dataset.reading

    def around(self, box: Box) -> tuple[Image.Image, Box]:
        """Decode the rows down to the end of ``box``."""
        part = crop_jpeg_rows(self._encoded, self._layout, box)
        return decode_image(part, self._path, self._mode, self._reading), box


class ImagePage(UndecodedImage):
    """A decoded image in a file, which can be read row by row."""

    def __init__(self, dataset: Any, index: int, header: re.Match) -> None:
        self.channels = 3 if header[1] == b"6" else 1
        self.size = int(header[2]), int(header[3])
        self._dataset, self._index, self._begin = dataset, index, header.end()

    @classmethod
    def open(cls, dataset: Any, index: int) -> "ImagePage | None":
        """Open the page of image ``index``; None if it is another file."""
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

    def around(self, box: Box) -> tuple[np.ndarray, Box]:
        """Read the rows of ``box``."""
        left, top, right, bottom = box
        row_bytes = self.size[0] * self.channels
        content = self._dataset.part(self._index, self._begin + top * row_bytes, (bottom - top) * row_bytes)
        return content.reshape(bottom - top, self.size[0], self.channels), (left, 0, right, bottom - top)


class PartReader:
    """Reads training images of a dataset of image files for transforms that take ``UndecodedImage``."""

    def __init__(self, dataset: Any) -> None:
        """``dataset`` has ``encoded``, ``part``, ``num_bytes``, ``describe``, ``label_at`` and ``reading``."""
        self.dataset = dataset

    def __call__(self, index: int) -> tuple[Image.Image | UndecodedImage, Any]:
        """Return ``(image, label)``, undecoded if parts can be decoded; an ``UnreadableImage`` if it is damaged."""
        dataset, label = self.dataset, self.dataset.label_at(index)
        page = ImagePage.open(dataset, index)
        if page is not None:
            return page, label
        encoded, path = dataset.encoded(index), dataset.describe(index)
        # Images to turn, and images that are too large, are decoded whole.
        layout = None if dataset.reading.exif_rotate else read_layout(encoded)
        if layout is None or layout.width * layout.height > dataset.reading.max_pixels:
            return decode_image(encoded, path, dataset.image_mode, dataset.reading), label
        return UndecodedJpeg(dataset, encoded, path, layout), label


class JpegLayout(NamedTuple):
    """Positions in a JPEG file of one or three components.

    ``size_at`` is the offset of height and width, two bytes each, ``block_height`` the rows of the smallest unit (the
    MCU), or a multiple.
    """

    size_at: int
    width: int
    height: int
    block_height: int


def crop_jpeg_rows(encoded: bytes, layout: JpegLayout, box: Box) -> bytes:
    """Return the file with only the rows up to the end of ``box`` announced: a decoder skips the rest."""
    rows = -(-(box[3] + _MARGIN_PX) // layout.block_height) * layout.block_height
    if rows >= layout.height:
        return encoded
    at = layout.size_at
    return b"".join((encoded[:at], rows.to_bytes(2, "big"), encoded[at + 2 :]))


def read_layout(encoded: bytes) -> JpegLayout | None:
    """Parse a JPEG header; None if the whole file must be decoded: it is progressive, incomplete or unusual."""
    if encoded[-2:] != _END or encoded[:2] != b"\xff\xd8":
        return None
    at, frame = 2, None
    while at + 4 <= len(encoded) and encoded[at] == 0xFF:
        marker, length = encoded[at + 1], int.from_bytes(encoded[at + 2 : at + 4], "big")
        segment = encoded[at + 4 : at + 2 + length]
        if marker in _OTHER_FRAMES or (marker == _SEVERAL_IMAGES and segment[:4] == b"MPF\0"):
            return None
        if marker in _BASELINE:
            # precision, height, width, components; for each its number, sampling factors and table
            if len(segment) < 6 or len(segment) != 6 + 3 * segment[5] or segment[0] != 8 or segment[5] not in (1, 3):
                return None
            frame = (at + 5, segment)
        elif marker == _START_OF_SCAN:
            if frame is None or not segment or segment[0] != frame[1][5]:  # the components are in several scans
                return None
            return _layout(*frame) if at + 2 + length + len(_END) <= len(encoded) else None
        at += 2 + length
    return None


def _layout(size_at: int, frame: bytes) -> JpegLayout | None:
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    down = max(factor & 15 for factor in frame[7::3])
    if not (height and width and down):
        return None
    return JpegLayout(size_at, width, height, 8 * down)
