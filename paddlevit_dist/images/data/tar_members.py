"""Members of tar files: what can be read of them, in place, and what cannot."""

import os
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.files import open_regular, readable

_UNPACK = {b"\x1f\x8b": "gunzip", b"BZh": "bunzip2", b"\xfd7zXZ": "unxz", b"\x28\xb5\x2f\xfd": "unzstd"}
_NO_FILES = (tarfile.DIRTYPE, b"D", b"V")  # folders, their lists (GNU), and the label of a volume
_NO_TAR = "parts behind the end mark that are not a tar file"
_LOST_LINK = "links that lead to no file in it (pack what they lead to with tar --dereference --hard-dereference)"
_SPECIAL = "devices, pipes and other special files"
_MOST_LINKS = 40  # that a link leads over, as in Linux
_TAIL_BYTES = 1 << 16
# What tarfile raises on damaged headers.
_DAMAGE = (tarfile.TarError, ArithmeticError, EOFError, LookupError, RecursionError, ValueError)


class TarMember(NamedTuple):
    """A file in a tar file: its path in the archive, and where its bytes are in the outermost tar file.

    ``problem`` says why it cannot be read, or is empty; ``is_link``: another member has its bytes.
    """

    name: bytes
    offset: int
    size: int
    problem: str = ""
    is_link: bool = False


def iterate_members(path: str) -> Iterator[TarMember]:
    """Yield the files of a tar file in order, then its hard and symbolic links to other files in it, by their offsets.

    Files of a tar file inside it have its name as a prefix: ``n01440764.tar/n01440764_18.JPEG``. A ``UserError`` says
    that the file cannot be read, is damaged, truncated or compressed, or stores a member with holes.
    """
    with readable(path), open_regular(path, "rb") as file:
        yield from read_members(path, file, os.fstat(file.fileno()).st_size)


def read_members(shown: str, file: Any, size: int) -> Iterator[TarMember]:
    """Yield the files of an opened tar file of ``size`` bytes; see ``iterate_members``.

    Raises:
        UserError: it is damaged, truncated or compressed, or stores a member with holes; ``shown`` names it.
        OSError: it cannot be read.
    """
    beginning = file.read(6)
    command = next((tool for magic, tool in _UNPACK.items() if beginning.startswith(magic)), None)
    if command is not None:
        raise UserError(f"{shown} is compressed, but images are read in place: uncompress it once with {command}")
    entries = dict[bytes, TarMember | tarfile.TarInfo]()  # files and links, as unpacking would leave them
    start: int | None = 0
    while start is not None:
        file.seek(start)
        try:
            if start:  # where tarfile takes anything else for the end
                tarfile.TarInfo.frombuf(file.read(tarfile.BLOCKSIZE), "utf-8", "surrogateescape")
                file.seek(start)
            tar = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - the caller closes the file
        except _DAMAGE as error:
            if start:
                yield TarMember(b"byte %d" % start, start, size - start, _NO_TAR)
                break
            raise UserError(f"{shown} is not a tar file: {error}") from error
        try:
            yield from _read_archive(shown, tar, start, size, entries)
        except _DAMAGE as error:
            raise UserError(f"{shown} is damaged before byte {tar.offset}: {error}; copy or create it again") from error
        start = _find_next(shown, file, tar.offset, size)
    links = [name for name, entry in entries.items() if not isinstance(entry, TarMember) or entry.is_link]
    found = [(name, _follow(entries[name], entries)) for name in links]
    yield from (TarMember(name, 0, 0, _LOST_LINK) for name, target in found if target is None)
    targets = [target._replace(name=name, is_link=True) for name, target in found if target is not None]
    for link in sorted(targets, key=lambda target: target.offset):
        yield from _expand(shown, tar, link)


def _read_archive(
    shown: str, tar: Any, end: int, size: int, entries: dict[bytes, TarMember | tarfile.TarInfo]
) -> Iterator[TarMember]:
    """Yield the files of the archive that begins at byte ``end``; note them, and the links, by their paths."""
    for info in iter(tar.next, None):
        tar.members.clear()  # it would store a million of them
        if info.offset_data < end or info.size < 0:
            raise tarfile.ReadError(f"member {info.name} points backwards")
        end = info.offset_data + info.size
        if info.issparse():
            raise UserError(f"{shown} stores {info.name} with holes; pack it again without --sparse")
        name = os.fsencode(info.name).removeprefix(b"./")
        path = os.path.normpath(name)
        if info.islnk():  # leads to what has this name so far, even if another file replaces it
            target = entries.get(os.path.normpath(os.fsencode(info.linkname)))
            if isinstance(target, TarMember):
                entries[path] = target._replace(is_link=True)
                continue
            if target is not None:  # a symbolic link, which may lead elsewhere from this folder
                info.type, info.linkname = target.type, target.linkname
        if info.issym() or info.islnk():
            entries[path] = info
        elif not info.isfile():
            if info.type not in _NO_FILES:
                yield TarMember(name, 0, 0, _SPECIAL)
        elif end > size:
            raise _explain_truncation(shown, size, f"member {info.name} ends at byte {end}")
        else:
            entries[path] = member = TarMember(name, info.offset_data, info.size)
            yield from _expand(shown, tar, member)


def _follow(
    entry: TarMember | tarfile.TarInfo | None, entries: dict[bytes, TarMember | tarfile.TarInfo]
) -> TarMember | None:
    """Return the file to which a link leads, also by other links; None if it is not in the tar file."""
    for _ in range(_MOST_LINKS):
        if entry is None or isinstance(entry, TarMember):
            return entry
        base = os.path.dirname(entry.name) if entry.issym() else ""
        entry = entries.get(os.path.normpath(os.fsencode(os.path.join(base, entry.linkname))))
    return None


def _expand(shown: str, tar: Any, member: TarMember) -> Iterator[TarMember]:
    """Yield a file, or the files of a tar file."""
    if not member.name.lower().endswith(b".tar"):
        yield member
        return
    window = tarfile.TarInfo()
    window.offset_data, window.size = member.offset, member.size
    inside = read_members(f"{shown} member {os.fsdecode(member.name)}", tar.extractfile(window), member.size)
    for inner in inside:
        yield inner._replace(name=b"%s/%s" % (member.name, inner.name), offset=member.offset + inner.offset)


def _find_next(shown: str, file: BinaryIO, offset: int, size: int) -> int | None:
    """Return where more than zeros follows the end mark at ``offset``, as in joined archives; None if nothing does.

    tarfile stops at anything that is not a header: a ``UserError`` says that it is not an end mark.
    """
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise _explain_truncation(shown, size, f"no end mark at byte {offset}")
    if any(block):
        raise UserError(f"{shown} is damaged: no valid header at byte {offset}; copy or create it again")
    while block:
        zeros = len(block) - len(block.lstrip(b"\0"))
        if zeros < len(block):
            return offset + zeros // tarfile.BLOCKSIZE * tarfile.BLOCKSIZE
        offset += len(block)
        block = file.read(_TAIL_BYTES)
    return None


def _explain_truncation(shown: str, size: int, reason: str) -> UserError:
    return UserError(f"{shown} is truncated at {size} bytes: {reason}; copy or download it again")
