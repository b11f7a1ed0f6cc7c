"""Open one picture file."""

from __future__ import annotations

from PIL import Image, UnidentifiedImageError

from ...errors import UserError


def read_image(path: str, mode: str) -> Image.Image:
    """Decode the picture at ``path`` and convert it to ``mode`` as Pillow converts.

    Raises:
        UserError: the file is missing, truncated, damaged or no picture.
    """
    try:
        with Image.open(path) as image:
            return image.convert(mode)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's format readers raise almost any type on damaged input
        raise UserError(f"{path} cannot be read as an image: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture in a format that Pillow knows"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(reason.split())
