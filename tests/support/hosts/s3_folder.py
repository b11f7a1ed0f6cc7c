"""A folder in the place of a bucket of S3, for readers that go through fsspec."""

import contextlib
import importlib
from collections import Counter
from pathlib import Path
from typing import Any


class SentBody(contextlib.AbstractAsyncContextManager[Any]):
    """The bytes that S3 sends of a file."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def __aexit__(self, *error: object) -> None:
        return None

    async def read(self) -> bytes:
        return self.content


class S3Folder:
    """fsspec's file system of S3 with the files of a folder as those of ``s3://bucket``; it counts its answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = importlib.import_module("fsspec.asyn").get_loop()
        self.calls: Counter[str] = Counter()

    def split_path(self, address: str) -> tuple[str, str, None]:
        bucket, _, key = address.removeprefix("s3://").partition("/")
        return bucket, key, None

    def _describe(self, path: Path) -> dict[str, Any]:
        kind = "directory" if path.is_dir() else "file"
        return {"name": f"bucket/{path.name}", "type": kind, "size": path.stat().st_size, "ETag": f'"{path.name}"'}

    def _find(self, address: str) -> Path:
        path = self.folder / self.split_path(address)[1]
        if not path.exists():
            raise FileNotFoundError(address)
        return path

    async def _ls(self, address: str, detail: bool, refresh: bool) -> list[dict[str, Any]]:
        self.calls["list"] += 1
        return [self._describe(path) for path in self._find(address).iterdir()]

    async def _info(self, address: str) -> dict[str, Any]:
        self.calls["examine"] += 1
        return self._describe(self._find(address))

    async def _cat_file(self, address: str) -> bytes:
        return self._find(address).read_bytes()

    async def _call_s3(self, name: str, Bucket: str, Key: str, Range: str) -> dict[str, Any]:  # noqa: N803
        first, last = map(int, Range.removeprefix("bytes=").split("-"))
        content = (self.folder / Key).read_bytes()
        sent = f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}"
        tag = self._describe(self.folder / Key)["ETag"]
        return {"Body": SentBody(content[first : last + 1]), "ContentRange": sent, "ETag": tag}
