"""Open a split of data files: its columns and rows, and an index of the places of its images in the cache folder."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....core.checkpoint.download import cache_folder as shared_cache
from ....core.data.checked_files import DamagedCacheError, map_verified, write_array
from ....core.data.path_index import PathIndex, ensure_path_index, make_batch
from ....core.registry.manifest import MASK_LABELS
from ....core.runtime.errors import UserError
from ....core.runtime.files import map_array, read_regular
from ....core.runtime.printing import count
from ..data_warnings import first_names
from ..reading import UnreadableImage, read_file
from ..tar_files import OpenFiles
from .columns import UNLABELED, HubChoices, HubColumns, choose_columns, has_images
from .features import Feature, find_column
from .layout import ARROW, CARD, OLD_INFOS, PARQUET, HubFiles, find_files, is_metadata, refuse_scripts
from .repository import fetch_repository, is_repository, parse_address
from .storage import DataFile, ImagePlaces, ensure_places, open_data

LAYOUT = (
    "a folder with Parquet or Arrow files, as the library datasets publishes or save_to_disk writes them, one such "
    "file, or a pattern of them"
)
_COLORS = ("RGB", "RGBA", "RGBX")  # modes that do not change the colors
_INDEX_VERSION = 4
PLACES, MATRIX = "places", "matrix"  # arrays of ``HubRows``
_NEXT = "\0"  # between the files of an image and of its label map, which no path has
_INFOS = (CARD, OLD_INFOS, "dataset_dict.json", "dataset_info.json", "state.json")  # what besides the data decides


class HubOptions(NamedTuple):
    """How data files are read.

    Attributes:
        choices: the user's columns.
        contents: annotations that the task reads.
        unpacked: folder for the images of Parquet files; None: one that all runs share.
    """

    choices: HubChoices
    contents: str
    unpacked: Path | None = None

    @classmethod
    def read(cls, config: Any, contents: str) -> "HubOptions":
        """Return the options of a configuration."""
        table, folder = config.DATA.TABLE, config.DATA.CACHE_FOLDER
        choices = HubChoices(table.IMAGE, tuple(table.LABELS), table.CONFIGURATION)
        return cls(choices, contents, None if folder is None else Path(folder).absolute())


class HubSplit(NamedTuple):
    """The data files of a split, opened.

    Attributes:
        found: all files.
        name: published name of the split.
        notice: a log line about it, or an empty text.
        features: types of the columns.
        columns: those that are read.
        data_path: where the files are, as the user names it.
    """

    found: HubFiles
    name: str
    notice: str
    features: dict[str, Feature]
    columns: HubColumns
    data_path: str = ""

    @property
    def training_name(self) -> str:
        """Published name of the training split; this one's if there is none."""
        try:
            return self.found.find_split("train")[0]
        except UserError:
            return self.name

    @property
    def published_as(self) -> dict[str, str | float]:
        """See ``Dataset``."""
        facts = {"configuration": self.found.configuration, "split": self.name}
        if is_repository(self.data_path):  # in a folder named by its commit
            name, _ = parse_address(self.data_path)
            facts = {"repository": name, "revision": os.path.basename(self.found.root), **facts}
        return {name: fact for name, fact in facts.items() if fact}

    def open_files(self, name: str) -> list[DataFile]:
        """Open the files of a split; a ``UserError`` if one is damaged or has other columns."""
        files = list(map(open_data, self.found.splits[name]))
        for data in files:
            data.require_columns(list(self._tops()))
            own = data.features(self.found.features)
            for column in self._tops():
                if own[column] != self.features[column]:
                    raise UserError(
                        f"{data.path}, column {column}: its type or its names of classes differ from those in "
                        f"{self.found.splits[self.name][0]}; write both again with one type"
                    )
        return files

    def _tops(self) -> Iterator[str]:
        columns = self.columns
        yield columns.image
        parts = columns.objects
        if parts is not None:
            yield from [parts.parent] if parts.parent else filter(None, parts[1:2] + parts[3:7])
            yield from filter(None, (parts.height, parts.width, parts.image_id))
        yield from (find_column(label, self.features)[0] for label in columns.labels)

    def key(self, *more: object) -> bytes:
        """Return a hash of the files, their sizes and times of change, and the columns."""
        names = [*self.found.splits[self.name], *self.found.splits[self.training_name]]
        facts = (_INDEX_VERSION, self.found.root, self.name, self.columns, *more)
        key = hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape"))
        for path in dict.fromkeys(names):
            status = os.stat(path)
            stamp = f"{path}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n"
            key.update(stamp.encode("utf-8", "surrogateescape"))
        for folder in dict.fromkeys([self.found.root, *map(os.path.dirname, names)]):
            for name in _INFOS:
                if os.path.isfile(os.path.join(folder, name)):
                    key.update(hashlib.sha256(read_regular(os.path.join(folder, name))).digest())
        return key.digest()


def require_files(data_path: str | None, configuration: str | None = None, takes_first: bool = False) -> HubFiles:
    """Find the data files at a data path; a ``UserError`` says that there are none, or which configurations exist."""
    if data_path is None:
        raise UserError(f"dataset hub needs -data_path=<path>, {LAYOUT}")
    if is_repository(data_path):
        path = fetch_repository(data_path, configuration)
    else:
        path = os.path.abspath(os.path.expanduser(os.fspath(data_path)))
    found = find_files(path, configuration, takes_first)
    if found is not None:
        return found
    if os.path.isdir(path):
        refuse_scripts(path)
    missing = "has no such files" if os.path.exists(path) else "does not exist"
    raise UserError(f"data path {path} {missing}; dataset hub expects {LAYOUT}")


def open_split(data_path: str | None, split: str, options: HubOptions) -> HubSplit:
    """Find the files and columns of a split.

    Raises:
        UserError: nothing is found, several things may be meant, or the first file is damaged.
    """
    found = require_files(data_path, options.choices.configuration)
    name, notice = found.find_split(split)
    first = found.splits[name][0]
    features = open_data(first).features(found.features)
    columns = choose_columns(features, options.contents, options.choices, first)
    mode = features[columns.image].mode
    if mode not in ("", *_COLORS):
        read = f"note: datasets converts column {columns.image} to mode {mode}: here its images are read as stored"
        notice = "; ".join(filter(None, [notice, read]))
    return HubSplit(found, name, notice, features, columns, os.fspath(data_path or ""))


class StoredImages:
    """Reads images of a ``HubStore``: what the datasets of data files share."""

    _store: "HubStore"

    def describe(self, index: int) -> str:
        """Return the data file and row of image ``index``, from 0, or the file that the row names."""
        return self._store.describe(index)

    def encoded(self, index: int) -> bytes:
        """Return the bytes of image ``index``."""
        return self._store.encoded(index)

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        """Read ``length`` bytes of image ``index`` from ``start``, uint8; an ``UnreadableImage`` if that fails."""
        return self._store.read(index, start=start, length=length)

    def num_bytes(self, index: int) -> int:
        """Return the size of image ``index`` in bytes; -1 if its file is missing."""
        return self._store.num_bytes(index)

    def peek(self, index: int, length: int) -> list[tuple[int, bytes]]:
        """Return size and first ``length`` bytes of image ``index``, and of its label map if there is one."""
        columns = range(self._store.num_columns)
        return [
            (self._store.num_bytes(index, column), self._store.read(index, column, length=length).tobytes())
            for column in columns
        ]


class HubStore:
    """The bytes of the images in an index: of Arrow files by offset and size, or of files that the rows name.

    Its pickle has the names of files only.

    Args:
        root: folder that the paths of the index are relative to.
        index: path of each image; its ``class_names`` are a dictionary with the Arrow ``files`` and their sizes.
        arrays: the files of ``HubRows.arrays``, by name.
    """

    def __init__(self, root: str, index: PathIndex, arrays: Mapping[str, str]) -> None:
        self.root, self.index, self._arrays = root, index, arrays
        self._files = [str(path) for path, _ in index.class_names["files"]]
        self._open_files, self._maps = OpenFiles(), dict[str, np.ndarray]()

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_maps": {}}

    def array(self, name: str) -> np.ndarray:
        """Return an array of ``HubRows``, memory-mapped."""
        if name not in self._maps:
            self._maps[name] = map_array(self._arrays[name])
        return self._maps[name]

    @property
    def num_columns(self) -> int:
        """Columns of images: 2 with label maps."""
        return self.array(PLACES).shape[1] // 3

    def describe(self, index: int, column: int = 0) -> str:
        """Return the file of an image, or the data file with the number of the row, from 0."""
        names = self.index.path(index).split(_NEXT)
        return os.path.join(self.root, names[min(column, len(names) - 1)])

    def is_file(self, index: int, column: int = 0) -> bool:
        """Return whether an image is in a separate file."""
        return self.array(PLACES).item(index, 3 * column) < 0

    def num_bytes(self, index: int, column: int = 0) -> int:
        """Return the size of an image; -1 for a file that is missing."""
        if not self.is_file(index, column):
            return self.array(PLACES).item(index, 3 * column + 2)
        try:
            return os.path.getsize(self.describe(index, column))
        except (OSError, ValueError):
            return -1

    def read(self, index: int, column: int = 0, start: int = 0, length: int | None = None) -> np.ndarray:
        """Read ``length`` bytes, or all, from byte ``start`` on, uint8; an ``UnreadableImage`` if that fails."""
        if self.is_file(index, column):
            content = read_file(self.describe(index, column))[start : None if length is None else start + length]
            return np.frombuffer(bytearray(content), np.uint8)
        number, offset, size = self.array(PLACES)[index, 3 * column : 3 * column + 3].tolist()
        length = size - start if length is None else min(length, size - start)
        try:
            found = self._open_files.read(self._files[number], offset + start, length)
        except OSError as error:
            raise UnreadableImage(self.describe(index), error.strerror or str(error)) from error
        if len(found) != length:
            raise UserError(f"{self._files[number]} has become shorter since it was indexed; start the run again")
        return found

    def encoded(self, index: int, column: int = 0) -> bytes:
        """Return the bytes of an image."""
        return self.read(index, column).tobytes()


class HubRows(NamedTuple):
    """The rows of a split that have an image.

    Attributes:
        names: of each image below the root, see ``HubStore.describe``.
        arrays: of each row: ``places``, int64 (rows, 3 for each column of images), number of the Arrow file or -1,
            offset and size; and ``matrix`` of labels, if an image has several.
        rows: int64, their numbers among all rows of the split.
        files: Arrow files with their sizes.
        notices: log lines.
    """

    names: list[bytes]
    arrays: dict[str, np.ndarray]
    rows: np.ndarray
    files: list[tuple[str, int]]
    notices: list[str]

    def select(self, is_chosen: np.ndarray) -> "HubRows":
        """Return some of the rows, bool (rows,)."""
        names = [name for name, chosen in zip(self.names, is_chosen.tolist()) if chosen]
        arrays = {name: array[is_chosen] for name, array in self.arrays.items()}
        return self._replace(names=names, arrays=arrays, rows=self.rows[is_chosen])


def locate_rows(split: HubSplit, files: Sequence[DataFile], options: HubOptions, columns: Sequence[str]) -> HubRows:
    """Locate the images of a split in one or two columns; Parquet is unpacked first.

    Raises:
        UserError: the files are damaged, or have no images.
    """
    folder, root = options.unpacked or shared_cache() / "datasets", split.found.root
    names, archives, notices = list[bytes](), list[tuple[str, int]](), list[str]()
    places = [np.zeros((0, 3 * len(columns)), np.int64)]
    for data in files:
        archive, located = ensure_places(data, columns, folder, notices)
        numbered = [np.insert(each.ranges, 0, len(archives), axis=1) for each in located]
        archives.append((archive, os.path.getsize(archive)))
        relative = os.path.relpath(data.path, root)
        own = [os.fsencode(f"{relative}/{row}") for row in range(data.num_rows)]
        for column, each in enumerate(located):
            named = {row: os.fsencode(_find_image(root, data.path, path)) for row, path in each.paths.items()}
            missing = [name for name in named.values() if not os.path.isfile(os.path.join(os.fsencode(root), name))]
            if missing:
                shown = first_names(list(map(os.fsdecode, missing)))
                what = f"{len(missing):,} of {count(len(named), 'image')} that it names are missing"
                raise UserError(f"{data.path}: {what}: {shown}")
            for row, name in named.items():
                own[row] = name if column == 0 else own[row] + _NEXT.encode() + name
                numbered[column][row] = (-1, 0, 0)
        names += own
        places.append(np.concatenate(numbered, axis=1))
    unpacked = sum(archive != data.path for (archive, _), data in zip(archives, files))
    if unpacked:
        notices.append(f"images of {count(unpacked, 'file')} of split {split.name} are unpacked in {folder}, once")
    joined = np.concatenate(places)
    is_there = (joined[:, 2::3] >= 0).all(axis=1)
    if not is_there.all():
        what = "image" if len(columns) == 1 else "image or label map"
        notices.append(f"{split.name}: {count(int((~is_there).sum()), 'row')} without {what} not used")
    if not is_there.any():
        raise UserError(f"{files[0].path}: no row of split {split.name} has an image in {', '.join(columns)}")
    return HubRows(names, {PLACES: joined}, np.arange(len(names)), archives, notices).select(is_there)


def _find_image(root: str, source: str, path: str) -> str:
    """Return the path of an image that a row names, relative to the root if it is below it."""
    if "://" in path or "\0" in path:
        what = "at addresses" if "://" in path else "by damaged names"
        raise UserError(f"{source}: its rows name images {what}, such as {path[:120]!r}: download them first")
    places = [os.path.join(base, path) for base in (os.path.dirname(source), root)]
    place = os.path.normpath(next(filter(os.path.isfile, places), places[0]))
    return os.path.relpath(place, root) if f"{place}/".startswith(f"{root}/") else place


def holds_images(path: str) -> bool:
    """Return whether a file is a Parquet or Arrow file with images, or a damaged one, and no metadata of images."""
    if not path.lower().endswith((*PARQUET, *ARROW)) or is_metadata(path):
        return False
    try:
        return has_images(open_data(path).features({}))
    except UserError:  # reported when it is read
        return True


def locate_images(path: str) -> tuple[str, ImagePlaces, list[str]]:
    """Return the Arrow file with the images of a data file, their places in it, and log lines; Parquet is unpacked.

    Raises:
        UserError: it is damaged, or has no column of images, or several that may be meant.
    """
    data, notices = open_data(path), list[str]()
    column = choose_columns(data.features({}), UNLABELED, HubChoices(), path).image
    archive, [places] = ensure_places(data, [column], shared_cache() / "datasets", notices)
    return archive, places, notices


def open_store(
    name: str,
    opened: HubSplit,
    options: HubOptions,
    cache_folder: Path,
    kind: str,
    label: Callable[[list[DataFile], HubRows], tuple[HubRows, np.ndarray, dict[str, Any]]] | None = None,
) -> HubStore:
    """Open the index of a split, built if the cache folder has none or a damaged one.

    Args:
        name: of the index.
        kind: what is read of the columns: another kind has another index.
        label: returns rows, a number for each, and facts of the index, such as ``names`` of classes; None: the number
            of each row among all.
    """
    key, facts = opened.key(kind), dict[str, Any]()
    columns = [opened.columns.image, *(opened.columns.labels if options.contents == MASK_LABELS else ())]

    def file(array: str) -> Path:
        return Path(cache_folder, f"{name}-{array}-{key.hex()[:16]}.npy")

    def write() -> Iterable[Any]:
        files = opened.open_files(opened.name)
        rows = locate_rows(opened, files, options, columns)
        rows, labels, more = (rows, rows.rows, {"notices": rows.notices}) if label is None else label(files, rows)
        for array in rows.arrays:
            write_array(file(array), rows.arrays[array])
        batch = make_batch(rows.names, labels)
        content = hashlib.sha256(repr(more.get("names")).encode("utf-8", "surrogateescape"))
        for part in (batch.lengths.data, batch.labels.tobytes(), batch.blob):
            content.update(part)
        facts.update(more, files=rows.files, arrays=list(rows.arrays), content=content.hexdigest())
        return [batch]

    index = ensure_path_index(cache_folder, name, key, write, lambda: facts)
    arrays = {array: file(array) for array in index.class_names["arrays"]}
    try:
        fits = all(len(map_verified(each)) == len(index) for each in arrays.values()) and all(
            os.path.getsize(path) == size for path, size in index.class_names["files"]
        )
    except (DamagedCacheError, OSError):
        fits = False
    if not fits:  # lost or damaged: all are made again
        os.unlink(index.file)
        index = ensure_path_index(cache_folder, name, key, write, lambda: facts)
    return HubStore(opened.found.root, index, {array: str(each) for array, each in arrays.items()})
