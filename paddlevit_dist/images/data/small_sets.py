"""Small published datasets: handwritten digits that come with the package, MNIST and Fashion-MNIST.

MNIST and Fashion-MNIST are converted once to one memory-mapped file of images and labels in the cache folder.
"""

import contextlib
import functools
import gzip
import hashlib
import math
import os
import struct
import zlib
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from ...core.data.checked_files import DamagedCacheError, map_verified, write_array
from ...core.runtime.errors import UserError
from ...core.runtime.files import map_array, open_regular
from ...core.runtime.outages import read_through_outages
from ...core.tasks.dataset import require_split
from .image_dataset import ImageDataset
from .reading import SPLITS, check_labels, require_folder

DIGITS_FILE = Path(__file__).with_name("digits.npz")
_HELD_OUT_EVERY = 5
_LARGEST_VALUE = 16  # each pixel is the number of set pixels in a 4 x 4 block


class SmallSet(ImageDataset):
    """Images and labels in memory or in one memory-mapped file; the published test set is "val"."""

    name: str
    class_names: list[str]
    num_classes: int
    remark = "; val is the published test set"

    def __init__(self, split: str) -> None:
        self.split = require_split(split, SPLITS, self.name, self.remark)
        self.num_classes = len(self.class_names)

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "_records"}

    def __len__(self) -> int:
        return len(self._records)

    def read(self, index: int) -> tuple[Image.Image, int]:
        """Return image ``index`` in the mode ``image_mode``, and its label."""
        record = self._records[index]
        return Image.fromarray(record["image"]), int(record["label"])

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of sample ``index``, in memory or in an array."""
        record = self._records[index].tobytes()
        return [(len(record), record[:length])]

    def identity(self, index: int) -> str:
        """Return split and position, which identify a sample."""
        return f"{self.split} {index}"

    @property
    def labels(self) -> np.ndarray:  # type: ignore[override] # read from the records
        """All labels, (samples,) uint8."""
        return self._records["label"]

    @functools.cached_property
    def _records(self) -> np.ndarray:
        """The samples, (samples,) with the fields "image", uint8 (height, width[, 3]), and "label"."""
        raise NotImplementedError


def parse_records(images: np.ndarray, labels: np.ndarray | Sequence[int]) -> np.ndarray:
    """Join images and labels into one structured array."""
    records = np.empty(len(images), [("image", "u1", images.shape[1:]), ("label", "u1")])
    records["image"], records["label"] = images, labels
    return records


class Digits(SmallSet):
    """1,797 gray 8 x 8 images; every fifth (360) is held out as "val", the other 1,437 are "train".

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
    1998, doi 10.24432/C50P49, CC BY 4.0: its test set of 13 writers.
    """

    name = "digits"
    remark = ""
    kind = "glyph"
    image_mode = "L"
    class_names = [str(digit) for digit in range(10)]

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        """Open ``split``, "train" or "val"; the samples are in the package, so both paths are ignored."""
        super().__init__(split)

    def describe(self, index: int) -> str:
        """Return the position of image ``index`` among the published samples, and the file."""
        every = _HELD_OUT_EVERY
        row = index * every if self.split == "val" else index + index // (every - 1) + 1
        return f"sample {row} of {DIGITS_FILE}"

    @functools.cached_property
    def _records(self) -> np.ndarray:
        with np.load(DIGITS_FILE, allow_pickle=False) as stored:
            images, labels = stored["images"], stored["labels"]
        chosen = (np.arange(len(labels)) % _HELD_OUT_EVERY == 0) == (self.split == "val")
        return parse_records(np.round(images[chosen] * (255 / _LARGEST_VALUE)), labels[chosen])


class ConvertedSet(SmallSet):
    """A dataset whose files are converted once to ``file``, named by path, size and modification time of each."""

    def __init__(self, data_path: str | None, split: str, cache_folder: Path) -> None:
        """Find the files of ``split``, "train" or "val", and convert them into ``cache_folder`` unless it is done.

        ``data_path`` is the folder of the published files; for CIFAR also the archive itself, or its extracted folder.
        A ``UserError`` says that nothing is found, or that a file is truncated, corrupt or not as published.
        """
        super().__init__(split)
        sources = self._find(data_path)
        key = hashlib.sha256(str([self._stamp(source) for source in sources]).encode("utf-8", "surrogateescape"))
        file = Path(cache_folder, f"{self.name}-{split}-{key.hexdigest()[:16]}.npy")
        self.file = str(file)
        try:
            map_verified(file)
        except DamagedCacheError:
            write_array(file, self._convert())

    @functools.cached_property
    def _records(self) -> np.ndarray:
        return map_array(self.file)

    @staticmethod
    def _stamp(source: Path) -> tuple[str, int, int]:
        try:
            status = read_through_outages(source.stat)
        except OSError:
            return str(source), 0, 0  # reported when it is read
        return str(source.resolve()), status.st_size, status.st_mtime_ns

    def _find(self, data_path: str | None) -> Sequence[Path]:
        """Return the files of the split."""
        raise NotImplementedError

    def _convert(self) -> np.ndarray:
        """Read and check all records of the split."""
        raise NotImplementedError


_PREFIXES = {"train": "train", "val": "t10k"}
_UNSIGNED_BYTE = 0x08
# Limits of unpacked by packed bytes (published: 5), and of unpacked bytes.
_LARGEST_GAIN, _ALWAYS_ALLOWED = 100, 1 << 26


class _IdxImages(ConvertedSet):
    """Gray images and labels of one split from a pair of IDX files, each plain or ``.gz``."""

    where_to_get: str
    default_folder: str | None = None
    kind = "glyph"
    image_mode = "L"

    def describe(self, index: int) -> str:
        """Return position and file of image ``index``."""
        return f"sample {index} of {self.sources[0]}"

    def _find(self, data_path: str | None) -> Sequence[Path]:
        if data_path is None and self.default_folder is not None and os.path.isdir(self.default_folder):
            data_path = self.default_folder
        names = ", ".join(_format_idx_name(split, content) for split in _PREFIXES for content in ("images", "labels"))
        layout = f"with {names}, each plain or .gz; get them from {self.where_to_get}"
        folder = Path(require_folder(data_path, self.name, layout))
        files: list[Path] = []
        for part in ("images", "labels"):
            file = find_idx_file(folder, self.split, part)
            if file is None:
                name = _format_idx_name(self.split, part)
                raise UserError(f"{folder} has no {name} or {name}.gz; dataset {self.name} expects a folder {layout}")
            files.append(file)
        self.sources = [str(path) for path in files]
        return files

    def _convert(self) -> np.ndarray:
        (images_file, labels_file), ranks = self.sources, (3, 1)
        images, labels = (_read_idx(source, rank) for source, rank in zip(self.sources, ranks, strict=True))
        if len(images) != len(labels):
            raise UserError(
                f"{images_file} has {len(images)} images, but {labels_file} has {len(labels)} labels; get both again"
            )
        if images.size == 0:
            raise UserError(f"{images_file} contains no samples: its shape is {images.shape}")
        check_labels(labels, self.num_classes, self.name, lambda index: f"sample {index} of {labels_file}")
        return parse_records(images, labels)


def find_idx_file(folder: Path, split: str, part: str) -> Path | None:
    """Return the file of a split's "images" or "labels" in a folder, plain before ``.gz``; None if there is none."""
    name = _format_idx_name(split, part)
    spellings = (
        folder / f"{spelling}{end}" for end in ("", ".gz") for spelling in (name, name.replace("-idx", ".idx"))
    )
    return next(filter(os.path.lexists, spellings), None)


def _format_idx_name(split: str, part: str) -> str:
    return f"{_PREFIXES[split]}-{part}-idx{3 if part == 'images' else 1}-ubyte"


def _read_idx(source: str, rank: int) -> np.ndarray:
    """Read the array in an IDX file of bytes, uint8; no more is unpacked than its header announces."""
    header_bytes = 4 + 4 * rank
    try:
        with open_regular(source, "rb") as file, _unpack(file) as stream:
            header = _read_as_far(stream, header_bytes)
            expected = header_bytes
            if len(header) == header_bytes:
                expected += _count_announced_bytes(source, header, rank)
                header += _read_as_far(stream, expected - header_bytes + 1)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{source} is damaged: {error}; get it again") from error
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror or error}") from error
    length = len(header)
    if length < expected:
        least = "at least " if expected == header_bytes else ""
        raise UserError(f"{source} is truncated: expected {least}{expected} bytes, found {length}; get it again")
    if length > expected:
        raise UserError(
            f"{source} is too long: its header announces {expected} bytes, found at least {length}; get it again"
        )
    return np.frombuffer(header, np.uint8, offset=header_bytes).reshape(struct.unpack_from(f">{rank}I", header, 4))


def _unpack(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file) if file.name.endswith(".gz") else contextlib.nullcontext(file)


def _read_as_far(stream: BufferedReader, size: int) -> bytes:
    """Read at most ``size`` bytes; fewer if the file ends, or its compressed data end before their end mark."""
    content = bytearray()
    with contextlib.suppress(EOFError):
        while len(content) < size and (chunk := stream.read1(min(size - len(content), 1 << 20))):
            content += chunk
    return bytes(content)


def _count_announced_bytes(source: str, header: bytes, rank: int) -> int:
    magic = bytes([0, 0, _UNSIGNED_BYTE, rank])
    if header[:4] != magic:
        raise UserError(
            f"{source} is not an IDX file of bytes in {rank} dimensions: it begins with {header[:4].hex()}, "
            f"expected {magic.hex()}"
        )
    announced, size = math.prod(struct.unpack(f">{rank}I", header[4:])), os.path.getsize(source)
    if source.endswith(".gz") and announced > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * size):
        raise UserError(
            f"{source} announces {announced + len(header):,} bytes, but has {size:,}: images do not compress so "
            "well; get it again, or unpack it with gunzip if it is correct"
        )
    return announced


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
    class_names = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot".split(",")
    where_to_get = "https://github.com/zalandoresearch/fashion-mnist or 'apt-get install dataset-fashion-mnist'"
    default_folder = "/usr/share/datasets/fashion-mnist"
