"""Paths and labels of a dataset in one memory-mapped file, so that a process receives a file name and not a list.

Layout, little-endian: paths, concatenated | zeros up to a multiple of 8 | offsets int64 (entries + 1) | labels int32
(entries) | class names as a JSON list or null | a table of these parts | the trailer of ``checked_files``. The file
name contains the key of the content, so an index that a running process has yet to open never changes.
"""

import json
import mmap
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import open_regular
from .checked_files import TRAILER_BYTES, DamagedCacheError, checked_file, verify

_MAGIC = b"pathidx\0"
_VERSION = 4
_TABLE = struct.Struct("<8sQQQQ32s")  # magic, version, entries, bytes of paths, bytes of class names, key


class PathBatch(NamedTuple):
    """Consecutive entries as the file stores them.

    ``blob`` has the paths as the file system spells them, without separator; ``lengths`` are their bytes, int64
    (entries,), and ``labels`` int32 (entries,).
    """

    blob: bytes
    lengths: np.ndarray
    labels: np.ndarray


def make_batch(paths: list[bytes], labels: int | np.ndarray) -> PathBatch:
    """Join ``paths``; ``labels`` is an array of their length, or one label for all."""
    lengths = np.fromiter(map(len, paths), np.int64, len(paths))
    return PathBatch(b"".join(paths), lengths, np.broadcast_to(np.asarray(labels, np.int32), lengths.shape))


def ensure_path_index(
    folder: Path,
    name: str,
    key: bytes,
    batches: Callable[[], Iterable[PathBatch]],
    class_names: None | list[str] | Callable[[], Any] = None,
) -> "PathIndex":
    """Open the index of a source; build it first if ``folder`` has none or a damaged one.

    Args:
        folder: existing writable folder; several processes may build the same index in it at once.
        name: beginning of the file name.
        key: SHA-256 of everything that the content depends on, including class names.
        batches: yields the entries in order; called only to build.
        class_names: names stored with the entries, or a function that returns them once the entries are written.
    """
    file = Path(folder) / f"{name}-{key.hex()[:16]}.index"
    try:
        return PathIndex(file, key)
    except UserError:  # missing, of another version, or damaged
        _build(file, key, batches(), class_names)
        return PathIndex(file, key)


def _build(path: Path, key: bytes, batches: Iterable[PathBatch], class_names: Any) -> None:
    with checked_file(path) as out:
        parts = [(np.empty(0, np.int64), np.empty(0, np.int32))]
        for batch in batches:
            out.write(batch.blob)
            parts.append((batch.lengths, batch.labels))
        lengths, labels = map(np.concatenate, zip(*parts))
        blob_bytes = int(lengths.sum())
        out.write(bytes(-blob_bytes % 8))
        offsets = np.zeros(len(lengths) + 1, "<i8")
        np.cumsum(lengths, out=offsets[1:])
        out.write(offsets.data)
        out.write(labels.astype("<i4", copy=False).data)
        names = json.dumps(class_names() if callable(class_names) else class_names).encode("ascii")
        out.write(names)
        out.write(_TABLE.pack(_MAGIC, _VERSION, len(labels), blob_bytes, len(names), key))


class _MappedArrays(NamedTuple):
    file: mmap.mmap
    offsets: np.ndarray  # (entries + 1,) int64, first byte of each path
    labels: np.ndarray  # (entries,) int32
    names: slice
    key: bytes


class PathIndex:
    """Reads an index file: ``len(index)``, ``index.path(i)``, ``index.label(i)``, ``index.labels``.

    Its pickle is the file name; a process that receives it maps the file on first use. With a ``key`` of 32 bytes, the
    whole file is read and compared with its checksum. Raises UserError if the file is missing, damaged, of another
    version, or has another key.
    """

    def __init__(self, file: str | Path, key: bytes | None = None) -> None:
        self.file = str(file)
        self._maps: _MappedArrays | None = _open(self.file, key)

    def __getstate__(self) -> Any:
        return self.file

    def __setstate__(self, state: str) -> None:
        self.file = state
        self._maps = None

    def _open(self) -> _MappedArrays:
        if self._maps is None:
            self._maps = _open(self.file, None)
        return self._maps

    def __len__(self) -> int:
        return len(self._open().labels)

    def path(self, index: int) -> str:
        """Return the path of entry ``index``, relative to the dataset's folder."""
        maps = self._open()
        if not 0 <= index < len(maps.labels):
            raise IndexError(f"index {index} is outside 0..{len(maps.labels) - 1} of {self.file}")
        start, end = maps.offsets.item(index), maps.offsets.item(index + 1)
        return os.fsdecode(maps.file[start:end])

    def buffers(self) -> list[Any]:
        """Return all paths, concatenated, and their offsets, for a digest."""
        maps = self._open()
        return [memoryview(maps.file)[: maps.offsets.item(-1)], maps.offsets]

    def label(self, index: int) -> int:
        """Return the label of entry ``index``."""
        return self._open().labels.item(index)

    @property
    def labels(self) -> np.ndarray:
        """All labels, (entries,) int32, read-only and memory-mapped."""
        return self._open().labels

    @property
    def class_names(self) -> Any:
        """The stored ``class_names``: a list of names, None, or the JSON value that the builder's function returned."""
        maps = self._open()
        return json.loads(maps.file[maps.names])

    @property
    def key(self) -> bytes:
        """The 32 bytes that identify the source."""
        return self._open().key


def _open(file: str, key: bytes | None) -> _MappedArrays:
    try:
        with open_regular(file, "rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise UserError(f"index {file} cannot be opened ({error}); start the run again to rebuild it") from error
    table_at = len(content) - TRAILER_BYTES - _TABLE.size
    if table_at < 0:
        raise _explain_damage(file, "it is truncated")
    magic, version, entries, blob_bytes, names_bytes, found_key = _TABLE.unpack_from(content, table_at)
    if magic != _MAGIC or version != _VERSION:
        raise _explain_damage(file, f"it is not an index of version {_VERSION}")
    if key is not None and key != found_key:
        raise _explain_damage(file, "it belongs to another source")
    offsets_at = blob_bytes + -blob_bytes % 8
    labels_at = offsets_at + 8 * (entries + 1)
    names_at = labels_at + 4 * entries
    if table_at != names_at + names_bytes:
        raise _explain_damage(file, f"expected {names_at + names_bytes} bytes, found {table_at}")
    if key is not None:
        try:
            verify(file)
        except DamagedCacheError as error:
            raise _explain_damage(file, str(error)) from error
    return _MappedArrays(
        content,
        np.frombuffer(content, "<i8", entries + 1, offsets_at),
        np.frombuffer(content, "<i4", entries, labels_at),
        slice(names_at, table_at),
        found_key,
    )


def _explain_damage(file: str, reason: str) -> UserError:
    return UserError(f"index {file} is damaged: {reason}; delete it and start the run again")
