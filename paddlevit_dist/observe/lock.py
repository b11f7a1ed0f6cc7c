"""One run at a time in an output folder.

The process that starts a run holds ``run.lock`` in its output folder. On one machine the kernel decides who has it
(``flock``), and frees it with the process, however that ends: the file itself is no obstacle. The lock of another
machine, on a shared file system where ``flock`` may see only its own side, counts as long as its holder touches the
file: nobody's clock decides.

The file also says what the run keeps elsewhere, so that the next one can remove it after a kill.
"""

import contextlib
import errno
import fcntl
import os
import shlex
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..parallel import leftovers
from ..parallel.failures import end_process
from ..runtime.errors import UserError
from ..runtime.files import is_temporary
from ..runtime.printing import shortened, without_credentials

FILE = "run.lock"
BEAT_SECONDS = 5.0  # between two signs of life of a holder
STALE_SECONDS = 120.0  # without one, a holder on another machine counts as dead
_LARGEST_BYTES = 64 * 1024
_RETRY_SECONDS = 10.0  # a killed process that had much memory takes a while to end
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_descriptors: set[int] = set()


def _close_in_child() -> None:
    """A forked process shares the open file, and would keep the lock after its parent's end."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


os.register_at_fork(after_in_child=_close_in_child)


class Holder(msgspec.Struct):
    """Which process holds a folder.

    Attributes:
        host: for people; containers may share it.
        boot: of the kernel, empty where the system does not say.
        since: local time; ``command``: its command line.
        token: in the names of what it keeps outside the folder; ``temporary``: the folder for temporary files.
    """

    host: str
    boot: str
    pid: int
    since: str
    command: str
    token: str
    temporary: str

    @classmethod
    def of_this_process(cls, token: str) -> "Holder":
        since, command = time.strftime("%Y-%m-%d %H:%M:%S %z"), without_credentials(shlex.join(sys.argv))
        return cls(socket.gethostname(), _boot(), os.getpid(), since, command, token, tempfile.gettempdir())

    def shares_kernel(self, host: str, boot: str) -> bool:
        """Whether ``flock`` means the same for both."""
        return (self.boot or self.host) == (boot or host)

    def has_ended(self) -> bool:
        """Whether the process, of this machine, is gone or about to be."""
        try:
            status = Path("/proc", str(self.pid), "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return True
        return status.rpartition(")")[2].split()[0] in "ZX"

    def describe(self) -> str:
        """One line, with nothing that a terminal would obey."""
        host, since = shortened(self.host, 80), shortened(self.since, 40)
        return f"process {self.pid} on {host} since {since} ({shortened(self.command)})"


class OutputLock:
    """The right to write into an output folder.

    Args:
        folder: the output folder; must exist.
        say: gets a line while the sign of life of another machine is awaited.
        is_evaluation: for the message.
        beat_seconds, stale_seconds: as the constants of this module.

    Attributes:
        previous: who held it before and left no other trace: a killed run.
        previous_beat: its last sign of life, on the file system's clock.
    """

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None],
        is_evaluation: bool = False,
        beat_seconds: float = BEAT_SECONDS,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self.folder, self.path = folder, folder / FILE
        self.previous: Holder | None = None
        self.previous_beat = 0.0
        self._say, self._is_evaluation = say, is_evaluation
        self._beat_seconds, self._stale_seconds = beat_seconds, stale_seconds
        self._own = Holder.of_this_process(leftovers.new_token())
        self._descriptor = -1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="output folder lock", daemon=True)

    def acquire(self) -> None:
        """Take the folder, from a dead holder if need be.

        Raises:
            UserError: another run holds it, or the folder cannot be written.
        """
        try:
            deadline = time.monotonic() + _RETRY_SECONDS
            while not self._try(deadline):
                time.sleep(0.05)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if error.errno in (errno.EISDIR, errno.ELOOP) and os.path.lexists(self.path):
                raise UserError(f"{self.path} is not a file: {reason}; remove it, or choose another -output") from error
            raise UserError(
                f"-output={self.folder} (SAVE) cannot be written: {reason}; choose another folder"
            ) from error
        self._thread.start()

    def release(self) -> None:
        """Give the folder back. A forked process that calls this changes nothing."""
        if self._own.pid != os.getpid() or self._descriptor not in _descriptors:
            return
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(OSError):
            if _same_file(self._descriptor, self.path):
                self.path.unlink()
        self._close()

    def _try(self, deadline: float) -> bool:
        """One attempt; False if the file changed meanwhile, or its dead holder has not quite ended."""
        self._descriptor = _open(self.path)
        _descriptors.add(self._descriptor)
        is_taken = False
        try:
            has_flock = _try_flock(self._descriptor)
            holder, beat = _read(self.path)
            if not _same_file(self._descriptor, self.path):
                return False
            if has_flock is False:
                if (holder is None or holder.has_ended()) and time.monotonic() < deadline:
                    return False
                raise self._refusal(holder)
            is_certain = bool(has_flock) and (holder is None or holder.shares_kernel(self._own.host, self._own.boot))
            if holder is not None and not is_certain and self._shows_life(holder, beat):
                raise self._refusal(_read(self.path)[0] or holder)
            content = msgspec.json.encode(self._own)
            os.pwrite(self._descriptor, content, 0)
            os.ftruncate(self._descriptor, len(content))
            if not is_certain:
                time.sleep(min(1.0, self._beat_seconds))  # another machine may have taken it at the same moment
                other, _ = _read(self.path)
                if other is not None and other.token != self._own.token:
                    raise self._refusal(other)
            self.previous, self.previous_beat = holder, beat / 1e9
            is_taken = True
        finally:
            if not is_taken:
                self._close()
        return True

    def _shows_life(self, holder: Holder, beat: int) -> bool:
        """Watch the file until it changes or its holder must be dead."""
        age = time.time() - beat / 1e9  # if this is wrong, the wait is as long as three beats, or as the longest
        seconds = max(3 * self._beat_seconds, min(self._stale_seconds, self._stale_seconds - age))
        self._say(
            f"{self.folder} was last used by {holder.describe()}: taking it over in {seconds:.0f} s, unless that run "
            "shows a sign of life"
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(0.5, self._beat_seconds / 4))
            if _read(self.path) != (holder, beat):
                return True
        return False

    def _refusal(self, holder: Holder | None) -> UserError:
        who = "another run" if holder is None else holder.describe()
        what = "evaluation" if self._is_evaluation else "training"
        return UserError(
            f"-output={self.folder} (SAVE) is in use by {who}; choose another -output for this {what}, or end that run"
        )

    def _beat(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        pause = min(1.0, self._beat_seconds)
        while not self._stop.wait(pause):
            pause = self._beat_seconds
            with contextlib.suppress(OSError):  # a file system that is away for a moment
                holder, _ = _read(self.path)
                if holder is not None and holder.token != self._own.token:
                    end_process(f"{self.folder} was taken over by {holder.describe()}; this run ends")
                os.utime(self._descriptor)

    def _close(self) -> None:
        _descriptors.discard(self._descriptor)
        os.close(self._descriptor)


@contextlib.contextmanager
def own(folder: Path, say: Callable[[str], None], is_evaluation: bool, holds: bool = True) -> Iterator[OutputLock]:
    """Hold an output folder for the time of a run, and remove what a killed one left outside it.

    Args:
        folder: the output folder; must exist.
        holds: whether this process takes it; of several machines only the main one does.
    Raises:
        UserError: another run holds it, or it cannot be written.
    """
    lock = OutputLock(folder, say, is_evaluation)
    try:
        if holds:
            lock.acquire()
            _remove_half_written(folder, lock)
        yield lock
    finally:
        lock.release()


def is_running(folder: Path) -> bool | None:
    """Whether a run holds an output folder; None where that cannot be seen from here."""
    try:
        holder, _ = _read(folder / FILE)
        if holder is None:
            return False
        if not holder.shares_kernel(socket.gethostname(), _boot()):
            return None
        with open(folder / FILE, "rb") as file:
            has_flock = _try_flock(file.fileno())
    except OSError:
        return None
    return None if has_flock is None else not has_flock


def _remove_half_written(folder: Path, lock: OutputLock) -> None:
    """Remove what killed runs left, inside the folder and outside."""
    half = [path for place in (folder, folder / "predictions") for path in place.glob("*.tmp")]
    if lock.previous is not None:
        leftovers.remove(lock.previous.token, lock.previous.temporary)
        # Other runs may keep their indexes here too (DATA.CACHE_FOLDER), and be writing one.
        last = lock.previous_beat + 2 * BEAT_SECONDS
        half += [path for path in (folder / "data").rglob("*.tmp") if path.lstat().st_mtime < last]
    for path in filter(lambda path: is_temporary(path.name), half):
        with contextlib.suppress(OSError):
            path.unlink()


def _open(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is not a file; remove it, or choose another -output")
    return descriptor


def _try_flock(descriptor: int) -> bool | None:
    """True: this process has the lock; False: another one; None: the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def _same_file(descriptor: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read(path: Path) -> tuple[Holder | None, int]:
    """What a lock file says, None if it is empty or says nothing that we know: then only ``flock`` counts; and the time
    of its last change, in ns. It is opened anew, so that a network file system asks its server."""
    try:
        with open(path, "rb") as file:
            beat, content = os.fstat(file.fileno()).st_mtime_ns, file.read(_LARGEST_BYTES)
    except FileNotFoundError:
        return None, 0
    try:
        return msgspec.json.decode(content, type=Holder), beat
    except (ValueError, RecursionError):
        return None, beat


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
