"""One run at a time in an output folder.

The process that starts a run holds ``run.lock`` in its output folder. On one machine the kernel decides who has it
(``flock``), and frees it with the process, however that ends: the file itself is no obstacle. The lock of another
machine, on a shared file system where ``flock`` may see only its own side, counts as long as its holder touches the
file; nobody's clock is compared with another's.

The file also says what the run keeps elsewhere, so that the next one can remove it after a kill.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Set

from ..errors import UserError
from ..files import is_temporary
from ..parallel import leftovers
from ..parallel.failures import end_process
from ..printing import one_line, without_credentials

if sys.platform != "win32":
    import fcntl

FILE = "run.lock"
BEAT_SECONDS = 5.0  # between two signs of life of a holder
STALE_SECONDS = 120.0  # without one, a holder on another machine counts as dead
_LARGEST_BYTES = 64 * 1024
_RETRY_SECONDS = 10.0  # a killed process that had much memory takes a while to end
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}

_descriptors: Set[int] = set()


def _close_in_child() -> None:
    """A forked process shares the open file, and would keep the lock after its parent's end."""
    for descriptor in _descriptors:
        os.close(descriptor)
    _descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class Holder(NamedTuple):
    """Which process holds a folder.

    Attributes:
        host: for people; containers may share it.
        boot: of the kernel, empty where the system does not say; ``namespace``: in which ``pid`` counts.
        started: of the process, in the kernel's ticks: another one may get its number later.
        since: local time; ``command``: its command line.
        token: in the names of what it keeps outside the folder; ``temporary``: the folder for temporary files.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started: str
    since: str
    command: str
    token: str
    temporary: str

    @classmethod
    def of_this_process(cls, token: str) -> "Holder":
        return cls(
            socket.gethostname(),
            _first_line("/proc/sys/kernel/random/boot_id"),
            _namespace(),
            os.getpid(),
            _start_of(os.getpid()),
            time.strftime("%Y-%m-%d %H:%M:%S %z"),
            without_credentials(shlex.join(sys.argv)),
            token,
            tempfile.gettempdir(),
        )

    def shares_kernel(self, own: "Holder") -> bool:
        """Whether ``flock`` and process numbers mean the same for both."""
        return (self.boot or self.host) == (own.boot or own.host)

    def lives(self, own: "Holder") -> Optional[bool]:
        """Whether the process is still there; None if that cannot be seen from here."""
        if not self.started or not self.shares_kernel(own) or self.namespace != own.namespace:
            return None
        return _start_of(self.pid) == self.started

    def describe(self) -> str:
        """One line, with nothing that a terminal would obey."""
        command = self.command if len(self.command) <= 160 else f"{self.command[:160]}..."
        return one_line(f"process {self.pid} on {self.host[:80]} since {self.since[:40]} ({command})")


class OutputLock:
    """The right to write into an output folder.

    Args:
        folder: the output folder; must exist.
        say: gets a line while the sign of life of another machine is awaited.
        is_evaluation: for the message.
        beat_seconds, stale_seconds: as the constants of this module.
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
        self.previous: Optional[Holder] = None  # who held it before and left no other trace: a killed run
        self.previous_beat = 0.0  # its last sign of life, on the file system's clock
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
        self._close(self._descriptor)

    def _try(self, deadline: float) -> bool:
        """One attempt; False if the file changed meanwhile, or its dead holder has not quite ended."""
        descriptor = _open(self.path)
        try:
            is_ours = _try_flock(descriptor)
            if not _same_file(descriptor, self.path):
                return False
            holder = _read(self.path)
            if is_ours is False and (holder is None or holder.lives(self._own) is False):
                if time.monotonic() < deadline:
                    return False
                raise self._refusal(holder)
            beat = os.fstat(descriptor).st_mtime
            if holder is not None and self._is_in_use(holder, is_ours):
                raise self._refusal(_read(self.path) or holder)
            self._take()
            self.previous, self.previous_beat = holder, beat
        finally:
            os.close(descriptor)
        is_certain = is_ours and (holder is None or holder.shares_kernel(self._own))
        if not is_certain:
            time.sleep(min(1.0, self._beat_seconds))  # another machine may have taken it at the same moment
            self._see_that_it_is_ours()
        return True

    def _is_in_use(self, holder: Holder, is_ours: Optional[bool]) -> bool:
        if holder.shares_kernel(self._own):
            lives = holder.lives(self._own)
            if is_ours is False or lives:
                return True
            if is_ours or lives is False:
                return False
        return self._shows_life(holder)

    def _shows_life(self, holder: Holder) -> bool:
        """Watch the file until it changes or its holder must be dead."""
        first = _state(self.path)
        age = self._clock() - first[0] / 1e9
        seconds = max(3 * self._beat_seconds, min(self._stale_seconds, self._stale_seconds - age))
        self._say(
            f"{self.folder} was last used by {holder.describe()}: taking it over in {seconds:.0f} s, unless that run "
            "shows a sign of life"
        )
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(min(0.5, self._beat_seconds / 4))
            if _state(self.path) != first:
                return True
        return False

    def _clock(self) -> float:
        """The file system's time."""
        probe = self.folder / f".{FILE}.{self._own.token}.now"
        try:
            probe.touch()
            return probe.stat().st_mtime
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()

    def _take(self) -> None:
        """Put a file of our own, locked and complete, in the place of the old one."""
        temporary = self.folder / f".{FILE}.{self._own.token}"
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _descriptors.add(descriptor)
        try:
            _try_flock(descriptor)
            os.write(descriptor, json.dumps(self._own._asdict(), indent=1).encode())
            os.replace(temporary, self.path)
        except BaseException:
            self._close(descriptor)
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._descriptor = descriptor

    def _see_that_it_is_ours(self) -> None:
        holder = _read(self.path)
        if holder is not None and holder.token != self._own.token:
            self._close(self._descriptor)
            raise self._refusal(holder)

    def _refusal(self, holder: Optional[Holder]) -> UserError:
        who = "another run" if holder is None else holder.describe()
        what = "evaluation" if self._is_evaluation else "training"
        return UserError(
            f"-output={self.folder} (SAVE) is in use by {who}; choose another -output for this {what}, or end that run"
        )

    def _beat(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the main thread
        pause = min(1.0, self._beat_seconds)
        while not self._stop.wait(pause):
            pause = self._beat_seconds
            with contextlib.suppress(OSError):  # a file system that is away for a moment
                holder = _read(self.path)
                if holder is not None and holder.token != self._own.token:
                    end_process(f"{self.folder} was taken over by {holder.describe()}; this run ends")
                os.utime(self._descriptor if os.utime in os.supports_fd else self.path)

    @staticmethod
    def _close(descriptor: int) -> None:
        _descriptors.discard(descriptor)
        os.close(descriptor)


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


def is_running(folder: Path) -> Optional[bool]:
    """Whether a run holds an output folder; None where its process cannot be seen from here."""
    holder = _read(folder / FILE)
    return False if holder is None else holder.lives(Holder.of_this_process(""))


def _remove_half_written(folder: Path, lock: OutputLock) -> None:
    """Remove what killed runs left, inside the folder and outside."""
    half = [path for place in (folder, folder / "predictions") for path in place.glob("*.tmp")]
    half += [path for path in folder.glob(f".{FILE}.*") if path.name != lock.path.name]
    if lock.previous is not None:
        leftovers.remove(lock.previous.token, lock.previous.temporary)
        # Other runs may keep their indexes here too (DATA.CACHE_FOLDER), and be writing one.
        last = lock.previous_beat + 2 * BEAT_SECONDS
        half += [path for path in (folder / "data").rglob("*.tmp") if path.lstat().st_mtime < last]
    for path in half:
        if path.name.startswith(f".{FILE}.") or is_temporary(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


def _open(path: Path) -> int:
    flags = os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, os.O_RDWR | flags, 0o666)
    except PermissionError:
        descriptor = os.open(path, os.O_RDONLY | (flags & ~os.O_CREAT))  # another user's
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path} is not a file; remove it, or choose another -output")
    return descriptor


def _try_flock(descriptor: int) -> Optional[bool]:
    """True: this process has the lock; False: another one; None: the file system has no locks."""
    if sys.platform == "win32":
        return None
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


def _state(path: Path) -> tuple:
    """Time of the last change, in ns, and content; opened anew, so that a network file system asks its server."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns, file.read(_LARGEST_BYTES)
    except FileNotFoundError:
        return 0, b""


def _read(path: Path) -> Optional[Holder]:
    """What a lock file says; None if it is empty or says nothing that we know: then only ``flock`` counts."""
    try:
        content: Dict[str, Any] = json.loads(_state(path)[1])
        holder = Holder(**{name: content[name] for name in Holder._fields})
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_right = all(isinstance(value, int if name == "pid" else str) for name, value in holder._asdict().items())
    return holder if is_right else None


def _start_of(pid: int) -> str:
    """When a process started, in ticks since the machine did; empty if it has ended, or the system does not say."""
    try:
        fields = (
            Path("/proc", str(pid), "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        return ""
