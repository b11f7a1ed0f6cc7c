"""A local copy of weights at an address, checked and kept.

What a server sends is not believed: it has to be complete and to arrive in time, it goes where we say and must fit
there, and a redirection leads to nothing but another ``http(s)`` address, never from an encrypted to an open one.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, Iterator, NamedTuple, Optional, Tuple

from ..errors import UserError
from ..files import atomic_file
from ..printing import one_line, without_credentials

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
SLOWEST_BYTES_PER_SECOND = 1000
PACE_SECONDS = 60.0  # over which the rate is measured, from the first byte of the answer's head
KEEP_FREE_BYTES = 256 << 20  # of the disk
_TIMEOUT_SECONDS = 30.0  # without a byte arriving
_CHUNK_BYTES = 1 << 20
_FRAGMENT = "sha256="
_LOCK, _RECORD = "lock", "sha256"  # names beside the copy
_SCHEMES = ("http", "https", "file")


class Copy(NamedTuple):
    """Where the content of an address is, and notices about it."""

    path: Path
    notices: Tuple[str, ...]


def is_address(source: Any) -> bool:
    """Whether ``source`` is an address rather than a path."""
    return isinstance(source, str) and re.match(r"[a-z][a-z0-9+.-]*://", source, re.IGNORECASE) is not None


def cache_folder() -> Path:
    """``$PADDLEVIT_DIST_CACHE``, or ``~/.cache/paddlevit_dist``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path("~/.cache/paddlevit_dist").expanduser()


def local_copy(address: str, sha256: Optional[str] = None) -> Copy:
    """The content of ``address`` as a local file, fetched once; processes that want the same one wait for the first.

    A ``file://`` address is read where it is. The checksum is verified each time, not only after fetching; a
    copy that differs from it, or from what was fetched, is fetched again.

    Args:
        address: ``http://``, ``https://`` or ``file://``, which may end in ``#sha256=<64 hexadecimal digits>``.
        sha256: the same, given separately.

    Raises:
        UserError: it cannot be fetched, ended early, took too long, does not fit, or its checksum differs. The message
            hides the passwords and the values of queries in addresses.
    """
    try:
        return _local_copy(address, sha256)
    except UserError as error:
        raise UserError(without_credentials(str(error))) from None


def _local_copy(address: str, sha256: Optional[str]) -> Copy:
    address, expected = _split(address, sha256)
    try:
        parts = urllib.parse.urlsplit(address)
        scheme, _ = parts.scheme.lower(), parts.port
    except ValueError as error:
        raise UserError(f"{address} cannot be fetched: it is not a valid address: {error}") from error
    if scheme not in _SCHEMES:
        raise UserError(f"{address} cannot be fetched: {scheme}:// is not read, only http://, https:// and file:// are")
    if scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        if not path.is_file():
            raise UserError(f"{address}: there is no file {path}")
        return Copy(path, _compared(_sha256(path), address, expected))
    folder = cache_folder() / "weights" / hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    path = folder / _file_name(parts.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / _LOCK):
            wanted = expected or _recorded(folder)
            if not path.exists() or (wanted is not None and _sha256(path) != wanted):
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


def _file_name(path: str) -> str:
    """What the copy is called: the end of the address, unless that means something in a folder."""
    name = re.sub(r"[^\w.\-]", "_", urllib.parse.unquote(path).rpartition("/")[2])[-100:]
    return "weights" if name.startswith(".") or name in ("", _LOCK, _RECORD) else name


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # Neither emptied nor, if it is a link, followed: it may be somebody's who can write here.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # the operating system opens it when the process ends, however it does
        yield
    finally:
        os.close(descriptor)


def _recorded(folder: Path) -> Optional[str]:
    """The SHA-256 of what was fetched."""
    record = folder / _RECORD
    return record.read_text(encoding="ascii", errors="replace")[:64] if record.is_file() else None


def _fetch(address: str, path: Path, expected: Optional[str]) -> None:
    """The file appears once it is complete and verified."""
    with _pace() as pace, _opened(address, pace) as response, atomic_file(path) as target:
        found = _copy(response, target, address, pace, expected is not None)
        _compared(found, address, expected)
    with atomic_file(path.with_name(_RECORD)) as record:
        record.write(f"{found}\n".encode("ascii"))


class _Pace:
    """Ends a connection on which less than ``SLOWEST_BYTES_PER_SECOND`` arrive, however evenly they do."""

    def __init__(self) -> None:
        self.received = 0
        self.was_too_slow = False
        self._connection: Optional[socket.socket] = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._done.set()
        self._thread.join()

    def on(self, kind: Any) -> Any:
        """A class of connections that are watched."""
        pace = self

        class Watched(kind):
            def connect(self) -> None:
                super().connect()
                pace._connection = self.sock

        return Watched

    def _watch(self) -> None:
        before = 0
        while not self._done.wait(PACE_SECONDS):
            if self.received - before < SLOWEST_BYTES_PER_SECOND * PACE_SECONDS:
                self.was_too_slow = True
                self._break()
            before = self.received

    def _break(self) -> None:
        with contextlib.suppress(OSError):  # it is not connected yet, or no longer
            if self._connection is not None:
                # Below any encryption, whose state belongs to the thread that reads.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
                    connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _pace() -> Iterator[_Pace]:
    pace = _Pace()
    pace.start()
    try:
        yield pace
    finally:
        pace.end()


class _Redirections(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, file: Any, code: int, text: str, headers: Any, address: str) -> Any:
        before, after = (urllib.parse.urlsplit(a).scheme.lower() for a in (request.full_url, address))
        if after not in ("http", "https") or (before, after) == ("https", "http"):
            raise UserError(
                f"{request.full_url} cannot be fetched: it redirects from {before}:// to {after}://, which is not "
                "followed"
            )
        return super().redirect_request(request, file, code, text, headers, address)


def _opener(pace: _Pace) -> urllib.request.OpenerDirector:
    """Of ``http://`` and ``https://``, and of nothing else."""

    class Open(urllib.request.HTTPHandler):
        def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
            return super().do_open(pace.on(http_class), req, **http_conn_args)

    class Encrypted(urllib.request.HTTPSHandler):
        def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
            return super().do_open(pace.on(http_class), req, **http_conn_args)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        Open(),
        Encrypted(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirections(),
    ):
        opener.add_handler(handler)
    return opener


def _request(address: str) -> urllib.request.Request:
    """For an address that may begin with ``user:password@``."""
    parts = urllib.parse.urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers={"User-Agent": "paddlevit_dist"})
    if user:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_unredirected_header("Authorization", f"Basic {token}")  # not for where a redirection leads
    return request


@contextlib.contextmanager
def _opened(address: str, pace: _Pace) -> Iterator[Any]:
    try:
        response = _opener(pace).open(_request(address), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        reason = one_line(error.reason)[:200]
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        if pace.was_too_slow:
            raise _too_slow(address, pace) from error
        reason = one_line(getattr(error, "reason", None) or error)[:200]
        raise UserError(f"{address} cannot be fetched: {reason}") from error
    with response:
        if pace.was_too_slow:  # what came of the head may pass for one
            raise _too_slow(address, pace)
        if response.status != 200:
            raise UserError(f"{address} cannot be fetched: the server answers {response.status} instead of 200")
        yield response


def _copy(response: Any, target: BinaryIO, address: str, pace: _Pace, has_checksum: bool) -> str:
    """Copy all of it; returns its SHA-256."""
    announced = _announced(response)
    if announced is None and not response.chunked and not has_checksum:
        raise UserError(
            f"{address}: the server does not say how long it is, so that nobody could tell whether it is complete: add "
            f"#{_FRAGMENT}... to the address"
        )
    received, digest = 0, hashlib.sha256()
    while True:
        if received % (64 << 20) < _CHUNK_BYTES:
            _see_that_it_fits(address, target, max((announced or 0) - received, _CHUNK_BYTES))
        try:
            chunk = response.read1(_CHUNK_BYTES)
        except (OSError, HTTPException, ValueError) as error:
            if pace.was_too_slow:
                raise _too_slow(address, pace) from error
            raise UserError(f"{address}: the connection broke after {received} bytes; try again") from error
        if not chunk:
            break
        target.write(chunk)
        digest.update(chunk)
        received += len(chunk)
        pace.received = received
    if pace.was_too_slow:
        raise _too_slow(address, pace)
    if announced is not None and announced != received:
        raise UserError(f"{address}: only {received} of {announced} bytes arrived; try again")
    return digest.hexdigest()


def _announced(response: Any) -> Optional[int]:
    length = response.headers.get("Content-Length")
    return int(length) if not response.chunked and length is not None and re.fullmatch(r"[0-9]{1,18}", length) else None


def _see_that_it_fits(address: str, target: BinaryIO, more: int) -> None:
    free = shutil.disk_usage(os.path.dirname(target.name)).free
    if more > free - KEEP_FREE_BYTES:
        raise UserError(
            f"{address}: {more:,} more bytes do not fit in {cache_folder()}, where {free:,} are free; free space or "
            f"set {CACHE_VARIABLE} to another folder"
        )


def _too_slow(address: str, pace: _Pace) -> UserError:
    return UserError(
        f"{address}: fewer than {SLOWEST_BYTES_PER_SECOND} bytes per second arrived for {PACE_SECONDS:g} s, "
        f"{pace.received} in all; try again"
    )


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
