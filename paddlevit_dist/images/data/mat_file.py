"""Read structures of numbers and text from MATLAB version 5 files, such as the one in ImageNet's development kit.

Source: "MAT-File Format", The MathWorks: chapter 1, level 5.
Written by hand because ``scipy.io.loadmat`` crashes the interpreter on files with one corrupt byte, and allocates
whatever memory a file declares.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Dict, Iterator, List, Tuple

import numpy as np

_HEADER_BYTES = 128
_MATRIX, _COMPRESSED = 14, 15
_LARGEST_BYTES = 1 << 24  # unpacked, of which eight bytes may be an element of two hundred here
_NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8", 12: "<i8", 13: "<u8"}
_TEXTS = {1: "latin1", 2: "latin1", 4: "utf-16-le", 16: "utf-8", 17: "utf-16-le", 18: "utf-32-le"}
_STRUCT_CLASS, _CHAR_CLASS = 2, 4
_NUMBER_CLASSES = range(6, 16)


def read_structures(content: bytes, name: str) -> List[Dict[str, Any]]:
    """The elements of the structure array ``name``: field -> number, text, array, or None for any other MATLAB type.

    Raises:
        ValueError: corrupt, of another version or byte order, or without such a structure array.
    """
    if len(content) < _HEADER_BYTES or content[124:128] != b"\x00\x01IM":
        raise ValueError("it is not a little-endian MATLAB file of version 5")
    try:
        for kind, data in _elements(content[_HEADER_BYTES:]):
            if kind == _COMPRESSED:
                ((kind, data),) = _elements(_inflate(data))
            if kind == _MATRIX:
                found, value = _matrix(data)
                if found == name and isinstance(value, list):
                    return value
    except (struct.error, ArithmeticError, LookupError, TypeError, RecursionError, zlib.error) as error:
        raise ValueError(f"it is damaged ({error})") from error
    raise ValueError(f"it has no structure array '{name}'")


def _inflate(data: bytes) -> bytes:
    stream = zlib.decompressobj()
    content = stream.decompress(data, _LARGEST_BYTES)
    if not stream.eof:
        raise ValueError("a compressed part is truncated or too large")
    return content


def _elements(content: bytes) -> Iterator[Tuple[int, bytes]]:
    """(type, bytes) of consecutive data elements."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<II", content, at)
        if kind >> 16:  # a small element: type, size and up to four data bytes, eight bytes in all
            kind, size = kind & 0xFFFF, kind >> 16
            start, after = at + 4, at + 8
        else:
            start = at + 8
            after = start + size + (0 if kind == _COMPRESSED else -size % 8)
        if size > after - start or start + size > len(content):
            raise ValueError("it is truncated")
        yield kind, content[start : start + size]
        at = after


def _matrix(data: bytes) -> Tuple[str, Any]:
    """Name and value of an array; a structure array is a list of dictionaries."""
    parts = list(_elements(data))
    if not parts:
        return "", None  # how MATLAB stores an empty field
    array_class = parts[0][1][0]
    name = parts[2][1].decode("latin1")
    if array_class == _STRUCT_CLASS:
        (length,) = struct.unpack("<i", parts[3][1])
        fields = [field.partition(b"\0")[0].decode("latin1") for field in _pieces(parts[4][1], length)]
        values = [_matrix(content)[1] for _, content in parts[5:]]
        return name, [dict(zip(fields, values[first:])) for first in range(0, len(values), len(fields))]
    kind, content = parts[3]
    if array_class == _CHAR_CLASS:
        return name, content.decode(_TEXTS[kind])
    if array_class in _NUMBER_CLASSES:
        numbers = np.frombuffer(content, _NUMBERS[kind])
        return name, numbers[0].item() if len(numbers) == 1 else numbers
    return name, None


def _pieces(content: bytes, length: int) -> List[bytes]:
    if length <= 0:
        raise ValueError("a field without a name")
    return [content[first : first + length] for first in range(0, len(content), length)]
