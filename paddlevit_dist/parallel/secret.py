"""The run's secret: who has it belongs to the run, and only its messages are read.

The parent makes one and hands it to the workers through the pipe that starts them, so that it is on no command line and
in no file. Machines that are started separately share one by ``PADDLEVIT_DIST_SECRET``, or by a file that
``PADDLEVIT_DIST_SECRET_FILE`` names. Without one, messages are neither signed nor checked.

A signature is HMAC-SHA256. What is secret is hidden from those who cannot read the run's traffic; nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from typing import Any, Callable, List, Optional

from ..errors import UserError

VARIABLE = "PADDLEVIT_DIST_SECRET"
FILE_VARIABLE = "PADDLEVIT_DIST_SECRET_FILE"
SIGNATURE_BYTES = 32
_SHORTEST = 16  # characters: a short one could be guessed from a recorded signature
_LONGEST = 4096
_SMALL_BYTES = 1 << 16  # copying these costs less than another call
_HOW = "make one with `openssl rand -hex 32`"

_of_run: Optional[bytes] = None
_of_session: Optional[bytes] = None


def for_workers() -> bytes:
    """The secret that a parent hands to its workers: the user's, or a new one.

    Raises:
        UserError: the user's is too short, or its file is not private.
    """
    return given() or secrets.token_bytes(SIGNATURE_BYTES)


def given() -> Optional[bytes]:
    """The secret that the environment names, as 32 bytes; None if it names none.

    Raises:
        UserError: it is too short, or its file cannot be read or can be read by other users.
    """
    text, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if text is not None and path is not None:
        raise UserError(f"both {VARIABLE} and {FILE_VARIABLE} are set: unset one of them")
    source = VARIABLE
    if path is not None:
        source = f"{FILE_VARIABLE}={path}"
        text = _content(os.path.expanduser(path))
    if text is None:
        return None
    if not _SHORTEST <= len(text.strip()) <= _LONGEST:
        raise UserError(f"{source}: expected a secret of {_SHORTEST} to {_LONGEST} characters; {_HOW}")
    return hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).digest()


def _content(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{FILE_VARIABLE}={path} is not a file; {_HOW}")
            if status.st_mode & 0o077:
                raise UserError(
                    f"{FILE_VARIABLE}={path} can be read by other users (mode {status.st_mode & 0o777:04o}): "
                    f"chmod 600 it"
                )
            return stream.read(_LONGEST + 2).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UserError(f"{FILE_VARIABLE}={path} cannot be read: {error.strerror}") from error


def use(secret: bytes) -> None:
    """Make this the secret of this process's run."""
    global _of_run, _of_session
    _of_run, _of_session = secret, None


def of_run() -> Optional[bytes]:
    """This process's secret: from its parent, else from the environment; None without one."""
    if _of_run is None:
        found = given()
        if found is not None:
            use(found)
    return _of_run


def begin_session(nonces: List[bytes]) -> None:
    """From now on sign with a key that all ranks' fresh random bytes went into: what was recorded in another run with
    the same secret is worth nothing in this one. Does nothing without a secret."""
    global _of_session
    if of_run() is not None:
        _of_session = _mac("session", *nonces)


def fingerprint() -> int:
    """A positive number that says which secret this is without telling it; 1 without one."""
    return 1 if of_run() is None else 2 + int.from_bytes(_mac("fingerprint")[:6], "little")


def key_name(name: str) -> str:
    """The name of an entry in the group's store that only those who have the secret can tell; ``name`` without one."""
    return name if _key() is None else _mac("name", name.encode()).hex()[:40]


def signature(purpose: str, number: int, rank: int, message: Any) -> bytes:
    """The signature of one rank's message in one meeting; empty without a secret.

    Args:
        purpose: what the message is for.
        number: of the meeting, so that a message counts in no other.
        rank: who sends it, so that it counts for nobody else.
        message: bytes-like.
    """
    return b"" if _key() is None else _mac("message", f"{purpose} {number} {rank}".encode(), message)


def _key() -> Optional[bytes]:
    return _of_session or of_run()


def _mac(kind: str, *parts: Any) -> bytes:
    """HMAC-SHA256 of the parts. The last may have any length; those before it are preceded by theirs."""
    head = [kind.encode(), b"\0"]
    for part in parts[:-1]:
        head += [len(part).to_bytes(8, "little"), part]
    last = parts[-1] if parts else b""
    if len(last) <= _SMALL_BYTES:
        return hmac.digest(_key() or b"", b"".join([*head, last]), "sha256")
    digest = hmac.new(_key() or b"", b"".join(head), hashlib.sha256)
    digest.update(last)
    return digest.digest()


class Signed:
    """Signs this rank's message of one meeting, and reads those of all ranks once their signatures are verified.

    Args:
        purpose, number: what the meeting is for, and which one it is.
        rank: this process's.
        read: turns a buffer, valid only during the call, into the object.
    """

    def __init__(self, purpose: str, number: int, rank: int, read: Callable[[Any], Any]) -> None:
        self._purpose, self._number, self._rank, self._read = purpose, number, rank, read
        self._own: Any = b""
        self._next = 0

    def signed(self, message: memoryview) -> memoryview:
        """The message with its signature in the first ``SIGNATURE_BYTES``, which are room for it; without a secret,
        what follows that room."""
        self._own = message[SIGNATURE_BYTES:]
        if _key() is None:
            return self._own
        message[:SIGNATURE_BYTES] = signature(self._purpose, self._number, self._rank, self._own)
        return message

    def read(self, received: Any) -> Any:
        """The object of the next rank's message; must be called with the messages in rank order.

        Raises:
            UserError: it was not signed by that rank of this run for this meeting.
        """
        rank, self._next = self._next, self._next + 1
        if rank == self._rank:  # no way led outside: nothing to verify
            return self._read(self._own)
        if _key() is None:
            return self._read(received)
        with contextlib.ExitStack() as views:
            # Views, as slicing a map of memory would copy it; released before the map is closed.
            whole = views.enter_context(memoryview(received))
            message = views.enter_context(whole[SIGNATURE_BYTES:])
            expected = signature(self._purpose, self._number, rank, message)
            if not hmac.compare_digest(bytes(whole[:SIGNATURE_BYTES]), expected):
                raise UserError(
                    f"a message that arrived as rank {rank}'s ({self._purpose} {self._number}) is not signed with this "
                    "run's secret: another program answers in that rank's place, or altered it on the way; see "
                    "'Messages between ranks' in docs/faults.md"
                )
            return self._read(message)
