"""Files that are complete or absent, even when several runs write the same one at once, and arrays in files."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from pathlib import Path
from typing import Any, BinaryIO, Iterator, Union

import numpy as np

from .errors import UserError

_UNWRITABLE = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
}


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at ``path``, replacing any older one, once the block ends without an error.

    Raises:
        UserError: the folder is not writable, or the disk is full.
    """
    # Created with open() rather than tempfile so that the user's umask decides who may read a shared cache.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        raise UserError(f"cannot write {path}: {error.strerror}; free space or choose another folder") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


class NotAFile(OSError):
    """What a path leads to is not a file; ``strerror`` says what it is."""


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def require_regular(path: Any) -> None:
    """Check that a path, or the link that it is, leads to a plain file, before it is opened: opening a pipe that nobody
    writes to waits forever, and reading from a device such as /dev/zero never ends.

    Raises:
        NotAFile: it leads to something else.
        OSError: it does not exist, may not be looked at, or is a link to itself.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotAFile(errno.EINVAL, f"it is {kind}, expected a file: remove or replace it", os.fspath(path))


def is_folder(entry: Any) -> bool:
    """Whether an entry of ``os.scandir`` is a folder or a link to one; a link to itself is none."""
    try:
        return bool(entry.is_dir())
    except OSError:
        return False


def open_regular(path: Any, mode: str = "r", **options: Any) -> Any:
    """``open`` a file for reading, and refuse anything that is not one.

    Raises:
        OSError: as ``require_regular`` and ``open``.
    """
    require_regular(path)
    return open(path, mode, **options)


def read_regular(path: Any) -> bytes:
    """The content of a file, as ``Path.read_bytes``; anything else is refused.

    Raises:
        OSError: as ``require_regular`` and ``open``.
    """
    with open_regular(path, "rb") as stream:
        return stream.read()


_one_thread = threading.Lock()


def map_array(path: Union[str, os.PathLike]) -> np.ndarray:
    """Memory-map a ``.npy`` file read-only, as a plain array: indexing a ``memmap`` object is slow.

    numpy parses the header as Python, and CPython 3.11 fails with "AST constructor recursion depth mismatch" when two
    threads do so at once and one of them is interrupted by garbage collection.
    """
    with _one_thread:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
