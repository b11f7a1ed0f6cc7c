"""What is in tar files, listed once, and stretches of files, read in place."""

import os
import tarfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import open_regular

_MOST_OPEN = 64
_UNPACK = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
# What tarfile raises on damaged headers.
_DAMAGE = (tarfile.TarError, ArithmeticError, EOFError, LookupError, RecursionError, ValueError)


class Member(NamedTuple):
    """A plain file in a tar file.

    Attributes:
        name: its path in the archive.
        offset: of its first byte in the outermost tar file.
        size: in bytes.
    """

    name: bytes
    offset: int
    size: int


def members(path: str) -> Iterator[Member]:
    """The plain files of a tar file in order. Those of a tar file inside it carry its name as well:
    ``n01440764.tar/n01440764_18.JPEG``.

    Raises:
        UserError: the file cannot be read, is damaged, truncated or compressed, or stores a member with holes.
    """
    try:
        with open_regular(path, "rb") as file:
            yield from _members(path, file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error


def _members(shown: str, file: Any, size: int) -> Iterator[Member]:
    beginning = file.read(6)
    command = next((command for magic, command in _UNPACK.items() if beginning.startswith(magic)), None)
    if command is not None:
        raise UserError(f"{shown} is compressed, but pictures are read in place: uncompress it once with {command}")
    file.seek(0)
    try:
        tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the file is closed by who opened it
    except _DAMAGE as error:
        raise UserError(f"{shown} is not a tar file: {error}") from error
    try:
        end = 0
        for member in iter(tar.next, None):
            tar.members.clear()  # it would keep a million of them
            if member.offset_data < end or member.size < 0:
                raise tarfile.ReadError(f"member {member.name} leads backwards")
            end = member.offset_data + member.size
            if member.issparse():
                raise UserError(f"{shown} stores {member.name} with holes; pack it again without --sparse")
            if end > size:
                raise _truncated(shown, size, f"member {member.name} ends at byte {end}")
            if not member.isfile():
                continue
            name = os.fsencode(member.name).removeprefix(b"./")
            if name.lower().endswith(b".tar"):
                inside = _members(f"{shown} member {member.name}", tar.extractfile(member), member.size)
                yield from (Member(b"%s/%s" % (name, m.name), member.offset_data + m.offset, m.size) for m in inside)
            else:
                yield Member(name, member.offset_data, member.size)
    except _DAMAGE as error:
        raise UserError(f"{shown} is damaged before byte {tar.offset}: {error}; copy or create it again") from error
    _check_end(shown, file, tar.offset, size)


def _check_end(shown: str, file: BinaryIO, offset: int, size: int) -> None:
    """tarfile ends at anything that is not a header: look whether it was the block of zeros that marks the end."""
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise _truncated(shown, size, f"no end mark at byte {offset}")
    if any(block):
        raise UserError(f"{shown} is damaged: no valid header at byte {offset}; copy or create it again")


def _truncated(shown: str, size: int, reason: str) -> UserError:
    return UserError(f"{shown} is truncated at {size} bytes: {reason}; copy or download it again")


class OpenFiles:
    """Reads stretches of files, of which the last few stay open. A forked process may share them, since each read
    passes an offset; a pickled copy opens its own."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, BinaryIO] = OrderedDict()

    def __getstate__(self) -> Any:
        return {"_files": OrderedDict()}

    def read(self, path: str, offset: int, size: int) -> np.ndarray:
        """``size`` bytes, uint8, their own memory; fewer where the file ends.

        Raises:
            OSError: it cannot be read.
        """
        if path in self._files:
            self._files.move_to_end(path)
        else:
            while len(self._files) >= _MOST_OPEN:
                self._files.popitem(last=False)[1].close()
            self._files[path] = open(path, "rb", buffering=0)  # noqa: SIM115 - stays open
        content = np.empty(size, dtype=np.uint8)
        return content[: os.preadv(self._files[path].fileno(), [content], offset)]
