"""CIFAR-10 and CIFAR-100 from the published archives, or the folders extracted from them."""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.checkpoint.unpickling import restricted_load
from ...core.runtime.errors import UserError
from ...core.runtime.files import open_regular, read_regular
from .reading import check_labels
from .small_sets import ConvertedSet, parse_records

_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
_SIDE = 32
_IMAGE_BYTES = 3 * _SIDE * _SIDE
_LARGEST_ARCHIVE_BYTES = 1 << 28  # unpacked; the published ones have 186 MB
_GZIP = b"\x1f\x8b"
_DAMAGE = (gzip.BadGzipFile, tarfile.TarError, EOFError, zlib.error, ValueError, ArithmeticError)


class CifarVersion(NamedTuple):
    """One of the two published forms of CIFAR: names of archive and folder in it, files of each split in order.

    ``label_bytes`` is the number of labels before each image, the last one is used; 0: the files are pickles.
    """

    archive: str
    folder: str
    files: dict[str, list[str]]
    label_bytes: int = 0


def find_cifar(data_path: Path, publications: tuple[CifarVersion, ...]) -> tuple[Path, CifarVersion]:
    """Find the archive, or the folder of extracted files, at or in ``data_path``; a ``UserError`` if there is none."""
    for publication in publications:
        first = publication.files["train"][0]
        if data_path.is_file() and data_path.name == publication.archive:
            return data_path, publication
        for folder in (data_path, data_path / publication.folder):
            if (folder / first).is_file():
                return folder, publication
        if (data_path / publication.archive).is_file():
            return data_path / publication.archive, publication
    expected = " or ".join(f"{each.archive} (or its folder {each.folder})" for each in publications)
    raise UserError(f"{data_path} has no {expected}")


class _Cifar(ConvertedSet):
    """32 x 32 color images."""

    label_key: str
    publications: tuple[CifarVersion, ...]

    def describe(self, index: int) -> str:
        """Return the position of image ``index`` in its split, and the source."""
        return f"sample {index} of the {'test' if self.split == 'val' else 'training'} set in {self.source}"

    def _find(self, data_path: str | None) -> Sequence[Path]:
        first = self.publications[0]
        expected = f"a folder with {first.archive} or its extracted {first.folder}; get it from {_HOME}"
        if data_path is None:
            raise UserError(f"dataset {self.name} needs -data_path=<folder>, {expected}")
        path = Path(os.path.abspath(os.path.expanduser(os.fspath(data_path))))
        if not path.exists():
            raise UserError(f"data path {path} does not exist; dataset {self.name} expects a folder: {expected}")
        source, publication = find_cifar(path, self.publications)
        self.source, self._label_bytes = str(source), publication.label_bytes
        self._names = publication.files[self.split]
        return [source / name for name in self._names] if source.is_dir() else [source]

    def _convert(self) -> np.ndarray:
        batches = _read_folder if os.path.isdir(self.source) else _read_archive
        parts = []
        try:
            for name, content in batches(self.source, self._names):
                where = f"{self.source}{os.sep}{name}"
                pixels, labels = _parse(content, self._label_bytes, self.label_key, where)
                parts.append(parse_records(pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1), labels))
        except _DAMAGE as error:
            raise UserError(f"{self.source} is damaged or truncated: {error}; get it again from {_HOME}") from error
        except OSError as error:
            raise UserError(f"{self.source} cannot be read: {error.strerror}") from error
        records = np.concatenate(parts)
        check_labels(records["label"], self.num_classes, self.name, lambda index: f"sample {index} of {self.source}")
        return records


def _read_folder(source: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        file = Path(source, name)
        if not file.is_file():
            raise UserError(f"{source} has no {name}; get the whole archive again from {_HOME}")
        if file.stat().st_size > _LARGEST_ARCHIVE_BYTES:
            raise _not_published(str(file), "it is far too long")
        yield name, read_regular(file)


def _read_archive(source: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """Read sequentially, since the archive is compressed; batches read too early wait for their turn."""
    waiting: dict[str, bytes] = {}
    due = list(names)
    with open_regular(source, "rb") as packed, _open_stream(packed) as archive:
        for member in archive:
            if member.offset_data + member.size > _LARGEST_ARCHIVE_BYTES:  # before skipping the announced bytes
                raise _too_large()
            name = os.path.basename(member.name)
            if name not in due or name in waiting:
                continue
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            waiting[name] = content.read()
            while due and due[0] in waiting:
                yield due[0], waiting.pop(due.pop(0))
            if not due:
                return
    raise UserError(f"{source} has no {due[0]}; get it again from {_HOME}")


def _open_stream(packed: io.BufferedReader) -> tarfile.TarFile:
    stream: Any = _BoundedDecompressor(packed)  # has ``read`` only, which is all that reading in sequence needs
    return tarfile.open(fileobj=stream, mode="r|")


class _BoundedDecompressor:
    """A stream that unpacks no more than the published archives contain: a megabyte of gzip can become a thousand.

    Some browsers unpack the archive while downloading, so plain streams are read, too.
    """

    def __init__(self, packed: io.BufferedReader) -> None:
        is_packed = packed.peek(2).startswith(_GZIP)
        self._stream, self._left = gzip.GzipFile(fileobj=packed) if is_packed else packed, _LARGEST_ARCHIVE_BYTES

    def read(self, size: int) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise _too_large()
        return content


def _too_large() -> ValueError:
    return ValueError(f"it unpacks to more than {_LARGEST_ARCHIVE_BYTES:,} bytes, which the published one does not")


def _parse(content: bytes, label_bytes: int, label_key: str, where: str) -> tuple[np.ndarray, Any]:
    """Parse a batch to pixels, uint8 (samples, 3072), and labels."""
    if label_bytes:
        record_bytes = label_bytes + _IMAGE_BYTES
        if not content or len(content) % record_bytes:
            raise _not_published(where, f"its {len(content)} bytes are not records of {record_bytes}")
        records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
        return records[:, label_bytes:], records[:, label_bytes - 1]
    try:
        batch = restricted_load(io.BytesIO(content))
    except UserError as error:
        reason = str(error).partition(";")[0].partition(", which weights")[0].replace("the file ", "", 1)
        raise _not_published(where, f"it {reason} (nothing was executed)") from error
    pixels, labels = (batch.get(key) for key in ("data", label_key)) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (_IMAGE_BYTES,):
        raise _not_published(where, f"it has no array 'data' of bytes in rows of {_IMAGE_BYTES}")
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(type(n) is int for n in labels):
        raise _not_published(where, f"it has no list '{label_key}' of {len(pixels)} whole numbers")
    if not all(0 <= number <= 255 for number in labels):
        raise _not_published(where, f"'{label_key}' has a number that is not a class")
    return pixels, labels


def _not_published(where: str, reason: str) -> UserError:
    return UserError(f"{where} is not a batch as published: {reason}; get it again from {_HOME}")


class Cifar10(_Cifar):
    """60,000 images of ten classes, 50,000 for training.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar10"
    label_key = "labels"
    class_names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    publications = (
        CifarVersion(
            "cifar-10-python.tar.gz",
            "cifar-10-batches-py",
            {"train": [f"data_batch_{number}" for number in range(1, 6)], "val": ["test_batch"]},
        ),
        CifarVersion(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "val": ["test_batch.bin"]},
            label_bytes=1,
        ),
    )


class Cifar100(_Cifar):
    """60,000 images of 100 classes (the fine labels), 50,000 for training.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar100"
    label_key = "fine_labels"
    class_names = """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()
    publications = (
        CifarVersion("cifar-100-python.tar.gz", "cifar-100-python", {"train": ["train"], "val": ["test"]}),
        CifarVersion(
            "cifar-100-binary.tar.gz",
            "cifar-100-binary",
            {"train": ["train.bin"], "val": ["test.bin"]},
            label_bytes=2,
        ),
    )
