"""Whether the files of a checkpoint have their recorded size and digest, and JSON the expected form."""

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from ..runtime.errors import UserError
from ..runtime.outages import read_through_outages
from ..runtime.printing import shorten
from ..runtime.text_files import read_bytes
from .directory_names import MANIFEST, STATE

LARGEST_BYTES = 16 << 20  # of a JSON or YAML file; this package writes some kilobytes
_BLOCK_BYTES = 32 << 20  # read and hashed at once
Count = Annotated[int, Meta(ge=0, le=1 << 53)]


class DamagedCheckpointError(Exception):
    """A checkpoint is incomplete or has changed on disk."""


class _FileRecord(msgspec.Struct, forbid_unknown_fields=True):
    bytes: Count
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _FileManifest(msgspec.Struct):
    format: Literal[1]
    files: dict[Annotated[str, Meta(pattern=r"^[^/\\\x00]{1,255}\Z")], _FileRecord]


_Checked = TypeVar("_Checked", bound=msgspec.Struct)


def fingerprint(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as stream:
        # Large blocks: reading and hashing release the interpreter's lock, and a busy main thread returns it late.
        block = memoryview(bytearray(min(_BLOCK_BYTES, max(os.fstat(stream.fileno()).st_size, 1))))
        while number := stream.readinto(block):
            digest.update(block[:number])
            size += number
    return {"bytes": size, "sha256": digest.hexdigest()}


@contextlib.contextmanager
def verify_while_reading(path: Path) -> Iterator[None]:
    """Compare a file with its checkpoint's manifest, if it is listed in one, in a thread, while the block reads it.

    Raises UserError if the file has changed since it was written, also if the block raised an error.
    """
    directory, advice = path.parent, "restore it, or use another checkpoint of the run"
    expected = None
    if (directory / STATE).is_file() and (directory / MANIFEST).is_file():
        try:
            expected = read_manifest(directory).get(path.name)
        except DamagedCheckpointError as error:
            raise UserError(f"{error}: the checkpoint is damaged; {advice}") from error
    if expected is None:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        damage = pool.submit(find_damage, path, expected)
        try:
            yield
        finally:
            problem = damage.result()
            if problem:
                raise UserError(f"{problem}: the checkpoint is damaged; {advice}")


def find_damage(path: Path, expected: dict[str, Any] | None) -> str | None:
    """Describe how a file differs from its entry in the manifest; None if it does not."""
    try:
        size = read_through_outages(path.stat, was_there=True).st_size
        if expected is None or size != expected["bytes"]:
            return f"{path} has {size} bytes, {expected and expected['bytes']} were written"
        if read_through_outages(functools.partial(fingerprint, path), was_there=True) != expected:
            return f"{path} has changed since it was written (SHA-256 differs)"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror or error})"
    return None


def read_manifest(directory: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 by name of a checkpoint's files, as written; raises DamagedCheckpointError."""
    return parse_record(directory / MANIFEST, _FileManifest)["files"]


def parse_record(file: Path, kind: type[_Checked]) -> dict[str, Any]:
    """Read the plain values in a JSON file that must match the schema ``kind``."""
    try:
        content = msgspec.json.decode(read_bytes(file, LARGEST_BYTES))
    except (OSError, ValueError, MemoryError, RecursionError) as error:
        raise DamagedCheckpointError(f"{file} cannot be read ({describe_reason(error)})") from error
    convert_record(file, content, kind)
    return content


def convert_record(file: Path, content: object, kind: type[_Checked]) -> _Checked:
    """Return the content of a file as the schema ``kind``; raises DamagedCheckpointError."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise DamagedCheckpointError(f"{file} cannot be read ({describe_reason(error)})") from error


def describe_reason(error: Exception) -> str:
    """Return why a file cannot be read, for messages."""
    text = error.strerror if isinstance(error, OSError) else None
    return shorten(text or str(error) or type(error).__name__)
