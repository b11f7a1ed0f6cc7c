"""IDX, the format of the MNIST files: 4 bytes of type and rank, one big-endian int32 per dimension, the values."""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path
from typing import Any, Optional, Tuple

import numpy as np

from ...errors import UserError
from ...loading.atomic_file import atomic_file

_UNSIGNED_BYTE = 0x08
_CHUNK_BYTES = 1 << 20
_LONGEST_HEADER = 16  # of a file in 3 dimensions


class IdxFile:
    """The bytes of an IDX file as a memory-mapped array.

    A ``.gz`` file is decompressed once into the cache folder; the copy's name carries path, size and time of change of
    its source. The pickle holds file names and the shape; the map is made on first use.
    """

    def __init__(self, source: Path, rank: int, cache_folder: Path) -> None:
        """Check the header and length of ``source``.

        Args:
            source: the file, compressed if its name ends in ``.gz``.
            rank: number of dimensions it must have.
            cache_folder: existing writable folder for the decompressed copy.

        Raises:
            UserError: the file is truncated, damaged, or not of that rank.
        """
        self.source = str(source)
        self._values: Optional[np.ndarray] = None
        plain = source
        if source.suffix == ".gz":
            plain = _decompressed_name(source, cache_folder)
            if not _is_intact(plain, rank):
                _decompress(source, plain)
        self.plain = str(plain)
        self.shape = _checked_shape(plain, rank, self.source)

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_values": None}

    @property
    def values(self) -> np.ndarray:
        """The array, uint8, read-only, in the file's shape."""
        if self._values is None:
            mapped = np.memmap(self.plain, np.uint8, "r", offset=_header_bytes(len(self.shape)), shape=self.shape)
            self._values = np.asarray(mapped)  # a plain view: indexing a memmap object is slow
        return self._values


def _header_bytes(rank: int) -> int:
    return 4 + 4 * rank


def _checked_shape(plain: Path, rank: int, source: str) -> Tuple[int, ...]:
    """Shape that the header of ``plain`` announces; errors name ``source``."""
    try:
        with open(plain, "rb") as file:
            header = file.read(_header_bytes(rank))
        found = os.path.getsize(plain)
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error
    if len(header) < _header_bytes(rank):
        raise _truncated(source, f"at least {_header_bytes(rank)}", len(header))
    if header[:4] != bytes([0, 0, _UNSIGNED_BYTE, rank]):
        raise UserError(
            f"{source} is no IDX file of bytes in {rank} dimensions: it begins with {header[:4].hex()}, "
            f"expected 0000{_UNSIGNED_BYTE:02x}{rank:02x}"
        )
    shape = struct.unpack(f">{rank}I", header[4:])
    expected = _header_bytes(rank) + math.prod(shape)
    if found < expected:
        raise _truncated(source, expected, found)
    if found > expected:
        raise UserError(f"{source} is too long: its header announces {expected} bytes, found {found}; get it again")
    return shape


def _is_intact(plain: Path, rank: int) -> bool:
    try:
        _checked_shape(plain, rank, str(plain))
    except UserError:
        return False
    return True


def _decompressed_name(source: Path, cache_folder: Path) -> Path:
    status = _status(source)
    key = hashlib.sha256(f"{source.resolve()}|{status.st_size}|{status.st_mtime_ns}".encode("utf-8", "surrogateescape"))
    return Path(cache_folder, f"{source.stem}-{key.hexdigest()[:16]}")


def _status(source: Path) -> os.stat_result:
    try:
        return source.stat()
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error


def _decompress(source: Path, target: Path) -> None:
    with _open_compressed(source) as compressed, atomic_file(target) as out:
        beginning = b""
        try:
            # read1 gives what there is before it meets the damage, so that the bytes found can be told.
            for chunk in iter(lambda: compressed.read1(_CHUNK_BYTES), b""):
                beginning = beginning if len(beginning) >= _LONGEST_HEADER else (beginning + chunk)[:_LONGEST_HEADER]
                out.write(chunk)
        except EOFError as error:
            raise _truncated(f"{source} (decompressed)", _announced(beginning), out.tell()) from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{source} is damaged: {error}; get it again") from error


def _open_compressed(source: Path) -> gzip.GzipFile:
    try:
        return gzip.open(source, "rb")
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}") from error


def _announced(header: bytes) -> str:
    """Length that the first bytes of an IDX file announce, as far as they are there."""
    rank = header[3] if len(header) >= 4 else 0
    if not 1 <= rank <= 3 or len(header) < _header_bytes(rank):
        return f"at least {_LONGEST_HEADER}"
    return str(_header_bytes(rank) + math.prod(struct.unpack(f">{rank}I", header[4 : _header_bytes(rank)])))


def _truncated(source: str, expected: Any, found: int) -> UserError:
    return UserError(f"{source} is truncated: expected {expected} bytes, found {found}; get it again")
