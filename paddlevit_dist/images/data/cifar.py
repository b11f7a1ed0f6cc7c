"""CIFAR-10 and CIFAR-100, converted once from the published archives to one memory-mapped file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tarfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
from PIL import Image

from ...checkpoint.unpickling import restricted_load
from ...contracts.dataset import require_split
from ...errors import UserError
from ...files import map_array, read_regular
from ...loading.checked_files import Damaged, map_verified, write_array
from .image_dataset import ImageDataset
from .reading import SPLITS, check_labels
from .unpacked import DAMAGE, TooLarge, open_unpacked, too_large

SIDE = 32
PICTURE_BYTES = 3 * SIDE * SIDE
RECORD = np.dtype([("image", "u1", (SIDE, SIDE, 3)), ("label", "u1")])  # layout of a sample in the converted file
_LARGEST_BATCH_BYTES = 1 << 28  # the largest published one is 150 MB
_LARGEST_ARCHIVE_BYTES = 1 << 28  # unpacked; the published ones have 186 MB


class Publication(NamedTuple):
    """One of the two published forms of a dataset.

    Attributes:
        archive, folder: names; the archive contains the folder.
        files: files of each split, in order.
        binary: whether files hold raw byte records rather than pickles.
        label_bytes: for binary files, labels before each image; the last one is used.
    """

    archive: str
    folder: str
    files: Dict[str, List[str]]
    binary: bool
    label_bytes: int = 1


class Source(NamedTuple):
    """Where the batches of a dataset were found."""

    path: Path  # an archive, or the folder of the batches
    publication: Publication

    def stamps(self, split: str) -> str:
        """Path, size and modification time of every file that ``split`` is read from."""
        files = [self.path]
        if self.path.is_dir():
            files = [self.path / name for name in self.publication.files[split]]
        states = [(str(file.resolve()), *_state(file)) for file in files]
        return f"{states}|{self.publication.files[split]}"


def find_source(data_path: Path, publications: Tuple[Publication, ...]) -> Source:
    """Find the source at ``data_path``: the archive, the extracted folder, or a folder containing either.

    Raises:
        UserError: none of them exists.
    """
    for publication in publications:
        first = publication.files["train"][0]
        if data_path.is_file() and data_path.name == publication.archive:
            return Source(data_path, publication)
        for folder in (data_path, data_path / publication.folder):
            if (folder / first).is_file():
                return Source(folder, publication)
        if (data_path / publication.archive).is_file():
            return Source(data_path / publication.archive, publication)
    wanted = " or ".join(f"{publication.archive} (or its folder {publication.folder})" for publication in publications)
    raise UserError(f"{data_path} has no {wanted}")


def read_batches(source: Source, split: str, label_key: str, where_to_get: str) -> Iterator[np.ndarray]:
    """The batches of ``split`` in order, each an array of ``RECORD``.

    Raises:
        UserError: a batch is missing, corrupt or not as published.
    """
    names = source.publication.files[split]
    contents = _from_folder if source.path.is_dir() else _from_archive
    with _told_as_damage(source.path, where_to_get):
        for name, content in contents(source, names, where_to_get):
            where = f"{source.path}{os.sep}{name}"
            if source.publication.binary:
                pixels, labels = _parse_records(content, source.publication.label_bytes, where, where_to_get)
            else:
                pixels, labels = _parse_pickle(content, label_key, where, where_to_get)
            records = np.empty(len(labels), RECORD)
            records["image"] = pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
            records["label"] = labels
            yield records


def _from_folder(source: Source, names: List[str], where_to_get: str) -> Iterator[Tuple[str, bytes]]:
    for name in names:
        if not (source.path / name).is_file():
            raise UserError(f"{source.path} has no {name}; get the whole archive again from {where_to_get}")
        if os.path.getsize(source.path / name) > _LARGEST_BATCH_BYTES:
            raise _not_published(f"{source.path}{os.sep}{name}", "it is far too long", where_to_get)
        yield name, read_regular(source.path / name)


def _from_archive(source: Source, names: List[str], where_to_get: str) -> Iterator[Tuple[str, bytes]]:
    """Read sequentially, since the archive is compressed; batches found early are held until their turn."""
    waiting: Dict[str, bytes] = {}
    due = list(names)
    with (
        open_unpacked(source.path, _LARGEST_ARCHIVE_BYTES) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r|", bufsize=1 << 20) as archive,
    ):
        for member in archive:
            if member.offset_data + member.size > _LARGEST_ARCHIVE_BYTES:  # before what it announces is passed over
                raise too_large(_LARGEST_ARCHIVE_BYTES)
            name = os.path.basename(member.name)
            if not member.isfile() or name not in due or name in waiting:
                continue
            if member.size > _LARGEST_BATCH_BYTES:
                raise _not_published(f"{source.path}{os.sep}{name}", f"it has {member.size} bytes", where_to_get)
            content = archive.extractfile(member).read()
            if len(content) != member.size:
                raise EOFError(f"'{name}' ends after {len(content)} of {member.size} bytes")
            waiting[name] = content
            while due and due[0] in waiting:
                yield due[0], waiting.pop(due.pop(0))
            if not due:
                return
    raise UserError(f"{source.path} has no {due[0]}; get it again from {where_to_get}")


@contextlib.contextmanager
def _told_as_damage(path: Path, where_to_get: str) -> Iterator[None]:
    try:
        yield
    except (TooLarge, *DAMAGE) as error:
        raise UserError(f"{path} is damaged or truncated: {error}; get it again from {where_to_get}") from error
    except OSError as error:  # includes BadGzipFile, which has no errno
        reason = error.strerror or f"{error}; get it again from {where_to_get}"
        raise UserError(f"{path} cannot be read: {reason}") from error


def _parse_records(content: bytes, label_bytes: int, where: str, where_to_get: str):
    record_bytes = label_bytes + PICTURE_BYTES
    if not content or len(content) % record_bytes:
        raise _not_published(where, f"its {len(content)} bytes are not records of {record_bytes}", where_to_get)
    records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
    return records[:, label_bytes:], records[:, label_bytes - 1]


def _parse_pickle(content: bytes, label_key: str, where: str, where_to_get: str):
    try:
        batch = restricted_load(io.BytesIO(content))
    except UserError as error:
        reason = str(error).partition(";")[0].partition(", which weights")[0].replace("the file ", "", 1)
        raise _not_published(where, f"it {reason} (nothing was executed)", where_to_get) from error
    pixels, labels = (batch.get(key) for key in ("data", label_key)) if isinstance(batch, dict) else (None, None)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PICTURE_BYTES,):
        raise _not_published(where, f"it has no array 'data' of bytes in rows of {PICTURE_BYTES}", where_to_get)
    if not isinstance(labels, list) or len(labels) != len(pixels) or not all(type(n) is int for n in labels):
        raise _not_published(where, f"it has no list '{label_key}' of {len(pixels)} whole numbers", where_to_get)
    if not all(0 <= number <= 255 for number in labels):
        raise _not_published(where, f"'{label_key}' has a number that is not a class", where_to_get)
    return pixels, labels


def _not_published(where: str, reason: str, where_to_get: str) -> UserError:
    return UserError(f"{where} is not a batch as published: {reason}; get it again from {where_to_get}")


def _state(file: Path) -> Tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0  # a missing batch is reported when it is read
    return status.st_size, status.st_mtime_ns


_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"


class _Cifar(ImageDataset):
    """32 x 32 colour images; the published test set is "val"."""

    name: str
    class_names: List[str]
    label_key: str
    publications: Tuple[Publication, ...]

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """Find the archive or its extracted folder and convert ``split``, "train" or "val", unless already done.

        Args:
            data_path: the archive, the extracted folder, or a folder containing either.
            split: "train" or "val".
            cache_folder: where to put the converted file, named by the source's path, size and modification time.

        Raises:
            UserError: nothing is found, or the files are corrupt or not as published.
        """
        self.split = require_split(split, SPLITS, self.name, "; val is the published test set")
        self.num_classes = len(self.class_names)
        self._records: Optional[np.ndarray] = None
        source = find_source(self._existing(data_path), self.publications)
        key = hashlib.sha256(source.stamps(split).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        file = Path(cache_folder, f"{self.name}-{split}-{key}.npy")
        self.source, self.file = str(source.path), str(file)
        if not self._is_intact():
            self._convert(source, file)

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_records": None}

    def __len__(self) -> int:
        return len(self._mapped())

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Image ``index`` in mode "RGB", and its label."""
        record = self._mapped()[index]
        return Image.fromarray(record["image"]), int(record["label"])

    def describe(self, index: int) -> str:
        """Position of image ``index`` in its split, and the source."""
        return f"sample {index} of the {'test' if self.split == 'val' else 'training'} set in {self.source}"

    def identity(self, index: int) -> str:
        return f"{self.split} {index}"

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) uint8, read-only."""
        return self._mapped()["label"]

    def _mapped(self) -> np.ndarray:
        if self._records is None:
            self._records = map_array(self.file)
        return self._records

    def _is_intact(self) -> bool:
        try:
            records = map_verified(self.file)
        except Damaged:
            return False
        return records.dtype == RECORD

    def _convert(self, source: Source, file: Path) -> None:
        batches = list(read_batches(source, self.split, self.label_key, _HOME))
        records = np.concatenate(batches)
        check_labels(records["label"], self.num_classes, self.name, lambda index: f"sample {index} of {source.path}")
        self._records = None
        write_array(file, records)

    def _existing(self, data_path: Optional[str]) -> Path:
        first = self.publications[0]
        wanted = f"a folder with {first.archive} or its extracted {first.folder}; get it from {_HOME}"
        if data_path is None:
            raise UserError(f"dataset {self.name} needs -data_path=<folder>, {wanted}")
        path = Path(os.path.abspath(os.path.expanduser(os.fspath(data_path))))
        if not path.exists():
            raise UserError(f"data path {path} does not exist; dataset {self.name} expects a folder: {wanted}")
        return path


class Cifar10(_Cifar):
    """60,000 images of ten classes, 50,000 for training.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar10"
    label_key = "labels"
    class_names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    publications = (
        Publication(
            "cifar-10-python.tar.gz",
            "cifar-10-batches-py",
            {"train": [f"data_batch_{number}" for number in range(1, 6)], "val": ["test_batch"]},
            binary=False,
        ),
        Publication(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "val": ["test_batch.bin"]},
            binary=True,
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
        Publication("cifar-100-python.tar.gz", "cifar-100-python", {"train": ["train"], "val": ["test"]}, binary=False),
        Publication(
            "cifar-100-binary.tar.gz",
            "cifar-100-binary",
            {"train": ["train.bin"], "val": ["test.bin"]},
            binary=True,
            label_bytes=2,
        ),
    )
