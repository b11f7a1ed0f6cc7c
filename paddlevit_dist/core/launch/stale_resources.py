"""Names of a run's resources outside its output folder, so that a later start can remove a killed run's.

The owner of an output folder has a token, which its workers and loader processes inherit. It is part of the name of
every shared array, semaphore and temporary folder.
"""

import contextlib
import errno
import fcntl
import multiprocessing
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..runtime.errors import UserError

_MARK = "PADDLEVIT_DIST_RUN"
_TOKEN = re.compile("[0-9a-f]{16}")
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "paddlevit_dist_"
_NO_TOKEN = "0" * 16


def new_token() -> str:
    """Create this run's token, which the processes that it starts inherit."""
    os.environ[_MARK] = secrets.token_hex(8)
    return os.environ[_MARK]


def token() -> str:
    """Return this run's token; 16 zeros for a program without an output folder."""
    value = os.environ.get(_MARK, "")
    return value if _TOKEN.fullmatch(value) else _NO_TOKEN


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Create a folder for the duration of the block, like ``/tmp/paddlevit_dist_ends_0123456789abcdef_xxxxxxxx``.

    It has the run's token. In a program without one it has its own, and the folders of killed programs are removed.
    """
    process = os.getpid()
    with contextlib.ExitStack() as held:
        own = token() if token() != _NO_TOKEN else held.enter_context(_marked(secrets.token_hex(8)))
        folder = tempfile.mkdtemp(prefix=f"{PREFIX}{kind}_{own}_")
        try:
            yield Path(folder)
        finally:
            if os.getpid() == process:  # a forked one changes nothing
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def working_folder(kind: str) -> Iterator[Path]:
    """Create a temporary folder for a command without an output folder, and a token for the processes it starts.

    Remove what killed commands have left.
    """
    before = os.environ.get(_MARK, "")
    with _marked(new_token()), temporary_folder(kind) as folder:
        try:
            yield folder
        finally:
            os.environ[_MARK] = before


@contextlib.contextmanager
def _marked(own: str) -> Iterator[str]:
    """Show other processes that a token is in use, and remove what belongs to tokens of killed ones.

    A living process holds the lock of its token's mark, a file in the folder for temporary files.
    """
    remove_killed()
    process = os.getpid()
    with open(Path(tempfile.gettempdir(), f"{PREFIX}mark_{own}_"), "xb") as file:
        try:
            with contextlib.suppress(OSError):  # a file system without locks: it stays after a kill
                fcntl.flock(file, fcntl.LOCK_EX)
            yield own
        finally:
            if os.getpid() == process:
                Path(file.name).unlink(missing_ok=True)


def remove_killed() -> None:
    """Remove what killed processes without an output folder have left."""
    place = Path(tempfile.gettempdir())
    for mark in place.glob(f"{PREFIX}mark_*_"):
        with contextlib.suppress(OSError), open(mark, "rb") as file:  # of another user or a living process, or gone
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(mark.name.split("_")[-2], str(place))


@contextlib.contextmanager
def named_semaphores() -> Iterator[None]:
    """Put the run's token into the names of the semaphores that this process creates in the block.

    The processes that ``multiprocessing`` spawns open them by name; its own names are random.
    """
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    before = config["semprefix"]
    config["semprefix"] = f"/{PREFIX}{token()}"
    try:
        yield
    finally:
        config["semprefix"] = before


def require_semaphores(number: int, what: str, remedy: str) -> None:
    """Check that this number of further semaphores can be created, before their creation fails halfway.

    Raises UserError if shared memory is full, with ``what`` needs them and a ``remedy`` other than enlarging it.
    """
    locks = []
    try:
        for _ in range(number):
            locks.append(multiprocessing.Lock())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(
            f"/dev/shm is full: it has no room for {what}; {remedy}, remove files of other programs there, or "
            "enlarge it (docker run --shm-size=8g)"
        ) from error


def remove(run_token: str, temporary: str) -> list[str]:
    """Remove the files of a run that has ended from shared memory and its folder ``temporary``; return the paths."""
    if not _TOKEN.fullmatch(run_token) or run_token in (token(), _NO_TOKEN):
        return []
    places = [(SHARED_MEMORY, f"{PREFIX}*_{run_token}_*"), (SHARED_MEMORY, f"sem.{PREFIX}{run_token}-*")]
    places.append((Path(temporary), f"{PREFIX}*_{run_token}_*"))
    removed = []
    for folder, pattern in places:
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):  # of another user, or gone
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed.append(str(path))
    return removed
