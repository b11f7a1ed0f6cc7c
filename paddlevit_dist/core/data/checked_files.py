"""Cached files that end with a checksum of their content, so that damaged files are detected and written again.

The checksum covers the file's name as well, which carries the key of the content: another file's content counts as
damage. The trailer of 16 bytes follows the content; readers that know the content's length, such as numpy's, ignore it.
"""

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..runtime.files import atomic_file, map_array, open_regular

_TRAILER = struct.Struct("<8sII")  # magic, CRC-32 of the content, CRC-32 of these 12 bytes
_MAGIC = b"pdcheck\0"
TRAILER_BYTES = _TRAILER.size


class DamagedCacheError(Exception):
    """A cached file is missing, damaged, or was written by a version without checksums."""


class ChecksumWriter:
    """Writes to an open binary file and computes the CRC-32 of its content and of the name that it covers."""

    def __init__(self, file: BinaryIO, name: str = "") -> None:
        self._file = file
        self.checksum = zlib.crc32(os.fsencode(name))

    def write(self, data: bytes | memoryview) -> int:
        """Write bytes and return their number."""
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)

    def tell(self) -> int:
        """Return the position in the file."""
        return self._file.tell()


@contextlib.contextmanager
def checked_file(path: Path) -> Iterator[ChecksumWriter]:
    """Open a file for writing that appears once it is complete, with a checksum at its end, or raise UserError."""
    with atomic_file(path) as file:
        writer = ChecksumWriter(file, path.name)
        yield writer
        head = struct.pack("<8sI", _MAGIC, writer.checksum)
        file.write(head + struct.pack("<I", zlib.crc32(head)))


def write_array(path: Path, array: np.ndarray) -> int:
    """Write a ``.npy`` file with a checksum and return the checksum, or raise UserError."""
    with checked_file(path) as out:
        np.save(out, array, allow_pickle=False)  # writes only, does not seek
        return out.checksum


def verify(path: str | Path) -> int:
    """Read a whole file (2 GB from the system's cache take a second), and return the checksum if it is right.

    Raises DamagedCacheError if the file is missing or damaged.
    """
    seed = zlib.crc32(os.fsencode(os.path.basename(path)))
    try:
        with open_regular(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < TRAILER_BYTES:
                raise DamagedCacheError(f"{path} is truncated")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
                magic, checksum, trailer_checksum = _TRAILER.unpack_from(view, size - TRAILER_BYTES)
                is_intact = magic == _MAGIC and trailer_checksum == zlib.crc32(view[size - TRAILER_BYTES : size - 4])
                if not is_intact or zlib.crc32(view[: size - TRAILER_BYTES], seed) != checksum:
                    raise DamagedCacheError(f"{path} does not match its checksum")
                return checksum
    except OSError as error:
        raise DamagedCacheError(f"{path} cannot be read: {error.strerror}") from error


def read_checked(path: str | Path) -> bytes:
    """Return the content of a small file, or raise DamagedCacheError if it is missing or its checksum wrong."""
    verify(path)
    with open(path, "rb") as file:
        return file.read()[:-TRAILER_BYTES]


def map_verified(path: str | Path) -> np.ndarray:
    """Memory-map an array of ``write_array``, or raise DamagedCacheError if it is missing or its checksum wrong."""
    verify(path)
    try:
        return map_array(path)
    except (OSError, ValueError, EOFError) as error:  # the checksum is right, but it is not an array
        raise DamagedCacheError(f"{path} is not an array: {error}") from error
