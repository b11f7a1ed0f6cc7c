"""Files below an address, ``s3://``, ``http://`` or ``https://``: listed, and read by byte ranges.

``fsspec`` and ``s3fs`` find credentials, and sign and list for S3. Listings over HTTP are read here, since they spell
names as the server's disk does. A range is requested here, since an answer has to carry the range, and the size and the
tag (ETag) of the file: a file that was replaced since it was listed is refused, and never mixed with the former one. A
request that fails is repeated for minutes, unless another attempt cannot help.
"""

import asyncio
import atexit
import concurrent.futures
import contextlib
import importlib
import io
import logging
import mmap
import os
import re
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.outages import StorageOutage
from ..runtime.text_files import is_whole
from .link_pages import list_links
from .request_errors import find_wish, give_reason, is_final, is_missing, network_errors

SCHEMES = ("s3", "http", "https")
_INSTALL = "pip install '.[remote]' in a clone"
_MOST_REQUESTS = 32  # at once, of one process
_UNSURE_SECONDS = 2.0  # after a change, in which the next one may have its date
# In first pauses, of half a second: requests are repeated for 250 s, less than a loader may take for a batch (600 s).
_LONGEST_PAUSE, _ALL_PAUSES = 60, 500
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.IGNORECASE)
_SIGNAL_POLL_SECONDS = 0.2
_LONGEST_END = 2.0  # seconds in which requests that are no longer wanted end
_lock = threading.Lock()


class RemoteFile(NamedTuple):
    """A file's size and, as ``tag``, its ETag, or else the time of its last change; empty if neither is sent.

    ``changed``: time of the last change in seconds since 1970; 0 if it is not sent. ``asked``: a new text with each
    answer if the file had changed less than two seconds before: dates count seconds, so the next change may have the
    same tag.
    """

    size: int
    tag: str
    changed: float = 0.0
    asked: str = ""

    @property
    def stamp(self) -> str:
        """What equal files have in common, for names of what is derived from them."""
        return f"{self.size}\0{self.tag}{self.asked and chr(0)}{self.asked}"


class RangeRequest(NamedTuple):
    """Bytes of a file, by its name below the address of the folder, with the size and tag that the answer must have."""

    name: str
    file: RemoteFile
    offset: int
    size: int


class RangeAnswer(NamedTuple):
    """What a server has sent for a range: the first and last byte, according to it, and size and tag of the file."""

    content: bytes
    first: int
    last: int
    file: RemoteFile


class RemoteFolder:
    """The files below an address ``s3://bucket/folder``, ``http://...`` or ``https://...``.

    Its pickle is the address. A forked process opens its own connections. Raises UserError for another scheme, or if a
    package is not installed.

    Args:
        timeout_seconds: without a byte, after which a request over HTTP counts as failed.
        first_pause_seconds: before a failed request is repeated. It doubles with each attempt, up to 60 first pauses;
            after 500 first pauses the request has failed.
    """

    def __init__(self, address: str, timeout_seconds: float = 60.0, first_pause_seconds: float = 0.5) -> None:
        self.address = address.rstrip("/")
        self.timeout_seconds, self.first_pause_seconds = timeout_seconds, first_pause_seconds
        scheme = address.partition("://")[0].lower()
        if scheme not in SCHEMES:
            raise UserError(f"data path {address}: expected a folder of this machine, or s3://, http:// or https://")
        self._is_s3 = scheme == "s3"
        for module in ("s3fs",) if self._is_s3 else ("fsspec", "aiohttp"):
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UserError(f"data path {address} needs {module}, which is not installed: {_INSTALL}") from error
        self._begin()

    def _begin(self) -> None:
        self._system: Any = None
        self._process = 0
        self._told = mmap.mmap(-1, 1)  # 1 after the line on repeated requests; shared with forked loader processes

    def __getstate__(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name not in ("_system", "_process", "_told")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def list_files(self, folder: str = "") -> dict[str, RemoteFile | None]:
        """Return the files and folders in a folder by name; the file is None where only a request would tell.

        Raises FileNotFoundError if it does not exist, or none is listed, and UserError if the server does not answer.
        """
        address = f"{self._join(folder)}/"

        async def ask() -> Any:
            if self._is_s3:
                return await self._system._ls(address, detail=True, refresh=True)
            async with self._request("GET", address) as answer:
                is_page = "html" in answer.headers.get("Content-Type", "html")
                return list_links(await answer.text(errors="replace"), str(answer.url)) if is_page else []

        try:
            [entries] = self._run([self._with_retries(address, "listed", ask)])
        except UserError as error:
            if error.__cause__ is not None and is_final(error.__cause__):
                raise FileNotFoundError(str(error)) from error
            raise
        if not self._is_s3:
            return dict.fromkeys(entries)
        files = {}
        for entry in entries:
            name = os.path.basename(entry["name"].rstrip("/"))
            has_size = entry["type"] == "file" and entry.get("size") is not None
            files[name] = RemoteFile(entry["size"], entry.get("ETag", ""), _find_time(entry)) if has_size else None
        return files

    def examine(self, names: Sequence[str]) -> list[RemoteFile]:
        """Ask for size and tag of each file. Raises UserError if one is missing or forbidden, or nothing answers."""
        return self._run([self._examine_one(name) for name in names])

    def read(self, name: str) -> bytes:
        """Read a whole file. Raises FileNotFoundError if it does not exist, and UserError if it cannot be read."""
        address = self._join(name)

        async def ask() -> bytes:
            if self._is_s3:
                return await self._system._cat_file(address)
            async with self._request("GET", address) as answer:
                return await answer.read()

        try:
            [content] = self._run([self._with_retries(address, "read", ask)])
        except UserError as error:
            if error.__cause__ is not None and is_missing(error.__cause__):
                raise FileNotFoundError(str(error)) from error
            raise
        return content

    def read_ranges(self, requests: Sequence[RangeRequest]) -> list[bytes]:
        """Read byte ranges, several at once.

        Raises UserError if a file is missing or has changed, or the server does not answer or cannot send a part of it.
        """
        return self._run([self._read_range(request) for request in requests])

    def _join(self, name: str) -> str:
        name = name if self._is_s3 else quote(name, errors="surrogateescape")
        return f"{self.address}/{name}" if name else self.address

    def _open(self) -> Any:
        """Return fsspec's file system, whose connections belong to one process."""
        with _lock:
            if self._system is None or self._process != os.getpid():
                fsspec = importlib.import_module("fsspec")
                # trust_env: proxies and passwords (netrc) of the environment, as for other downloads
                options = {} if self._is_s3 else {"client_kwargs": {"trust_env": True, "timeout": self._make_timeout()}}
                self._system = fsspec.filesystem("s3" if self._is_s3 else "http", **options)
                for name in ("aiobotocore", "botocore", "fsspec", "s3fs"):  # they tell where credentials were found
                    logging.getLogger(name).setLevel(logging.WARNING)
                if not self._is_s3:
                    self._sync(self._system.set_session())
                self._process = os.getpid()
            return self._system

    def _make_timeout(self) -> Any:
        aiohttp = importlib.import_module("aiohttp")
        return aiohttp.ClientTimeout(total=None, sock_connect=self.timeout_seconds, sock_read=self.timeout_seconds)

    def _sync(self, coroutine: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await coroutine

        future = asyncio.run_coroutine_threadsafe(run(), self._system.loop)
        try:
            while not concurrent.futures.wait([future], _SIGNAL_POLL_SECONDS).done:
                if signals.is_ending():  # the main thread waits for this one
                    future.cancel()
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _run(self, coroutines: list[Awaitable[Any]]) -> list[Any]:
        self._open()
        limit = asyncio.Semaphore(_MOST_REQUESTS)

        async def limited(coroutine: Awaitable[Any]) -> Any:
            async with limit:
                return await coroutine

        return self._sync(_gather(limited, coroutines))

    async def _examine_one(self, name: str) -> RemoteFile:
        address = self._join(name)
        return await self._with_retries(address, "read", lambda: self._ask_about(address))

    async def _ask_about(self, address: str) -> RemoteFile:
        if not self._is_s3:
            return await self._examine_over_http(address)
        info = await self._system._info(address)
        if info["type"] != "file":
            raise FileNotFoundError(address)
        return RemoteFile(info["size"], info.get("ETag") or str(info.get("LastModified") or ""), _find_time(info))

    async def _read_range(self, request: RangeRequest) -> bytes:
        if not request.size:
            return b""
        address, expected = self._join(request.name), request.file
        first, last = request.offset, request.offset + request.size - 1
        get = self._get_from_s3 if self._is_s3 else self._get_over_http

        async def ask() -> bytes:
            answer = await get(address, first, last)
            file = answer.file
            if file.size == expected.size and expected.tag and _kind(file.tag) != _kind(expected.tag):
                # Servers may send a date or a tag with whole files only; then that of the whole file decides.
                file = await self._ask_about(address)
            if file.size != expected.size or (expected.tag and file.tag != expected.tag):
                raise UserError(
                    f"{address} has changed since it was opened: {file.size:,} bytes with tag {file.tag or 'none'}, "
                    f"before {expected.size:,} with {expected.tag or 'none'}; start the run again with unchanged files"
                )
            if (answer.first, answer.last) != (first, last):
                raise UserError(
                    f"{address}: the answer to a request for bytes {first}-{last} is of bytes {answer.first}-"
                    f"{answer.last}: the server, or a proxy before it, answers with another range; read without it, or "
                    "copy the data to this machine"
                )
            if len(answer.content) != request.size:
                raise ConnectionError(f"{len(answer.content):,} of {request.size:,} bytes arrived")
            return answer.content

        return await self._with_retries(address, "read", ask)

    @contextlib.asynccontextmanager
    async def _request(self, method: str, address: str, **headers: str) -> AsyncIterator[Any]:
        """Send a request over HTTP, and yield the answer to it, whose status is not an error."""
        options = dict(self._system.kwargs)
        headers = {**options.pop("headers", {}), **headers, "Accept-Encoding": "identity"}
        session = await self._system.set_session()
        async with session.request(method, address, headers=headers, **options) as answer:
            answer.raise_for_status()
            yield answer

    async def _examine_over_http(self, address: str) -> RemoteFile:
        aiohttp = importlib.import_module("aiohttp")
        try:
            async with self._request("HEAD", address) as answer:
                size = answer.headers.get("Content-Length", "")
                if is_whole(size) and not is_compressed(answer):
                    return _describe(int(size), answer)
        except aiohttp.ClientResponseError as error:
            if not is_final(error):
                raise
        return (await self._get_over_http(address, 0, 0)).file  # a server may refuse HEAD, or send no size with it

    async def _get_over_http(self, address: str, first: int, last: int) -> RangeAnswer:
        async with self._request("GET", address, Range=f"bytes={first}-{last}") as answer:
            if is_compressed(answer):
                raise UserError(
                    f"{address}: the server compresses its answer ({answer.headers['Content-Encoding']}), so it cannot "
                    "be read in parts; switch that off for tar files, or copy the data to this machine"
                )
            sent = answer.headers.get("Content-Range") if answer.status == 206 else None
            first, last, size = parse_range(sent, address)  # before the content: it may be the whole file
            return RangeAnswer(await answer.read(), first, last, _describe(size, answer))

    async def _get_from_s3(self, address: str, first: int, last: int) -> RangeAnswer:
        bucket, key, _ = self._system.split_path(address)
        answer = await self._system._call_s3("get_object", Bucket=bucket, Key=key, Range=f"bytes={first}-{last}")
        async with answer["Body"] as body:
            first, last, size = parse_range(answer.get("ContentRange"), address)
            content = await body.read()
        tag = answer.get("ETag") or str(answer.get("LastModified") or "")
        return RangeAnswer(content, first, last, RemoteFile(size, tag))

    async def _with_retries(self, address: str, verb: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Await ``ask()``, again after a pause for as long as it fails in a way that may pass, then raise UserError.

        ``__cause__`` is the last error of the system or a package.
        """
        now = asyncio.get_running_loop().time
        began, attempts, pause = now(), 0, self.first_pause_seconds
        limit = _ALL_PAUSES * self.first_pause_seconds
        while True:
            attempts += 1
            try:
                return await ask()
            except network_errors() as error:
                seconds = now() - began
                problem = f"{address} cannot be {verb}"
                if is_final(error):
                    raise UserError(f"{problem}: {give_reason(error)}") from error
                if seconds >= limit:
                    raise StorageOutage(
                        f"{problem} in {attempts} attempts within {seconds:.0f} s: {give_reason(error)}"
                    ) from error
                self._tell_once(f"{problem}: {give_reason(error)}; requests that fail are repeated for {limit:g} s")
                wish = find_wish(error)
            await asyncio.sleep(max(wish, min(pause, limit - seconds)))
            pause = min(2 * pause, _LONGEST_PAUSE * self.first_pause_seconds)

    def _tell_once(self, line: str) -> None:
        if not self._told[0]:
            self._told[0] = 1
            print(f"note: {line} (not shown again)", file=sys.stderr, flush=True)


@atexit.register
def _end_requests() -> None:
    """End all requests in progress: asyncio would complain about each that the end of Python cuts off."""
    loop = getattr(sys.modules.get("fsspec.asyn"), "loop", [None])[0]

    async def end() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    if loop is not None:
        with contextlib.suppress(concurrent.futures.TimeoutError):
            asyncio.run_coroutine_threadsafe(end(), loop).result(_LONGEST_END)


async def _gather(limited: Callable[[Awaitable[Any]], Awaitable[Any]], coroutines: list[Awaitable[Any]]) -> list[Any]:
    """Await coroutines at once; if one fails, the others are ended before its error is raised."""
    tasks = [asyncio.ensure_future(limited(coroutine)) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def find_tag(answer: Any) -> str:
    """Return what identifies the version of a file: its ETag, else its time; empty without both."""
    # Apache marks the tag of a file that has just been written as weak, and no longer a second later.
    return answer.headers.get("ETag", "").removeprefix("W/") or answer.headers.get("Last-Modified") or ""


def _describe(size: int, answer: Any) -> RemoteFile:
    """Return the file of an answer over HTTP."""
    changed, now = _find_time(answer.headers), _find_time({"Last-Modified": answer.headers.get("Date")})
    is_new = changed > 0 and 0 < now < changed + _UNSURE_SECONDS
    return RemoteFile(size, find_tag(answer), changed, secrets.token_hex(8) if is_new else "")


def _find_time(facts: Any) -> float:
    sent = facts.get("LastModified") or facts.get("Last-Modified")  # a datetime of S3, or text of HTTP
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # missing, or not a date
        return (parsedate_to_datetime(sent) if isinstance(sent, str) else sent).timestamp()
    return 0.0


def _kind(tag: str) -> str:
    return "ETag" if tag.startswith('"') else "date" if tag else "none"


def is_compressed(answer: Any) -> bool:
    """Return whether the content of an answer is compressed."""
    return answer.headers.get("Content-Encoding", "identity").lower() not in ("", "identity")


def parse_range(sent: str | None, address: str) -> tuple[int, int, int]:
    """Return the first and the last byte, and the file's size, of an answer's Content-Range, or raise UserError."""
    match = _CONTENT_RANGE.fullmatch((sent or "").strip())
    if match is None:
        raise UserError(f"{address}: the server sends whole files only (no byte ranges); copy the data to this machine")
    first, last, size = map(int, match.groups())
    return first, last, size


class RemoteReader(io.RawIOBase):
    """Reads a file front to back, and skips parts of it; wrapped in ``io.BufferedReader``."""

    def __init__(self, folder: RemoteFolder, name: str, file: RemoteFile) -> None:
        super().__init__()
        self._folder, self._name, self._file = folder, name, file
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position, which may be beyond the end."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into ``buffer``; return their number, 0 at the end."""
        size = max(0, min(len(buffer), self._file.size - self._position))
        [content] = self._folder.read_ranges([RangeRequest(self._name, self._file, self._position, size)])
        buffer[:size] = content
        self._position += size
        return size
