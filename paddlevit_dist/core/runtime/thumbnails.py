"""Images as small files, to be embedded in pages."""

import io

import numpy as np
from PIL import Image

_LARGEST_EXACT_SIDE = 64  # pixels: smaller images are stored without loss
_QUALITY = 85


def encode(pixels: np.ndarray, largest_side: int) -> tuple[str, bytes, tuple[int, int]]:
    """Encode an image file from uint8 (height, width[, 3]); reduce it if a side is larger, in pixels.

    Returns:
        Suffix ("png" or "jpg"), content and (width, height).

    Raises:
        ValueError: the array has another type or shape.
    """
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3))):
        raise ValueError(f"expected an image uint8 (height, width[, 3]), got {pixels.dtype} {pixels.shape}")
    image = Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
    image.thumbnail((largest_side, largest_side))
    target = io.BytesIO()
    if max(image.size) <= _LARGEST_EXACT_SIDE:
        image.save(target, "PNG", optimize=True)
        return "png", target.getvalue(), image.size
    image.save(target, "JPEG", quality=_QUALITY, optimize=True)
    return "jpg", target.getvalue(), image.size
