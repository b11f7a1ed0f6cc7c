"""Files damaged in ways that readers have stumbled over: the same ones for a seed, in every run."""

import gzip
import io
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_EXTREMES = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_NUMBERS = (b"-1", b"0", b"1e999", b"nan", b"-2147483649", b"4294967296", b"99999999999", b"18446744073709551616")


class Packing(NamedTuple):
    """How to get at what a file protects by compression or a checksum, so that damage there reaches the reader.

    Attributes:
        change: ``change(content, damage, rng)`` is the file with its inside replaced by ``damage(inside)``.
    """

    change: Callable[[bytes, Callable[[bytes], bytes], np.random.Generator], bytes]


def mutated(content: bytes, rng: np.random.Generator, is_text: bool, packing: Packing | None = None) -> bytes:
    """A damaged copy; half of them damaged inside, where the file is packed."""

    def damage(part: bytes) -> bytes:
        for _ in range(int(rng.integers(1, 4))):
            kinds = _KINDS + (_OF_TEXT * 2 if is_text else ())
            part = kinds[int(rng.integers(len(kinds)))](part or b"\0", rng)
        return part

    if packing is not None and rng.random() < 0.5:
        return packing.change(content, damage, rng)
    return damage(content)


def _at(content: bytes, rng: np.random.Generator) -> int:
    """A place, in half of all cases among the first bytes, where headers are."""
    end = len(content) if rng.random() < 0.5 else min(len(content), 400)
    return int(rng.integers(0, end))


def _flip(content: bytes, rng: np.random.Generator) -> bytes:
    at = _at(content, rng)
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(8))]) + content[at + 1 :]


def _overwrite(content: bytes, rng: np.random.Generator) -> bytes:
    at, length = _at(content, rng), int(rng.integers(1, 40))
    return content[:at] + rng.bytes(min(length, len(content) - at)) + content[at + length :]


def _truncate(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: _at(content, rng)]


def _remove(content: bytes, rng: np.random.Generator) -> bytes:
    at = _at(content, rng)
    return content[:at] + content[at + int(rng.integers(1, 40)) :]


def _insert(content: bytes, rng: np.random.Generator) -> bytes:
    at = _at(content, rng)
    return content[:at] + rng.bytes(int(rng.integers(1, 40))) + content[at:]


def _duplicate(content: bytes, rng: np.random.Generator) -> bytes:
    at, source, length = _at(content, rng), _at(content, rng), int(rng.integers(1, 2000))
    return content[:at] + content[source : source + length] + content[at:]


def _extreme(content: bytes, rng: np.random.Generator) -> bytes:
    """A binary number of 2, 4 or 8 bytes becomes a very large, negative or zero one."""
    at, width = _at(content, rng), int(rng.choice([2, 4, 8]))
    number = _EXTREMES[int(rng.integers(len(_EXTREMES)))] & (1 << 8 * width) - 1
    return content[:at] + number.to_bytes(width, "little" if rng.random() < 0.5 else "big") + content[at + width :]


def _blow_up(content: bytes, rng: np.random.Generator) -> bytes:
    """A number in digits becomes a very large, negative or endless one."""
    found = list(re.finditer(rb"-?\d+", content[: 1 << 16]))
    if not found:
        return _extreme(content, rng)
    chosen = found[int(rng.integers(len(found)))]
    pick = int(rng.integers(len(_NUMBERS) + 2))
    number = b"9" * 5000 if pick == len(_NUMBERS) else b"1" + b"0" * 30 if pick > len(_NUMBERS) else _NUMBERS[pick]
    return content[: chosen.start()] + number + content[chosen.end() :]


def _shuffle_lines(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b"\n")
    return b"\n".join(lines[number] for number in rng.permutation(len(lines)))


def _repeat_line(content: bytes, rng: np.random.Generator) -> bytes:
    lines = content.split(b"\n")
    at = int(rng.integers(len(lines)))
    return b"\n".join(lines[:at] + [lines[int(rng.integers(len(lines)))]] * int(rng.integers(1, 5)) + lines[at:])


def _nest(content: bytes, rng: np.random.Generator) -> bytes:
    at = _at(content, rng)
    return content[:at] + (b"[", b"{", b'{"a":', b"- ")[int(rng.integers(4))] * 20_000 + content[at:]


def _break_line(content: bytes, rng: np.random.Generator) -> bytes:
    at = _at(content, rng)
    marks = (b"\n", b"\r", b"\t", b",", b"\0", b"\xe2\x80\xa8", b"\x1b[2K", b'"', b"*a", b"&a", b"<<: ")
    return content[:at] + marks[int(rng.integers(len(marks)))] + content[at:]


_KINDS = (_flip, _overwrite, _truncate, _remove, _insert, _duplicate, _extreme, _blow_up)
_OF_TEXT = (_blow_up, _shuffle_lines, _repeat_line, _nest, _break_line)


def _in_gzip(content: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    return gzip.compress(damage(gzip.decompress(content)), 1)


def _in_zip(content: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        entries = old.infolist()
        chosen = int(rng.integers(len(entries)))
        for number, entry in enumerate(entries):
            inside = old.read(entry)
            new.writestr(entry.filename, damage(inside) if number == chosen else inside, entry.compress_type)
    return out.getvalue()


def _in_tar(content: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    """One member's content, packed again with headers that are right; compressed if it was."""
    out, is_gzip = io.BytesIO(), content.startswith(b"\x1f\x8b")
    with (
        tarfile.open(fileobj=io.BytesIO(content)) as old,
        tarfile.open(fileobj=out, mode="w:gz" if is_gzip else "w", **({"compresslevel": 1} if is_gzip else {})) as new,
    ):
        members = [member for member in old if member.isfile()]
        chosen = int(rng.integers(len(members)))
        for number, member in enumerate(members):
            inside = old.extractfile(member).read()
            inside = damage(inside) if number == chosen else inside
            member.size = len(inside)
            new.addfile(member, io.BytesIO(inside))
    return out.getvalue()


def _in_png(content: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    """One chunk's content, with its length and checksum right again; other images as they are."""
    if not content.startswith(b"\x89PNG"):
        return damage(content)
    chunks, at = [], 8
    while at < len(content):
        (length,) = struct.unpack_from(">I", content, at)
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    chosen = int(rng.integers(len(chunks)))
    out = content[:8]
    for number, (kind, inside) in enumerate(chunks):
        inside = damage(inside) if number == chosen else inside
        out += struct.pack(">I", len(inside)) + kind + inside + struct.pack(">I", zlib.crc32(kind + inside))
    return out


def _in_scene(content: bytes, damage: Callable[[bytes], bytes], rng: np.random.Generator) -> bytes:
    """The header of a prepared scene, with its checksum right again; of another file, anything."""
    if not content.startswith(b"pdscene"):
        return damage(content)
    header = damage(content[8:124])[:116].ljust(116, b"\0")
    header = content[:8] + header
    return header + struct.pack("<I", zlib.crc32(header)) + content[128:]


GZIP, ZIP, TAR, PNG, SCENE = (Packing(change) for change in (_in_gzip, _in_zip, _in_tar, _in_png, _in_scene))
