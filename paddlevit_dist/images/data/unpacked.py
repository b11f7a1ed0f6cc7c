"""Compressed archives, unpacked no further than what they hold was published with: a megabyte of gzip can become a
thousand."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import tarfile
import zlib
from pathlib import Path
from typing import Any, Iterator, Union

from ...files import open_regular

#: what a damaged archive raises, besides OSError
DAMAGE = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError)
_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class TooLarge(Exception):
    """There is more in an archive than it may hold; the message says how much that is."""


def too_large(largest: int) -> TooLarge:
    return TooLarge(f"it unpacks to more than {largest:,} bytes, which the published one does not")


class _Bounded:
    """Reads a stream, but not beyond ``largest`` bytes."""

    def __init__(self, stream: Any, largest: int) -> None:
        self._stream = stream
        self._largest = self._left = largest

    def read(self, size: int = -1) -> bytes:
        wanted = self._left + 1 if size < 0 else min(size, self._left + 1)
        content = self._stream.read(wanted)
        self._left -= len(content)
        if self._left < 0:
            raise too_large(self._largest)
        return content


@contextlib.contextmanager
def open_unpacked(path: Union[str, Path], largest: int) -> Iterator[_Bounded]:
    """The content of a file, unpacked if it is compressed; only ``read`` is offered.

    Raises:
        OSError, EOFError, zlib.error, lzma.LZMAError: it cannot be read, or is damaged.
        TooLarge: there are more than ``largest`` bytes in it; raised when the first byte beyond is read.
    """
    with open_regular(path, "rb") as packed:
        beginning = packed.read(6)
        packed.seek(0, os.SEEK_SET)
        opener = next((opener for magic, opener in _OPENERS.items() if beginning.startswith(magic)), None)
        with contextlib.nullcontext(packed) if opener is None else opener(packed, "rb") as content:
            yield _Bounded(content, largest)
