"""Optional decoding of JPEGs to training pixels with OpenCV: faster, but not bit-exact.

For training only, with DATA.DECODER fast. OpenCV decodes the JPEG and resizes linearly if a crop shrinks, by area if it
shrinks to half or less, so that no pixel is skipped, and bicubically if it grows; the exact decoder uses Pillow's
antialiased bicubic filter throughout. The following steps and all random numbers are the same for both. Files that are
not plain, complete 8-bit JPEGs are decoded exactly.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ..data.parts import ImagePage
from ..data.reading import decode_image, open_image, orientation
from ..image_size import ImageSize, as_pair
from .crops import TrainingTransform

_END_OF_JPEG = b"\xff\xd9"


def require_opencv() -> Any:
    """Import ``cv2``, a ``UserError`` without it, and turn its threads off: loader processes already use the cores."""
    try:
        import cv2
    except ImportError as error:
        raise UserError(
            "DATA.DECODER fast needs OpenCV: pip install opencv-python-headless, or use DATA.DECODER exact"
        ) from error
    cv2.setNumThreads(0)
    return cv2


@dataclass(frozen=True)
class FastReader:
    """Reads training images of a dataset with ``encoded(index)``, ``describe(index)``, ``label_at`` and ``reading``.

    ``channels`` are 3 for RGB, 1 for gray.
    """

    dataset: Any
    channels: int

    def __call__(self, index: int) -> tuple[Image.Image | np.ndarray | ImagePage, Any]:
        """Return ``(image, label)``; an ``UnreadableImage`` if the file is missing or cannot be decoded.

        The image is pixels (height, width[, 3]) uint8, a page that needs no decoding, or a Pillow image if OpenCV
        cannot handle the file.
        """
        label = self.dataset.label_at(index)
        page = ImagePage.open(self.dataset, index)
        if page is not None and page.channels <= self.channels:
            return page, label
        encoded, path, reading = self.dataset.encoded(index), self.dataset.describe(index), self.dataset.reading
        pixels = None
        with open_image(encoded, path, reading) as header:
            # A JPEG without its end marker is truncated: OpenCV would fill it with gray.
            plain = header.format == "JPEG" and header.mode in ("RGB", "L") and encoded[-2:] == _END_OF_JPEG
            if plain and not (reading.exif_rotate and orientation(header) != 1):
                pixels = _decode(encoded, self.channels)
                if pixels is not None and pixels.shape[1::-1] != header.size:  # the limit was checked for the header's
                    pixels = None
        if pixels is None:
            return decode_image(encoded, path, self.dataset.image_mode, reading), label
        return pixels, label


def _decode(encoded: bytes, channels: int) -> Any:
    cv2 = require_opencv()
    # Without the last flag, OpenCV would turn images by their EXIF orientation, unlike the exact decoder.
    flag = (cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR_RGB) | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        return cv2.imdecode(np.frombuffer(encoded, dtype=np.uint8), flag)
    except cv2.error:  # unsupported size or profile; the exact decoder reports the reason
        return None


@dataclass(frozen=True)
class FastTransform:
    """The training transform with OpenCV's resizing and the same random numbers; Pillow images are resized exactly."""

    exact: TrainingTransform

    def __call__(self, image: Image.Image | np.ndarray | ImagePage, generator: np.random.Generator) -> np.ndarray:
        """Return (channels, height, width) uint8."""
        if isinstance(image, ImagePage):
            image, box = image.around(self.exact.draw_box(image.size, generator))
            image = image if image.shape[2] == 3 else image[:, :, 0]
        elif isinstance(image, np.ndarray):
            box = self.exact.draw_box(image.shape[1::-1], generator)
        else:
            return self.exact(image, generator)
        left, top, right, bottom = box
        resized = _resize(image[top:bottom, left:right], self.exact.image_size)
        if resized.ndim == 2:
            return self.exact.finish(resized[None], generator)
        planes = np.empty((3, *resized.shape[:2]), dtype=np.uint8)
        require_opencv().split(resized, list(planes))
        return self.exact.finish(planes, generator)


def _resize(pixels: np.ndarray, size: ImageSize) -> np.ndarray:
    cv2, (height, width) = require_opencv(), as_pair(size)
    shrinking = min(pixels.shape[0] / height, pixels.shape[1] / width)
    kind = cv2.INTER_LINEAR if shrinking >= 1 else cv2.INTER_CUBIC
    if shrinking >= 2:
        kind = cv2.INTER_AREA  # three times as slow as the others, so only where they would alias
    return cv2.resize(pixels, (width, height), interpolation=kind)
