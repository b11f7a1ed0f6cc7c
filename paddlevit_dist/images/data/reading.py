"""Decode one image of any file format, or report which file cannot be decoded and why."""

import contextlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ...core.runtime.errors import UserError
from ...core.runtime.files import NotAFile, read_regular
from ...core.runtime.outages import StorageOutage
from ...core.runtime.spelling import find_spelling
from ...core.tasks import dataset as dataset_base
from ...core.tasks.sample_checks import BadSample
from .formats import HEAD_BYTES, HEIF_HINT, detect_image_type, readable_formats
from .table_columns import SUFFIXES as TABLE_SUFFIXES

_PHOTOMETRIC = 262  # TIFF's tag of what 0 means; Source: TIFF 6.0, section 8, PhotometricInterpretation
_WHITE_16_BITS = np.uint16(65535)


class ReadConfig(NamedTuple):
    """How image files are read.

    Attributes:
        exif_rotate: rotate the image by its EXIF orientation. Off by default, as in the reference pipelines: ImageNet
            contains images with a wrong orientation tag.
        max_pixels: larger images are rejected before decoding; the default is Pillow's limit for a warning.
    """

    exif_rotate: bool = False
    max_pixels: int = 89_478_485


class UnreadableImage(UserError):
    """An image file that cannot be decoded: its path, or the path of archive and member, and the reason, one line."""

    def __init__(self, path: str, reason: str) -> None:
        shown = path.replace("\n", "\\n").replace("\r", "\\r")  # the message is a single line
        super().__init__(f"{shown} cannot be read as an image: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self):
        return UnreadableImage, (self.path, self.reason)


class WrongSize(UnreadableImage):
    """An image whose size differs from the size in its annotations."""

    def __init__(self, path: str, reason: str) -> None:
        UserError.__init__(self, f"{path} {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self):
        return WrongSize, (self.path, self.reason)


def read_file(path: str) -> bytes:
    """Read the bytes of an image file; an ``UnreadableImage`` if it is missing or may not be read."""
    try:
        return read_regular(find_spelling(path))
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise UnreadableImage(path, _reason(error)) from error


def decode_image(encoded: bytes, path: str, mode: str, reading: ReadConfig = ReadConfig()) -> Image.Image:  # noqa: B008
    """Decode an image, the first frame of an animated one, and convert it to ``mode``, "RGB" or "L", with Pillow.

    An ``UnreadableImage`` with ``path`` says that it is empty, truncated, corrupt, too large, or not an image.
    """
    with raise_as_unreadable(path), open_image(encoded, path, reading) as image:
        return convert(image, mode, reading)


class DecodedImage(NamedTuple):
    """What decoding an image shows: EXIF orientation (1: upright), Pillow's stored mode, height and width."""

    orientation: int
    mode: str
    is_transparent: bool
    size: tuple[int, int]
    has_more_pages: bool


def examine_image(encoded: bytes, path: str, mode: str, reading: ReadConfig) -> DecodedImage:
    """Decode an image and return what it shows; an ``UnreadableImage`` as of ``decode_image``."""
    with raise_as_unreadable(path), open_image(encoded, path, reading) as image:
        stored_mode, more_pages = image.mode, has_more_pages(image)
        width, height = convert(image, mode, reading).size
        return DecodedImage(orientation(image), stored_mode, is_transparent(image), (height, width), more_pages)


def is_transparent(image: Image.Image) -> bool:
    """Return whether a pixel of an opened image is not opaque: in "RGB" and "L" it has the color that is stored there.

    Raises what Pillow raises if the image cannot be decoded.
    """
    has_alpha = image.mode in ("RGBA", "LA", "PA") or (image.mode in _CAN_BE_KEYED and "transparency" in image.info)
    return has_alpha and int(image.convert("RGBA").getchannel("A").getextrema()[0]) < 255  # type: ignore[arg-type]


def has_more_pages(image: Image.Image) -> bool:
    """Return whether an opened image has pages or frames after its first, which are not read.

    Damaged ones do not count, nor previews next to a photograph (MPO), or the layers of a PSD file.
    """
    if image.format in ("MPO", "PSD"):
        return False
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # as for EXIF data: the first page may be intact
        return False


@contextlib.contextmanager
def raise_as_unreadable(path: str) -> Iterator[None]:
    """Turn Pillow's errors into UnreadableImage: its format readers raise almost any type on corrupt input."""
    try:
        yield
    except (MemoryError, UserError, StorageOutage):
        raise
    except Exception as error:
        raise UnreadableImage(path, _reason(error)) from error


def convert(image: Image.Image, mode: str, reading: ReadConfig) -> Image.Image:
    """Convert an opened image to ``mode``, upright if ``reading`` requires it."""
    shows_white_as_zero = _shows_white_as_zero(image)
    if reading.exif_rotate:
        image.load()
        image = ImageOps.exif_transpose(image) if orientation(image) != 1 else image
    if shows_white_as_zero:
        image = Image.fromarray(_WHITE_16_BITS - np.asarray(image))
    if image.mode == mode:
        image.load()  # converting to the same mode would copy it
        return image
    return image.convert(mode)


def _shows_white_as_zero(image: Image.Image) -> bool:
    """Return whether an opened image is a TIFF with 16 bits whose 0 is white: Pillow inverts those with 8 bits only."""
    return image.mode == "I;16" and image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == 0  # type: ignore[attr-defined]


def require_8_bits(image: Image.Image) -> None:
    """Raise a BadSample if an image in memory has no pixels, or Pillow would cut off or cannot convert its numbers."""
    if not image.width or not image.height:
        raise BadSample(f"its image has {image.width} x {image.height} pixels: expected one or more")
    if image.mode not in _EIGHT_BITS:
        raise BadSample(f"its image has Pillow's mode {image.mode}: scale its numbers to 8 bits, mode L or RGB")


_changes_limit = threading.Lock()
os.register_at_fork(
    before=_changes_limit.acquire, after_in_parent=_changes_limit.release, after_in_child=_changes_limit.release
)


@contextlib.contextmanager
def pillow_limit(pixels: int) -> Iterator[None]:
    """Raise Pillow's limit for this process to this number of pixels in the block, which may be the configured one."""
    with _changes_limit:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and limit < pixels:
            Image.MAX_IMAGE_PIXELS = pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def crop_image(image: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    """Return ``image.crop(box)``, to which Pillow would apply its limit again."""
    with pillow_limit(image.width * image.height):
        return image.crop(box)


def open_image(encoded: bytes, path: str, reading: ReadConfig = ReadConfig()) -> Image.Image:  # noqa: B008
    """Open an image without decoding its pixels; ``path`` names it in errors.

    An ``UnreadableImage`` says that it is empty, too large, or not an image; damage after the header only shows on
    decoding.
    """
    if not encoded:
        raise UnreadableImage(path, "the file is empty")
    try:
        with pillow_limit(reading.max_pixels):
            image = Image.open(io.BytesIO(encoded), formats=readable_formats())
    except Image.DecompressionBombError as error:
        number = re.search(r"\((\d+) pixels\)", str(error))
        raise _too_large(path, f"{number[1]} pixels" if number else "", reading) from error
    except MemoryError:
        raise
    except Exception as error:
        lacks_reader = detect_image_type(encoded[:HEAD_BYTES]) == "HEIC" and "HEIF" not in readable_formats()
        hint = f"it is a HEIC image, which Pillow reads with pillow-heif ({HEIF_HINT})"
        raise UnreadableImage(path, hint if lacks_reader else _reason(error)) from error
    width, height = image.size
    if width * height > reading.max_pixels:
        raise _too_large(path, f"{width} x {height} pixels", reading)
    return image


def orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image; 1 if there is none or the EXIF data are corrupt."""
    try:
        value = image.getexif().get(0x0112, 1)
    except Exception:
        return 1
    return value if value in range(1, 9) else 1


def _too_large(path: str, size: str, reading: ReadConfig) -> UnreadableImage:
    return UnreadableImage(
        path,
        f"its size {size} is above the limit of {reading.max_pixels} pixels; raise DATA.MAX_PIXELS to accept it",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image in a format that Pillow knows"
    if isinstance(error, NotAFile):
        return error.strerror
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__


SPLITS = ("train", "val")
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV")
_CAN_BE_KEYED = ("P", "RGB", "L", "1")  # modes with a transparent color or entry of the palette
_LABELS_AT_ONCE = 1 << 22


def require_folder(data_path: str | None, dataset: str, layout: str) -> str:
    """Return what ``tasks.dataset.require_folder`` does; a ``UserError`` also says what reads a table."""
    if data_path is not None and os.fspath(data_path).lower().endswith(TABLE_SUFFIXES) and os.path.isfile(data_path):
        raise UserError(f"{data_path} is a file, not a folder: if it is a table of labels, add -dataset=table")
    if os.fspath(data_path or "").startswith("hf:"):
        raise UserError(f"data path {data_path}: remove -dataset={dataset}: what the repository has decides")
    return dataset_base.require_folder(data_path, dataset, layout)


def check_labels(labels: np.ndarray, num_classes: int, dataset: str, where: Callable[[int], str]) -> None:
    """Check that every label, integers (samples,), is a valid class.

    A ``UserError`` names the first sample with a label outside ``0 .. num_classes - 1``, by ``where``, which returns
    its file and position.
    """
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        wrong = (labels < 0) | (labels >= num_classes)
        first = int(wrong.argmax())
        raise UserError(
            f"{where(first)} has label {int(labels[first])}, but {dataset} has {num_classes} classes: "
            f"labels are 0 to {num_classes - 1}"
        )


def label_parts(labels: np.ndarray) -> Iterator[np.ndarray]:
    """Yield labels, int (samples,), as int64 arrays of a few million: copies of 100 million would take 800 MB."""
    for first in range(0, len(labels), _LABELS_AT_ONCE):
        yield np.ascontiguousarray(labels[first : first + _LABELS_AT_ONCE], dtype=np.int64)


def count_labels(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the samples of each class, int64 (classes,); labels beyond ``num_classes`` lengthen the result."""
    counts = np.zeros(max(num_classes, int(labels.max()) + 1 if len(labels) else 0), np.int64)
    for part in label_parts(labels):
        counts += np.bincount(part, minlength=len(counts))
    return counts
