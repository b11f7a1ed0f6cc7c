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
from .features import IMAGE, Feature, Features, import_library, is_binary, read_features
from .layout import PARQUET, is_metadata

VERSION = 2
_BATCH_BYTES = 1 << 26
_BATCH_ROWS = 1 << 12
_LARGE_GROUP = 1 << 28  # bytes of a group of rows that are told
_GROUP_FACTOR = 2  # memory that reading a group of rows takes, in sizes of its columns
_MOST_TIMES, _MOST_BYTES = 1000, 1 << 27  # the largest column: times its file, or bytes
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}  # bytes of a value of Parquet
_LARGEST_BATCH = 1 << 30  # bytes of images that a dictionary repeats in a batch of rows
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


@contextlib.contextmanager
def readable_data(path: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into a UserError of one line."""
    try:
        import pyarrow
    except ImportError as error:  # also if pyarrow does not support the installed NumPy
        raise UserError(
            f"{path}: Parquet, Arrow and metadata of images need pyarrow, but {shorten(error, 80)}: pip install pyarrow"
        ) from error
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

    def locate(self, column: str) -> ImagePlaces | None:
        """Return where the images of a column are; None if the file has them in another form."""
        return None

    def require_columns(self, columns: Sequence[str]) -> None:
        """Raise a UserError if the file lacks one of the columns."""
        missing = next((name for name in columns if self.schema.get_field_index(name) < 0), None)
        if missing is not None:
            names = shorten(", ".join(self.schema.names), 120)
            raise UserError(f"{self.path} has no column {shorten(missing, 60)}, only {names}; or it has it twice")


def open_data(path: str) -> DataFile:
    """Open a Parquet or Arrow file; a ``UserError`` if it is damaged, or a library is missing."""
    if not is_metadata(path):
        import_library(path)
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
        source = pyarrow.memory_map(path)
        self._whole = source.read_buffer(source.size())
        is_file = bytes(self._whole[: len(_FILE_MAGIC)]) == _FILE_MAGIC
        source.seek(0)
        open_ipc = pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream
        opened = open_ipc(source, options=pyarrow.ipc.IpcReadOptions(use_threads=False))
        self.schema = opened.schema
        self._batches = list(map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened)
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

    def locate(self, column: str) -> ImagePlaces | None:
        """Return where the images of a column are; None if they are compressed, or of an unusual type."""
        kind = self.schema.field(self.schema.get_field_index(column)).type
        fields = {kind.field(number).name: str(kind.field(number).type) for number in range(kind.num_fields)}
        stored = fields.get("bytes", "") if fields else str(kind)
        if stored not in ("binary", "large_binary", "string", "large_string"):
            return None
        parts, paths, first = [np.zeros((0, 2), np.int64)], dict[int, str](), 0
        for (array,) in self.batches([column]):
            with readable_data(self.path):
                content, names = split_image(array)
                ranges = np.full((len(array), 2), -1, np.int64) if content is None else self._find_ranges(content)
                if ranges is None:
                    return None
                for row in [] if names is None else np.flatnonzero(ranges[:, 1] < 0).tolist():
                    if name := names[row].as_py():
                        paths[first + row] = name
            parts.append(ranges)
            first += len(array)
        return ImagePlaces(np.concatenate(parts), paths)

    def _find_ranges(self, content: Any) -> np.ndarray | None:
        """Return offset and size of each value, size -1 for none; None if the values are not in the file itself."""
        validity, offsets, data = content.buffers()
        kind = np.dtype("<i8") if str(content.type).startswith("large") else np.dtype("<i4")
        starts = sizes = np.zeros(len(content), np.int64)
        if data is not None and data.size and len(content):
            place = data.address - self._whole.address
            if not 0 <= place <= place + data.size <= self._whole.size:  # unpacked into memory
                return None
            bounds = np.frombuffer(offsets, kind)[content.offset : content.offset + len(content) + 1].astype(np.int64)
            starts, sizes = place + bounds[:-1], np.diff(bounds)
            if bounds[0] < 0 or (sizes < 0).any() or bounds[-1] > data.size:
                raise ValueError("the offsets of its images are damaged")
        if validity is not None:
            sizes = np.where(np.asarray(content.is_valid()), sizes, -1)
        return np.stack([starts, sizes], axis=1)


class ParquetData(DataFile):
    """A Parquet file."""

    def __init__(self, path: str) -> None:
        import pyarrow.parquet

        super().__init__(path)
        self._options: dict[str, Any] = {"memory_map": True, "page_checksum_verification": True}
        self._file = pyarrow.parquet.ParquetFile(path, **self._options)
        self.schema, self.num_rows = self._file.schema_arrow, self._file.metadata.num_rows

    def batches(self, columns: Sequence[str]) -> Iterator[list[Any]]:
        """Yield the arrays of some columns for the next rows, as many as fit into some memory."""
        self.require_columns(columns)
        self.check_sizes(columns)
        for number in range(self._file.metadata.num_row_groups):
            rows = max(self._file.metadata.row_group(number).num_rows, 1)
            sizes = [  # a cell of a dictionary may be as large as its whole column
                leaf.total_uncompressed_size if leaf.has_dictionary_page else -(-leaf.total_uncompressed_size // rows)
                for _, leaf in self._list_leaves(number, columns)
            ]
            most = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(sum(sizes), 1)))
            # Without threads: there is one column of images, and a process may have been forked.
            found = self._file.iter_batches(most, row_groups=[number], columns=list(columns), use_threads=False)
            while True:
                with readable_data(self.path):
                    batch = next(found, None)
                    if batch is None:
                        break
                    for array in batch.columns:
                        array.validate(full=True)
                names = batch.schema.names
                yield [batch.column(names.index(name)) for name in columns]

    def _list_leaves(self, group: int, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yield number and metadata of each stored column of a group of rows that is a part of ``columns``."""
        metadata = self._file.metadata.row_group(group)
        for number in range(metadata.num_columns):
            leaf = metadata.column(number)
            if leaf.path_in_schema.split(".")[0] in columns or leaf.path_in_schema in columns:
                yield number, leaf

    def check_sizes(self, columns: Sequence[str]) -> tuple[int, str]:
        """Return the bytes of columns, and a line if a group of rows takes much memory, or an empty text.

        Values that repeat take no room in a file. Headers have the number of values. The repetitions of a long text or
        image in a dictionary are counted if they might be too many.

        Raises:
            UserError: a small file unpacks to what fills memory or disk, or a group does not fit into memory.
        """
        most, memory = max(_MOST_BYTES, _MOST_TIMES * os.path.getsize(self.path)), read_memory()
        total, stored, largest = 0, 0, 0
        for group in range(self._file.metadata.num_row_groups):
            before = stored
            for number, leaf in self._list_leaves(group, columns):
                size = leaf.num_values * _WIDTHS.get(leaf.physical_type, self._file.schema.column(number).length or 4)
                if leaf.physical_type == "BYTE_ARRAY":
                    size += leaf.total_uncompressed_size
                    if leaf.has_dictionary_page and leaf.num_values * leaf.total_uncompressed_size > most:
                        size = self._count_bytes(group, leaf.path_in_schema, most)
                stored += leaf.total_uncompressed_size
                total += max(size, leaf.total_uncompressed_size)
                if total > most:
                    raise UserError(
                        f"{self.path} has {os.path.getsize(self.path):,} bytes, but unpacks to more than {most:,} in "
                        f"{leaf.path_in_schema}, column {shorten(leaf.path_in_schema.split('.')[0], 60)}: it is "
                        "damaged, or made to fill memory and disk"
                    )
            largest = max(largest, stored - before)
        if memory is not None and _GROUP_FACTOR * largest > memory[1]:
            raise UserError(
                f"{self.path}: a group of rows has {largest:,} bytes and takes about {_GROUP_FACTOR * largest:,} of "
                f"memory, but only {memory[1]:,} are free: write it again with smaller groups (row_group_size=100 of "
                "pyarrow.parquet.write_table), or read it on a larger machine"
            )
        note = f"note: {self.path} has groups of rows of up to {largest:,} bytes, which take twice this in memory"
        return stored, "" if largest < _LARGE_GROUP else note

    def _count_bytes(self, group: int, leaf: str, most: int) -> int:
        """Return the bytes of all values of a stored column. Only the distinct values are unpacked."""
        from pyarrow import parquet

        total = 0
        with readable_data(self.path):
            file = parquet.ParquetFile(self.path, read_dictionary=[leaf], **self._options)
            for batch in file.iter_batches(row_groups=[group], columns=[leaf], use_threads=False):
                array = batch.column(0)
                while array.type.num_fields:  # of structs or lists around it
                    array = array.flatten()[0] if str(array.type).startswith("struct") else array.flatten()
                if str(array.type).startswith("dictionary"):
                    array.validate(full=True)
                    total += _sum_lengths(array)
                else:
                    total += array.nbytes
                if total > most:
                    break
        return total


class MetadataTable(DataFile):
    """Metadata of images in files: ``file_name`` names the image, ``mask_file_name`` an image of column mask."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        table = _read_table(path)
        names = {name: name for name in table.column_names}
        for name in table.column_names:
            if name == FILE_NAME or name.endswith(f"_{FILE_NAME}"):
                names[name] = name.removesuffix(FILE_NAME).rstrip("_") or "image"
        self._named = [new for name, new in names.items() if new != name]
        self._table = table.rename_columns([names[name] or "image" for name in table.column_names])
        self.schema, self.num_rows = self._table.schema, self._table.num_rows

    def features(self, stored: Features) -> dict[str, Feature]:
        """Return the types of the columns."""
        with readable_data(self.path):
            types = read_features(self.schema.remove_metadata(), self.path)
        return {**types, **dict.fromkeys(self._named, Feature(IMAGE))}

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
        data = ParquetData(path)
        data.check_sizes(data.schema.names)
        return pyarrow.parquet.read_table(path, use_threads=False)
    if path.endswith(".csv"):
        return pyarrow.csv.read_csv(path, pyarrow.csv.ReadOptions(use_threads=False))
    whole = pyarrow.json.ReadOptions(False, block_size=min(max(os.path.getsize(path), 1) + 1, _LARGEST_BLOCK))
    return pyarrow.json.read_json(path, read_options=whole)


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
        if content is None or str(content.type) == "null":
            return None, paths
        if is_binary(content.type):
            return content, paths
    elif is_binary(kind):
        return array, None
    elif str(kind).startswith(("string", "large_string")):
        return None, array
    raise OddData(f"its images are {shorten(kind, 60)}, expected bytes and path")


def _decode(array: Any) -> Any:
    """Return an array with its values themselves, not numbers in a dictionary; OddData if they are too many."""
    if not str(array.type).startswith("dictionary"):
        return array
    if _sum_lengths(array) > _LARGEST_BATCH:
        raise OddData(f"its images repeat, to more than {_LARGEST_BATCH:,} bytes at once: write each once")
    return array.dictionary_decode()


def _sum_lengths(array: Any) -> int:
    """Return the bytes of all values of a dictionary array of texts or bytes."""
    from pyarrow import compute

    return compute.sum(compute.binary_length(array.dictionary).take(array.indices.drop_null())).as_py() or 0


def ensure_places(
    data: DataFile, columns: Sequence[str], folder: Path, notices: list[str]
) -> tuple[str, list[ImagePlaces]]:
    """Return the file that has the images of some columns, and their places: ``data``, or one that is written once.

    Several processes that need it wait for the first; it is complete or absent.

    Raises:
        UserError: the images are damaged, or memory or disk do not suffice.
    """
    data.require_columns(columns)
    places = [each for each in map(data.locate, columns) if each is not None]
    if len(places) == len(columns):
        return data.path, places
    status = os.stat(data.path)
    facts = f"{VERSION} {os.path.realpath(data.path)}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\0"
    key = hashlib.sha256("\0".join([facts, *columns]).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    target = folder / f"{os.path.splitext(os.path.basename(data.path))[0][:80]}-{key}{_UNPACKED}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(target.with_suffix(".lock"), "ab")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror}; set DATA.CACHE_FOLDER to another folder") from error
    with lock:
        with contextlib.suppress(OSError):  # a file system without locks: the file is written twice, each time whole
            fcntl.flock(lock, fcntl.LOCK_EX)
        written = None
        with contextlib.suppress(UserError):  # missing or damaged: it is written again
            written = open_data(str(target))
        if written is None or written.num_rows != data.num_rows:
            _write(data, columns, target, notices)
            written = open_data(str(target))
    return written.path, [each for each in map(written.locate, columns) if each is not None]


def _write(data: DataFile, columns: Sequence[str], target: Path, notices: list[str]) -> None:
    import pyarrow

    size = os.path.getsize(data.path)
    if isinstance(data, ParquetData):
        size, note = data.check_sizes(columns)
        notices += filter(None, [note])
    _require_room(target, size)
    parts = [pyarrow.field("bytes", pyarrow.large_binary()), pyarrow.field("path", pyarrow.large_string())]
    schema = pyarrow.schema([pyarrow.field(name, pyarrow.struct(parts)) for name in columns])
    name, written = os.path.basename(data.path), 0
    bar = tqdm(total=data.num_rows, desc=f"unpacking {name}", unit="row", disable=None, leave=False)
    with bar, atomic_file(target) as file, pyarrow.ipc.new_stream(file, schema) as writer:
        for arrays in data.batches(columns):
            with readable_data(data.path):
                plain = []
                for array in arrays:
                    pair = (pyarrow.nulls(len(array)) if each is None else each for each in split_image(array))
                    values = [each.cast(part.type) for each, part in zip(pair, parts)]
                    plain.append(pyarrow.StructArray.from_arrays(values, fields=parts))
                batch = pyarrow.RecordBatch.from_arrays(plain, schema=schema)
            written += batch.nbytes
            if written > size + _SPARE_BYTES:  # images that a dictionary repeats
                _require_room(target, batch.nbytes)
            writer.write_batch(batch)
            bar.update(len(batch))


def _require_room(target: Path, size: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if size + _SPARE_BYTES > free:
        raise UserError(
            f"cannot write {target}: with {_SPARE_BYTES:,} bytes to spare, the images need {size + _SPARE_BYTES:,} "
            f"bytes, but only {free:,} are free: free space, or set DATA.CACHE_FOLDER to a folder on another disk"
        )
