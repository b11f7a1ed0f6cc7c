"""Files that are complete or absent, even when several runs write the same one at once, and arrays in files."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from pathlib import Path
from typing import BinaryIO, Iterator, Union

import numpy as np

from .errors import UserError

_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT, errno.ENOTDIR}


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


_one_thread = threading.Lock()


def map_array(path: Union[str, os.PathLike]) -> np.ndarray:
    """Memory-map a ``.npy`` file read-only, as a plain array: indexing a ``memmap`` object is slow.

    numpy parses the header as Python, and CPython 3.11 fails with "AST constructor recursion depth mismatch" when two
    threads do so at once and one of them is interrupted by garbage collection.
    """
    with _one_thread:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
