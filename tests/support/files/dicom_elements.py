"""Elements of DICOM files, byte by byte."""

import struct

LONG = (b"OB", b"OW", b"SQ", b"UN", b"UT")


def element(group, number, kind, content=b"", order="<", length=None) -> bytes:
    """An element as the standard writes it (PS3.5, 7.1); implicit if ``kind`` is None."""
    length = len(content) if length is None else length
    tag = struct.pack(order + "HH", group, number)
    if kind is None:
        return tag + struct.pack(order + "I", length) + content
    if kind in LONG:
        return tag + kind + b"\0\0" + struct.pack(order + "I", length) + content
    return tag + kind + struct.pack(order + "H", length) + content


def item(*elements, length=None, order="<") -> bytes:
    return element(0xFFFE, 0xE000, None, b"".join(elements), order, length)


def meta(syntax: bytes) -> bytes:
    more = element(0x0002, 0x0012, b"UI", b"1.2\0")
    return bytes(128) + b"DICM" + element(0x0002, 0x0010, b"UI", syntax) + more
