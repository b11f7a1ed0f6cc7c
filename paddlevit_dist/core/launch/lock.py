"""One run at a time in an output folder: ``flock`` on its ``run.lock``.

The kernel, or the server of a network file system, frees the lock when the process ends. The file names the process
that holds the folder and the resources that the run keeps elsewhere, so that the next run can remove them after a kill.
On a file system without locks, a holder that lives on this machine counts.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..runtime.errors import UserError
from ..runtime.files import is_temporary
from ..runtime.printing import shorten, utf8, without_credentials
from . import stale_resources

FILE = "run.lock"
_LARGEST_BYTES = 64 * 1024
_RETRY_SECONDS = 10.0  # a killed process with much memory takes a while to end
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_descriptors: set[int] = set()


def close_in_child() -> None:
    """Close the files in a forked process, which would otherwise keep the lock after its parent's end."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=close_in_child)


class LockOwner(msgspec.Struct):
    """The process that holds a folder: the content of the file.

    Attributes:
        since: local time; ``command``: its command line.
        token: part of the names of its resources outside the folder; ``temporary``: the folder for temporary files.
        started: when the process began, in the kernel's ticks since the machine's start: a later process may have its
            number. None: not known.
    """

    host: str
    pid: int
    since: str
    command: str
    token: str
    temporary: str
    is_evaluation: bool = False
    started: int | None = None

    def is_local(self) -> bool:
        """Return whether the process runs or ran on this machine."""
        return self.host == socket.gethostname()

    def has_ended(self) -> bool:
        """Return whether the process was on this machine and is gone."""
        return self.is_local() and not self.is_alive()

    def is_alive(self) -> bool:
        """Return whether the process is on this machine and has not ended."""
        started = find_start(self.pid)
        return self.is_local() and started is not None and self.started in (None, started)

    def describe(self) -> str:
        """Format one line without characters that a terminal would interpret."""
        host, since = shorten(self.host, 80), shorten(self.since, 40)
        return f"process {self.pid} on {host} since {since} ({shorten(self.command)})"


@contextlib.contextmanager
def lock_output_dir(
    folder: Path, log: Callable[[str], None], is_evaluation: bool, should_lock: bool = True
) -> Iterator[None]:
    """Hold an existing output folder for the duration of a run, and remove half-written files of a killed run.

    ``log`` is called with one line if the file system has no locks. Of several machines, only the main one
    ``should_lock``. Raises UserError if another run holds the folder, or it cannot be written.
    """
    if not should_lock:
        yield
        return
    process, path = os.getpid(), folder / FILE
    with contextlib.ExitStack() as opened:
        try:
            previous = _acquire(opened, folder, log, "evaluation" if is_evaluation else "training")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno in (errno.EISDIR, errno.ELOOP) and os.path.lexists(path):
                raise UserError(f"{path} is not a file: {reason}; remove it, or choose another -output") from error
            raise UserError(f"-output={folder} (SAVE) cannot be written: {reason}; choose another folder") from error
        _remove_half_written(folder, previous)
        try:
            yield
        finally:
            if os.getpid() == process:  # a forked one changes nothing
                path.unlink(missing_ok=True)


def is_running(folder: Path) -> bool | None:
    """Return whether a training run holds an output folder; None if the file system has no locks to tell."""
    try:
        with open(folder / FILE, "rb") as file:
            is_free = _try_flock(file.fileno())
        holder = _read(folder / FILE)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    if is_free is None and holder is not None and holder.is_local():
        is_free = holder.has_ended()
    return None if is_free is None else not is_free and not (holder is not None and holder.is_evaluation)


def _acquire(opened: contextlib.ExitStack, folder: Path, log: Callable[[str], None], what: str) -> LockOwner | None:
    """Take the lock until ``opened`` ends; return the killed run that held the folder before, if its file is there."""
    path, deadline = folder / FILE, time.monotonic() + _RETRY_SECONDS
    while True:
        descriptor = _open(path)
        _descriptors.add(descriptor)
        opened.callback(_close, descriptor)
        is_free, holder = _try_flock(descriptor), _read(path)
        has_locks = is_free is not None
        if not has_locks:
            is_free = holder is None or not holder.is_alive()
        if is_free and _is_same_file(descriptor, path):
            break
        opened.close()
        # Its holder has just removed the file, is writing it, or is about to end.
        if (not is_free and holder is not None and not holder.has_ended()) or time.monotonic() > deadline:
            owner = "another run" if holder is None else holder.describe()
            raise UserError(
                f"-output={folder} (SAVE) is in use by {owner}; choose another -output for this {what}, or end that run"
            )
        time.sleep(0.05)
    if not has_locks:
        log(f"{folder} is on a file system without locks: runs on other machines can write there at the same time")
    since, command = time.strftime("%Y-%m-%d %H:%M:%S %z"), utf8(without_credentials(shlex.join(sys.argv)))
    token = stale_resources.new_token()
    this = LockOwner(
        socket.gethostname(),
        os.getpid(),
        since,
        command,
        token,
        utf8(tempfile.gettempdir()),
        what == "evaluation",
        find_start(os.getpid()),
    )
    content = msgspec.json.encode(this)
    os.pwrite(descriptor, content, 0)
    os.ftruncate(descriptor, len(content))
    return holder


def _remove_half_written(folder: Path, previous: LockOwner | None) -> None:
    stale_resources.remove_killed()
    half = [file for place in (folder, folder / "predictions") for file in place.glob("*.tmp")]
    if previous is not None:
        stale_resources.remove(previous.token, previous.temporary)
    for path in filter(lambda path: is_temporary(path.name), half):
        with contextlib.suppress(OSError):
            path.unlink()


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is not a file; remove it, or choose another -output")
    return descriptor


def _close(descriptor: int) -> None:
    if descriptor in _descriptors:  # a forked process has closed it
        _descriptors.discard(descriptor)
        os.close(descriptor)


def _try_flock(descriptor: int) -> bool | None:
    """Try to lock; True: this process has the lock; False: another one has; None: the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def find_start(process: int, kernel: Path = Path("/proc")) -> int | None:
    """Return when a process began, in the ticks of the ``kernel`` since the machine's start; None if it has ended."""
    try:
        content = (kernel / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = content.rpartition(")")[2].split()  # from the third field on
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read(path: Path) -> LockOwner | None:
    """Read a lock file; None if its content is not understood: then only ``flock`` counts."""
    try:
        return msgspec.json.decode(path.read_bytes()[:_LARGEST_BYTES], type=LockOwner)
    except (FileNotFoundError, ValueError, RecursionError):
        return None
