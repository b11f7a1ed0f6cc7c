"""Names of what a run keeps outside its output folder, so that a later start can remove what a killed one left.

A run that owns its output folder has a token, which its workers and loader processes inherit. It is part of the name of
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


def new_token() -> str:
    """Give this run a token, which the processes that it starts inherit."""
    os.environ[_MARK] = secrets.token_hex(8)
    return os.environ[_MARK]


def token() -> str:
    """This run's token; 16 zeros for a program that has taken no output folder."""
    known = os.environ.get(_MARK, "")
    return known if _TOKEN.fullmatch(known) else "0" * 16


def temporary_folder(kind: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for the time of the run, such as ``/tmp/paddlevit_dist_ends_0123456789abcdef_xxxxxxxx``."""
    return tempfile.TemporaryDirectory(prefix=f"{PREFIX}{kind}_{token()}_")


@contextlib.contextmanager
def working_folder(kind: str) -> Iterator[Path]:
    """A temporary folder for the time of a command without an output folder that it owns; what killed ones have left is
    removed. A process that lives holds the lock of its mark, a file in the temporary folder."""
    place = Path(tempfile.gettempdir())
    for mark in place.glob(f"{PREFIX}mark_*_"):
        with contextlib.suppress(OSError), open(mark, "rb") as file:  # another user's, gone, or of a living process
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(mark.name.split("_")[-2], str(place))
    with open(place / f"{PREFIX}mark_{new_token()}_", "xb") as file, temporary_folder(kind) as folder:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield Path(folder)
        finally:
            Path(file.name).unlink(missing_ok=True)


@contextlib.contextmanager
def named_semaphores() -> Iterator[None]:
    """Semaphores that this process makes meanwhile have the run's token in their names.

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
    """Check that this many more semaphores can be made, before something that makes them fails half-way.

    Args:
        what: needs them, for the message.
        remedy: what to do besides enlarging shared memory.

    Raises:
        UserError: shared memory is full.
    """
    made = []
    try:
        for _ in range(number):
            made.append(multiprocessing.Lock())
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise UserError(
            f"/dev/shm is full: it has no room for {what}; {remedy}, remove what other programs have left there, or "
            "enlarge it (docker run --shm-size=8g)"
        ) from error


def remove(dead: str, temporary: str) -> list[str]:
    """Remove what a run that has ended left in shared memory and in the folder for temporary files.

    Args:
        dead: its token.
        temporary: the folder for temporary files that it used.
    Returns:
        The paths that are gone.
    """
    if not _TOKEN.fullmatch(dead) or dead in (token(), "0" * 16):
        return []
    places = [(SHARED_MEMORY, f"{PREFIX}*_{dead}_*"), (SHARED_MEMORY, f"sem.{PREFIX}{dead}-*")]
    places.append((Path(temporary), f"{PREFIX}*_{dead}_*"))
    removed = []
    for folder, pattern in places:
        for path in folder.glob(pattern):
            with contextlib.suppress(OSError):  # another user's, or gone
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed.append(str(path))
    return removed
