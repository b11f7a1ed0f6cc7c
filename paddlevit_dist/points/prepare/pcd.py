"""PCD files of the Point Cloud Library: ascii, binary, and binary_compressed (LZF).

Written from scratch: the libraries that read them bring a viewer along, or need a compiler for LZF.

Source: the format's description in PCL's documentation, and liblzf's of its encoding.
"""

import io
from typing import NamedTuple

import numpy as np

from ...runtime.compiled import compiled
from ...runtime.errors import UserError
from ...runtime.files import content_of
from ..data.ply import Damaged

_LONGEST_HEADER, _MOST_COUNT = 1 << 16, 1 << 16
_COLOURS = ("rgb", "rgba")  # three bytes in a number of four


class Field(NamedTuple):
    """Values of a point: ``count`` numbers of a type."""

    name: str
    dtype: np.dtype
    count: int


def read_pcd(path: str) -> dict[str, np.ndarray]:
    """The values of all points, (points,) for each field, numbered where it has several; packed colours as red, green
    and blue, uint8.

    Raises:
        UserError: the file cannot be read, or is damaged.
    """
    content = content_of(path)
    try:
        return _columns(content)
    except Damaged as error:
        raise UserError(f"{path} is not a complete PCD file: {error}; copy or export it again") from error


def _columns(content: bytes) -> dict[str, np.ndarray]:
    fields, points, kind, position = _header(content)
    body = content[position:]
    row = np.dtype([(str(number), field.dtype, (field.count,)) for number, field in enumerate(fields)])
    if kind == "ascii":
        values = _ascii(body, fields, points)
    elif kind == "binary":
        if len(body) < points * row.itemsize:
            raise Damaged(f"it ends after {len(body) // max(row.itemsize, 1):,} of {points:,} points")
        table = np.frombuffer(body, row, points)
        values = [table[str(number)] for number in range(len(fields))]
    else:
        values = _planes(_decompressed(body, points * row.itemsize), fields, points)
    columns: dict[str, np.ndarray] = {}
    for field, array in zip(fields, values):
        if field.name == "_":  # padding
            continue
        if field.name in _COLOURS and field.dtype.itemsize == 4 and field.count == 1:
            packed = array[:, 0].astype(field.dtype).view(np.uint32)
            for name, shift in (("red", 16), ("green", 8), ("blue", 0)):
                columns[name] = (packed >> shift & 255).astype(np.uint8)
            continue
        names = [field.name] if field.count == 1 else [f"{field.name}_{number}" for number in range(field.count)]
        columns.update({name: np.ascontiguousarray(column) for name, column in zip(names, array.T)})
    return columns


def _header(content: bytes) -> tuple[list[Field], int, str, int]:
    """The fields, the number of points, the kind of data, and where they begin."""
    said: dict[str, list[str]] = {}
    stream = io.BytesIO(content[:_LONGEST_HEADER])
    for line in iter(stream.readline, b""):
        words = line.decode("latin1").split("#")[0].split()
        if words:
            said[words[0].upper()] = words[1:]
        if words and words[0].upper() == "DATA":
            break
    try:
        names, sizes, types = said["FIELDS"], said["SIZE"], said["TYPE"]
        counts = said.get("COUNT", ["1"] * len(names))
        fields = [
            Field(name, np.dtype(f"<{kind.lower()}{int(size)}"), int(count))
            for name, size, kind, count in zip(names, sizes, types, counts, strict=True)
        ]
        points = int(said["POINTS"][0]) if "POINTS" in said else int(said["WIDTH"][0]) * int(said["HEIGHT"][0])
        kind = said["DATA"][0].lower()
    except (LookupError, ValueError, TypeError) as error:
        raise Damaged(f"its header has no proper FIELDS, SIZE, TYPE, POINTS and DATA ({error})") from error
    if (
        kind not in ("ascii", "binary", "binary_compressed")
        or points < 0
        or not all(0 < field.count <= _MOST_COUNT for field in fields)
    ):
        raise Damaged(f"its header has DATA {kind}, POINTS {points} and COUNT {' '.join(counts)}")
    if len(set(names) - {"_"}) < len(names) - names.count("_"):
        raise Damaged(f"two of its FIELDS have the same name ({' '.join(names)})")
    return fields, points, kind, stream.tell()


def _ascii(body: bytes, fields: list[Field], points: int) -> list[np.ndarray]:
    width = sum(field.count for field in fields)
    if points > len(body) // max(2 * width - 1, 1) + 1:  # before memory is taken for them
        raise Damaged(f"its {len(body):,} bytes of text cannot hold {points:,} points of {width} numbers")
    try:
        table = np.loadtxt(io.BytesIO(body), np.float64, max_rows=points, ndmin=2) if points else np.empty((0, width))
    except ValueError as error:
        raise Damaged(f"its points are not rows of {width} numbers ({' '.join(str(error).split())})") from error
    if table.shape != (points, width):
        raise Damaged(
            f"it has {table.shape[0]:,} rows of {table.shape[1]} numbers, its header says {points:,} of {width}"
        )
    ends = np.cumsum([field.count for field in fields])
    parts = [table[:, end - field.count : end] for field, end in zip(fields, ends)]
    # Text keeps the digits of positions far from the origin, whatever type the header gives them.
    return [part if field.name in "xyz" else part.astype(field.dtype) for field, part in zip(fields, parts)]


def _planes(content: bytes, fields: list[Field], points: int) -> list[np.ndarray]:
    """Each field's values of all points behind one another."""
    values, position = [], 0
    for field in fields:
        values.append(np.frombuffer(content, field.dtype, points * field.count, position).reshape(points, field.count))
        position += values[-1].nbytes
    return values


def _decompressed(body: bytes, expected: int) -> bytes:
    if len(body) < 8:
        raise Damaged("it ends before its points")
    compressed, size = (int(number) for number in np.frombuffer(body, "<u4", 2))
    if size != expected or len(body) < 8 + compressed:
        raise Damaged(f"it has {len(body) - 8:,} of {compressed:,} bytes, for {size:,} of {expected:,}")
    out = np.empty(size, np.uint8)
    if _expand(np.frombuffer(body, np.uint8, compressed, 8), out) != size:
        raise Damaged("its compressed points are damaged")
    return out.tobytes()


@compiled
def _expand(packed, out):
    """Decode LZF; returns the bytes written, -1 if the input is damaged."""
    i, o = 0, 0
    while i < len(packed):
        control = np.int64(packed[i])
        i += 1
        if control < 32:  # so many bytes and one more as they are
            length = control + 1
            if i + length > len(packed) or o + length > len(out):
                return -1
            for n in range(length):
                out[o + n] = packed[i + n]
            i += length
        else:  # bytes that were there before
            length = control >> 5
            if length == 7:
                if i >= len(packed):
                    return -1
                length += np.int64(packed[i])
                i += 1
            if i >= len(packed):
                return -1
            source = o - ((control & 31) << 8) - np.int64(packed[i]) - 1
            i += 1
            length += 2
            if source < 0 or o + length > len(out):
                return -1
            for n in range(length):
                out[o + n] = out[source + n]
        o += length
    return o
