"""Files below an address, ``s3://``, ``http://`` or ``https://``: listed, and read by byte ranges.

``fsspec`` and ``s3fs`` find credentials, sign and list. A range is requested here, since an answer has to carry the
size and the tag (ETag) of the file: a file that was replaced since it was listed is refused, and never mixed with the
former one.
"""

import asyncio
import importlib
import io
import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..runtime.errors import UserError

SCHEMES = ("s3", "http", "https")
_INSTALL = "pip install '.[remote]' in a clone"
_MOST_REQUESTS = 32  # at once, of one process
_ATTEMPTS = 5
_WORTH_REPEATING = (408, 429)  # of the answers 4xx: too slow, too many
_lock = threading.Lock()


class RemoteFile(NamedTuple):
    """What identifies the content of a file.

    Attributes:
        size: in bytes.
        tag: its ETag, or else the time of its last change; empty if the server sends neither.
    """

    size: int
    tag: str


class RangeRequest(NamedTuple):
    """Bytes of a file.

    Attributes:
        name: of the file, below the address of the folder.
        file: size and tag that the answer must have.
        offset: of the first byte.
        size: number of bytes.
    """

    name: str
    file: RemoteFile
    offset: int
    size: int


class RemoteFolder:
    """The files below an address.

    Its pickle is the address. A forked process opens its own connections.

    Args:
        address: ``s3://bucket/folder``, ``http://...`` or ``https://...``.
        timeout_seconds: without a byte, after which a request over HTTP counts as failed.
        first_pause_seconds: before a failed request is repeated; it doubles with each attempt.

    Raises:
        UserError: another scheme, or a package is not installed.
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
        self._system: Any = None
        self._process = 0

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_system": None, "_process": 0}

    def list_files(self, folder: str = "") -> dict[str, RemoteFile | None]:
        """Return the files and folders in a folder by name; the file is None where only a request would tell.

        Raises:
            FileNotFoundError: there is no such folder.
            UserError: it cannot be listed.
        """
        address = self._join(folder)
        try:
            entries = self._open().ls(f"{address}/", detail=True, refresh=True)
        except FileNotFoundError:
            raise
        except _network_errors() as error:
            raise UserError(f"{address}/ cannot be listed: {_reason(error)}") from error
        files = {}
        for entry in entries:
            name = os.path.basename(entry["name"].rstrip("/"))
            has_size = entry["type"] == "file" and entry.get("size") is not None
            files[name] = RemoteFile(entry["size"], entry.get("ETag", "")) if has_size else None
        return files

    def examine(self, names: Sequence[str]) -> list[RemoteFile]:
        """Ask for size and tag of each file.

        Raises:
            UserError: a file is missing or may not be read, or the server does not answer.
        """
        return self._run([self._examine_one(name) for name in names])

    def read(self, name: str) -> bytes:
        """Read a whole file.

        Raises:
            FileNotFoundError: it does not exist.
            UserError: it cannot be read.
        """
        try:
            return self._open().cat_file(self._join(name))
        except FileNotFoundError:
            raise
        except _network_errors() as error:
            raise UserError(f"{self._join(name)} cannot be read: {_reason(error)}") from error

    def read_ranges(self, requests: Sequence[RangeRequest]) -> list[bytes]:
        """Read byte ranges, several at once.

        Raises:
            UserError: a file is missing or has changed, the server does not answer, or cannot send a part of a file.
        """
        return self._run([self._read_range(request) for request in requests])

    def _join(self, name: str) -> str:
        return f"{self.address}/{name}" if name else self.address

    def _open(self) -> Any:
        """Return fsspec's file system, whose connections belong to one process."""
        with _lock:
            if self._system is None or self._process != os.getpid():
                fsspec = importlib.import_module("fsspec")
                # trust_env: proxies and passwords (netrc) of the environment, as for other downloads
                options = {} if self._is_s3 else {"client_kwargs": {"trust_env": True}}
                self._system = fsspec.filesystem("s3" if self._is_s3 else "http", **options)
                for name in ("aiobotocore", "botocore", "fsspec", "s3fs"):  # they tell where credentials were found
                    logging.getLogger(name).setLevel(logging.WARNING)
                if not self._is_s3:
                    self._sync(self._system.set_session())
                self._process = os.getpid()
            return self._system

    def _sync(self, coroutine: Any) -> Any:
        async def run() -> Any:
            return await coroutine

        return importlib.import_module("fsspec.asyn").sync(self._system.loop, run)

    def _run(self, coroutines: list[Any]) -> list[Any]:
        self._open()
        limit = asyncio.Semaphore(_MOST_REQUESTS)

        async def limited(coroutine: Any) -> Any:
            async with limit:
                return await coroutine

        return self._sync(_gather(limited, coroutines))

    async def _examine_one(self, name: str) -> RemoteFile:
        async def ask() -> RemoteFile:
            info = await self._system._info(self._join(name))
            if info.get("size") is None:
                raise UserError(f"{self._join(name)}: the server does not tell its size, so it cannot be read in parts")
            return RemoteFile(info["size"], info.get("ETag") or str(info.get("Last-Modified") or ""))

        return await self._with_retries(name, ask)

    async def _read_range(self, request: RangeRequest) -> bytes:
        if not request.size:
            return b""
        get = self._get_from_s3 if self._is_s3 else self._get_over_http

        async def ask() -> bytes:
            content, file = await get(self._join(request.name), request.offset, request.offset + request.size - 1)
            if file != request.file:
                raise UserError(
                    f"{self._join(request.name)} has changed since it was opened: {file.size:,} bytes with tag "
                    f"{file.tag or 'none'}, before {request.file.size:,} with {request.file.tag or 'none'}; start the "
                    "run again with unchanged files"
                )
            if len(content) != request.size:
                raise ConnectionError(f"{len(content):,} of {request.size:,} bytes arrived")
            return content

        return await self._with_retries(request.name, ask)

    async def _get_over_http(self, address: str, first: int, last: int) -> tuple[bytes, RemoteFile]:
        aiohttp = importlib.import_module("aiohttp")
        options = dict(self._system.kwargs)
        headers = {**options.pop("headers", {}), "Range": f"bytes={first}-{last}", "Accept-Encoding": "identity"}
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self.timeout_seconds, sock_read=self.timeout_seconds)
        session = await self._system.set_session()
        async with session.get(address, headers=headers, timeout=limits, **options) as answer:
            answer.raise_for_status()
            total = answer.headers.get("Content-Range", "").rpartition("/")[2]
            if answer.status != 206 or not total.isdigit():
                raise UserError(
                    f"{address}: the server sends whole files only (no byte ranges); copy the data to this machine"
                )
            tag = answer.headers.get("ETag") or answer.headers.get("Last-Modified") or ""
            return await answer.read(), RemoteFile(int(total), tag)

    async def _get_from_s3(self, address: str, first: int, last: int) -> tuple[bytes, RemoteFile]:
        bucket, key, _ = self._system.split_path(address)
        answer = await self._system._call_s3("get_object", Bucket=bucket, Key=key, Range=f"bytes={first}-{last}")
        async with answer["Body"] as body:
            content = await body.read()
        return content, RemoteFile(int(answer["ContentRange"].rpartition("/")[2]), answer["ETag"])

    async def _with_retries(self, name: str, ask: Any) -> Any:
        pause = self.first_pause_seconds
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await ask()
            except _network_errors() as error:
                reason, is_final = _reason(error), _is_final(error)
                if is_final or attempt == _ATTEMPTS:
                    times = "" if is_final else f" in {_ATTEMPTS} attempts"
                    raise UserError(f"{self._join(name)} cannot be read{times}: {reason}") from error
            await asyncio.sleep(pause)
            pause *= 2


async def _gather(limited: Any, coroutines: list[Any]) -> list[Any]:
    """Await coroutines at once; if one fails, the others are ended before its error is raised."""
    tasks = [asyncio.ensure_future(limited(coroutine)) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _network_errors() -> tuple[type[BaseException], ...]:
    """Return the types that mean a failed request: of the system, and of the packages that are in use."""
    aiohttp, botocore = importlib.import_module("aiohttp"), sys.modules.get("botocore.exceptions")
    of_s3 = (botocore.BotoCoreError,) if botocore is not None else ()  # s3fs imports it
    return (OSError, asyncio.TimeoutError, aiohttp.ClientError, *of_s3)


def _is_final(error: BaseException) -> bool:
    """Return whether another attempt cannot help: the file is missing, or may not be read."""
    status = getattr(error, "status", None)
    is_refusal = isinstance(status, int) and 400 <= status < 500 and status not in _WORTH_REPEATING
    return is_refusal or isinstance(error, FileNotFoundError | PermissionError)


def _reason(error: BaseException) -> str:
    """Return an error's reason in one line."""
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return f"the server answers {status} {getattr(error, 'message', '')}".rstrip()
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split()) or type(error).__name__


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
