"""PCD files of the Point Cloud Library: ascii, binary, and binary_compressed (LZF).

Written from scratch: the libraries that read them include a viewer, or need a compiler for LZF. Source: the format's
description in PCL's documentation, and the description of LZF in liblzf.
"""

import io
from codecs import BOM_UTF8

import numpy as np

from ...core.runtime.compiled import compiled
from ...core.runtime.files import read_content
from ..data.ply import DamagedPlyError, parse_typed, ply_errors_as_user_errors
from .units import DeclaredUnit, find_in_comments

_MAX_HEADER_BYTES, _MAX_VALUES = 1 << 16, 1 << 16
_KINDS = {"F": "f", "I": "i", "U": "u"}  # the letters in TYPE
_REAL_PART = 3  # of the quaternion in a viewpoint, after its position: the others are 0 if it moves nothing
_COLORS = ("rgb", "rgba")  # three bytes packed in a four-byte number

Row = list[tuple[np.dtype, int]]  # the values of a point: dtype and number of values of each field


def read_pcd(path: str) -> dict[str, np.ndarray]:
    """Read the values of all points, (points,) for each field; UserError if the file cannot be read, or is damaged.

    Fields with several values get numbered names. Packed colors become red, green and blue, uint8.
    """
    content = read_content(path).removeprefix(BOM_UTF8)
    with ply_errors_as_user_errors(path, "PCD"):
        names, row, points, kind, end = _parse_header(content)
        values = {"ascii": _read_ascii, "binary": _read_binary, "binary_compressed": _read_compressed}[kind](
            content[end:], row, points
        )
        columns: dict[str, np.ndarray] = {}
        for name, array, (dtype, count) in zip(names, values, row):  # (points, count)
            if name in _COLORS and dtype.itemsize == 4 and count == 1:
                packed = np.ascontiguousarray(array[:, 0], dtype).view(np.uint32)
                for color, shift in (("red", 16), ("green", 8), ("blue", 0)):
                    columns[color] = (packed >> shift & 255).astype(np.uint8)
            elif name != "_":
                for number, column in enumerate(np.ascontiguousarray(array.T)):
                    column_name = f"{name}_{number}" if count > 1 else name
                    columns[column_name] = (
                        parse_typed(column, column_name, dtype.str[1:]) if kind == "ascii" else column
                    )
    return columns


def find_pcd_unit(path: str, remarks: list[str]) -> DeclaredUnit | None:
    """Return the unit that a comment in the header declares; None: none does.

    A line is appended to ``remarks`` for a comment on coordinates that is not applied, and for a viewpoint: programs
    differ in whether it moves the points. UserError if the file cannot be read.
    """
    fields, comments, _ = _read_fields(read_content(path, _MAX_HEADER_BYTES).removeprefix(BOM_UTF8))
    viewpoint = fields.get("VIEWPOINT", [])
    if not all(_is_zero(number) for place, number in enumerate(viewpoint) if place != _REAL_PART):
        remarks.append(f"{path}: its VIEWPOINT {' '.join(viewpoint)[:80]} is not applied to the coordinates")
    return find_in_comments(path, comments, remarks)


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0.0
    except ValueError:
        return False


def _read_fields(content: bytes) -> tuple[dict[str, list[str]], list[str], int]:
    """Return the words of each field of a header, the comments, and the position of the points."""
    fields: dict[str, list[str]] = {}
    comments = []
    stream = io.BytesIO(content[:_MAX_HEADER_BYTES])
    for line in iter(stream.readline, b""):
        text, _, comment = line.decode("latin1").partition("#")
        words = text.split()
        comments += [comment.strip()] if comment.strip() else []
        if words:
            fields[words[0].upper()] = words[1:]
        if words and words[0].upper() == "DATA":
            break
    return fields, comments, stream.tell()


def _parse_header(content: bytes) -> tuple[list[str], Row, int, str, int]:
    """Return the fields' names and row, the number of points, the kind of data, and its position."""
    fields, _, end = _read_fields(content)
    try:
        names, counts = fields["FIELDS"], fields.get("COUNT", ["1"] * len(fields["FIELDS"]))
        row = [
            (np.dtype(f"<{_KINDS[letter.upper()]}{int(size)}"), int(count))
            for _, size, letter, count in zip(names, fields["SIZE"], fields["TYPE"], counts, strict=True)
        ]
        points = int(fields["POINTS"][0]) if "POINTS" in fields else int(fields["WIDTH"][0]) * int(fields["HEIGHT"][0])
        kind = fields["DATA"][0].lower()
    except (LookupError, ValueError, TypeError) as error:
        raise DamagedPlyError(f"its header has no valid FIELDS, SIZE, TYPE, POINTS and DATA ({error})") from error
    is_known = kind in ("ascii", "binary", "binary_compressed")
    if not is_known or points < 0 or not row or not all(0 < count <= _MAX_VALUES for _, count in row):
        raise DamagedPlyError(f"its header has DATA {kind}, POINTS {points} and COUNT {' '.join(counts)}")
    if len(set(names) - {"_"}) < len(names) - names.count("_"):
        raise DamagedPlyError(f"two of its FIELDS have the same name ({' '.join(names)})")
    return names, row, points, kind, end


def _read_ascii(body: bytes, row: Row, points: int) -> list[np.ndarray]:
    width = sum(count for _, count in row)
    if points > len(body) // (2 * width - 1) + 1:  # checked before memory is allocated
        raise DamagedPlyError(f"its {len(body):,} bytes of text cannot hold {points:,} points of {width} numbers")
    try:
        table = np.loadtxt(io.BytesIO(body), np.float64, max_rows=points, ndmin=2) if points else np.empty((0, width))
    except ValueError as error:
        raise DamagedPlyError(f"its points are not rows of {width} numbers ({' '.join(str(error).split())})") from error
    if table.shape != (points, width):
        raise DamagedPlyError(
            f"it has {table.shape[0]:,} rows of {table.shape[1]} numbers, its header says {points:,} of {width}"
        )
    return np.split(table, np.cumsum([count for _, count in row])[:-1], axis=1)


def _read_binary(body: bytes, row: Row, points: int) -> list[np.ndarray]:
    packed = np.dtype([(f"f{number}", dtype, (count,)) for number, (dtype, count) in enumerate(row)])
    if len(body) < points * packed.itemsize:
        raise DamagedPlyError(f"it ends after {len(body) // packed.itemsize:,} of {points:,} points")
    table = np.frombuffer(body, packed, points)
    return [table[name] for name in packed.names or ()]


def _read_compressed(body: bytes, row: Row, points: int) -> list[np.ndarray]:
    """Read fields that are stored one after the other, each with the values of all points."""
    sizes = [points * count * dtype.itemsize for dtype, count in row]
    content = _decompress(body, sum(sizes))
    starts = np.cumsum([0, *sizes]).tolist()
    return [
        np.frombuffer(content, dtype, points * count, start).reshape(points, count)
        for (dtype, count), start in zip(row, starts)
    ]


def _decompress(body: bytes, expected: int) -> bytes:
    if len(body) < 8:
        raise DamagedPlyError("it ends before its points")
    compressed, size = (int(number) for number in np.frombuffer(body, "<u4", 2))
    if size != expected or len(body) < 8 + compressed:
        raise DamagedPlyError(f"it has {len(body) - 8:,} of {compressed:,} bytes, for {size:,} of {expected:,}")
    out = np.empty(size, np.uint8)
    if _expand(np.frombuffer(body, np.uint8, compressed, 8), out) != size:
        raise DamagedPlyError("its compressed points are damaged")
    return out.tobytes()


@compiled
def _expand(packed, out):
    """Decode LZF; return the number of bytes written, -1 if the input is damaged."""
    i, o = 0, 0
    while i < len(packed):
        control = np.int64(packed[i])
        i += 1
        if control < 32:  # control + 1 literal bytes
            length = control + 1
            if i + length > len(packed) or o + length > len(out):
                return -1
            for n in range(length):
                out[o + n] = packed[i + n]
            i += length
        else:  # a copy of earlier output
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
