"""Files that are complete or absent, even if several runs write the same one at once, and arrays in files."""

import contextlib
import csv
import errno
import fcntl
import glob
import io
import os
import re
import secrets
import shutil
import socket
import stat
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from . import limits
from .errors import UserError
from .outages import StorageOutage, name_in_errors, read_through_outages

if TYPE_CHECKING:
    import numpy as np

AnyPath = str | bytes | os.PathLike[str]
DEFLATE_RATIO = 1032  # maximum bytes per byte of a deflated file, by the format
# What the user can do about an error of the file system. The user cannot fix any others.
_ADVICE = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "remove files or ask for a larger quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or choose a file system that holds larger files",
    errno.EACCES: "make it writable for this user, or choose another folder",
    errno.EPERM: "make it writable for this user, or choose another folder",
    errno.EROFS: "the file system is mounted read-only: choose another folder, or check dmesg for a failed disk",
    errno.EIO: "the disk or its connection is failing: see dmesg, and choose another disk",
    errno.ENXIO: "the disk is gone: see dmesg, and choose another disk",
    errno.ENODEV: "the disk is gone: see dmesg, and choose another disk",
    errno.ESTALE: "the network file system has lost the folder: mount it again",
    errno.ETIMEDOUT: "the network file system does not answer: mount it again",
    errno.EHOSTDOWN: "the network file system does not answer: mount it again",
    errno.ENOENT: "the folder was removed: create it, or choose another folder",
    errno.EEXIST: "there is a file where a folder is expected: rename it, or choose another folder",
    errno.ENOTDIR: "there is a file where a folder is expected: rename it, or choose another folder",
    errno.EISDIR: "there is a folder where a file is expected: rename it, or choose another folder",
    errno.ELOOP: "the links form a loop: remove them, or choose another folder",
    errno.ENAMETOOLONG: "choose a folder with a shorter path",
    errno.EMLINK: "the folder contains too many folders: choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files: end other programs",
    errno.ENOMEM: "the machine is out of memory: end other programs",
}
_PROBE_BYTES = 1 << 16
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_TEMPORARY = re.compile(r"\.?.+\.\d+\.[0-9a-f]{8}\.tmp")
_LONGEST_NAME = 255  # bytes of a file's name
_ABANDONED_SECONDS = 3600.0  # without a change; for files of other machines, whose locks some file systems do not show


def is_address(path: str) -> bool:
    """Return whether a path is an address such as ``s3://bucket/folder``, and not on this machine."""
    return _ADDRESS.match(path) is not None


def explain_write_error(error: OSError) -> str:
    """Format the error of the file system and what to do: ``No space left on device; free space``."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{reason}; {_ADVICE.get(error.errno or 0, 'choose another folder')}"


@contextlib.contextmanager
def os_errors_as_user_errors(what: object, hint: str = "") -> Iterator[None]:
    """Turn an error of the file system into a UserError: what could not be written, why, what to do, and ``hint``."""
    try:
        yield
    except (UserError, StorageOutage):
        raise
    except Exception as error:
        found = error if isinstance(error, OSError) else limits.find_os_error(error)
        if found is None:
            raise
        raise UserError(f"cannot write {what}: {explain_write_error(found)}{hint}") from error


@contextlib.contextmanager
def library_errors_as_os_errors(path: Path) -> Iterator[None]:
    """Raise the file system's error if it is why a library fails to write ``path``, a file or the files of a folder.

    Libraries hide it: safetensors and lazrs raise classes of their own, Pillow an OSError without a number, and Paddle
    writes unchecked and fails later.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _ADVICE:
            raise
        found = limits.find_os_error(error)
        if found is not None:
            raise OSError(found.errno, found.strerror, str(path)) from error
        require_growth(path)
        raise


def require_growth(path: Path) -> None:
    """Raise OSError if the file, or the largest file of a folder, cannot grow any further: it may be cut off."""
    sizes = {file: file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file()}
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        with open(largest, "ab") as file:
            try:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
            finally:
                os.truncate(largest, sizes[largest])


@contextlib.contextmanager
def readable(what: object, hint: str = "") -> Iterator[None]:
    """Turn errors about reading a file, or about its content, into a UserError: what, why, and ``hint``."""
    try:
        yield
    except UnicodeError as error:
        raise UserError(f"{what} is not UTF-8 text; save it as UTF-8{hint}") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}{hint}") from error


def temporary_name(name: str) -> str:
    """Return a name that is unique on all machines, for a file that is called ``name`` once it is complete."""
    end = f".{os.getpid()}.{secrets.token_hex(4)}.tmp"
    host = _format_host()[: max(0, _LONGEST_NAME - 1 - len(os.fsencode(name)) - len(end))]
    return f"{name}.{host}{end}" if host else f"{name}{end}"


def _format_host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:60]


def is_temporary(name: str) -> bool:
    """Return whether ``temporary_name`` or ``atomic_file`` could have made this name."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_temporary_files(folder: Path) -> None:
    """Remove the unfinished files of killed processes from a folder in which no process writes now, if it exists."""
    for file in folder.rglob("*.tmp"):
        if is_temporary(file.name):
            with contextlib.suppress(OSError):
                file.unlink()


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left unfinished in a folder and its subfolders, or of the file ``name`` there.

    A living process holds the lock of its file. It must also be old if another machine made it, or if it is empty: its
    process may be about to lock it.
    """
    patterns = ("*.tmp", "*/*.tmp") if name is None else (f"{glob.escape(name)}.*.tmp",)
    for path in [path for pattern in patterns for path in folder.glob(pattern) if is_temporary(path.name)]:
        with contextlib.suppress(OSError), _open_locked(path, os.O_RDONLY | os.O_NOFOLLOW) as file:
            status, is_own = os.fstat(file), path.name.rsplit(".", 4)[1] == _format_host()
            if (is_own and status.st_size) or time.time() - status.st_mtime > _ABANDONED_SECONDS:
                if stat.S_ISDIR(status.st_mode):
                    shutil.rmtree(path)
                else:
                    path.unlink()


@contextlib.contextmanager
def _open_locked(path: Path, flags: int) -> Iterator[int]:
    """Open a file or folder and lock it until the block ends; an OSError says that another process has the lock."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unfinished_folder(target: Path) -> Iterator[Path]:
    """Create a folder next to ``target`` for what is moved there once all is written; it is removed after the block.

    What killed processes left of such folders is removed first. Raises OSError if the file system refuses.
    """
    remove_abandoned(target.parent, f".{target.name}")
    folder = target.parent / temporary_name(f".{target.name}")
    folder.mkdir()
    try:
        with contextlib.ExitStack() as held:
            with contextlib.suppress(OSError):  # a file system without locks
                held.enter_context(_open_locked(folder, os.O_RDONLY))
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears at ``path``, replacing any older one, once the block ends without an error.

    Its lock is held until then: see ``remove_abandoned``.

    Raises:
        UserError: the file system refuses; the message says why.
    """
    # Created with open() rather than tempfile so that the user's umask decides who may read a shared cache.
    temporary = path.with_name(temporary_name(path.name))
    try:
        with open(temporary, "xb") as file, library_errors_as_os_errors(temporary):
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno not in _ADVICE:
            raise
        raise UserError(f"cannot write {path}: {explain_write_error(error)}") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


class NotAFile(OSError):
    """The path is not a file; ``strerror`` says what it is."""

    strerror: str


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_csv(path: Path, rows: Iterable[Sequence[Any]], line_end: str = "\r\n") -> None:
    """Write rows as a CSV file in UTF-8; bytes of file names that are not UTF-8 are escaped."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=line_end).writerows(rows)
    with atomic_file(path) as file:
        file.write(text.getvalue().encode("utf-8", "backslashreplace"))


def require_regular(path: AnyPath) -> None:
    """Check that a path, or the target of a link, is a regular file, before it is opened.

    Opening a pipe without a writer waits forever, and reading from a device such as /dev/zero never ends.

    Raises:
        NotAFile: it is something else.
        OSError: it does not exist, is not accessible, or is a link to itself.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotAFile(errno.EINVAL, f"it is {kind}, expected a file: remove or replace it", os.fspath(path))


def is_folder(entry: os.DirEntry[Any]) -> bool:
    """Return whether an entry of ``os.scandir`` is a folder or a link to one; a link to itself is not."""
    try:
        return bool(read_through_outages(entry.is_dir))
    except OSError:
        return False


def count_by_suffix(names: Iterable[str]) -> str:
    """Format ``12 .las, 3 .obj`` for the names of files, the most frequent first; empty for no names."""
    counts = Counter(os.path.splitext(name)[1].lower() or "without suffix" for name in names)
    return ", ".join(
        f"{number:,} {suffix}" for suffix, number in sorted(counts.items(), key=lambda item: (-item[1], item))
    )


def open_regular(path: AnyPath, mode: str = "r", **options: Any) -> Any:
    """Open a file for reading; refuse anything that is not a regular file, with an OSError, as all errors.

    Raises StorageOutage if its storage stays away.
    """

    def open_once() -> Any:
        require_regular(path)
        return open(path, mode, **options)

    return read_through_outages(open_once)


def read_regular(path: AnyPath) -> bytes:
    """Read the content of a file; refuse anything that is not a regular file, with an OSError, as all errors.

    Raises StorageOutage if its storage stays away.
    """

    def read_once() -> bytes:
        require_regular(path)
        with open(path, "rb") as stream, name_in_errors(path):
            return stream.read()

    return read_through_outages(read_once)


def read_content(path: str | os.PathLike[str], max_bytes: int = -1) -> bytes:
    """Read a file that a user has named, or its first ``max_bytes`` bytes; raises a UserError if it cannot be read."""
    with readable(path), open_regular(path, "rb") as stream:
        return stream.read(max_bytes)


_header_lock = threading.Lock()


def map_array(path: str | os.PathLike) -> "np.ndarray":
    """Memory-map a ``.npy`` file read-only, as a plain array, as indexing a ``memmap`` is slow.

    numpy parses the header as Python, and CPython 3.11 fails with "AST constructor recursion depth mismatch" when two
    threads do so at once and one of them is interrupted by garbage collection.
    """
    import numpy as np  # not at the top: options and configuration are read without it

    with _header_lock:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
