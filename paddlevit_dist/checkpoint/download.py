"""A local copy of weights at an address, checked and kept.

What a server sends is not believed: it has to be complete and to arrive in time, it goes where we say and must fit
there, and a redirection leads to nothing but another ``http(s)`` address, never from an encrypted to an open one. A
connection that breaks is made again, and what had arrived is not fetched twice where the server can continue.
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
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, NamedTuple, Optional, Tuple

from tqdm import tqdm

from ..errors import UserError
from ..files import atomic_file
from ..printing import one_line, without_credentials

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
SLOWEST_BYTES_PER_SECOND = 1000
PACE_SECONDS = 60.0  # over which the rate is measured, from the first byte of the answer's head
KEEP_FREE_BYTES = 256 << 20  # of the disk
RETRY_SECONDS: Tuple[float, ...] = (1.0, 4.0, 15.0)  # between a connection that broke and the next
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


def silent(line: str) -> None:
    """Nobody is to be told."""


def local_copy(
    address: str, sha256: Optional[str] = None, kept_as: Optional[str] = None, say: Callable[[str], None] = silent
) -> Copy:
    """The content of ``address`` as a local file, fetched once; processes that want the same one wait for the first.

    A ``file://`` address is read where it is. The checksum is verified each time, not only after fetching; a
    copy that differs from it, or from what was fetched, is fetched again.

    Args:
        address: ``http://``, ``https://`` or ``file://``, which may end in ``#sha256=<64 hexadecimal digits>``.
        sha256: the same, given separately.
        kept_as: name of its folder in the cache; None: made of the address.
        say: gets a line when something is fetched.

    Raises:
        UserError: it cannot be fetched, ended early, took too long, does not fit, or its checksum differs. The message
            hides the passwords and the values of queries in addresses.
    """
    try:
        return _local_copy(address, sha256, kept_as, say)
    except UserError as error:
        raise UserError(without_credentials(str(error))) from None


def _local_copy(address: str, sha256: Optional[str], kept_as: Optional[str], say: Callable[[str], None]) -> Copy:
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
    kept_as = kept_as or hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = cache_folder() / "weights" / kept_as
    path = folder / _file_name(parts.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / _LOCK):
            wanted = expected or _recorded(folder)
            if not path.exists() or (wanted is not None and _sha256(path) != wanted):
                _fetch(address, path, expected, say)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{folder}: cannot store {address} there: {reason}; set {CACHE_VARIABLE} to a folder that can be written"
        ) from error
    return Copy(path, _compared(_sha256(path), address, expected))


def fetch(address: str, path: Path, most_bytes: int) -> None:
    """The content of an ``http://`` or ``https://`` address as a new file, which belongs to the caller.

    Raises:
        UserError: as of ``local_copy``; or it is larger.
        OSError: the file cannot be written.
    """
    try:
        with _pace() as pace, atomic_file(path) as target:
            # A reader sees by itself whether a picture is complete: its length need not be known.
            _Part(target, address, pace, has_checksum=True, most_bytes=most_bytes).complete(lambda size: None)
    except UserError as error:
        raise UserError(without_credentials(str(error))) from None


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


class _NotFetched(UserError):
    """The server was not reached, or not for long enough."""


class _Cut(_NotFetched):
    """The connection ended before the content did."""


def _fetch(address: str, path: Path, expected: Optional[str], say: Callable[[str], None]) -> None:
    """The file appears once it is complete and verified."""
    try:
        with _pace() as pace, atomic_file(path) as target:
            part = _Part(target, address, pace, expected is not None)
            part.complete(lambda size: say(f"fetching {without_credentials(address)} ({size}) to {path}"))
            found = part.digest.hexdigest()
            _compared(found, address, expected)
    except _NotFetched as error:
        mirror = " and HF_ENDPOINT a mirror" if "/resolve/" in address else ""
        raise UserError(
            f"{error}; where https_proxy names a proxy{mirror}, these are asked; or fetch that file elsewhere and give "
            f"its path instead (-pretrained=FILE), or put it there: {path}"
        ) from error
    with atomic_file(path.with_name(_RECORD)) as record:
        record.write(f"{found}\n".encode("ascii"))


class _Part:
    """What has arrived of a content so far, in ``target``, whose end it is written to.

    Args:
        has_checksum: it will be compared with one, so its length need not be known.
        most_bytes: a longer content is refused.
    """

    def __init__(
        self, target: BinaryIO, address: str, pace: _Pace, has_checksum: bool, most_bytes: float = float("inf")
    ) -> None:
        self.target, self.address, self.pace, self.has_checksum = target, address, pace, has_checksum
        self.most_bytes = most_bytes
        self.received = 0  # bytes
        self.digest = hashlib.sha256()
        self.tag: Optional[str] = None  # the server's, which changes with the content

    def complete(self, begun: Callable[[str], None]) -> None:
        """Fetch all of it, over several connections if one breaks; ``begun`` gets its size in words at the first."""
        for attempt, wait in enumerate((*RETRY_SECONDS, None)):
            try:
                with _opened(self) as response:
                    announced = _announced(response)
                    if attempt == 0:
                        begun("of unknown size" if announced is None else f"{announced / 1e6:,.1f} MB")
                    self._continue(response, announced)
                return
            except _Cut:
                if wait is None:
                    raise
            time.sleep(wait)

    def headers(self) -> Dict[str, str]:
        """Of a request for the rest; the whole comes instead if the content has changed."""
        if not (self.received and self.tag):
            return {}
        return {"Range": f"bytes={self.received}-", "If-Range": self.tag}

    def _continue(self, response: Any, announced: Optional[int]) -> None:
        """Add what ``response`` brings, ``announced`` bytes."""
        if response.status == 206:
            start = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range") or "")
            if start is None or int(start[1]) != self.received:
                raise UserError(f"{self.address}: the server continues at another place than was asked for; try again")
        else:
            self.received, self.digest = 0, hashlib.sha256()
            self.target.seek(0)
            self.target.truncate()
            tag = response.headers.get("ETag")
            self.tag = tag if tag and tag.startswith('"') else None
        if announced is None and not response.chunked and not self.has_checksum:
            raise UserError(
                f"{self.address}: the server does not say how long it is, so that nobody could tell whether it is "
                f"complete: add #{_FRAGMENT}... to the address"
            )
        total = None if announced is None else self.received + announced
        name = _file_name(urllib.parse.urlsplit(self.address).path)
        with tqdm(
            total=total,
            initial=self.received,
            desc=f"fetching {name}",
            unit="B",
            unit_scale=True,
            disable=None,
            leave=False,
        ) as bar:
            for chunk in self._chunks(response, total):
                bar.update(len(chunk))
        if self.pace.was_too_slow:
            raise _too_slow(self.address, self.pace)
        if total is not None and total != self.received:
            raise _Cut(f"{self.address}: only {self.received} of {total} bytes arrived; try again")

    def _chunks(self, response: Any, total: Optional[int]) -> Iterator[bytes]:
        """Each is in the file when it is yielded."""
        looked_at = -1
        while True:
            if self.received >> 26 != looked_at:  # every 64 MiB
                looked_at = self.received >> 26
                self._see_that_it_is_allowed(total or 0)
                _see_that_it_fits(self.address, self.target, max((total or 0) - self.received, _CHUNK_BYTES))
            try:
                chunk = response.read1(_CHUNK_BYTES)
            except (OSError, HTTPException, ValueError) as error:
                if self.pace.was_too_slow:
                    raise _too_slow(self.address, self.pace) from error
                raise _Cut(f"{self.address}: the connection broke after {self.received} bytes; try again") from error
            if not chunk:
                return
            self.target.write(chunk)
            self.digest.update(chunk)
            self.received += len(chunk)
            self._see_that_it_is_allowed(self.received)
            self.pace.received += len(chunk)
            yield chunk

    def _see_that_it_is_allowed(self, size: int) -> None:
        if size > self.most_bytes:
            raise UserError(f"{self.address} cannot be fetched: it has more than {self.most_bytes:,} bytes")


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


def _request(address: str, headers: Dict[str, str]) -> urllib.request.Request:
    """For an address that may begin with ``user:password@``."""
    parts = urllib.parse.urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": "paddlevit_dist", **headers}
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=headers)
    if user:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_unredirected_header("Authorization", f"Basic {token}")  # not for where a redirection leads
    return request


@contextlib.contextmanager
def _opened(part: _Part) -> Iterator[Any]:
    address, pace, headers = part.address, part.pace, part.headers()
    try:
        response = _opener(pace).open(_request(address, headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        reason = one_line(error.reason)[:200]
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        if pace.was_too_slow:
            raise _too_slow(address, pace) from error
        reason = one_line(getattr(error, "reason", None) or error)[:200]
        kind = _Cut if part.received else _NotFetched
        raise kind(f"{address} cannot be fetched: {reason}") from error
    with response:
        if pace.was_too_slow:  # what came of the head may pass for one
            raise _too_slow(address, pace)
        if response.status != 200 and not (response.status == 206 and headers):
            raise UserError(f"{address} cannot be fetched: the server answers {response.status} instead of 200")
        yield response


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
    return _NotFetched(
        f"{address}: fewer than {SLOWEST_BYTES_PER_SECOND} bytes per second arrived for {PACE_SECONDS:g} s, "
        f"{pace.received} in all; try again"
    )


def _compared(found: str, address: str, expected: Optional[str]) -> Tuple[str, ...]:
    if expected is None:
        return (f"its SHA-256 {found} was not checked: add #{_FRAGMENT}... after it to verify it",)
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
