"""Images read directly from uncompressed tar files.

Two memory-mapped files in the cache folder index them: a path index of names and labels, and a ``.npy`` array of
offsets and sizes. Both carry the key of their source: place, sizes and modification times of the tar files, content of
the lists next to them.
"""

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.data.checked_files import DamagedCacheError, map_verified, write_array
from ...core.data.path_index import PathBatch, PathIndex, ensure_path_index
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address, map_array, read_regular
from ...core.runtime.spelling import compose
from .class_folders import IndexedClassImages
from .formats import SPLIT_WORDS, SkippedFiles, readable_suffixes
from .image_dataset import FILE as CLASSES_FILE
from .image_dataset import name_folders, read_class_names
from .imagenet import find_label_files, read_listed_labels
from .prepared import read_preparation
from .reading import UnreadableImage, require_folder
from .remote_tars import RemoteTars
from .tar_files import LocalTars, TarScan, find_shards, scan

_SHARD = re.compile(r".*?\.tar(?=/)", re.IGNORECASE | re.DOTALL)  # in the path of an image below the data path


class TarImages(IndexedClassImages):
    """Images in tar files, which are not unpacked: an index has the file, offset and size of each image.

    The tar files of a split are those in ``data_path`` with the split in their name (``train-00000.tar``,
    ``ILSVRC2012_img_train.tar``, ``imagenet-val-03.tar``), or else all in the folder ``train`` or ``val``. Classes
    follow from their content:

    - label files: ``key.jpg`` with ``key.cls`` (a whole number) or ``key.json`` (an object with ``label``), as in
      WebDataset;
    - a tar file for each class, inside the tar file of the split (the ImageNet archive) or in the folder ``train``;
    - a folder for each class inside the tar files;
    - for tar files without classes, such as ImageNet's validation set: ``val_list.txt`` with lines ``path label``, or
      ImageNet's development kit, extracted next to them.

    Classes from names are numbered in their sorted order; validation classes have the numbers of the training files.
    ``classes.txt`` names the classes.
    """

    layout = "with uncompressed tar files: train-*.tar and val-*.tar, or train/<class>.tar and val/<class>.tar"

    def __init__(self, data_path: str | None, split: str, cache_folder: Path) -> None:
        """Index the tar files of ``split``, "train", "val" or another part of their names, in a folder or address.

        A ``UserError`` says that there are no tar files, a compressed, truncated or corrupt one, or an image without a
        class.
        """
        self.split = split
        self.is_remote = data_path is not None and is_address(data_path)
        self._tars: LocalTars | RemoteTars = (
            RemoteTars(str(data_path), cache_folder)
            if self.is_remote
            else LocalTars(require_folder(data_path, "tar", self.layout))
        )
        root = self._tars.root
        preparation = read_preparation(self._tars.folder)
        index, self._locations_file = _open_index(self._tars, split, cache_folder)
        self._locations: np.ndarray | None = None
        classes = index.class_names
        num_classes = classes["count"]
        if preparation:
            self.notices = [preparation.note(root)]
            num_classes = num_classes if classes["names"] else max(num_classes, preparation.num_classes)
        if isinstance(self._tars, RemoteTars):
            self._tars.finish()
            self.notices = [*self.notices, *self._tars.notices]
        super().__init__(root, index, num_classes, SkippedFiles.from_json(classes["left_out"]))

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there are tar files of validation images; assumed at an address, which is not listed here."""
        return data_path is None or is_address(data_path) or bool(find_shards(os.path.expanduser(data_path), "val"))

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "_locations": None}

    def encoded(self, index: int) -> bytes:
        """Return the bytes of image ``index``; raises what ``part`` does."""
        return self.part(index, 0, self.num_bytes(index)).tobytes()

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        """Read ``length`` bytes of image ``index`` from ``start``, uint8.

        An ``UnreadableImage`` says that the tar file cannot be read, a ``UserError`` that it has become shorter.
        """
        shard = self._shard(index)
        try:
            content = self._tars.read(shard, *self._location(index), start, length)
        except OSError as error:
            raise UnreadableImage(self.describe(index), error.strerror or str(error)) from error
        if len(content) != length:
            path = os.path.join(self.root, shard)
            raise UserError(f"{path} has become shorter since it was indexed; start the run again")
        return content

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of image ``index``."""
        size = self.num_bytes(index)
        return [(size, self.part(index, 0, min(size, length)).tobytes())]

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch images at an address together, before they are read one by one; a ``UserError`` if that fails."""
        if isinstance(self._tars, RemoteTars):
            self._tars.prefetch([(self._shard(index), *self._location(index)) for index in indices])

    def limit_cache(self, gigabytes: float) -> None:
        """Set the size of the cache of images at an address."""
        if isinstance(self._tars, RemoteTars):
            self.notices = [*self.notices, self._tars.limit_cache(gigabytes)]

    def identity(self, index: int) -> str:
        """Return the path of image ``index`` below the data path, the same here and at an address."""
        return os.path.normpath(self._index.path(index))

    def _shard(self, index: int) -> str:
        match = _SHARD.match(self._index.path(index))
        if match is None:
            raise UserError(f"index {self._index.file} names {self.describe(index)}, which is not in a tar file")
        return match[0]

    def num_bytes(self, index: int) -> int:
        """Return the size of image ``index`` in bytes."""
        return self._location(index)[1]

    def _location(self, index: int) -> tuple[int, int]:
        """Return offset and size of image ``index``."""
        if self._locations is None:
            self._locations = map_array(self._locations_file)
        offset, size = self._locations[index].tolist()
        return offset, size

    @property
    def index_files(self) -> tuple[str, str]:
        """The files of paths and labels, and of offsets and sizes."""
        return self._index.file, self._locations_file

    @property
    def class_names(self) -> list[str] | None:  # type: ignore[override] # stored in the index
        """Name of each class, None if neither the archives nor ``classes.txt`` name them."""
        return self._index.class_names["names"]


def _open_index(tars: LocalTars | RemoteTars, split: str, cache_folder: Path) -> tuple[PathIndex, str]:
    """Open the index of ``split``, rebuilt if its tar files have changed; also return the file of offsets and sizes.

    The class names of the index are a dictionary: ``names`` to show, or None; ``groups``, the names in the archives, or
    None; ``count``; ``left_out``.
    """
    root, shards = tars.root, tars.find(split)
    if not shards:
        existing = [word for word in SPLIT_WORDS if tars.find(word)]
        others = f"; there are some of {', '.join(existing)}" if existing else ""
        advice = "; set DATA.VAL_FRACTION to hold out some of train" if split == "val" and "train" in existing else ""
        raise UserError(f"{root} has no tar files of the {split} images, such as {split}-00000.tar{others}{advice}")
    published: tuple[PathIndex, str] | None = tars.find_index(split)
    if published is not None:
        return published
    training_shards = tars.find("train") if split != "train" else []
    key = _key(tars, split, [*shards, *training_shards])
    locations_file = Path(cache_folder, f"tar-{split}-{key.hex()[:16]}.npy")
    classes: dict[str, Any] = {}

    def build() -> Iterator[PathBatch]:
        found = scan(tars, shards, split, read_listed_labels(tars.folder, split))
        if not len(found.labels):
            others = f"; {found.skipped_files.summary()}" if found.skipped_files.counts else ""
            raise UserError(f"{os.path.join(root, shards[0])} contains no images{others}")
        training = _open_index(tars, "train", cache_folder)[0].class_names if training_shards else None
        labels = _resolve_classes(found, tars, shards[0], training, classes)
        classes["left_out"] = found.skipped_files.as_json()
        write_array(locations_file, found.locations)
        first = 0
        for batch in found.batches:
            yield batch._replace(labels=labels[first : first + len(batch.lengths)].astype(np.int32))
            first += len(batch.lengths)

    open_index = functools.partial(ensure_path_index, cache_folder, f"tar-{split}", key, build, lambda: classes)
    return open_with_locations(open_index, locations_file), str(locations_file)


def open_with_locations(open_index: Callable[[], PathIndex], file: Path) -> PathIndex:
    """Open an index of images in tar files, and build it again if the file of their offsets and sizes does not fit."""
    index = open_index()
    try:
        fits = map_verified(file).shape == (len(index), 2)
    except DamagedCacheError:
        fits = False
    if not fits:  # lost or corrupt: both are rebuilt together
        os.unlink(index.file)
        index = open_index()
    return index


def _key(tars: LocalTars | RemoteTars, split: str, shards: list[str]) -> bytes:
    # Which members are images depends on what Pillow opens here; 5 is the version of the index.
    # Other tar files may have the same names, sizes and times.
    place = tars.root if is_address(tars.root) else os.path.realpath(tars.root)
    facts = f"tar 5 {split} {sorted(readable_suffixes())}\n{place}\n"
    key = hashlib.sha256(facts.encode("utf-8", "surrogateescape"))
    for shard, stamp in zip(shards, tars.stamps(shards), strict=True):
        key.update(f"{shard}\0{stamp}\n".encode("utf-8", "surrogateescape"))
    root = tars.folder
    for path in (os.path.join(root, CLASSES_FILE), *find_label_files(root, "train"), *find_label_files(root, split)):
        if os.path.isfile(path):
            key.update(os.path.basename(path).encode() + hashlib.sha256(read_regular(path)).digest())
    return key.digest()


def _resolve_classes(
    found: TarScan, tars: LocalTars | RemoteTars, shard: str, training: dict[str, Any] | None, classes: dict[str, Any]
) -> np.ndarray:
    """Return the final labels, and store the classes in ``classes``."""
    training_classes = training or {"names": None, "groups": None, "count": 0}
    if found.groups is None:
        names = read_class_names(tars.folder) or training_classes["names"]
        largest = int(found.labels.max())
        count = len(names) if names else max(largest + 1, training_classes["count"])
        if largest >= count:
            raise UserError(
                f"an image of {os.path.join(tars.root, shard)} has label {largest}, but only {count} classes are named"
            )
        classes.update(names=names, groups=training_classes["groups"], count=count)
        return found.labels
    groups = training_classes["groups"] if training else found.groups
    if groups is None:
        raise UserError(
            f"the training tar files of {tars.root} number their classes in label files, the validation files name "
            f"them ('{found.groups[0]}'); pack both in the same way"
        )
    position = {name: number for number, name in enumerate(sorted(set(map(compose, groups))))}
    unknown = sorted(set(map(compose, found.groups)) - set(position))
    if unknown:
        raise UserError(
            f"class '{unknown[0]}' of {os.path.join(tars.root, shard)} does not exist in the training files"
        )
    classes.update(names=name_folders(tars.folder, list(position)), groups=groups, count=len(position))
    return np.array([position[compose(group)] for group in found.groups], np.int64)[found.labels]
