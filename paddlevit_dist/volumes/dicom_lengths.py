"""Whether the elements of a DICOM file are as long as they say: the library that reads it takes memory for up to four
gigabytes before it looks at what is there.

Source: DICOM PS3.5, chapters 7 (data elements, their lengths, sequences) and A.4 (pixels in fragments), PS3.10, chapter
7 (preamble and file meta information).
"""

from __future__ import annotations

import mmap
import struct
import zlib
from typing import Optional, Tuple, Union

_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())  # with four bytes of length after two unused ones
_SHORT = frozenset(b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split())
_IMPLICIT, _DEFLATED, _BIG_ENDIAN = b"1.2.840.10008.1.2", b"1.2.840.10008.1.2.1.99", b"1.2.840.10008.1.2.2"
_SYNTAX, _PIXELS = (0x0002, 0x0010), (0x7FE0, 0x0010)
_ITEMS = 0xFFFE  # group of items and of the ends of items and sequences
_UNKNOWN = 0xFFFFFFFF  # a length that an end mark gives
_LARGEST_INFLATED = 1 << 28  # bytes

_Content = Union[bytes, mmap.mmap]


def find_wrong_length(file: str) -> Optional[str]:
    """What is wrong with the first element whose length cannot be right; None if all can be.

    Raises:
        OSError: it cannot be read.
    """
    with open(file, "rb") as stream:
        try:
            content: _Content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # empty
            return "it is empty"
    start = 132 if content[128:132] == b"DICM" else 0
    try:
        at, syntax = _walk(content, start, "<", True, only_group=0x0002) if start else (0, b"")
        if syntax == _DEFLATED:
            inflated = zlib.decompressobj(-zlib.MAX_WBITS)
            content, at = inflated.decompress(content[at:], _LARGEST_INFLATED), 0
            if inflated.unconsumed_tail:
                return f"it inflates to more than {_LARGEST_INFLATED:,} bytes"
        is_explicit = content[at + 4 : at + 6] in _LONG | _SHORT
        _walk(content, at, ">" if syntax == _BIG_ENDIAN else "<", is_explicit and syntax != _IMPLICIT)
    except (ValueError, zlib.error) as error:
        return str(error)
    return None


def _walk(
    content: _Content, at: int, order: str, is_explicit: bool, only_group: Optional[int] = None
) -> Tuple[int, bytes]:
    """Go through all elements, also those inside sequences, which are not skipped.

    Returns:
        Where the elements of ``only_group`` end, and the transfer syntax among them.
    """
    end, syntax, in_fragments = len(content), b"", False
    while at + 8 <= end:
        group, element = struct.unpack_from(order + "HH", content, at)
        if only_group is not None and group != only_group:
            break
        start, length, kind = _header(content, at, order, is_explicit and group != _ITEMS)
        holds_elements = kind == b"SQ" or length == _UNKNOWN or (group == _ITEMS and not in_fragments)
        if (group, element) == _PIXELS:
            in_fragments = length == _UNKNOWN
        elif group == _ITEMS and element == 0xE0DD:
            in_fragments = False
        if length != _UNKNOWN and start + length > end:
            raise ValueError(
                f"element ({group:04x},{element:04x}) announces {length:,} bytes, {max(end - start, 0):,} are left"
            )
        if (group, element) == _SYNTAX:
            syntax = content[start : start + length].strip(b"\0 ")
        at = start if holds_elements else start + length
    return at, syntax


def _header(content: _Content, at: int, order: str, is_explicit: bool) -> Tuple[int, int, bytes]:
    """Where an element's content begins, its length, and its kind where the file says it."""
    if not is_explicit:
        return at + 8, struct.unpack_from(order + "I", content, at + 4)[0], b""
    kind = content[at + 4 : at + 6]
    if kind in _SHORT:
        return at + 8, struct.unpack_from(order + "H", content, at + 6)[0], kind
    if kind not in _LONG:
        raise ValueError(f"an element at byte {at:,} is of the unknown kind {ascii(kind)[1:]}")
    if at + 12 > len(content):
        raise ValueError("it ends within an element")
    return at + 12, struct.unpack_from(order + "I", content, at + 8)[0], kind
