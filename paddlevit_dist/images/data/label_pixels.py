"""Label maps: images whose pixels are class numbers or colors, read without any blending."""

import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.files import DEFLATE_RATIO
from .inspection import run_in_threads
from .reading import ReadConfig, UnreadableImage, open_image, raise_as_unreadable, read_file

_NUMBERS = ("1", "L", "P", "I;16", "I;16B", "I;16L", "I")  # one number a pixel; for a palette, the index
_LOSSY = ("JPEG", "MPO", "AVIF", "HEIF")
_LOSSY_TIFF = ("jpeg", "tiff_jpeg", "webp")  # compression of a TIFF file
MOST_PIXELS = 2**31 - 1


class LabelPixels(NamedTuple):
    """The pixels of a label map.

    Attributes:
        values: (height, width), numbers as uint8 or int32; or colors, red + 256 green + 65,536 blue, as int32.
        palette: int32 (n,), the color of each number as above; None: there is no palette.
    """

    values: np.ndarray
    is_color: bool
    palette: np.ndarray | None = None


def read_label_pixels(
    encoded: bytes,
    path: str,
    max_pixels: int = MOST_PIXELS,
    check_size: Callable[[tuple[int, int]], None] = lambda size: None,
) -> LabelPixels:
    """Read the pixels of a label map of any format that Pillow reads without loss; ``path`` names it in errors.

    ``check_size`` is called with height and width before pixels are decoded.

    Raises:
        UnreadableImage: damaged, larger than ``max_pixels`` (which is not decoded), or not an image.
        UserError: the format changes numbers, the pixels are neither numbers nor colors, or are partly transparent.
    """
    with raise_as_unreadable(path), open_image(encoded, path, ReadConfig(max_pixels=max_pixels)) as image:
        check_size((image.height, image.width))
        if _is_lossy(image, encoded):
            kind = f"{image.format} file{'' if image.format in _LOSSY else ' with loss'}"
            raise UserError(f"{path} is a {kind}, which changes class numbers: save label maps as PNG")
        if image.format == "PNG" and image.width * image.height > 8 * DEFLATE_RATIO * len(encoded):  # 1 bit a pixel
            size = f"{image.width} x {image.height} pixels"
            raise UnreadableImage(path, f"its header announces {size}, more than its {len(encoded)} bytes can contain")
        if image.mode in ("LA", "PA", "RGBA"):
            _require_opaque(image, path)
        if image.mode in ("RGB", "RGBA"):
            colors = image if image.mode == "RGB" else image.convert("RGB")
            packed = np.frombuffer(colors.tobytes("raw", "RGBX"), "<i4") & 0xFFFFFF
            return LabelPixels(packed.reshape(image.height, image.width), True)
        if image.mode == "PA":
            raise UserError(f"{path} has a palette with transparency: save it as PNG with a palette, or with numbers")
        if image.mode not in (*_NUMBERS, "LA"):
            raise UserError(
                f"{path} is of Pillow's mode {image.mode}, expected a class number for each pixel (gray with 8 "
                "or 16 bits, or a palette), or its color (RGB)"
            )
        image.load()
        colors = np.array(image.getpalette() or [], np.int32).reshape(-1, 3) if image.mode == "P" else None
        values = np.asarray(image.getchannel("L") if image.mode == "LA" else image)
        values = values.astype(np.int32 if values.dtype.itemsize > 1 else np.uint8, copy=False)
    return LabelPixels(values, False, None if colors is None else pack_colors(colors))


def _is_lossy(image: Image.Image, encoded: bytes) -> bool:
    """Return whether the pixels of an image may differ from those that were saved."""
    if image.format == "WEBP":
        start = 12  # of the first chunk: a name, a size, and the content, padded to an even size
        while start + 8 <= len(encoded) and encoded[start : start + 4] not in (b"VP8 ", b"VP8L", b"ANMF"):
            size = int.from_bytes(encoded[start + 4 : start + 8], "little")
            start += 8 + size + size % 2
        return encoded[start : start + 4] != b"VP8L"
    if image.format == "JPEG2000":
        marker = encoded.find(b"\xff\x52")  # of how it is coded, whose last byte is 0 for the transform with loss
        return marker < 0 or encoded[marker + 13 : marker + 14] == b"\0"
    return image.format in _LOSSY or image.info.get("compression") in _LOSSY_TIFF


def require_map_size(encoded: bytes, path: str, name: str, size: tuple[int, ...]) -> None:
    """Check a map's size before decoding it, which another program may have made larger than memory.

    Args:
        encoded: the content of the map's file.
        path: of the map's file.
        name: of the image that the map is of.
        size: height and width that it must have; else a ``UserError``.
    """
    with open_image(encoded, path, ReadConfig(max_pixels=MOST_PIXELS)) as image:
        width, height = image.size
    if (height, width) != size:
        raise UserError(f"{path} has {width} x {height} pixels (width x height), but {name} has {size[1]} x {size[0]}")


def read_label_file(file: str, max_pixels: int = MOST_PIXELS) -> LabelPixels:
    """Read the pixels of a label map from an image file, or from a MATLAB file of COCO-Stuff 10k.

    It raises what ``read_label_pixels`` does, and a ``UserError`` if SciPy is needed and not installed.
    """
    if not file.lower().endswith(".mat"):
        return read_label_pixels(read_file(file), file, max_pixels)
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise UserError(f"{file} is a MATLAB file, which SciPy reads: pip install scipy") from error
    with raise_as_unreadable(file):
        return LabelPixels(np.asarray(loadmat(io.BytesIO(read_file(file)), variable_names=["S"])["S"], np.int32), False)


def read_label_numbers(pixels: LabelPixels, path: str) -> np.ndarray:
    """Return the numbers in a label map, perhaps in three equal channels; a ``UserError`` if it has colors."""
    if not pixels.is_color:
        return pixels.values
    gray = pixels.values & 255
    if (gray * 0x010101 != pixels.values).any():
        raise UserError(
            f"{path} has colors, and no list defines their classes: add classes.csv to the data folder, with a "
            "line name,red,green,blue for each class"
        )
    return gray.astype(np.uint8)


def find_label_numbers(files: Sequence[str]) -> list[int]:
    """Return the numbers that occur in any of the label maps, ascending; ``UserError`` if one is bad or has colors."""

    def occurring(files: list[str], index: int) -> np.ndarray:
        return np.unique(read_label_numbers(read_label_file(files[index]), files[index]))

    numbers = run_in_threads(occurring, list(files), range(len(files)), "looking for classes", len(files), np.inf)
    return np.unique(np.concatenate([np.zeros(0, np.int64), *numbers])).tolist()


def pack_colors(colors: np.ndarray) -> np.ndarray:
    """Pack colors, integers (n, 3), into int32 (n,): red + 256 green + 65,536 blue."""
    return colors.astype(np.int32) @ np.array([1, 256, 65536], np.int32)


def _require_opaque(image: Image.Image, path: str) -> None:
    alpha = np.asarray(image.getchannel("A"))
    if alpha.min(initial=255) < 255:
        row, column = np.argwhere(alpha < 255)[0].tolist()
        raise UserError(
            f"{path} is transparent at row {row}, column {column} (alpha {alpha[row, column]}), which defines no "
            "class: save label maps without transparency"
        )
