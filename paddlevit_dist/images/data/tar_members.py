"""Locate the members of an uncompressed tar file without reading their contents.

Understood: ustar, GNU long names and large sizes, PAX paths and sizes. A tar file inside another one is read in place.
Written by hand because ``tarfile`` takes a corrupt or missing header for the end of the archive, allocates memory
for names of any declared size, keeps each member in memory, and takes three times as long.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

from ...errors import UserError
from ...files import require_regular

BLOCK_BYTES = 512
_REGULAR = b"0\0" + b"7"  # type flags of plain files; "7" is a contiguous one
_LARGEST_NAME_BYTES = 1 << 20
_MOST_DIGITS = 20  # of a length
_COMPRESSIONS = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
}


class Member(NamedTuple):
    """A plain file in a tar file.

    Attributes:
        name: its path as the archive spells it.
        offset: of its first byte in the (outermost) tar file.
        size: in bytes.
    """

    name: bytes
    offset: int
    size: int


class TarFile:
    """Reads headers of one tar file; a context manager."""

    def __init__(self, path: str) -> None:
        """Open ``path``.

        Raises:
            UserError: it cannot be read or is compressed.
        """
        self.path = path
        try:
            require_regular(path)
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        self.size = os.fstat(self._file).st_size
        self._refuse_compressed(0, path)

    def __enter__(self) -> TarFile:
        return self

    def __exit__(self, *_) -> None:
        os.close(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``.

        Raises:
            UserError: the file ends earlier.
        """
        try:
            content = os.pread(self._file, size, offset)
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}") from error
        if len(content) != size:
            raise self._truncated(f"expected at least {offset + size} bytes")
        return content

    def members(self, inside: Optional[Member] = None) -> Iterator[Member]:
        """The plain files in order; those of the tar file that is the member ``inside``, if given.

        Raises:
            UserError: truncated, corrupt, compressed, or with a sparse member.
        """
        at, end = (0, self.size) if inside is None else (inside.offset, inside.offset + inside.size)
        if inside is not None:
            self._refuse_compressed(at, f"{self.path} member {os.fsdecode(inside.name)}")
        extended: Dict[str, bytes] = {}
        while True:
            if at + BLOCK_BYTES > end:
                raise self._truncated(f"no end mark at byte {at}")
            header = self.read(at, BLOCK_BYTES)
            if not header.strip(b"\0"):
                return  # the end mark
            name, size, kind = self._parse(header, at)
            size = int(extended.get("size", size))
            content = at + BLOCK_BYTES
            if content + size > end:
                shown = os.fsdecode(extended.get("path", name))
                raise self._truncated(f"member {shown} ends at byte {content + size}, the archive at {end}")
            if kind in b"LxgKX":
                self._extend(extended, kind, content, size, at)
            else:
                if kind == b"S" or "sparse" in extended:
                    raise UserError(
                        f"{self.path} stores {os.fsdecode(name)} with holes; pack it again without --sparse"
                    )
                if kind in _REGULAR and not name.endswith(b"/"):
                    yield Member(extended.get("path", name), content, size)
                extended = {}
            at = content + size + -size % BLOCK_BYTES

    def _parse(self, header: bytes, at: int) -> Tuple[bytes, int, bytes]:
        try:
            # The sum of the header's bytes, with its own field taken as spaces.
            intact = sum(header) - sum(header[148:156]) + 8 * 32 == int(header[148:156].strip(b" \0") or b"0", 8)
            size = _number(header[124:136])
        except ValueError:
            intact = False
        if not intact:
            if at == 0:
                raise UserError(f"{self.path} is not a tar file: its first block is not a header")
            raise UserError(f"{self.path} is damaged: no valid header at byte {at}; copy or create it again")
        name = header[:100].partition(b"\0")[0]
        if header[257:263] == b"ustar\0" and header[345:346] != b"\0":
            name = header[345:500].partition(b"\0")[0] + b"/" + name
        return name, size, header[156:157]

    def _extend(self, extended: Dict[str, bytes], kind: bytes, offset: int, size: int, at: int) -> None:
        """Record what a header preceding a member says about it."""
        if kind in b"gK":  # for all members (never their path or size), or the target of a link
            return
        if size > _LARGEST_NAME_BYTES:
            raise UserError(f"{self.path} is damaged: a name of {size} bytes at byte {at}; copy or create it again")
        content = self.read(offset, size)
        if kind == b"L":
            extended["path"] = content.rstrip(b"\0")
            return
        for keyword, value in _pax_records(content):
            if keyword == b"path" or (keyword == b"size" and value.isdigit() and len(value) <= _MOST_DIGITS):
                extended[keyword.decode()] = value
            elif keyword.startswith(b"GNU.sparse"):
                extended["sparse"] = value

    def _refuse_compressed(self, offset: int, name: str) -> None:
        beginning = os.pread(self._file, 6, offset)
        for magic, (kind, command) in _COMPRESSIONS.items():
            if beginning.startswith(magic):
                raise UserError(
                    f"{name} is compressed ({kind}), but pictures are read in place: uncompress it once with {command}"
                )

    def _truncated(self, reason: str) -> UserError:
        return UserError(f"{self.path} is truncated at {self.size} bytes: {reason}; copy or download it again")


def _number(field: bytes) -> int:
    """A size: octal digits, or big-endian binary where the first bit is set (GNU, above 8 GiB)."""
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    size = int(field.strip(b" \0") or b"0", 8)
    if size < 0:
        raise ValueError("a negative size")
    return size


def _pax_records(content: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """``length keyword=value`` lines; the length counts the whole line."""
    while content:
        length, _, _ = content.partition(b" ")
        if not length.isdigit() or len(length) > _MOST_DIGITS or not len(length) < int(length) <= len(content):
            return
        keyword, _, value = content[len(length) + 1 : int(length) - 1].partition(b"=")
        yield keyword, value
        content = content[int(length) :]
