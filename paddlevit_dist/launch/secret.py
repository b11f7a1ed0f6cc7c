"""The run's secret: who has it belongs to the run, and only its messages are read.

The parent makes one and hands it to the workers through the pipe that starts them, so that it is on no command line and
in no file. Machines that are started separately share one by ``PADDLEVIT_DIST_SECRET``, or by a file that
``PADDLEVIT_DIST_SECRET_FILE`` names. Without one, messages are neither signed nor checked.

A signature is HMAC-SHA256, of a long message over digests of its parts. What is secret is hidden from those who cannot
read the run's traffic; nothing is encrypted.
"""

import hashlib
import hmac
import os
import secrets
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..runtime.errors import UserError

VARIABLE = "PADDLEVIT_DIST_SECRET"
FILE_VARIABLE = "PADDLEVIT_DIST_SECRET_FILE"
SIGNATURE_BYTES = 32
_PART_BYTES = 1 << 20  # of a long message: parts are digested at the same time, 10 MB would take 7 ms and more
_SHORTEST = 16  # characters: a short one could be guessed from a recorded signature
_LONGEST = 4096
_HOW = "make one with `openssl rand -hex 32`"

_of_run: bytes | None = None
_of_session: bytes | None = None


def for_workers() -> bytes:
    """The secret that a parent hands to its workers: the user's, or a new one.

    Raises:
        UserError: the user's is too short, or its file is not private.
    """
    return read_given() or secrets.token_bytes(SIGNATURE_BYTES)


def read_given() -> bytes | None:
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


def of_run() -> bytes | None:
    """This process's secret: from its parent, else from the environment; None without one."""
    if _of_run is None:
        found = read_given()
        if found is not None:
            use(found)
    return _of_run


def begin_session(*nonces: str) -> None:
    """From now on sign with a key that fresh random numbers went into, the same on all ranks: what was recorded in
    another run with the same secret is worth nothing in this one. Does nothing without a secret."""
    global _of_session
    _of_session = None
    if of_run() is not None:
        _of_session = _mac("session", *(nonce.encode() for nonce in nonces))


def proof(*parts: str) -> str:
    """Make of ``parts`` what only those can who have the run's secret; "" without one."""
    own, text = of_run(), "\0".join(("proof", *parts)).encode("utf-8", "surrogatepass")  # a stranger's may be anything
    return "" if own is None else hmac.digest(own, text, "sha256").hex()


def is_proof(shown: Any, *parts: str) -> bool:
    """Whether somebody has shown the ``proof`` of these parts."""
    shown = str(shown).encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, proof(*parts).encode())


def fingerprint() -> int:
    """A positive number that says which secret this is without telling it; 1 without one."""
    return 1 if of_run() is None else 2 + int(proof("fingerprint")[:12], 16)


def disagreement(rank: int, others: dict[int, int]) -> str:
    """Say what is wrong where ranks have shown the fingerprints ``others``, which are not this rank's."""
    ranks = sorted(others)
    if fingerprint() == 1:
        what = f"rank(s) {ranks} have a secret, and rank {rank} has none"
    elif set(others.values()) == {1}:
        what = f"rank(s) {ranks} have no secret, and rank {rank} has one"
    else:
        what = f"rank(s) {ranks} have another secret than rank {rank}"
    return f"{what}: set {VARIABLE} or {FILE_VARIABLE} to the same on all machines"


def print_missing_protection() -> None:
    """Print a note if messages are not signed, or if others can read the secret."""
    note = None
    if of_run() is None:
        note = (
            f"note: messages between ranks are not signed; set {FILE_VARIABLE} or {VARIABLE} to the same secret on all "
            "machines"
        )
    elif VARIABLE in os.environ and "PADDLE_LOCAL_SIZE" in os.environ:  # which only Paddle's launcher sets
        note = (
            f"note: Paddle's launcher has written {VARIABLE} to the files of its --log_dir, for others to read; set "
            f"{FILE_VARIABLE} instead, and choose another secret"
        )
    if note is not None:
        print(note, file=sys.stderr, flush=True)


def key_name(name: str) -> str:
    """The name of an entry in the group's store that only those who have the secret can tell; ``name`` without one."""
    return name if _key() is None else _mac("name", name.encode()).hex()[:40]


def sign(message: memoryview, purpose: str, number: int, rank: int) -> memoryview:
    """The message with its signature in the first ``SIGNATURE_BYTES``, which are room for it; without a secret, what
    follows that room.

    Args:
        purpose, number: what the exchange is for, and which one it is: the message counts in no other.
        rank: who sends it, so that it counts for nobody else.
    """
    if _key() is None:
        return message[SIGNATURE_BYTES:]
    message[:SIGNATURE_BYTES] = _signature(purpose, number, rank, message[SIGNATURE_BYTES:])
    return message


def verify(received: memoryview, purpose: str, number: int, rank: int) -> memoryview:
    """The message that ``rank`` has signed, without its signature: a view of ``received``.

    Raises:
        UserError: it was not signed by that rank of this run for this exchange.
    """
    if _key() is None:
        return received
    message = received[SIGNATURE_BYTES:]
    if not hmac.compare_digest(bytes(received[:SIGNATURE_BYTES]), _signature(purpose, number, rank, message)):
        message.release()  # what it shows, a map of memory, is closed next
        raise UserError(
            f"a message that arrived as rank {rank}'s ({purpose} {number}) is not signed with this run's secret: "
            "another program answers in that rank's place, or altered it on the way; see 'Messages between ranks' in "
            "docs/explanation/failure_modes.md"
        )
    return message


def _signature(purpose: str, number: int, rank: int, message: memoryview) -> bytes:
    about = f"{purpose} {number} {rank}".encode()
    starts = range(0, len(message), _PART_BYTES)
    if len(starts) <= 1:
        return _mac("message", about, message)
    with ThreadPoolExecutor(min(len(starts), os.cpu_count() or 1)) as threads:
        digests = threads.map(lambda start: hashlib.sha256(message[start : start + _PART_BYTES]).digest(), starts)
        return _mac("digests of a message's parts", about, b"".join(digests))


def _key() -> bytes | None:
    return _of_session or of_run()


def _mac(kind: str, *parts: Any) -> bytes:
    """HMAC-SHA256 of the parts. The last may have any length; those before it are preceded by theirs."""
    digest = hmac.new(_key() or b"", kind.encode() + b"\0", hashlib.sha256)
    for part in parts[:-1]:
        digest.update(len(part).to_bytes(8, "little") + part)
    digest.update(parts[-1])
    return digest.digest()
