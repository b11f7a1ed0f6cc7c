"""Local copies of weights from an address, or from a repository at Hugging Face, through that site's library.

A download must be complete and gets a name that this package chooses. Redirects are followed to ``http(s)`` addresses
only, and never from an encrypted to an unencrypted one.
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
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from ..runtime.errors import UserError
from ..runtime.files import atomic_file, explain_write_error, os_errors_as_user_errors, remove_abandoned
from ..runtime.printing import shorten, without_credentials

CACHE_VARIABLE = "PADDLEVIT_DIST_CACHE"
_TIMEOUT_SECONDS = 30.0  # without receiving a byte
_CHUNK_BYTES = 1 << 20
_FRAGMENT = "sha256="
_SCHEMES = ("http", "https", "file")
_NOT_STORED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS)
_INSTEAD = "used; or download the file elsewhere and give its path (-pretrained=FILE)"


class CachedCopy(NamedTuple):
    """A local copy of the content of an address, with log lines about it."""

    path: Path
    notices: tuple[str, ...]


def cache_folder() -> Path:
    """Return ``$PADDLEVIT_DIST_CACHE``, or ``~/.cache/paddlevit_dist``."""
    path = os.environ.get(CACHE_VARIABLE)
    return Path(path) if path else Path("~/.cache/paddlevit_dist").expanduser()


def silent(line: str) -> None:
    """Ignore a log line."""


def local_copy(address: str, log: Callable[[str], None] = silent) -> CachedCopy:
    """Return the content of ``address`` as a local file, downloaded once.

    A ``file://`` address is read in place. The checksum is verified each time, not only after the download; a copy that
    differs is downloaded again. Without a checksum, that of the first copy is stored next to it and applies from then
    on. Raises UserError, without passwords and values of queries in addresses, if the download fails or is incomplete,
    the file does not fit on the disk, or its checksum differs.

    Args:
        address: ``http://``, ``https://`` or ``file://``, which may end in ``#sha256=<64 hexadecimal digits>``.
        log: receives a line before a download.
    """
    try:
        return _local_copy(address, log)
    except UserError as error:
        raise UserError(without_credentials(str(error))) from None


def _local_copy(address: str, log: Callable[[str], None]) -> CachedCopy:
    from .integrity import fingerprint  # imported late: listing names of weights needs no numpy

    address, expected = _split(address)
    try:
        parts = urllib.parse.urlsplit(address)
        scheme, _ = parts.scheme.lower(), parts.port
    except ValueError as error:
        raise UserError(f"{address} cannot be fetched: it is not a valid address: {error}") from error
    if scheme not in _SCHEMES:
        expectation = "an address that begins with http://, https:// or file://"
        raise UserError(f"{address} cannot be fetched: expected {expectation}")
    if scheme == "file":
        path = Path(urllib.request.url2pathname(parts.path))
        if not path.is_file():
            raise UserError(f"{address}: there is no file {path}")
        return CachedCopy(path, _compare(fingerprint(path)["sha256"], address, expected))
    path = _get_cache_path(address)
    note = path.with_name(f"{path.name}.sha256")  # checksum of the first copy, used if the user gives none
    is_given = expected is not None
    if not is_given and note.is_file():
        _, expected = _split(f"{address}#{_FRAGMENT}{note.read_text(encoding='utf-8').strip()}")
    digest = fingerprint(path)["sha256"] if path.is_file() else None
    if digest is None or expected not in (None, digest):
        log(f"fetching {without_credentials(address)} to {path}")
        with os_errors_as_user_errors(path.parent, f" ({CACHE_VARIABLE} names another folder)"):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(path.parent)
            with atomic_file(path) as target:
                digest = _fetch(address, target, has_checksum=is_given)
                try:
                    _compare(digest, address, expected)
                except UserError as error:
                    advice = "" if is_given else f"; {note} has that of its first copy: remove it to use the new one"
                    raise UserError(f"{error}{advice}") from None
            if expected is None:
                with atomic_file(note) as target:
                    target.write(f"{digest}\n".encode())
    return CachedCopy(path, _compare(digest, address, expected))


def _get_cache_path(address: str) -> Path:
    folder = hashlib.sha256(address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return cache_folder() / "weights" / folder / _file_name(urllib.parse.urlsplit(address).path)


def find_local_copy(address: str) -> Path | None:
    """Return the copy of an address that ``local_copy`` has made, or None."""
    path = _get_cache_path(address)
    return path if path.is_file() else None


def download_from_hub(repository: str, file: str, endpoint: str, log: Callable[[str], None] = silent) -> CachedCopy:
    """Return a file of a repository at Hugging Face, in the cache that its library shares with timm and transformers.

    Raises UserError if the file cannot be downloaded or stored, or its checksum differs.

    Args:
        repository: OWNER/NAME.
        file: name of the file, which may end in ``#sha256=...``; a copy that differs is downloaded again.
        endpoint: address of Hugging Face or of a mirror.
        log: receives a line before a download.
    """
    from .integrity import fingerprint

    address, expected = _split(f"{endpoint}/{repository}/resolve/main/{file}")
    path = _ask_hub(repository, file.partition("#")[0], endpoint, expected, log)
    return CachedCopy(path, _compare(fingerprint(path)["sha256"], address, expected))


def download_small_file(repository: str, file: str, endpoint: str) -> Path | None:
    """Return a file that a repository at Hugging Face may have in addition to its weights, or None if it has none.

    It is from the cache, or downloaded without a log line. Raises UserError if it is unknown whether there is one.
    """
    from huggingface_hub import errors

    if not isinstance(_query_hub_cache(repository, file), str | None):  # its mark of a file that does not exist
        return None
    try:
        return _ask_hub(repository, file, endpoint)
    except UserError as error:
        cause = error.__cause__
        if isinstance(cause, errors.EntryNotFoundError) and not isinstance(cause, errors.LocalEntryNotFoundError):
            return None
        raise


def find_in_hub_cache(repository: str, file: str) -> Path | None:
    """Return the copy of a file in Hugging Face's cache, or None. Raises UserError for a bad repository's name."""
    cached = _query_hub_cache(repository, file)
    return Path(cached) if isinstance(cached, str) else None


def _query_hub_cache(repository: str, file: str) -> object:
    from huggingface_hub import try_to_load_from_cache

    try:
        return try_to_load_from_cache(repository, file)
    except ValueError as error:  # its HFValidationError
        reason = shorten(" ".join(str(error).split()), 200)
        raise UserError(
            f"hf:{repository}: not a valid name of a repository at Hugging Face: {reason}; check the spelling of "
            "hf:OWNER/REPOSITORY"
        ) from error


def _ask_hub(
    repository: str, file: str, endpoint: str, expected: str | None = None, log: Callable[[str], None] = silent
) -> Path:
    """Return a file, from the cache if it is there, and whole."""
    from huggingface_hub import hf_hub_download  # imported late: most runs download nothing

    path, address = find_in_hub_cache(repository, file), f"{endpoint}/{repository}/resolve/main/{file}"
    is_damaged = path is not None and _is_damaged(path, expected)
    if path is not None and not is_damaged:
        return path
    log(f"fetching {address}{' again: the cached copy is damaged' if is_damaged else ''}")
    with in_one_line(address):
        return Path(hf_hub_download(repository, file, endpoint=endpoint, force_download=is_damaged))


def _is_damaged(path: Path, expected: str | None) -> bool:
    """Return whether a copy has another digest than ``expected``, or than that cache names its content by."""
    from .integrity import fingerprint

    digest = expected or (path.resolve().name if path.is_symlink() else "")
    if re.fullmatch("[0-9a-f]{40}", digest):  # of a small file: Git's
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != digest
    return bool(re.fullmatch("[0-9a-f]{64}", digest)) and fingerprint(path)["sha256"] != digest


@contextlib.contextmanager
def in_one_line(address: str, instead: str | None = None) -> Iterator[None]:
    """Raise a one-line UserError with advice for any exception of Hugging Face's library, or of its HTTP client.

    ``instead``: what to do if nothing can be fetched; None: what is to be done for weights.
    """
    from huggingface_hub import errors

    for library in ("huggingface_hub", "httpx", "httpx2"):  # Paddle shows what is logged: requests and retries
        logging.getLogger(library).setLevel(logging.ERROR)
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) and error.__cause__ else error
        reason = shorten(" ".join(str(cause).split()) or type(cause).__name__, 200)
        advice = instead or f"a proxy in https_proxy and a mirror in HF_ENDPOINT are {_INSTEAD}"
        if isinstance(cause, errors.RepositoryNotFoundError):  # or one that is gated
            reason = "there is no such repository, or access to it is restricted"
            advice = "set HF_TOKEN to a token with access"
        elif isinstance(cause, errors.OfflineModeIsEnabled):
            reason = "HF_HUB_OFFLINE is set and there is no local copy"
            advice = instead or "give a file (-pretrained=FILE)"
        elif isinstance(cause, errors.EntryNotFoundError):
            reason = "the repository has no such file"
            advice = instead or "give a file of weights instead (-pretrained=FILE)"
        elif isinstance(cause, OSError) and cause.errno in _NOT_STORED:
            reason, advice = f"it cannot be stored: {explain_write_error(cause)}", "HF_HOME names another folder"
        raise UserError(f"{address} cannot be fetched: {reason}; {advice}") from error


def _split(address: str) -> tuple[str, str | None]:
    address, _, fragment = address.partition("#")
    if fragment and not fragment.startswith(_FRAGMENT):
        raise UserError(f"{address}#{fragment}: expected #{_FRAGMENT} and 64 hexadecimal digits after the address")
    expected = fragment[len(_FRAGMENT) :] or None
    if expected is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", expected):
        raise UserError(f"{address}: sha256 '{expected}' is not a SHA-256, which has 64 hexadecimal digits")
    return address, expected.lower() if expected else None


def _file_name(path: str) -> str:
    """Return the last part of the address as a file name, without special characters."""
    name = re.sub(r"[^\w.\-]", "_", urllib.parse.unquote(path).rpartition("/")[2])[-100:]
    return "weights" if name.startswith(".") or not name else name


def _fetch(address: str, target: BinaryIO, has_checksum: bool) -> str:
    """Download ``address`` into an open file and return its SHA-256; with a checksum, no length need be sent."""
    digest, received = hashlib.sha256(), 0
    with _open(address) as response:
        total = _read_length(response)
        if total is None and not response.chunked and not has_checksum:
            raise UserError(
                f"{address}: the server does not send the length, so an incomplete download would not be noticed; "
                f"add #{_FRAGMENT}... to the address"
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
    def redirect_request(self, request, file, code, text, headers, address):
        before, after = (urllib.parse.urlsplit(a).scheme.lower() for a in (request.full_url, address))
        if after not in ("http", "https") or (before, after) == ("https", "http"):
            raise UserError(
                f"{request.full_url} cannot be fetched: it redirects from {before}:// to {after}://, which is not "
                "followed"
            )
        return super().redirect_request(request, file, code, text, headers, address)


def _request(address: str) -> urllib.request.Request:
    """Build the request for an address, which may contain ``user:password@``."""
    parts = urllib.parse.urlsplit(address)
    user, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(parts._replace(netloc=host).geturl(), headers={"User-Agent": "paddlevit_dist"})
    if user:
        token = base64.b64encode(urllib.parse.unquote_to_bytes(user)).decode("ascii")
        request.add_unredirected_header("Authorization", f"Basic {token}")  # not sent after a redirect
    return request


@contextlib.contextmanager
def _open(address: str) -> Iterator[Any]:
    try:
        # Built for each request, because it reads the proxy variables.
        opener = urllib.request.build_opener(_RedirectHandler)
        response = opener.open(_request(address), timeout=_TIMEOUT_SECONDS)
    except urllib.error.HTTPError as error:
        reason = shorten(error.reason, 200)
        raise UserError(f"{address} cannot be fetched: the server answers {error.code} {reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = shorten(error.reason if isinstance(error, urllib.error.URLError) else error, 200)
        advice = f"a proxy in https_proxy is {_INSTEAD}"
        raise UserError(f"{address} cannot be fetched: {reason}; {advice}") from error
    with response:
        if response.status != 200:
            raise UserError(f"{address} cannot be fetched: the server answers {response.status} instead of 200")
        yield response


def _read_length(response: HTTPResponse) -> int | None:
    length = response.headers.get("Content-Length")
    return int(length) if not response.chunked and length is not None and re.fullmatch(r"[0-9]{1,18}", length) else None


def _compare(digest: str, address: str, expected: str | None) -> tuple[str, ...]:
    if expected is None:
        return (f"its SHA-256 {digest} was not checked; add #{_FRAGMENT}... to its name or address to verify it",)
    if digest != expected:
        raise UserError(
            f"{address}: its SHA-256 is {digest}, expected {expected}: it is another file, or was altered during the "
            "download"
        )
    return ()
