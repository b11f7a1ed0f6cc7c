"""A cache of byte ranges in a folder, shared by all processes of a machine that name the same folder.

Each range is a file, complete or absent: it is written under a temporary name and renamed, and ends with a checksum,
since a machine that loses power may keep the name without the content. Two processes that fetch the same range write
the same bytes, and the second rename replaces the first.

Ranges are spread over subfolders, each with an equal part of the size. A file in each, under a lock, holds the bytes
that were written there. If a range does not fit, the ranges of its subfolder that were read longest ago are removed.
"""

import contextlib
import fcntl
import hashlib
import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..runtime.files import is_temporary, os_errors_as_user_errors, temporary_name

FOLDERS = 64
_CHECKSUM = struct.Struct("<I")  # CRC-32 of the content, at the end of a file
_TOTAL = struct.Struct("<q")
_COUNTER = "bytes"
_KEPT = 0.9  # of a subfolder's size that remains after ranges are removed
_STALE_SECONDS = 3600.0  # age of a temporary file whose writer must have been killed


class RangeCache:
    """Keeps byte ranges by key in ``folder``, which the first creates, in at most ``limit_bytes`` of file sizes.

    Its pickle contains the path and the sizes; other processes may read, write and remove at the same time. Files are
    in subfolders of at most ``limit_bytes / folders`` each; a larger range is not kept.
    """

    def __init__(self, folder: Path, limit_bytes: int, folders: int = FOLDERS) -> None:
        self.folder = str(folder)
        self.limit_bytes = limit_bytes
        self.folders = folders

    def get(self, key: str) -> bytes | None:
        """Return the range of ``key``; None if it is not kept, or its file is damaged."""
        path = self.find_path(key)
        try:
            content = Path(path).read_bytes()
            os.utime(path)  # the time of the last reading, by which ranges are removed
        except OSError:  # not kept, or just removed by another process; an unreadable one is fetched again
            return None
        body = content[: -_CHECKSUM.size]
        is_whole = len(content) >= _CHECKSUM.size and _CHECKSUM.unpack_from(content, len(body))[0] == zlib.crc32(body)
        return body if is_whole else None

    def put(self, key: str, content: bytes) -> None:
        """Keep the range of ``key``, if it is not too large. Raises UserError if the folder cannot be written."""
        path = Path(self.find_path(key))
        size = len(content) + _CHECKSUM.size
        hint = "; it is below DATA.CACHE_FOLDER and takes up to DATA.REMOTE_CACHE_GIGABYTES"
        if size > self.limit_bytes // self.folders:
            return
        with os_errors_as_user_errors(path, hint):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(temporary_name(path.name))
            try:
                if not self._make_room(temporary, size):
                    return
                with temporary.open("r+b") as out:
                    out.write(content + _CHECKSUM.pack(zlib.crc32(content)))
                os.replace(temporary, path)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def find_path(self, key: str) -> str:
        """Return the path of a range's file, whether it is there or not."""
        name = hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=20).hexdigest()
        return os.path.join(self.folder, f"{int(name[:8], 16) % self.folders:02d}", name)

    def _make_room(self, temporary: Path, size: int) -> bool:
        """Create a temporary file of ``size`` bytes, after removing ranges of its subfolder if it does not fit.

        Return False, without a file, if other processes write too much there.
        """
        folder, limit = temporary.parent, self.limit_bytes // self.folders
        with locked_counter(folder / _COUNTER) as counter:
            stored = os.pread(counter, _TOTAL.size, 0)
            total = _TOTAL.unpack(stored)[0] if len(stored) == _TOTAL.size else _remove_oldest(folder, limit)
            if total + size > limit:  # a killed or replacing writer was counted, too: count the files again
                total = _remove_oldest(folder, min(int(_KEPT * limit), limit - size))
            if total + size > limit:
                os.pwrite(counter, _TOTAL.pack(total), 0)
                return False
            with temporary.open("xb") as out:
                out.truncate(size)  # before the lock is released, so that others count it
            os.pwrite(counter, _TOTAL.pack(total + size), 0)
            return True


@contextlib.contextmanager
def locked_counter(path: Path) -> Iterator[int]:
    """Open the file of a subfolder's total, locked until the block ends, also by the end of this process."""
    counter = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(counter, fcntl.LOCK_EX)
        yield counter
    finally:
        os.close(counter)


def _remove_oldest(folder: Path, keep: int) -> int:
    """Remove the ranges of a subfolder that were read longest ago until ``keep`` bytes remain; return their number.

    Files that other processes are writing stay and count.
    """
    files, total, now = [], 0, time.time()
    for entry in os.scandir(folder):
        if entry.name == _COUNTER:
            continue
        try:
            status = entry.stat()
            if is_temporary(entry.name) and now - status.st_mtime > _STALE_SECONDS:
                os.unlink(entry.path)
                continue
        except FileNotFoundError:  # a temporary file that was just renamed
            continue
        total += status.st_size
        if not is_temporary(entry.name):
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    for _, size, path in sorted(files):
        if total <= keep:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
    return total
