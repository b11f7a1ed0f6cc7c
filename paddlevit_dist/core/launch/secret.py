"""Shared secret of a run: messages from processes without it are rejected.

The parent passes it to the workers through the pipe that starts them, so that it is on no command line and in no file.
Machines that are started separately share one by ``PADDLEVIT_DIST_SECRET``, or by a file that
``PADDLEVIT_DIST_SECRET_FILE`` names. Without a secret, messages are neither signed nor checked. A signature is an
HMAC-SHA256, for a long message of digests of its parts. It protects against processes that cannot read the run's
traffic; nothing is encrypted.
"""

import hashlib
import hmac
import os
import secrets
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

from ..runtime.errors import UserError

VARIABLE = "PADDLEVIT_DIST_SECRET"
FILE_VARIABLE = "PADDLEVIT_DIST_SECRET_FILE"
SIGNATURE_BYTES = 32
_PART_BYTES = 1 << 20  # parts of a long message are digested in parallel: 10 MB would take 7 ms or more
_SHORTEST = 16  # characters: a short one could be guessed from a recorded signature
_LONGEST = 4096
_HOW = "make one with `openssl rand -hex 32`"

_run_secret: bytes | None = None
_session_key: bytes | None = None


def create_for_workers() -> bytes:
    """Return the user's secret or a new one. Raises UserError if the user's is too short, or its file not private."""
    return read_user_secret() or secrets.token_bytes(SIGNATURE_BYTES)


def read_user_secret() -> bytes | None:
    """Return the secret that the environment names, as 32 bytes; None if it names none.

    Raises UserError if it is too short, or its file cannot be read or can be read by other users.
    """
    text, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if text is not None and path is not None:
        raise UserError(f"both {VARIABLE} and {FILE_VARIABLE} are set: unset one of them")
    source = VARIABLE
    if path is not None:
        source = f"{FILE_VARIABLE}={path}"
        text = _read_file(os.path.expanduser(path))
    if text is None:
        return None
    if not _SHORTEST <= len(text.strip()) <= _LONGEST:
        raise UserError(f"{source}: expected a secret of {_SHORTEST} to {_LONGEST} characters; {_HOW}")
    return hashlib.sha256(text.strip().encode("utf-8", "surrogateescape")).digest()


def _read_file(path: str) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{FILE_VARIABLE}={path} is not a file; {_HOW}")
            if status.st_mode & 0o077:
                raise UserError(
                    f"{FILE_VARIABLE}={path} can be read by other users (mode {status.st_mode & 0o777:04o}): "
                    f"run chmod 600 on it"
                )
            return stream.read(_LONGEST + 2).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise UserError(f"{FILE_VARIABLE}={path} cannot be read: {error.strerror}") from error


def use(secret: bytes) -> None:
    """Set the secret of this process's run."""
    global _run_secret, _session_key
    _run_secret, _session_key = secret, None


def get_run_secret() -> bytes | None:
    """Return this process's secret: from its parent, else from the environment; None without one."""
    if _run_secret is None:
        secret = read_user_secret()
        if secret is not None:
            use(secret)
    return _run_secret


def begin_session(*nonces: str) -> None:
    """Sign from now on with a key from fresh random numbers, equal on all ranks, so that earlier runs' messages fail.

    Do nothing without a secret.
    """
    global _session_key
    _session_key = None
    if get_run_secret() is not None:
        _session_key = _mac("session", *(nonce.encode() for nonce in nonces))


def proof(*parts: str) -> str:
    """Return a proof over ``parts`` that requires the run's secret; "" without one."""
    secret = get_run_secret()
    text = "\0".join(("proof", *parts)).encode("utf-8", "surrogatepass")  # another program may send anything
    return "" if secret is None else hmac.digest(secret, text, "sha256").hex()


def is_proof(shown: object, *parts: str) -> bool:
    """Return whether ``shown`` is the ``proof`` of these parts."""
    shown = str(shown).encode("utf-8", "surrogatepass")
    return hmac.compare_digest(shown, proof(*parts).encode())


def fingerprint() -> int:
    """Return a positive number that identifies the secret without revealing it; 1 without a secret."""
    return 1 if get_run_secret() is None else 2 + int(proof("fingerprint")[:12], 16)


def describe_mismatch(rank: int, others: dict[int, int]) -> str:
    """Describe the error when ranks show fingerprints ``others`` that differ from this rank's."""
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
    if get_run_secret() is None:
        note = (
            f"note: messages between ranks are not signed; set {FILE_VARIABLE} or {VARIABLE} to the same secret on all "
            "machines"
        )
    elif VARIABLE in os.environ and "PADDLE_LOCAL_SIZE" in os.environ:  # set only by Paddle's launcher
        note = (
            f"note: Paddle's launcher has written {VARIABLE} to files in its --log_dir that others can read; set "
            f"{FILE_VARIABLE} instead, and choose a new secret"
        )
    if note is not None:
        print(note, file=sys.stderr, flush=True)


def key_name(name: str) -> str:
    """Return the name of an entry in the group's store, unpredictable without the secret; ``name`` without one."""
    return name if _key() is None else _mac("name", name.encode()).hex()[:40]


def sign(message: memoryview, purpose: str, number: int, rank: int) -> memoryview:
    """Return the message, signed in its first, reserved ``SIGNATURE_BYTES``; without a secret only the rest.

    The signature is valid for this ``number`` of an exchange and this sending ``rank`` only.
    """
    if _key() is None:
        return message[SIGNATURE_BYTES:]
    message[:SIGNATURE_BYTES] = _signature(purpose, number, rank, message[SIGNATURE_BYTES:])
    return message


def verify(received: memoryview, purpose: str, number: int, rank: int) -> memoryview:
    """Return the message that ``rank`` has signed, without its signature: a view of ``received``.

    Raises UserError if the rank did not sign it in this run for the exchange ``number``.
    """
    if _key() is None:
        return received
    message = received[SIGNATURE_BYTES:]
    if not hmac.compare_digest(bytes(received[:SIGNATURE_BYTES]), _signature(purpose, number, rank, message)):
        message.release()  # the memory map behind it is closed next
        raise UserError(
            f"a message that arrived as rank {rank}'s ({purpose} {number}) is not signed with this run's secret: "
            "another program answers for that rank, or altered the message; see 'Messages between ranks' in "
            "docs/explanation/failure_modes.md"
        )
    return message


def _signature(purpose: str, number: int, rank: int, message: memoryview) -> bytes:
    about = f"{purpose} {number} {rank}".encode()
    starts = range(0, len(message), _PART_BYTES)
    if len(starts) <= 1:
        return _mac("message", about, message)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        digests = threads.map(lambda start: hashlib.sha256(message[start : start + _PART_BYTES]).digest(), starts)
        return _mac("digests of a message's parts", about, b"".join(digests))


def _key() -> bytes | None:
    return _session_key or get_run_secret()


def _mac(kind: str, *parts: bytes | memoryview) -> bytes:
    """Return the HMAC-SHA256 of the parts; each except the last is preceded by its length."""
    digest = hmac.new(_key() or b"", kind.encode() + b"\0", hashlib.sha256)
    for part in parts[:-1]:
        digest.update(len(part).to_bytes(8, "little") + part)
    digest.update(parts[-1])
    return digest.digest()
