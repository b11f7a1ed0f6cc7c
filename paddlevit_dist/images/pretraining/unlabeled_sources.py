"""Where images without labels are: folders of any depth, tar files, addresses, tables, each a source that is indexed.

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

from ...core.data.checked_files import write_array
from ...core.data.path_index import PathBatch, PathIndex, ensure_path_index, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.tables import open_table
from ..data.class_folders import IndexedClassImages
from ..data.class_trees import find_class_tree
from ..data.formats import (
    SkippedFiles,
    is_hidden,
    is_image_name,
    read_head,
    readable_suffixes,
    split_in_name,
    walk_files,
)
from ..data.image_dataset import ImageDataset
from ..data.label_layouts import find_image_column, find_split_columns, find_split_words
from ..data.remote_tars import RemoteTars
from ..data.table_columns import SUFFIXES as TABLE_SUFFIXES
from ..data.table_columns import open_columns
from ..data.table_files import ImageFinder
from ..data.tar import TarImages, open_with_locations
from ..data.tar_files import LocalTars, scan

UNKNOWN = -1  # label of an image without a class
_TAR = b".tar"
_BINARY_TABLES = (".parquet", ".pq")
LAYOUT = (
    "a folder with images or tar files at any depth, an uncompressed tar file, a table of images, or an address of tar "
    "files"
)


class _ListedImages(IndexedClassImages):
    """Images listed in a path index, without labels unless ``labels`` is set."""

    # In the class above, labels and names are properties that read the index.
    labels: Any = None
    num_classes: Any = None
    class_names: Any = None

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what ``content_key`` covers: the paths."""
        return {"names": self._index.buffers()}


class _TarMembers(_ListedImages, TarImages):
    """Images in tar files, without labels."""

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
    """List the images and the tar files of a folder at any depth, sorted by path.

    ``has_classes``: the folders in it are the classes of the images.
    """
    suffixes, skipped = readable_suffixes(), SkippedFiles(folder)
    start = len(os.fsencode(folder).rstrip(b"/")) + 1
    images, tars = [], []
    for entry in walk_files(os.fsencode(folder), _refuse_folder):
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
    finder = ImageFinder(root)
    found = finder.find(names, "", "")
    if finder.prefix:
        notices = [*notices, f"{path}: all paths begin with {finder.prefix}, which is removed"]
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
        raise UserError(f"data path {path} does not exist; dataset unlabeled expects {LAYOUT}")
    if not os.path.isdir(path):
        return _open_file(path, split, cache_folder) if split == "train" else []
    folders = find_class_tree(path).splits
    folders.setdefault("val", folders.get("test", ""))
    is_split = "train" in folders and folders["val"] != ""
    if split == "train":
        folder = os.path.join(path, folders["train"]) if is_split else path
        return _list_folder(folder, split, cache_folder, has_classes=False)
    folder = os.path.join(path, folders.get(split, split))
    return _list_folder(folder, split, cache_folder, has_classes=True) if is_split and os.path.isdir(folder) else []


def open_place(place: str, split: str, cache_folder: Path) -> list[ImageDataset]:
    """Open the sources of a place; a ``UserError`` says that it has no training images."""
    opened = _open_sources(place, split, cache_folder)
    if split == "train" and not sum(map(len, opened)):
        skipped = next((source.skipped_files for source in opened if source.skipped_files), None)
        more = f" ({skipped.summary()})" if skipped and skipped.counts else ""
        raise UserError(
            f"{place} contains no images; expected files ending in jpg, png or another suffix that Pillow opens, or "
            f"tar files of them{more}"
        )
    return opened


def _open_file(path: str, split: str, cache_folder: Path) -> list[ImageDataset]:
    """Open a tar file, or the images that a table names."""
    if path.lower().endswith(".tar"):
        folder, name = os.path.split(path)
        return [_TarMembers(LocalTars(folder), [name], split, cache_folder)]
    if path.lower().endswith(TABLE_SUFFIXES):
        return [_list_table(path, split, cache_folder)]
    raise UserError(f"data path {path} is a file; dataset unlabeled expects {LAYOUT}")


def _refuse_folder(folder: bytes, reason: str) -> None:
    raise UserError(f"folder {os.fsdecode(folder)}: {reason}")
