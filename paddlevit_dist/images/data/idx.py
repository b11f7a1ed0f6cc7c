"""MNIST and Fashion-MNIST from the four files published by their authors."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np
from PIL import Image

from ...contracts.dataset import require_split
from ...errors import UserError
from ...files import open_regular, require_regular
from ...loading.checked_files import TRAILER_BYTES, Damaged, checked_file, verify
from .image_dataset import ImageDataset
from .reading import SPLITS, check_labels, existing_folder

_UNSIGNED_BYTE = 0x08
_CHUNK_BYTES = 1 << 20
_LONGEST_HEADER = 16  # of a 3-dimensional file
_LARGEST_GAIN, _ALWAYS_ALLOWED = 100, 1 << 26  # unpacked to packed bytes; but 64 MB always. Published: 5


class IdxFile:
    """The bytes of an IDX file as a memory-mapped array.

    A ``.gz`` file is decompressed once into the cache folder, under a name derived from its path, size and modification
    time. Only file names and the shape are pickled; the file is mapped on first use.
    """

    def __init__(self, source: Path, rank: int, cache_folder: Path) -> None:
        """Check the header and length of ``source``.

        Args:
            source: the file, compressed if its name ends in ``.gz``.
            rank: required number of dimensions.
            cache_folder: existing writable folder for the decompressed copy.

        Raises:
            UserError: the file is truncated, corrupt, or not of that rank.
        """
        self.source = str(source)
        self._values: Optional[np.ndarray] = None
        plain = source
        if source.suffix == ".gz":
            plain = _decompressed_name(source, cache_folder)
            if not _is_intact(plain, rank):
                _decompress(source, plain, rank)
        self.plain = str(plain)
        self.shape = _checked_shape(plain, rank, self.source, 0 if plain == source else TRAILER_BYTES)

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_values": None}

    @property
    def values(self) -> np.ndarray:
        """The array in the file's shape, uint8, read-only."""
        if self._values is None:
            mapped = np.memmap(self.plain, np.uint8, "r", offset=_header_bytes(len(self.shape)), shape=self.shape)
            self._values = np.asarray(mapped)  # a plain view: indexing a memmap object is slow
        return self._values


def _header_bytes(rank: int) -> int:
    return 4 + 4 * rank


def _checked_shape(plain: Path, rank: int, source: str, trailer_bytes: int = 0) -> Tuple[int, ...]:
    """Shape declared in the header of ``plain``; errors name ``source``."""
    try:
        with open_regular(plain, "rb") as file:
            header = file.read(_header_bytes(rank))
        found = os.path.getsize(plain) - trailer_bytes
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error
    if len(header) < _header_bytes(rank):
        raise _truncated(source, f"at least {_header_bytes(rank)}", len(header))
    _check_kind(header, rank, source)
    shape = struct.unpack(f">{rank}I", header[4:])
    expected = _announced_bytes(header, rank)
    if found < expected:
        raise _truncated(source, expected, found)
    if found > expected:
        raise _too_long(source, expected, found)
    return shape


def _check_kind(header: bytes, rank: int, source: str) -> None:
    if header[:4] != bytes([0, 0, _UNSIGNED_BYTE, rank]):
        raise UserError(
            f"{source} is not an IDX file of bytes in {rank} dimensions: it begins with {header[:4].hex()}, "
            f"expected 0000{_UNSIGNED_BYTE:02x}{rank:02x}"
        )


def _announced_bytes(header: bytes, rank: int) -> int:
    """Length of the file of ``rank`` dimensions that begins with this header."""
    length = _header_bytes(rank)
    return length + math.prod(struct.unpack(f">{rank}I", header[4:length]))


def _is_intact(plain: Path, rank: int) -> bool:
    try:
        verify(plain)
        _checked_shape(plain, rank, str(plain), TRAILER_BYTES)
    except (UserError, Damaged):
        return False
    return True


def _decompressed_name(source: Path, cache_folder: Path) -> Path:
    status = _status(source)
    key = hashlib.sha256(f"{source.resolve()}|{status.st_size}|{status.st_mtime_ns}".encode("utf-8", "surrogateescape"))
    return Path(cache_folder, f"{source.stem}-{key.hexdigest()[:16]}")


def _status(source: Path) -> os.stat_result:
    try:
        return source.stat()
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error


def _decompress(source: Path, target: Path, rank: int) -> None:
    with _open_compressed(source) as compressed, checked_file(target) as out:
        beginning = b""
        try:
            # read1 returns what precedes the damage, so that the error can quote the bytes found.
            for chunk in iter(lambda: compressed.read1(_CHUNK_BYTES), b""):
                if len(beginning) < _LONGEST_HEADER:
                    beginning = (beginning + chunk)[:_LONGEST_HEADER]
                    _check_announced(source, beginning, rank)
                out.write(chunk)
                if len(beginning) >= _header_bytes(rank) and out.tell() > _announced_bytes(beginning, rank):
                    raise _too_long(str(source), _announced_bytes(beginning, rank), f"at least {out.tell()}")
        except EOFError as error:
            raise _truncated(f"{source} (decompressed)", _announced(beginning), out.tell()) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{source} is damaged: {error}; get it again") from error


def _check_announced(source: Path, beginning: bytes, rank: int) -> None:
    """Before anything is written: is it an IDX file, and can it hold what its header announces?"""
    if len(beginning) < _header_bytes(rank):
        return
    _check_kind(beginning, rank, str(source))
    announced, there = _announced_bytes(beginning, rank), os.path.getsize(source)
    if announced > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * there):
        raise UserError(
            f"{source} announces {announced:,} bytes, but has {there:,}: pictures do not compress so well; get it "
            "again, or unpack it with gunzip if it is meant"
        )


def _open_compressed(source: Path) -> gzip.GzipFile:
    try:
        require_regular(source)
        return gzip.open(source, "rb")
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error


def _announced(header: bytes) -> str:
    """Length declared by the first bytes of an IDX file, as far as they are present."""
    rank = header[3] if len(header) >= 4 else 0
    if not 1 <= rank <= 3 or len(header) < _header_bytes(rank):
        return f"at least {_LONGEST_HEADER}"
    return str(_announced_bytes(header, rank))


def _too_long(source: str, expected: int, found: Any) -> UserError:
    return UserError(f"{source} is too long: its header announces {expected} bytes, found {found}; get it again")


def _truncated(source: str, expected: Any, found: int) -> UserError:
    return UserError(f"{source} is truncated: expected {expected} bytes, found {found}; get it again")


_PREFIXES = {"train": "train", "val": "t10k"}


class _IdxImages(ImageDataset):
    """Gray images and labels of one split, memory-mapped from a pair of IDX files."""

    name: str
    class_names: List[str]
    where_to_get: str
    default_folder: Optional[str] = None
    kind = "glyph"
    image_mode = "L"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """Find and check the two files of ``split``: "train", or "val", which is the published test set.

        Args:
            data_path: folder of the files, each plain or ``.gz``.
            split: "train" or "val".
            cache_folder: where decompressed files go.

        Raises:
            UserError: a file is missing, truncated or corrupt, the two do not match, or a label is not a class.
        """
        self.split = require_split(split, SPLITS, self.name, "; val is the published test set")
        self.num_classes = len(self.class_names)
        folder = Path(existing_folder(self._path_or_default(data_path), self.name, self._layout()))
        self._images = IdxFile(self._find(folder, "images", 3), 3, cache_folder)
        self._labels = IdxFile(self._find(folder, "labels", 1), 1, cache_folder)
        num_images, num_labels = self._images.shape[0], self._labels.shape[0]
        if num_images != num_labels:
            raise UserError(
                f"{self._images.source} has {num_images} images, but {self._labels.source} has {num_labels} labels; "
                "get both again"
            )
        if num_images == 0 or 0 in self._images.shape:
            raise UserError(f"{self._images.source} holds no samples: its shape is {self._images.shape}")
        check_labels(self.labels, self.num_classes, self.name, lambda i: f"sample {i} of {self._labels.source}")

    def __len__(self) -> int:
        return self._labels.shape[0]

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Image ``index`` in mode "L", and its label."""
        return Image.fromarray(self._images.values[index]), int(self.labels[index])

    def describe(self, index: int) -> str:
        """Position and file of image ``index``."""
        return f"sample {index} of {self._images.source}"

    def identity(self, index: int) -> str:
        return f"{self.split} {index}"

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) uint8, read-only."""
        return self._labels.values

    def _path_or_default(self, data_path: Optional[str]) -> Optional[str]:
        if data_path is None and self.default_folder is not None and os.path.isdir(self.default_folder):
            return self.default_folder
        return data_path

    def _layout(self) -> str:
        names = ", ".join(_file_name(split, part) for split in _PREFIXES for part in ("images", "labels"))
        return f"with {names}, each plain or .gz; get them from {self.where_to_get}"

    def _find(self, folder: Path, part: str, rank: int) -> Path:
        published = _file_name(self.split, part)
        dotted = published.replace("-idx", ".idx")
        for candidate in (published, dotted, f"{published}.gz", f"{dotted}.gz"):
            if os.path.lexists(folder / candidate):
                return folder / candidate
        raise UserError(
            f"{folder} has no {published} or {published}.gz; dataset {self.name} expects a folder {self._layout()}"
        )


def _file_name(split: str, part: str) -> str:
    return f"{_PREFIXES[split]}-{part}-idx{3 if part == 'images' else 1}-ubyte"


class Mnist(_IdxImages):
    """Handwritten digits, 60,000 and 10,000 gray 28 x 28 images.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", 1998.
    """

    name = "mnist"
    class_names = [str(digit) for digit in range(10)]
    where_to_get = "https://ossci-datasets.s3.amazonaws.com/mnist/"


class FashionMnist(_IdxImages):
    """Clothing items, 60,000 and 10,000 gray 28 x 28 images; without a data path, Debian's package is used.

    Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST", arXiv:1708.07747.
    """

    name = "fashion_mnist"
    class_names = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]
    where_to_get = "https://github.com/zalandoresearch/fashion-mnist or 'apt-get install dataset-fashion-mnist'"
    default_folder = "/usr/share/datasets/fashion-mnist"
