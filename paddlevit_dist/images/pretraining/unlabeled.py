"""Images without labels, or with labels that are not read: folders of any depth, tar files, addresses, tables.

Of validation images in folders, the folders next to one another are the classes of the score.
"""

import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.data.checked_files import write_array
from ...core.data.path_index import PathBatch, PathIndex, ensure_path_index, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.tables import open_table
from ..data.class_folders import IndexedClassImages, find_split_folders
from ..data.formats import (
    SkippedFiles,
    is_hidden,
    is_image_name,
    list_folders,
    read_head,
    readable_suffixes,
    split_in_name,
    walk_files,
)
from ..data.image_dataset import ImageDataset
from ..data.label_layouts import find_image_column, find_split_columns, find_split_words
from ..data.reading import ReadConfig
from ..data.remote_tars import RemoteTars
from ..data.table_columns import SUFFIXES as TABLE_SUFFIXES
from ..data.table_columns import open_columns
from ..data.table_files import ImageFinder
from ..data.tar import TarImages, open_with_locations
from ..data.tar_files import LocalTars, scan

UNKNOWN = -1  # label of an image without a class
_TAR = b".tar"
_BINARY_TABLES = (".parquet", ".pq")
_LAYOUT = (
    "a folder with images or tar files at any depth, an uncompressed tar file, a table of images, or an address of tar "
    "files"
)


class _ListedImages(IndexedClassImages):
    """Images listed in a path index, without labels unless ``labels`` is set."""

    labels: Any = None
    num_classes: Any = None
    class_names: Any = None

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what ``content_key`` covers: the paths."""
        return {"names": self._index.buffers()}


class _TarMembers(TarImages):
    """Images in tar files, without labels."""

    labels: Any = None
    num_classes: Any = None
    class_names: Any = None

    def __init__(self, tars: LocalTars | RemoteTars, shards: Sequence[str], split: str, cache_folder: Path) -> None:
        self.split, self.is_remote = split, isinstance(tars, RemoteTars)
        self._tars, self._locations = tars, None
        published = tars.find_index(split) if self.is_remote else None
        index, self._locations_file, skipped = (
            (*published, None) if published else _index_tars(tars, list(shards), split, cache_folder)
        )
        if isinstance(tars, RemoteTars):
            tars.finish()
            self.notices = list(tars.notices)
        IndexedClassImages.__init__(self, tars.root, index, 0, skipped)
        self.num_classes = None

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what ``content_key`` covers: the paths."""
        return {"names": self._index.buffers()}


def _index_tars(
    tars: LocalTars | RemoteTars, shards: list[str], split: str, cache_folder: Path
) -> tuple[PathIndex, str, SkippedFiles]:
    """Open the index of all images in tar files, rebuilt if these have changed; also return offsets and other files."""
    key = hashlib.sha256(f"unlabeled tar 1 {split} {sorted(readable_suffixes())}\n{tars.root}\n".encode())
    for shard, stamp in zip(shards, tars.stamps(shards), strict=True):
        key.update(f"{shard}\0{stamp}\n".encode("utf-8", "surrogateescape"))
    file = Path(cache_folder, f"unlabeled-tar-{key.hexdigest()[:16]}.npy")
    stored: dict[str, Any] = {}

    def build() -> Iterator[PathBatch]:
        found = scan(tars, shards, split, has_labels=False)
        write_array(file, found.locations)
        stored.update(found.skipped_files.as_json())
        yield from found.batches

    def open_index() -> PathIndex:
        return ensure_path_index(cache_folder, f"unlabeled-tar-{split}", key.digest(), build, lambda: stored)

    index = open_with_locations(open_index, file)
    return index, str(file), SkippedFiles.from_json(index.class_names)


def _list_folder(folder: str, split: str, cache_folder: Path, has_classes: bool) -> list[ImageDataset]:
    """List the images and the tar files of a folder at any depth, sorted by path."""
    suffixes, skipped = readable_suffixes(), SkippedFiles(folder)
    start = len(os.fsencode(folder).rstrip(b"/")) + 1
    images, tars = [], []
    for entry in walk_files(os.fsencode(folder), _refuse):
        suffix = entry.name[entry.name.rfind(b".") :].lower()
        if is_hidden(entry.name):
            continue
        if suffix in suffixes:
            images.append(entry.path[start:])
        elif suffix == _TAR:
            tars.append(os.fsdecode(entry.path[start:]))
        else:
            skipped.add(entry.name, entry.path, functools.partial(read_head, entry.path))
    sources: list[ImageDataset] = []
    if images or not tars:
        sources.append(_index_paths(folder, sorted(images), split, cache_folder, skipped, has_classes))
    if tars:
        sources.append(_TarMembers(LocalTars(folder), sorted(tars), split, cache_folder))
    return sources


def _index_paths(
    root: str, paths: list[bytes], split: str, cache_folder: Path, skipped: SkippedFiles, has_classes: bool = False
) -> _ListedImages:
    """Index files below ``root``; their first folders are classes if asked for, and if all are in two or more."""
    heads = [path.partition(b"/")[0] for path in paths] if has_classes and all(b"/" in path for path in paths) else []
    names = sorted(set(heads)) if len(set(heads)) > 1 else []
    position = {name: label for label, name in enumerate(names)}
    labels = np.array([position[head] for head in heads] if names else [UNKNOWN] * len(paths), np.int32)
    batch = make_batch(paths, labels)
    key = hashlib.sha256(b"unlabeled")
    for part in (batch.lengths.data, labels.tobytes(), batch.blob):
        key.update(part)
    index = ensure_path_index(cache_folder, f"unlabeled-{split}", key.digest(), lambda: [batch])
    listed = _ListedImages(root, index, 0, skipped)
    listed.num_classes = len(names) or None
    if names:
        listed.class_names, listed.labels = [os.fsdecode(name) for name in names], labels
    return listed


def _list_table(path: str, split: str, cache_folder: Path) -> ImageDataset:
    """List the images that a table names; a ``UserError`` names those that are missing."""
    root, (names, notices) = os.path.dirname(path), _read_names(path)
    found = ImageFinder(root).find(names, "", "")
    missing = [name for name, image in zip(names, found) if not image]
    if missing:
        raise UserError(
            f"{path}: {len(missing):,} of {len(names):,} images are missing below {root}: {missing[0]}; correct their "
            "paths, or remove their rows"
        )
    paths = list(dict.fromkeys(os.fsencode(image) for image in found))
    listed = _index_paths(root, paths, split, cache_folder, SkippedFiles(path))
    listed.notices = [*listed.notices, *notices]
    return listed


def _read_names(path: str) -> tuple[list[str], list[str]]:
    """Return the images that a table or list names, without rows of other splits, and log lines about these."""
    if not path.lower().endswith(_BINARY_TABLES):
        with open_table(path) as stream:
            lines = [line.strip() for line in stream]
        if lines and not any(re.search(r"[,;\t]", line) for line in lines[:2]):
            is_heading = not is_image_name(os.fsencode(lines[0]))
            return list(filter(None, lines[is_heading:])), []
    table = open_columns(path)
    column, (split, _) = find_image_column(table), find_split_columns(table)
    columns, names = [column] if split is None else [column, split], list[str]()
    others = Counter[str]()  # rows of each split

    @functools.cache
    def find_other(cell: Any) -> str | None:
        assert split is not None
        word = split_in_name(find_split_words(table, split, [str(cell)])[0], is_whole=False)
        return None if word == "train" else word

    for image, *words in (row for batch in table.batches(columns) for row in zip(*batch)):
        other = find_other(words[0]) if words else None
        if other is None:
            names.append(str(image).strip())
        else:
            others[other] += 1
    listed = ", ".join(f"{number:,} of {word}" for word, number in others.items())
    return names, [f"{path}: rows of other splits than train, not used: {listed}"] if others else []


def _open_sources(place: str, split: str, cache_folder: Path) -> list[ImageDataset]:
    """Open the images of a split at one place; none if it has no images of a split other than "train"."""
    if is_address(place):
        remote = RemoteTars(place, cache_folder)
        shards = remote.find(split)
        if not shards and split == "train":
            raise UserError(f"{place} has no tar files of the training images, such as train-00000.tar")
        return [_TarMembers(remote, shards, split, cache_folder)] if shards else []
    path = os.path.abspath(os.path.expanduser(place))
    if not os.path.exists(path):
        raise UserError(f"data path {path} does not exist; dataset unlabeled expects {_LAYOUT}")
    if not os.path.isdir(path):
        return _open_file(path, split, cache_folder) if split == "train" else []
    folders = find_split_folders(path)
    folders.setdefault("val", folders.get("test", ""))
    is_split = "train" in folders and folders["val"] != ""
    if split == "train":
        return _list_folder(os.path.join(path, folders["train"]) if is_split else path, split, cache_folder, False)
    folder = os.path.join(path, folders.get(split, split))
    return _list_folder(folder, split, cache_folder, True) if is_split and os.path.isdir(folder) else []


def _open_place(place: str, split: str, cache_folder: Path) -> list[ImageDataset]:
    """Open the sources of a place; a ``UserError`` says that it has no training images."""
    opened = _open_sources(place, split, cache_folder)
    if split == "train" and not sum(map(len, opened)):
        raise _empty(place, opened)
    return opened


def _open_file(path: str, split: str, cache_folder: Path) -> list[ImageDataset]:
    if path.lower().endswith(".tar"):
        folder, name = os.path.split(path)
        return [_TarMembers(LocalTars(folder), [name], split, cache_folder)]
    if path.lower().endswith(TABLE_SUFFIXES):
        return [_list_table(path, split, cache_folder)]
    raise UserError(f"data path {path} is a file; dataset unlabeled expects {_LAYOUT}")


class UnlabeledImages(ImageDataset):
    """Images at one or several places, in the order of the places; labels of training images are not read.

    Folders that hold ``train`` and ``val`` are split so; of any other place all images are training images. Validation
    images in two or more folders have these as classes.
    """

    reading = ReadConfig()
    reads_parts = True

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, more_paths: Sequence[str] = ()) -> None:
        """List the images of ``split`` at all places; indexes go to ``cache_folder``.

        A ``UserError`` says that a place does not exist or has no images, or that there are no images of the split.
        """
        if data_path is None:
            raise UserError(f"dataset unlabeled needs -data_path: {_LAYOUT}")
        self.split = split
        sources = _open_place(os.fspath(data_path), split, cache_folder)
        for place in more_paths if split == "train" else ():
            try:
                sources += _open_place(os.fspath(place), split, cache_folder)
            except UserError as error:
                raise UserError(f"PRETRAINING.MORE_PATHS: {error}") from None
        self._sources = [source for source in sources if len(source)]
        if not self._sources:
            raise UserError(
                f"{data_path} has no {split} images: hold out some with DATA.VAL_FRACTION 0.01, or name images with "
                "classes with PRETRAINING.LABELED_PATH"
            )
        self._ends = np.cumsum([len(source) for source in self._sources])
        self.root = self._sources[0].root if len(self._sources) == 1 else None
        self.is_remote = any(source.is_remote for source in self._sources)
        self.notices = [line for source in sources for line in source.notices]
        self.skipped_files = _merge_skipped(data_path, [source.skipped_files for source in sources])
        only = self._sources[0] if len(self._sources) == 1 else None
        if only is not None and only.labels is not None and split != "train":
            self.labels, self.class_names, self.num_classes = only.labels, only.class_names, only.num_classes

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "UnlabeledImages":
        """Open the images that the configuration names."""
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.PRETRAINING.MORE_PATHS)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there are tar files, or next to training images a folder, of validation images."""
        if data_path is None or not os.path.isdir(data_path):
            return False
        folders = find_split_folders(data_path)
        return "train" in folders and bool({"val", "test"} & set(folders))

    @staticmethod
    def has_validation_classes(data_path: str | None) -> bool:
        """Return whether there is a folder of validation images with two or more folders, which are their classes."""
        if data_path is None or not UnlabeledImages.has_validation(data_path):
            return False
        folders = find_split_folders(data_path)
        return len(list_folders(os.path.join(data_path, folders.get("val", folders.get("test", ""))))) > 1

    def __getstate__(self) -> Any:
        return {**self.__dict__, "skipped_files": None}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of an image's source, and its index there."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        return number, index - (int(self._ends[number - 1]) if number else 0)

    def _find(self, index: int) -> tuple[Any, int]:
        """Return the source of an image and its index there."""
        number, row = self._locate(index)
        return self._sources[number], row

    def read_with(self, reading: ReadConfig) -> None:
        """Set how image files are decoded."""
        self.reading = reading
        for source in self._sources:
            source.read_with(reading)

    def limit_cache(self, gigabytes: float) -> None:
        """Set the size of the cache of images at an address."""
        for source in self._sources:
            source.limit_cache(gigabytes)
        self.notices = [line for source in self._sources for line in source.notices]

    def label_at(self, index: int) -> int:
        """Return the class of a validation image, -1 without one."""
        return UNKNOWN if self.labels is None else int(self.labels[index])

    def read(self, index: int) -> tuple[Image.Image, int]:
        """Decode image ``index``: (RGB image, label); an ``UnreadableImage`` if the file is missing or damaged."""
        source, row = self._find(index)
        return source.read(row)[0], self.label_at(index)

    def encoded(self, index: int) -> bytes:
        """Read the file of image ``index``; raises what ``part`` does."""
        source, row = self._find(index)
        return source.encoded(row)

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        """Read ``length`` bytes of the file of image ``index``, uint8; an ``UnreadableImage`` if that fails."""
        source, row = self._find(index)
        return source.part(row, start, length)

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of image ``index``."""
        source, row = self._find(index)
        return source.peek(row, length)

    def num_bytes(self, index: int) -> int:
        """Return the file size of image ``index``; -1 if it is missing."""
        source, row = self._find(index)
        return source.num_bytes(row)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Fetch images at an address together."""
        rows: dict[int, list[int]] = {}
        for index in indices:
            number, row = self._locate(index)
            rows.setdefault(number, []).append(row)
        for number, own in rows.items():
            self._sources[number].prefetch(own)

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        source, row = self._find(index)
        return source.describe(row)

    def identity(self, index: int) -> str:
        """Return the path of image ``index`` below its place, after the number of the place if there are several."""
        number, row = self._locate(index)
        name = self._sources[number].identity(row)
        return name if len(self._sources) == 1 else f"{number}/{name}"

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what is listed: the paths of all places."""
        return {"names": (part for source in self._sources for part in source.listed()["names"])}


def _merge_skipped(place: str, parts: Sequence[SkippedFiles | None]) -> SkippedFiles:
    known = [part for part in parts if part is not None]
    if len(known) == 1:
        return known[0]
    merged = SkippedFiles(os.fspath(place))
    for part in known:
        merged.merge(part)
    return merged


def _empty(place: str, opened: Sequence[ImageDataset]) -> UserError:
    skipped = next((source.skipped_files for source in opened if source.skipped_files), None)
    more = f" ({skipped.summary()})" if skipped and skipped.counts else ""
    return UserError(
        f"{place} contains no images; expected files ending in jpg, png or another suffix that Pillow opens, or tar "
        f"files of them{more}"
    )


def _refuse(folder: bytes, reason: str) -> None:
    raise UserError(f"folder {os.fsdecode(folder)}: {reason}")
