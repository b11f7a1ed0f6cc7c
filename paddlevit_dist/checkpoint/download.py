"""A local copy of weights at an address, or in a repository of Hugging Face, whose own library fetches and keeps those.

What the server of an address sends has to be complete and goes where we say, and a redirection leads to nothing but
another ``http(s)`` address, never from an encrypted to an open one.
"""

import base64
import contextlib
import errno
import hashlib
import logging
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors, why_not_written
from ..runtime.printing import shorten, without_credentials

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
_TIMEOUT_SECONDS = 30.0  # without a byte arriving
_CHUNK_BYTES = 1 << 20
_FRAGMENT = "sha256="
_SCHEMES = ("http", "https", "file")
_NOT_STORED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_INSTEAD = "asked; or fetch that file elsewhere and give its path instead (-pretrained=FILE)"


class CachedCopy(NamedTuple):
    """Where the content of an address is, and notices about it."""

    path: Path
    notices: tuple[str, ...]


def cache_folder() -> Path:
    """``$PADDLEVIT_DIST_CACHE``, or ``~/.cache/paddlevit_dist``."""
    given = os.environ.get(CACHE_VARIABLE)
    return Path(given) if given else Path("~/.cache/paddlevit_dist").expanduser()


def silent(line: str) -> None:
    """Nobody is to be told."""


def local_copy(address: str, sha256: str | None = None, say: Callable[[str], None] = silent) -> CachedCopy:
    """The content of ``address`` as a local file, fetched once.

    A ``file://`` address is read where it is. The checksum is verified each time, not only after fetching; a copy that
    differs from it is fetched again. Without one, that of the first copy is noted beside it and holds from then on.

    Args:
        address: ``http://``, ``https://`` or ``file://``, which may end in ``#sha256=<64 hexadecimal digits>``.
        sha256: the same, given separately.
        say: gets a line when something is fetched.

    Raises:
        UserError: it cannot be fetched, ended early, does not fit, or its checksum differs. The message hides the
            passwords and the values of queries in addresses.
    """
    try:
        return _local_copy(address, sha256, say)
    except UserError as error:
        raise UserError(without_credentials(str(error))) from None


def _local_copy(address: str, sha256: str | None, say: Callable[[str], None]) -> CachedCopy:
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
        return CachedCopy(path, _compare(fingerprint(path)["sha256"], address, expected))
    path = _place(address)
    note = path.with_name(f"{path.name}.sha256")  # of the first copy: whoever gave no checksum gets the same again
    is_given = expected is not None
    if not is_given and note.is_file():
        _, expected = _split(address, note.read_text(encoding="utf-8").strip())
    found = fingerprint(path)["sha256"] if path.is_file() else None
    if found is None or expected not in (None, found):
        say(f"fetching {without_credentials(address)} to {path}")
        with os_errors_as_user_errors(path.parent, f" ({CACHE_VARIABLE} names another folder)"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as target:
                found = _fetch(address, target, has_checksum=is_given)
                try:
                    _compare(found, address, expected)
                except UserError as error:
                    told = "" if is_given else f"; {note} has that of its first copy: remove it to take the new one"
                    raise UserError(f"{error}{told}") from None
            if expected is None:
                with atomic_file(note) as target:
                    target.write(f"{found}\n".encode())
    return CachedCopy(path, _compare(found, address, expected))


def _place(address: str) -> Path:
    folder = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return cache_folder() / "weights" / folder / _file_name(urllib.parse.urlsplit(address).path)


def find_local_copy(address: str) -> Path | None:
    """The copy of the content of an address that ``local_copy`` has made; None without one."""
    path = _place(address)
    return path if path.is_file() else None


def download_from_hub(
    repository: str, file: str, endpoint: str, sha256: str | None = None, say: Callable[[str], None] = silent
) -> CachedCopy:
    """A file of a repository of Hugging Face, in the cache that its library shares with timm and transformers.

    Args:
        repository: OWNER/NAME.
        file: its name, which may end in ``#sha256=...``.
        endpoint: address of Hugging Face or of a mirror.
        sha256: the same, given separately; a copy that differs is fetched again.
        say: gets a line when something is fetched.

    Raises:
        UserError: it cannot be fetched or stored, or its checksum differs.
    """
    from huggingface_hub import hf_hub_download  # only now: most runs fetch nothing

    from .content import fingerprint

    address, expected = _split(f"{endpoint}/{repository}/resolve/main/{file}", sha256)
    file, is_spoilt = file.partition("#")[0], False
    path = find_in_hub_cache(repository, file)
    if path is not None:
        found = fingerprint(path)["sha256"]
        is_spoilt = (expected or _recorded_digest(path)) not in (None, found)
        if not is_spoilt:
            return CachedCopy(path, _compare(found, address, expected))
    say(f"fetching {address}{' again: the kept copy is damaged' if is_spoilt else ''}")
    with _one_line(address):
        path = Path(hf_hub_download(repository, file, endpoint=endpoint, force_download=is_spoilt))
    return CachedCopy(path, _compare(fingerprint(path)["sha256"], address, expected))


def find_in_hub_cache(repository: str, file: str) -> Path | None:
    """Find the copy of a file of a repository of Hugging Face in the cache of its library; None without one.

    Raises:
        UserError: the repository has a name that the library does not accept.
    """
    kept = _look_into_cache(repository, file)
    return Path(kept) if isinstance(kept, str) else None  # else nothing, or a note that there is no such file


def _look_into_cache(repository: str, file: str) -> Any:
    from huggingface_hub import try_to_load_from_cache

    try:
        return try_to_load_from_cache(repository, file)
    except ValueError as error:  # its HFValidationError
        reason = shorten(" ".join(str(error).split()), 200)
        raise UserError(
            f"hf:{repository}: no repository at Hugging Face has such a name: {reason}; check the spelling of "
            "hf:OWNER/REPOSITORY"
        ) from error


def _recorded_digest(path: Path) -> str | None:
    """Return the SHA-256 that the cache of Hugging Face's library has of a large file: the name of what its link points
    at; None where it has none."""
    name = path.resolve().name
    return name if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", name) else None


def _is_cut(path: Path) -> bool:
    """Tell whether a small file of that cache is not the one that its name there, Git's SHA-1, is of."""
    name = path.resolve().name
    if not path.is_symlink() or not re.fullmatch(r"[0-9a-f]{40}", name):
        return False
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != name


def download_small_file(repository: str, file: str, endpoint: str) -> Path | None:
    """A file that a repository of Hugging Face may have beside its weights, from that cache or fetched without a word;
    None where it has none.

    Raises:
        UserError: that cannot be found out.
    """
    from huggingface_hub import _CACHED_NO_EXIST, errors, hf_hub_download

    kept = _look_into_cache(repository, file)
    is_spoilt = isinstance(kept, str) and _is_cut(Path(kept))
    if kept is not None and not is_spoilt:
        return None if kept is _CACHED_NO_EXIST else Path(kept)
    try:
        with _one_line(f"{endpoint}/{repository}/resolve/main/{file}"):
            return Path(hf_hub_download(repository, file, endpoint=endpoint, force_download=is_spoilt))
    except UserError as error:
        cause = error.__cause__
        if isinstance(cause, errors.EntryNotFoundError) and not isinstance(cause, errors.LocalEntryNotFoundError):
            return None
        raise


@contextlib.contextmanager
def _one_line(address: str) -> Iterator[None]:
    """Says in one line why Hugging Face's library could not fetch ``address``, and what to do.

    Raises:
        UserError: for whatever it raises; the libraries that it connects with differ between its versions.
    """
    from huggingface_hub import errors

    for library in ("huggingface_hub", "httpx", "httpx2"):  # Paddle shows what is logged: requests and retries
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        reason = shorten(" ".join(str(cause).split()) or type(cause).__name__, 200)
        advice = f"where https_proxy names a proxy and HF_ENDPOINT a mirror, these are {_INSTEAD}"
        if isinstance(cause, errors.RepositoryNotFoundError):  # or one that is gated
            reason = "there is no such repository, or it is not for everybody"
            advice = "set HF_TOKEN to a token that may read it"
        elif isinstance(cause, errors.OfflineModeIsEnabled):
            reason, advice = "HF_HUB_OFFLINE is set and no copy is kept", "give a file instead (-pretrained=FILE)"
        elif isinstance(cause, errors.EntryNotFoundError):
            reason, advice = "the repository has no such file", "give a file of weights instead (-pretrained=FILE)"
        elif isinstance(cause, OSError) and cause.errno in _NOT_STORED:
            reason, advice = f"it cannot be stored: {why_not_written(cause)}", "HF_HOME names another folder"
        raise UserError(f"{address} cannot be fetched: {reason}; {advice}") from error


def _split(address: str, sha256: str | None) -> tuple[str, str | None]:
    address, _, fragment = address.partition("#")
    if fragment and not fragment.startswith(_FRAGMENT):
        raise UserError(f"{address}#{fragment}: expected #{_FRAGMENT} and 64 hexadecimal digits after the address")
    expected = sha256 or fragment[len(_FRAGMENT) :] or None
    if expected is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise UserError(f"{address}: sha256 '{expected}' is not a SHA-256, which has 64 hexadecimal digits")
    return address, expected.lower() if expected else None


def _file_name(path: str) -> str:
    """Name the copy: the end of the address, unless that means something in a folder."""
    name = re.sub(r"[^\w.\-]", "_", urllib.parse.unquote(path).rpartition("/")[2])[-100:]
    return "weights" if name.startswith(".") or not name else name


def _fetch(address: str, target: BinaryIO, has_checksum: bool) -> str:
    """The SHA-256 of the content of ``address``, which ``target`` holds afterwards.

    Args:
        has_checksum: it will be compared with one, so its length need not be known.
    """
    digest, received = hashlib.sha256(), 0
    with _open(address) as response:
        total = _read_length(response)
        if total is None and not response.chunked and not has_checksum:
            raise UserError(
                f"{address}: the server does not say how long it is, so that nobody could tell whether it is "
                f"complete: add #{_FRAGMENT}... to the address"
            )
        name = _file_name(urllib.parse.urlsplit(address).path)
        with tqdm(total=total, desc=f"fetching {name}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
            while True:
                try:
                    chunk = response.read1(_CHUNK_BYTES)
                except (OSError, HTTPException, ValueError) as error:
                    raise UserError(f"{address}: the connection broke after {received} bytes; try again") from error
                if not chunk:
                    break
                target.write(chunk)
                digest.update(chunk)
                received += len(chunk)
                bar.update(len(chunk))
    if total not in (None, received):
        raise UserError(f"{address}: only {received} of {total} bytes arrived; try again")
    return digest.hexdigest()


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, file: Any, code: int, text: str, headers: Any, address: str) -> Any:
        before, after = (urllib.parse.urlsplit(a).scheme.lower() for a in (request.full_url, address))
        if after not in ("http", "https") or (before, after) == ("https", "http"):
            raise UserError(
                f"{request.full_url} cannot be fetched: it redirects from {before}:// to {after}://, which is not "
                "followed"
            )
        return super().redirect_request(request, file, code, text, headers, address)


def _request(address: str) -> urllib.request.Request:
    """For an address that may begin with ``user:password@``."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme.lower() not in ("http", "https"):
        raise UserError(f"{address} cannot be fetched: only http:// and https:// are")
    user, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers={"User-Agent": "paddlevit_dist"})
    if user:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_unredirected_header("Authorization", f"Basic {token}")  # not for where a redirection leads
    return request


@contextlib.contextmanager
def _open(address: str) -> Iterator[Any]:
    try:
        opener = urllib.request.build_opener(_RedirectHandler)  # anew, since it reads which proxies there are
        response = opener.open(_request(address), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        reason = shorten(error.reason, 200)
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = shorten(error.reason if isinstance(error, urllib.error.URLError) else error, 200)
        advice = f"where https_proxy names a proxy, it is {_INSTEAD}"
        raise UserError(f"{address} cannot be fetched: {reason}; {advice}") from error
    with response:
        if response.status != 200:
            raise UserError(f"{address} cannot be fetched: the server answers {response.status} instead of 200")
        yield response


def _read_length(response: Any) -> int | None:
    length = response.headers.get("Content-Length")
    return int(length) if not response.chunked and length is not None and re.fullmatch(r"[0-9]{1,18}", length) else None


def _compare(found: str, address: str, expected: str | None) -> tuple[str, ...]:
    if expected is None:
        return (f"its SHA-256 {found} was not checked: add #{_FRAGMENT}... after it to verify it",)
    if found != expected:
        raise UserError(
            f"{address}: its SHA-256 is {found}, expected {expected}: it is not the file that was meant, or was "
            "altered on the way"
        )
    return ()
