"""Rows of data files: batches of columns, and where the bytes of each image are in an Arrow file.

An Arrow file has the images unchanged, so they are read by offset and size, like those in a tar file. Parquet packs
them: its images are written once as an Arrow file, which all later runs read.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ....core.runtime.errors import UserError
from ....core.runtime.files import atomic_file, require_regular
from ....core.runtime.limits import read_memory
from ....core.runtime.printing import shorten
from ..formats import split_in_name
from .features import IMAGE, Feature, Features, is_binary, read_features
from .layout import PARQUET, is_metadata

VERSION = 1
_BATCH_BYTES = 1 << 26
_BATCH_ROWS = 1 << 12
_WRITTEN_BYTES = 1 << 24  # of a batch in a file that is written here
_LARGE_GROUP = 1 << 28  # bytes of a group of rows that are told
_GROUP_FACTOR = 2  # memory that reading a group of rows takes, in sizes of its columns
_SPARE_BYTES = 1 << 26  # of the disk
_LARGEST_BLOCK = (1 << 31) - 1  # of JSON
_FILE_MAGIC = b"ARROW1"
_UNPACKED = ".unpacked"  # an Arrow file that is not taken for data if its folder is in that of the data
FILE_NAME = "file_name"


class OddData(ValueError):
    """A file is whole, but has something else than its types say."""


class ImagePlaces(NamedTuple):
    """Where the images of a file are.

    Attributes:
        ranges: int64 (rows, 2), offset and size in the Arrow file; size -1: not in it.
        paths: path of each image that is not in it, by row; a row in neither has no image.
    """

    ranges: np.ndarray
    paths: dict[int, str]


def import_pyarrow(path: str) -> Any:
    """Import pyarrow, or raise a UserError of one line."""
    try:
        import pyarrow
    except ImportError as error:  # also if pyarrow does not support the installed NumPy
        raise UserError(
            f"{path}: Parquet and Arrow need pyarrow, but {shorten(error, 80)}: pip install pyarrow"
        ) from error
    return pyarrow


@contextlib.contextmanager
def readable_data(path: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into a UserError of one line."""
    pyarrow = import_pyarrow(path)
    try:
        yield
    except MemoryError as error:
        raise UserError(f"{path} cannot be read: a part of it does not fit into memory; is it damaged?") from error
    except (OSError, ValueError, OverflowError, IndexError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        advice = "" if isinstance(error, OddData) else "; copy or download it again"
        raise UserError(f"{path} cannot be read: {shorten(reason)}{advice}") from error


class DataFile:
    """A data file: ``num_rows``, ``schema``, and batches of its columns."""

    num_rows: int
    schema: Any

    def __init__(self, path: str) -> None:
        self.path = path

    def features(self, stored: Features) -> dict[str, Any]:
        """Return the types of the columns; ``stored`` are those that files next to the data give."""
        with readable_data(self.path):  # names may be no UTF-8
            return read_features(self.schema, self.path, stored)

    def batches(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the arrays of some columns for the next rows; a ``UserError`` if the file is damaged."""
        raise NotImplementedError

    def require_columns(self, columns: Sequence[str]) -> None:
        """Raise a UserError if the file lacks one of the columns."""
        missing = next((name for name in columns if self.schema.get_field_index(name) < 0), None)
        if missing is not None:
            names = shorten(", ".join(self.schema.names), 120)
            raise UserError(f"{self.path} has no column {shorten(missing, 60)}, only {names}; or it has it twice")


def open_data(path: str) -> DataFile:
    """Open a Parquet or Arrow file; a ``UserError`` if it is damaged, or pyarrow is missing."""
    import_pyarrow(path)
    with readable_data(path):
        require_regular(path)
        if is_metadata(path):
            return MetadataTable(path)
        return ParquetData(path) if path.lower().endswith(PARQUET) else ArrowData(path)


class ArrowData(DataFile):
    """A memory-mapped Arrow file, of the format of streams or of files."""

    def __init__(self, path: str) -> None:
        import pyarrow

        super().__init__(path)
        self._source = pyarrow.memory_map(path)
        self._source.seek(0)
        whole = self._source.read_buffer(self._source.size())
        self._start: int = whole.address if whole.size else 0
        self._size: int = whole.size
        self._source.seek(0)
        is_file = self._source.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        self._source.seek(0)
        open_ipc = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        opened = open_ipc(self._source, options=pyarrow.ipc.IpcReadOptions(use_threads=False))
        self.schema = opened.schema
        self._batches = (
            [opened.get_batch(number) for number in range(opened.num_record_batches)] if is_file else list(opened)
        )
        self.num_rows = sum(batch.num_rows for batch in self._batches)

    def batches(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the arrays of some columns for the next rows."""
        self.require_columns(columns)
        for batch in self._batches:
            with readable_data(self.path):
                arrays = [batch.column(self.schema.get_field_index(name)) for name in columns]
                for array in arrays:
                    array.validate(full=True)
            yield arrays

    def can_map(self, column: str) -> bool:
        """Return whether the images of a column can be read by offset and size."""
        kind = self.schema.field(self.schema.get_field_index(column)).type
        if not is_plain_image(kind):
            return False
        arrays = (split_image(arrays[0])[0] for arrays in self.batches([column]))
        filled = next((array for array in arrays if array is not None and len(array) and array.buffers()[2]), None)
        return filled is None or self._offset(filled.buffers()[2]) is not None  # compressed buffers are elsewhere

    def _offset(self, buffer: Any) -> int | None:
        offset = buffer.address - self._start
        return offset if 0 <= offset and offset + buffer.size <= self._size else None

    def locate(self, column: str) -> ImagePlaces:
        """Return where the images of a column are."""
        parts, paths, first = [np.zeros((0, 2), np.int64)], dict[int, str](), 0
        for (array,) in self.batches([column]):
            with readable_data(self.path):
                content, names = split_image(array)
                ranges = np.full((len(array), 2), -1, np.int64) if content is None else self._ranges(content)
                if names is not None:
                    for row in np.flatnonzero(ranges[:, 1] < 0).tolist():
                        name = names[row].as_py()
                        if name:
                            paths[first + row] = name
            parts.append(ranges)
            first += len(array)
        return ImagePlaces(np.concatenate(parts), paths)

    def _ranges(self, content: Any) -> np.ndarray:
        validity, offsets, data = content.buffers()
        kind = np.dtype("<i8") if str(content.type).startswith("large") else np.dtype("<i4")
        if data is None or not data.size or not len(content):
            sizes = np.zeros(len(content), np.int64)
            starts = np.zeros(len(content), np.int64)
        else:
            bounds = np.frombuffer(offsets, kind)[content.offset : content.offset + len(content) + 1].astype(np.int64)
            sizes, place = np.diff(bounds), self._offset(data)
            if place is None or bounds[0] < 0 or (sizes < 0).any() or bounds[-1] > data.size:
                raise ValueError("the offsets of its images are damaged")
            starts = place + bounds[:-1]
        if validity is not None:
            sizes[~np.asarray(content.is_valid())] = -1
        return np.stack([starts, sizes], axis=1)


class ParquetData(DataFile):
    """A Parquet file."""

    def __init__(self, path: str) -> None:
        import pyarrow.parquet

        super().__init__(path)
        options: dict[str, Any] = {"memory_map": True, "page_checksum_verification": True}
        self._file = pyarrow.parquet.ParquetFile(path, **options)
        self.schema, self.num_rows = self._file.schema_arrow, self._file.metadata.num_rows

    def batches(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the arrays of some columns for the next rows, as many as fit into some memory."""
        self.require_columns(columns)
        for number in range(self._file.metadata.num_row_groups):
            rows = self._batch_rows(number, columns)
            # Without threads: there is one column of images, and a process may have been forked.
            found = self._file.iter_batches(rows, row_groups=[number], columns=list(columns), use_threads=False)
            while True:
                with readable_data(self.path):
                    batch = next(found, None)
                    if batch is None:
                        break
                    for array in batch.columns:
                        array.validate(full=True)
                names = batch.schema.names
                yield [batch.column(names.index(name)) for name in columns]

    def num_bytes(self, columns: Sequence[str]) -> int:
        """Return the uncompressed size of columns."""
        groups = range(self._file.metadata.num_row_groups)
        return sum(leaf.total_uncompressed_size for number in groups for leaf in self._leaves(number, columns))

    def check_groups(self, columns: Sequence[str]) -> str:
        """Return a line if a group of rows takes much memory, or an empty text; a UserError if it does not fit."""
        groups = range(self._file.metadata.num_row_groups)
        sizes = [sum(leaf.total_uncompressed_size for leaf in self._leaves(number, columns)) for number in groups]
        largest, memory = max(sizes, default=0), read_memory()
        need = _GROUP_FACTOR * largest
        advice = "write it again with smaller groups (row_group_size=100 of pyarrow.parquet.write_table)"
        if memory is not None and need > memory[1]:
            raise UserError(
                f"{self.path}: a group of rows has {largest:,} bytes and takes about {need:,} of memory, but only "
                f"{memory[1]:,} are free: {advice}, or read it on a larger machine"
            )
        if largest < _LARGE_GROUP:
            return ""
        return f"note: {self.path} has groups of rows of up to {largest:,} bytes, which take twice this in memory"

    def _leaves(self, number: int, columns: Sequence[str]) -> Iterator[Any]:
        group = self._file.metadata.row_group(number)
        for leaf in map(group.column, range(group.num_columns)):
            if leaf.path_in_schema.split(".")[0] in columns or leaf.path_in_schema in columns:
                yield leaf

    def _batch_rows(self, number: int, columns: Sequence[str]) -> int:
        """Return the rows that are read at once: a cell of a dictionary may be as large as its whole column."""
        rows = max(self._file.metadata.row_group(number).num_rows, 1)
        sizes = [
            leaf.total_uncompressed_size if leaf.has_dictionary_page else -(-leaf.total_uncompressed_size // rows)
            for leaf in self._leaves(number, columns)
        ]
        return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(sum(sizes), 1)))


class MetadataTable(DataFile):
    """Metadata of images in files: ``file_name`` names the image, ``mask_file_name`` an image of column mask."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        table = _read_table(path)
        self._named = [name for name in table.column_names if name == FILE_NAME or name.endswith(f"_{FILE_NAME}")]
        names = [
            name.removesuffix(FILE_NAME).rstrip("_") if name in self._named else name for name in table.column_names
        ]
        self._table = table.rename_columns([name or "image" for name in names])
        self._named = [name.removesuffix(FILE_NAME).rstrip("_") or "image" for name in self._named]
        self.schema, self.num_rows = self._table.schema, self._table.num_rows

    def features(self, stored: Features) -> dict[str, Feature]:
        """Return the types of the columns."""
        return {**super().features({}), **dict.fromkeys(self._named, Feature(IMAGE))}

    def batches(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the arrays of some columns for the next rows."""
        self.require_columns(columns)
        for batch in self._table.select(list(columns)).combine_chunks().to_batches():
            yield batch.columns

    def locate(self, column: str) -> ImagePlaces:
        """Return the path of each image; a ``UserError`` if they are in folders of several splits."""
        paths = dict[int, str]()
        for (array,) in self.batches([column]):
            with readable_data(self.path):
                names = split_image(array)[1]
                if names is None:
                    raise OddData(f"column {column} has no names of files")
            paths |= {len(paths) + row: name for row, name in enumerate(names.to_pylist())}
        splits = {split_in_name(name.partition("/")[0]) for name in paths.values() if name and "/" in name} - {None}
        if len(splits) > 1:
            raise UserError(f"{self.path} names images of several splits: put metadata into the folder of each split")
        missing = [row for row, name in paths.items() if not name]
        if missing:
            raise UserError(f"{self.path}, row {missing[0]}: no image is named in {column}")
        return ImagePlaces(np.full((len(paths), 2), -1, np.int64), paths)


def _read_table(path: str) -> Any:
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    if path.endswith(PARQUET):
        return pyarrow.parquet.read_table(path, use_threads=False)
    if path.endswith(".csv"):
        return pyarrow.csv.read_csv(path, pyarrow.csv.ReadOptions(use_threads=False))
    whole = pyarrow.json.ReadOptions(False, block_size=min(max(os.path.getsize(path), 1) + 1, _LARGEST_BLOCK))
    return pyarrow.json.read_json(path, read_options=whole)


def is_plain_image(kind: Any) -> bool:
    """Return whether an Arrow type of images can be read by offset and size."""
    fields = {kind.field(number).name: str(kind.field(number).type) for number in range(kind.num_fields)}
    return (fields.get("bytes", "") if fields else str(kind)) in ("binary", "large_binary", "string", "large_string")


def split_image(array: Any) -> tuple[Any, Any]:
    """Return the bytes and the paths of an array of images, each None if there are none; OddData if it has others.

    Images are structs of bytes and path, bytes alone, or paths alone.
    """
    array = _decode(getattr(array, "storage", array))  # of an extension
    kind = array.type
    if str(kind).startswith("struct"):
        names = [kind.field(number).name for number in range(kind.num_fields)]
        parts = dict(zip(names, map(_decode, array.flatten())))
        content, paths = parts.get("bytes"), parts.get("path")
        if content is not None and not (is_binary(content.type) or str(content.type) == "null"):
            raise OddData(f"its images are {shorten(kind, 60)}, expected bytes and path")
        return (None if content is None or str(content.type) == "null" else content), paths
    if is_binary(kind):
        return array, None
    if str(kind).startswith(("string", "large_string")):
        return None, array
    raise OddData(f"its images are {shorten(kind, 60)}, expected bytes and path")


def _decode(array: Any) -> Any:
    """Return an array with its values themselves, not numbers in a dictionary."""
    return array.dictionary_decode() if str(array.type).startswith("dictionary") else array


def ensure_arrow(data: DataFile, columns: Sequence[str], folder: Path, notices: list[str]) -> ArrowData:
    """Return a file whose images can be located: ``data``, or an Arrow file in ``folder`` that is written once.

    Several processes that need it wait for the first; it is complete or absent.

    Raises:
        UserError: the images are damaged, or memory or disk do not suffice.
    """
    data.require_columns(columns)
    if isinstance(data, ArrowData) and all(map(data.can_map, columns)):
        return data
    status = os.stat(data.path)
    facts = f"{VERSION} {os.path.realpath(data.path)}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\0"
    key = hashlib.sha256("\0".join([facts, *columns]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    target = folder / f"{os.path.splitext(os.path.basename(data.path))[0][:80]}-{key}{_UNPACKED}"
    with _alone(target):
        if target.is_file():
            with contextlib.suppress(UserError):  # damaged: it is written again
                written = open_data(str(target))
                if isinstance(written, ArrowData) and written.num_rows == data.num_rows:
                    return written
        return _write(data, columns, target, notices)


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other process writes a file."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = open(target.with_suffix(".lock"), "ab")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; set DATA.CACHE_FOLDER to another folder") from error
    with lock:
        with contextlib.suppress(OSError):  # a file system without locks: the file is written twice, each time whole
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(data: DataFile, columns: Sequence[str], target: Path, notices: list[str]) -> ArrowData:
    import pyarrow

    size = os.path.getsize(data.path)
    if isinstance(data, ParquetData):
        size = data.num_bytes(columns)
        notices += filter(None, [data.check_groups(columns)])
    _require_room(target, size)
    parts = [pyarrow.field("bytes", pyarrow.large_binary()), pyarrow.field("path", pyarrow.large_string())]
    schema = pyarrow.schema([pyarrow.field(name, pyarrow.struct(parts)) for name in columns])
    name = os.path.basename(data.path)
    bar = tqdm(total=data.num_rows, desc=f"unpacking {name}", unit="row", disable=None, leave=False)
    written, pending, waiting = 0, list[Any](), 0
    with bar, atomic_file(target) as file, pyarrow.ipc.new_stream(file, schema) as writer:

        def flush() -> None:
            nonlocal pending, waiting
            if pending:
                writer.write_batch(pyarrow.Table.from_batches(pending).combine_chunks().to_batches()[0])
            pending, waiting = [], 0

        for arrays in data.batches(columns):
            with readable_data(data.path):
                plain = [_to_plain(array, parts) for array in arrays]
                pending.append(pyarrow.RecordBatch.from_arrays(plain, schema=schema))
            waiting += pending[-1].nbytes
            written += pending[-1].nbytes
            if written > size + _SPARE_BYTES:  # images that a dictionary repeats
                _require_room(target, waiting)
            if waiting >= _WRITTEN_BYTES:
                flush()
            bar.update(len(arrays[0]))
        flush()
    return ArrowData(str(target))


def _to_plain(array: Any, parts: Sequence[Any]) -> Any:
    import pyarrow

    content, paths = split_image(array)
    empty = pyarrow.nulls(len(array))
    arrays = [(empty if values is None else values).cast(part.type) for values, part in zip((content, paths), parts)]
    return pyarrow.StructArray.from_arrays(arrays, fields=list(parts))


def _require_room(target: Path, size: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if size + _SPARE_BYTES > free:
        raise UserError(
            f"cannot write {target}: with {_SPARE_BYTES:,} bytes to spare, the images need {size + _SPARE_BYTES:,} "
            f"bytes, but only {free:,} are free: free space, or set DATA.CACHE_FOLDER to a folder on another disk"
        )
