"""A local copy of weights at an address, checked and kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, Iterator, NamedTuple, Optional, Tuple

from ..errors import UserError
from ..files import atomic_file

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
_TIMEOUT_SECONDS = 30.0  # without a byte arriving
_CHUNK_BYTES = 1 << 20
_FRAGMENT = "sha256="


class Copy(NamedTuple):
    """Where the content of an address is, and notices about it."""

    path: Path
    notices: Tuple[str, ...]


def is_address(source: Any) -> bool:
    """Whether ``source`` is an address rather than a path."""
    return isinstance(source, str) and re.match(r"(?:https?|file)://", source, re.IGNORECASE) is not None


def cache_folder() -> Path:
    """``$PADDLEVIT_DIST_CACHE``, or ``~/.cache/paddlevit_dist``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path("~/.cache/paddlevit_dist").expanduser()


def local_copy(address: str, sha256: Optional[str] = None) -> Copy:
    """The content of ``address`` as a local file, fetched once; processes that want the same one wait for the first.

    A ``file://`` address is read where it is. The checksum is verified each time, not only after fetching; a
    copy that was corrupted on disk is fetched again.

    Args:
        address: ``http://``, ``https://`` or ``file://``, which may end in ``#sha256=<64 hexadecimal digits>``.
        sha256: the same, given separately.

    Raises:
        UserError: it cannot be fetched, ended early, or its checksum differs.
    """
    address, expected = _split(address, sha256)
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError as error:
        raise UserError(f"{address} cannot be fetched: it is not a valid address: {error}") from error
    if parts.scheme.lower() == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        if not path.is_file():
            raise UserError(f"{address}: there is no file {path}")
        return Copy(path, _compared(_sha256(path), address, expected))
    name = Path(urllib.parse.unquote(parts.path)).name or "weights"
    folder = cache_folder() / "weights" / hashlib.sha256(address.encode()).hexdigest()[:16]
    path = folder / re.sub(r"[^\w.\-]", "_", name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            if not path.exists() or (expected is not None and _sha256(path) != expected):
                _fetch(address, path, expected)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{folder}: cannot store {address} there: {reason}; set {CACHE_VARIABLE} to a folder that can be written"
        ) from error
    return Copy(path, _compared(_sha256(path), address, expected))


def _split(address: str, sha256: Optional[str]) -> Tuple[str, Optional[str]]:
    address, _, fragment = address.partition("#")
    if fragment and not fragment.startswith(_FRAGMENT):
        raise UserError(f"{address}#{fragment}: expected #{_FRAGMENT} and 64 hexadecimal digits after the address")
    expected = sha256 or fragment[len(_FRAGMENT) :] or None
    if expected is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise UserError(f"{address}: sha256 '{expected}' is not a SHA-256, which has 64 hexadecimal digits")
    return address, expected.lower() if expected else None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # the operating system opens it when the process ends, however it does
        yield


def _fetch(address: str, path: Path, expected: Optional[str]) -> None:
    """The file appears once it is complete and verified."""
    with _opened(address) as response, atomic_file(path) as target:
        _compared(_copy(response, target, address), address, expected)


@contextlib.contextmanager
def _opened(address: str) -> Iterator[Any]:
    request = urllib.request.Request(address, headers={"User-Agent": "paddlevit_dist"})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise UserError(f"{address} cannot be fetched: {getattr(error, 'reason', None) or error}") from error
    with response:
        yield response


def _copy(response: Any, target: BinaryIO, address: str) -> str:
    """Copy all of it; returns its SHA-256."""
    announced = response.headers.get("Content-Length")
    received, digest = 0, hashlib.sha256()
    while True:
        try:
            chunk = response.read(_CHUNK_BYTES)
        except (OSError, HTTPException) as error:
            raise UserError(f"{address}: the connection broke after {received} bytes; try again") from error
        if not chunk:
            break
        target.write(chunk)
        digest.update(chunk)
        received += len(chunk)
    if announced is not None and announced.isdigit() and int(announced) != received:
        raise UserError(f"{address}: only {received} of {announced} bytes arrived; try again")
    return digest.hexdigest()


def _compared(found: str, address: str, expected: Optional[str]) -> Tuple[str, ...]:
    if expected is None:
        return (f"its SHA-256 {found} was not checked: add #{_FRAGMENT}... to the address to verify it",)
    if found != expected:
        raise UserError(
            f"{address}: its SHA-256 is {found}, expected {expected}: it is not the file that was meant, or was "
            "altered on the way"
        )
    return ()


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
