"""PLY files: reading the vertices of any file, and writing colored points for a viewer.

Written from scratch: the usual library (plyfile) is under the GPL, and a scene needs only its vertices. Faces are
skipped without being parsed if they come after the vertices, as in all files we know of. Source: G. Turk, "The PLY
Polygon File Format", 1994.
"""

import io
import re
import warnings
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, read_content

_TYPES = dict(zip("char uchar short ushort int uint float double".split(), "i1 u1 i2 u2 i4 u4 f4 f8".split()))
_TYPES |= {name: np.dtype(name).str[1:] for name in "int8 uint8 int16 uint16 int32 uint32 int64 uint64".split()}
_TYPES |= {"float32": "f4", "float64": "f8"}
_NAMES = {dtype: name for name, dtype in reversed(list(_TYPES.items()))}
_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_MAX_HEADER_BYTES = 1 << 16
_WINDOWS_NAN = re.compile(rb"[-+]?(?:nan\([a-z]*\)|1\.#(?:QNAN|SNAN|IND)\d*)", re.IGNORECASE)
_WINDOWS_INF = re.compile(rb"1\.#INF\d*", re.IGNORECASE)
_MAX_ROUNDING = 1e-6  # text numbers that float32 would change by more stay float64


class DamagedPlyError(Exception):
    """The file is not a PLY file, or is truncated; the message names the position."""


@contextmanager
def ply_errors_as_user_errors(path: str | Path, kind: str) -> Iterator[None]:
    """Raise a UserError with the path and the kind of file instead of a ``DamagedPlyError``."""
    try:
        yield
    except DamagedPlyError as error:
        raise UserError(f"{path} is not a complete {kind} file: {error}; copy or export it again") from error


class PlyProperty(NamedTuple):
    """A scalar property of an element, or a list property if ``count_type`` is given."""

    name: str
    dtype: str
    count_type: str | None


class PlyElement(NamedTuple):
    """A kind of record: its name, the number of records and their properties."""

    name: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which is not used
    properties: list[PlyProperty]


def read_vertices(path: str | Path) -> dict[str, np.ndarray]:
    """Return the values of all vertices, (vertices,) for each property but lists, in the machine's byte order.

    ASCII and binary files of both byte orders are supported. UserError if the file cannot be read, is damaged, or has
    no vertices.
    """
    content = read_content(path).removeprefix(BOM_UTF8)
    with ply_errors_as_user_errors(path, "PLY"):
        order, elements, position = _read_header(content)
        for element in elements:
            if element.name == "vertex":
                read_element = _read_ascii if not order else _read_binary
                return read_element(content, position, element, order)[0]
            position = _skip(content, position, element, order)
    raise UserError(f"{path} has no element 'vertex' and so no points; export it with its points")


def read_comments(path: str | Path) -> list[str]:
    """Return the texts of the lines "comment" and "obj_info" in a file's header; UserError if it cannot be read."""
    lines = read_content(path, _MAX_HEADER_BYTES).removeprefix(BOM_UTF8).partition(b"\nend_header")[0].splitlines()
    words = (line.decode("latin1").strip().partition(" ") for line in lines)
    return [text.strip() for keyword, _, text in words if keyword in ("comment", "obj_info")]


def write_points(path: Path, columns: dict[str, np.ndarray], comments: Sequence[str] = ()) -> None:
    """Atomically write vertices and lines of comments as a binary little-endian PLY file.

    ``columns`` are (points,) for each property by name, of any integer type up to 32 bits or float type; a viewer looks
    for x, y, z, red, green and blue.
    """
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    table = np.empty(lengths.pop(), [(key, values.dtype.newbyteorder("<")) for key, values in columns.items()])
    for name, column in columns.items():
        table[name] = column
    header = ["ply", "format binary_little_endian 1.0", *(f"comment {line}" for line in comments)]
    header.append(f"element vertex {len(table)}")
    header += [f"property {_NAMES[values.dtype.str[1:]]} {key}" for key, values in columns.items()]
    with atomic_file(path) as out:
        out.write("".join(f"{line}\n" for line in [*header, "end_header"]).encode("ascii", "replace"))
        out.write(table.tobytes())


def write_colored_ply(
    path: Path,
    xyz: np.ndarray,
    colors: np.ndarray,
    labels: np.ndarray,
    offset: Sequence[float] = (0.0, 0.0, 0.0),
    classes: np.ndarray | None = None,
) -> None:
    """Write points with colors and labels as a binary PLY file; an existing file is replaced after writing.

    ``xyz`` is float32 (P, 3), meters; ``colors`` uint8 (P, 3); ``labels``, and ``classes`` if the labels are not
    classes, integers (P,) of at most 16 bits. ``offset`` is ``Scene.offset``, added to restore the coordinates of the
    source, which are then written as doubles.
    """
    coordinates = xyz.astype(np.float64) + offset if any(offset) else xyz
    columns = dict(zip("xyz", coordinates.T))
    columns.update(zip(("red", "green", "blue"), colors.T))
    label_columns = {"label": labels} if classes is None else {"label": labels, "class": classes}
    write_points(path, {**columns, **{name: values.astype(np.int16) for name, values in label_columns.items()}})


def _read_header(content: bytes) -> tuple[str, list[PlyElement], int]:
    """Return the byte order ("" for ASCII), the elements, and the position of the first one."""
    if content[:3] != b"ply":
        raise DamagedPlyError("its first line is not 'ply'")
    order: str | None = None
    elements: list[PlyElement] = []
    stream = io.BytesIO(content[:_MAX_HEADER_BYTES])
    for line in iter(stream.readline, b""):
        words = line.decode("latin1").split()
        if words == ["end_header"]:
            if order is None:
                raise DamagedPlyError("its header names no format")
            empty = [element.name for element in elements if element.count and not element.properties]
            if empty:
                raise DamagedPlyError(f"its element '{empty[0]}' has no properties")
            return order, elements, stream.tell()
        if not words or words[0] in ("ply", "comment", "obj_info"):
            continue
        try:
            if words[0] == "format":
                order = _BYTE_ORDERS[words[1]]
            elif words[0] == "element":
                elements.append(PlyElement(words[1], int(words[2]), []))
            elif words[0] == "property":
                elements[-1].properties.append(_property(words[1:]))
            else:
                raise DamagedPlyError(f"its header has the line '{' '.join(words)[:80]}'")
        except (LookupError, ValueError) as error:
            raise DamagedPlyError(f"its header has the line '{' '.join(words)[:80]}'") from error
        if elements and elements[-1].count < 0:
            raise DamagedPlyError(f"its header has the line '{' '.join(words)[:80]}'")
    raise DamagedPlyError("its header has no end")


def _property(words: list[str]) -> PlyProperty:
    if words[0] == "list":
        return PlyProperty(words[3], _TYPES[words[2]], _TYPES[words[1]])
    return PlyProperty(words[1], _TYPES[words[0]], None)


def _read_binary(content: bytes, position: int, element: PlyElement, order: str) -> tuple[dict[str, np.ndarray], int]:
    """Return the element's scalar properties, and the position of the next element."""
    scalars = [item for item in element.properties if item.count_type is None]
    if len({item.name for item in scalars}) < len(scalars):
        raise DamagedPlyError("two properties of its vertices have the same name")
    if len(scalars) < len(element.properties):
        return _read_variable_length(content, position, element, order)
    row = np.dtype([(item.name, order + item.dtype) for item in scalars])
    end = position + element.count * row.itemsize
    if end > len(content):
        available = (len(content) - position) // row.itemsize
        raise DamagedPlyError(f"it ends after {available:,} of {element.count:,} records of '{element.name}'")
    table = np.frombuffer(content, row, element.count, position)
    columns = {item.name: table[item.name].astype(item.dtype) for item in scalars}
    return columns, end


def _read_variable_length(
    content: bytes, position: int, element: PlyElement, order: str
) -> tuple[dict[str, np.ndarray], int]:
    values = {field.name: bytearray() for field in element.properties if field.count_type is None}
    types = [
        (field, np.dtype(order + field.dtype), np.dtype(order + (field.count_type or "u1")))
        for field in element.properties
    ]
    try:
        for _ in range(element.count):
            for item, dtype, count_type in types:
                if item.count_type is None:
                    values[item.name] += content[position : position + dtype.itemsize]
                    position += dtype.itemsize
                    continue
                length = int(np.frombuffer(content, count_type, 1, position)[0])
                position += count_type.itemsize + max(length, 0) * dtype.itemsize
            if position > len(content):
                raise DamagedPlyError(f"it ends within the records of '{element.name}'")
    except (ValueError, OverflowError) as error:
        raise DamagedPlyError(f"it ends within the records of '{element.name}'") from error
    columns = {field.name: field.dtype for field in element.properties if field.count_type is None}
    return {name: np.frombuffer(values[name], order + kind).astype(kind) for name, kind in columns.items()}, position


def _read_ascii(content: bytes, position: int, element: PlyElement, order: str) -> tuple[dict[str, np.ndarray], int]:
    scalars = [item for item in element.properties if item.count_type is None]
    if len(scalars) < len(element.properties):
        raise DamagedPlyError("its vertices have a list property, which is supported in binary files only")
    if not element.count:
        return {item.name: np.empty(0, item.dtype) for item in scalars}, position
    text = content[position:]
    if element.count > len(text) // (2 * len(scalars)) + 1:  # numpy allocates all rows before it reads one
        raise DamagedPlyError(
            f"its {len(text):,} bytes of text cannot hold {element.count:,} records of '{element.name}'"
        )
    if b"(" in text or b"#" in text:  # NaN or infinity as Windows programs write them
        text = _WINDOWS_INF.sub(b"inf", _WINDOWS_NAN.sub(b"nan", text))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: reported below
            rows = np.loadtxt(io.BytesIO(text), np.float64, max_rows=element.count, ndmin=2)
    except (ValueError, IndexError) as error:
        raise DamagedPlyError(
            f"its vertices are not rows of {len(scalars)} numbers ({' '.join(str(error).split())})"
        ) from error
    if rows.shape[0] < element.count:
        raise DamagedPlyError(f"it ends after {rows.shape[0]:,} of {element.count:,} records of '{element.name}'")
    if rows.shape[1] != len(scalars):
        raise DamagedPlyError(f"its vertices have {rows.shape[1]} numbers each, its header says {len(scalars)}")
    return {
        item.name: parse_typed(rows[:, column], item.name, item.dtype) for column, item in enumerate(scalars)
    }, position


def parse_typed(values: np.ndarray, name: str, dtype: str) -> np.ndarray:
    """Convert a text file's numbers of property ``name``, float64 (N,), to the type in its header, such as "f4".

    Floats with more digits than float32 holds become float64: some programs write coordinates far from the origin as
    float. DamagedPlyError if an integer type cannot hold a value.
    """
    if dtype == "f8":
        return values
    with np.errstate(over="ignore", invalid="ignore"):  # reported below, or finite numbers that overflow to infinity
        converted = values.astype(dtype)
    if dtype[0] == "f":
        finite = np.isfinite(values)
        return values if (np.abs(converted[finite] - values[finite]) > _MAX_ROUNDING).any() else converted
    wrong = converted != values
    if wrong.any():
        row = int(wrong.argmax())
        raise DamagedPlyError(f"vertex {row} has {name} {values[row]:g}, but its header declares it as {_NAMES[dtype]}")
    return converted


def _skip(content: bytes, position: int, element: PlyElement, order: str) -> int:
    """Return the position of the next element."""
    if order:
        return _read_binary(content, position, element, order)[1]
    stream = io.BytesIO(content)
    stream.seek(position)
    for _ in range(element.count):
        if not stream.readline():
            raise DamagedPlyError(f"it ends within the records of '{element.name}'")
    return stream.tell()
