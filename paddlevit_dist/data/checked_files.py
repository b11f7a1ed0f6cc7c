"""Cached files that end with a checksum of their content, so that a damaged one is noticed and made again.

The checksum begins with the file's name, which carries the key of the content: another file's content is damage too.
The trailer of 16 bytes follows the content; readers that know how long the content is, such as numpy's, ignore it.
"""

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.files import atomic_file, map_array, open_regular

_TRAILER = struct.Struct("<8sII")  # magic, CRC-32 of the content, of these 12 bytes
_MAGIC = b"pdcheck\0"
TRAILER_BYTES = _TRAILER.size


class DamagedCacheError(Exception):
    """A cached file is missing, damaged, or was written by a version without checksums."""


class ChecksumWriter:
    """Writes to a file and sums up what was written."""

    def __init__(self, file: Any, name: str = "") -> None:
        self._file = file
        self.checksum = zlib.crc32(os.fsencode(name))

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()


@contextlib.contextmanager
def checked_file(path: Path) -> Iterator[ChecksumWriter]:
    """Like ``atomic_file``, and with a checksum at the end.

    Raises:
        UserError: the folder is not writable, or the disk is full.
    """
    with atomic_file(path) as file:
        summing = ChecksumWriter(file, path.name)
        yield summing
        head = struct.pack("<8sI", _MAGIC, summing.checksum)
        file.write(head + struct.pack("<I", zlib.crc32(head)))


def write_array(path: Path, array: np.ndarray) -> int:
    """Write a ``.npy`` file with a checksum; returns it.

    Raises:
        UserError: as ``checked_file``.
    """
    with checked_file(path) as out:
        np.save(out, array, allow_pickle=False)  # it only writes
        return out.checksum


def verify(path: str | Path) -> int:
    """Read a whole file, about a second for 2 GB that the system has in memory; returns its checksum.

    Raises:
        Damaged: see there.
    """
    seed = zlib.crc32(os.fsencode(os.path.basename(path)))
    try:
        with open_regular(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < TRAILER_BYTES:
                raise DamagedCacheError(f"{path} is cut off")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                magic, checksum, own = _TRAILER.unpack_from(view, size - TRAILER_BYTES)
                is_intact = magic == _MAGIC and own == zlib.crc32(view[size - TRAILER_BYTES : size - 4])
                if not is_intact or zlib.crc32(view[: size - TRAILER_BYTES], seed) != checksum:
                    raise DamagedCacheError(f"{path} does not have its checksum")
                return checksum
    except OSError as error:
        raise DamagedCacheError(f"{path} cannot be read: {error.strerror}") from error


def read_checked(path: str | Path) -> bytes:
    """The content of a small file.

    Raises:
        Damaged: see there.
    """
    verify(path)
    with open(path, "rb") as file:
        return file.read()[:-TRAILER_BYTES]


def map_verified(path: str | Path) -> np.ndarray:
    """Memory-map an array of ``write_array`` once its checksum has been found right.

    Raises:
        Damaged: see there.
    """
    verify(path)
    try:
        return map_array(path)
    except (OSError, ValueError, EOFError) as error:  # right checksum, but not an array
        raise DamagedCacheError(f"{path} is not an array: {error}") from error
