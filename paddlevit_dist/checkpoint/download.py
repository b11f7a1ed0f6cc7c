"""A local copy of weights at an address, checked and kept.

What a server sends is not believed: it has to be complete and to arrive in time, it goes where we say and must fit
there, and a redirection leads to nothing but another ``http(s)`` address, never from an encrypted to an open one. A
connection that breaks is made again, and what had arrived is not fetched twice where the server can continue.
Hugging Face's own library fetches from its servers alone, and needs as much again for other addresses.
"""

import base64
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import shortened, without_credentials

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
SLOWEST_BYTES_PER_SECOND = 1000
PACE_SECONDS = 60.0  # over which the rate is measured
KEEP_FREE_BYTES = 256 << 20  # of the disk
RETRY_SECONDS: tuple[float, ...] = (1.0, 4.0, 15.0)  # between a connection that broke and the next
_TIMEOUT_SECONDS = 30.0  # without a byte arriving
_CHUNK_BYTES = 1 << 20
_FRAGMENT = "sha256="
_LOCK, _RECORD = "lock", "sha256"  # names beside the copy
_SCHEMES = ("http", "https", "file")


class Copy(NamedTuple):
    """Where the content of an address is, and notices about it."""

    path: Path
    notices: tuple[str, ...]


def cache_folder() -> Path:
    """``$PADDLEVIT_DIST_CACHE``, or ``~/.cache/paddlevit_dist``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path("~/.cache/paddlevit_dist").expanduser()


def silent(line: str) -> None:
    """Nobody is to be told."""


def local_copy(
    address: str, sha256: str | None = None, kept_as: str | None = None, say: Callable[[str], None] = silent
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


def _local_copy(address: str, sha256: str | None, kept_as: str | None, say: Callable[[str], None]) -> Copy:
    from .content import fingerprint  # only now: names of weights are known without numpy

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
        return Copy(path, _compared(fingerprint(path)["sha256"], address, expected))
    kept_as = kept_as or hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = cache_folder() / "weights" / kept_as
    path = folder / _file_name(parts.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / _LOCK):
            wanted = expected or _recorded(folder)
            if not path.exists() or (wanted is not None and fingerprint(path)["sha256"] != wanted):
                _fetch(address, path, expected, say)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{folder}: cannot store {address} there: {reason}; set {CACHE_VARIABLE} to a folder that can be written"
        ) from error
    return Copy(path, _compared(fingerprint(path)["sha256"], address, expected))


def _split(address: str, sha256: str | None) -> tuple[str, str | None]:
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


def _recorded(folder: Path) -> str | None:
    """The SHA-256 of what was fetched."""
    record = folder / _RECORD
    return record.read_text(encoding="ascii", errors="replace")[:64] if record.is_file() else None


class _NotFetched(UserError):
    """The server was not reached, or the connection ended before the content did."""


def _fetch(address: str, path: Path, expected: str | None, say: Callable[[str], None]) -> None:
    """The file appears once it is complete and verified."""
    try:
        with atomic_file(path) as target:
            download = _Download(target, address, expected is not None)
            download.complete(lambda size: say(f"fetching {without_credentials(address)} ({size}) to {path}"))
            found = download.digest.hexdigest()
            _compared(found, address, expected)
    except _NotFetched as error:
        mirror = " and HF_ENDPOINT a mirror" if "/resolve/" in address else ""
        raise UserError(
            f"{error}; where https_proxy names a proxy{mirror}, these are asked; or fetch that file elsewhere and give "
            f"its path instead (-pretrained=FILE), or put it there: {path}"
        ) from error
    with atomic_file(path.with_name(_RECORD)) as record:
        record.write(f"{found}\n".encode("ascii"))


class _Download:
    """A content that is being fetched into ``target``, over several connections if one breaks.

    Args:
        has_checksum: it will be compared with one, so its length need not be known.
    """

    def __init__(self, target: BinaryIO, address: str, has_checksum: bool) -> None:
        self.target, self.address, self.has_checksum = target, address, has_checksum
        self.received = 0  # bytes
        self.digest = hashlib.sha256()
        self.tag: str | None = None  # the server's, which changes with the content

    def complete(self, begun: Callable[[str], None]) -> None:
        """Fetch all of it; ``begun`` gets its size in words at the first connection."""
        was_reached = False
        for wait in (*RETRY_SECONDS, None):
            # The rest, if some has arrived; the whole comes instead if the content has changed.
            may_continue = bool(self.received and self.tag)
            headers = {"Range": f"bytes={self.received}-", "If-Range": str(self.tag)} if may_continue else {}
            try:
                with _opened(self.address, headers) as response:
                    announced = _announced(response)
                    if not was_reached:
                        begun("of unknown size" if announced is None else f"{announced / 1e6:,.1f} MB")
                    was_reached = True
                    self._add(response, announced)
                return
            except _NotFetched:
                if wait is None or not was_reached:
                    raise
            time.sleep(wait)

    def _add(self, response: Any, announced: int | None) -> None:
        """What ``response`` brings, ``announced`` bytes."""
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
        shown = {"desc": f"fetching {name}", "unit": "B", "unit_scale": True, "disable": None, "leave": False}
        with tqdm(total=total, initial=self.received, **shown) as bar:
            for chunk in self._chunks(response, total):
                bar.update(len(chunk))
        if total is not None and total != self.received:
            raise _NotFetched(f"{self.address}: only {self.received} of {total} bytes arrived; try again")

    def _chunks(self, response: Any, total: int | None) -> Iterator[bytes]:
        """Each is in the file when it is yielded."""
        measured_at, measured = time.monotonic(), self.received
        checked = -1  # 64 MiB that were known to fit
        while True:
            if self.received >> 26 != checked:
                checked = self.received >> 26
                _require_room(self.address, self.target, max((total or 0) - self.received, _CHUNK_BYTES))
            try:
                chunk = response.read1(_CHUNK_BYTES)
            except (OSError, HTTPException, ValueError) as error:
                broke = f"the connection broke after {self.received} bytes"
                raise _NotFetched(f"{self.address}: {broke}; try again") from error
            if not chunk:
                return
            self.target.write(chunk)
            self.digest.update(chunk)
            self.received += len(chunk)
            yield chunk
            if time.monotonic() - measured_at > PACE_SECONDS:
                if self.received - measured < SLOWEST_BYTES_PER_SECOND * PACE_SECONDS:
                    raise UserError(
                        f"{self.address}: fewer than {SLOWEST_BYTES_PER_SECOND} bytes per second arrived for "
                        f"{PACE_SECONDS:g} s, {self.received} in all; try again"
                    )
                measured_at, measured = time.monotonic(), self.received


class _Redirections(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, file: Any, code: int, text: str, headers: Any, address: str) -> Any:
        before, after = (urllib.parse.urlsplit(a).scheme.lower() for a in (request.full_url, address))
        if after not in ("http", "https") or (before, after) == ("https", "http"):
            raise UserError(
                f"{request.full_url} cannot be fetched: it redirects from {before}:// to {after}://, which is not "
                "followed"
            )
        return super().redirect_request(request, file, code, text, headers, address)


def _request(address: str, headers: dict[str, str]) -> urllib.request.Request:
    """For an address that may begin with ``user:password@``."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme.lower() not in ("http", "https"):
        raise UserError(f"{address} cannot be fetched: only http:// and https:// are")
    user, _, host = parts.netloc.rpartition("@")
    headers = {"User-Agent": "paddlevit_dist", **headers}
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers=headers)
    if user:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_unredirected_header("Authorization", f"Basic {token}")  # not for where a redirection leads
    return request


@contextlib.contextmanager
def _opened(address: str, headers: dict[str, str]) -> Iterator[Any]:
    try:
        opener = urllib.request.build_opener(_Redirections)  # anew, since it reads which proxies there are
        response = opener.open(_request(address, headers), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        reason = shortened(error.reason, 200)
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = shortened(error.reason if isinstance(error, urllib.error.URLError) else error, 200)
        raise _NotFetched(f"{address} cannot be fetched: {reason}") from error
    with response:
        if response.status != 200 and not (response.status == 206 and headers):
            raise UserError(f"{address} cannot be fetched: the server answers {response.status} instead of 200")
        yield response


def _announced(response: Any) -> int | None:
    length = response.headers.get("Content-Length")
    return int(length) if not response.chunked and length is not None and re.fullmatch(r"[0-9]{1,18}", length) else None


def _require_room(address: str, target: BinaryIO, more: int) -> None:
    free = shutil.disk_usage(os.path.dirname(target.name)).free
    if more > free - KEEP_FREE_BYTES:
        raise UserError(
            f"{address}: {more:,} more bytes do not fit in {cache_folder()}, where {free:,} are free; free space or "
            f"set {CACHE_VARIABLE} to another folder"
        )


def _compared(found: str, address: str, expected: str | None) -> tuple[str, ...]:
    if expected is None:
        return (f"its SHA-256 {found} was not checked: add #{_FRAGMENT}... after it to verify it",)
    if found != expected:
        raise UserError(
            f"{address}: its SHA-256 is {found}, expected {expected}: it is not the file that was meant, or was "
            "altered on the way"
        )
    return ()
