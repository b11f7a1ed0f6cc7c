"""Storage that is away for a while, such as a network drive that is mounted again.

What could be read a moment ago is then neither missing nor damaged. So the failure is not remembered, no other sample
replaces the one that could not be read, and no older checkpoint the one that could not. The storage is asked again, and
if it stays away, the command ends with exit code 75, as a stopped run.
"""

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from . import signals
from .printing import one_line

SECONDS = 30.0  # for which storage is asked again
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.05, 2.0
# Errors of network file systems and of disks whose connection is lost.
_OUTAGES = frozenset(
    number
    for name in (
        "EIO ENODEV ENXIO ESTALE EREMOTEIO ENOLINK ECOMM ENOTCONN ESHUTDOWN ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETDOWN "
        "ENETUNREACH ENETRESET ECONNRESET ECONNABORTED ECONNREFUSED"
    ).split()
    if (number := getattr(errno, name, None)) is not None  # some systems lack some
)
_Read = TypeVar("_Read")


class StorageOutage(Exception):
    """Storage is away, and was asked again: one line, and the exit code of a stopped run, which can be continued.

    It is not a UserError, which code may take for a fact about the data.
    """

    exit_code = signals.STOPPED


def find_outage(error: BaseException, was_there: bool = False, absent: Collection[str] = ()) -> OSError | None:
    """Return the error of the file system that caused ``error`` if it may pass; None for other errors.

    Args:
        was_there: whether the file was seen before, as the samples of an opened dataset. If its folder is now missing
            or empty, or the file is back, this is an outage, too.
        absent: folders that were missing before, so that they are not expected back.
    """
    each: BaseException | None = error
    while each is not None:
        if isinstance(each, OSError) and each.errno in _OUTAGES:
            return each
        if was_there and isinstance(each, FileNotFoundError) and each.filename is not None:
            folder = find_missing_folder(each.filename)
            if (folder and folder not in absent) or (not folder and os.path.exists(each.filename)):
                return each
        each = each.__cause__ or each.__context__
    return None


def find_missing_folder(path: str | bytes | os.PathLike[str]) -> str:
    """Return the folder of a file, links followed, if it is missing or empty, as a mount point is; else empty."""
    folder = os.path.dirname(os.path.realpath(os.fsdecode(path)))
    try:
        with os.scandir(folder) as entries:
            return "" if next(entries, None) is not None else folder
    except OSError:
        return folder


def read_through_outages(read: Callable[[], _Read], was_there: bool = False, absent: Collection[str] = ()) -> _Read:
    """Return ``read()``, which is called again while the storage is away, see ``find_outage``.

    Raises StorageOutage after ``SECONDS``, at once if another call of this process has just raised it, and what
    ``read`` raises of other kinds.
    """
    global _ends
    wait = 0.0
    while True:
        try:
            value = read()
        except Exception as error:
            outage = None if isinstance(error, StorageOutage) else find_outage(error, was_there, absent)
            if outage is None:
                raise
            now = time.monotonic()
            if now > _ends + SECONDS:
                _ends = now + SECONDS
                line = f"note: {_describe(outage)}; asked again for up to {SECONDS:.0f} s"
                print(one_line(line), file=sys.stderr, flush=True)
            if now > _ends or signals.stop_reason() is not None:
                more = f", asked again for {SECONDS - _ends + now:.0f} s"
                raise StorageOutage(explain_outage(outage, more)) from error
        else:
            if wait:
                _ends = -SECONDS
            return value
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS) or _FIRST_WAIT_SECONDS
        time.sleep(wait)


@contextlib.contextmanager
def name_in_errors(path: str | bytes | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of the system inside the block, which reads of an open file do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


_ends = -SECONDS  # until when this process asks storage again that is away; a new outage begins ``SECONDS`` later


def explain_outage(outage: OSError, more: str = "") -> str:
    """Format what cannot be reached, why, ``more``, and what to do."""
    advice = "check the drive or the network, and run the same command again (training with -resume=auto)"
    return f"{_describe(outage)}{more}: {advice}"


def _describe(outage: OSError) -> str:
    name = "a file" if outage.filename is None else os.fsdecode(outage.filename)
    gone = " (its folder is gone or empty)" if isinstance(outage, FileNotFoundError) else ""
    return f"{name} cannot be reached: {outage.strerror or outage}{gone}"
