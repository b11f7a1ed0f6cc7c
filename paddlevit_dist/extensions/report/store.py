"""Store the figures of a run in one small file of its folder. A report does not need Paddle or data to show them.

The file is a ZIP archive with ``figures.json`` and a member for each image and point set. All text in it is printable.

Points are packed for the viewer: positions in 16 bits per axis and colors, ordered so that they compress well. The
packed data are a zlib stream of planes with one byte per point: the low and the high bytes of x, y and z, each
coordinate as its difference (modulo 2^16) from the preceding point's; then red, green and blue of each layer.
"""

import math
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, open_regular
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import one_line
from ...core.runtime.text_files import parse_json
from ...core.runtime.thumbnails import encode
from ...core.tasks.figures import (
    Chart,
    ConfusionMatrix,
    Figure,
    FigureTable,
    FilledCells,
    Gallery,
    PointSet,
    SliceStack,
)

TRAINING, EVALUATION = "report_data.zip", "eval_report_data.zip"
_INDEX = "figures.json"
_LARGEST_SIDE = 512  # pixels of an image
_LARGEST_MEMBER = 1 << 28  # bytes
MOST = 1_000_000  # points of a set
_MOST_POINTS = 2_000_000  # points of all sets
_STEPS = 65_535
_ORDER_BITS = 10  # per axis; more bits would not improve compression


class StoredFigures(NamedTuple):
    """Contents of the file."""

    about: dict[str, Any]  # plain values about the evaluation
    figures: list[dict[str, Any]]  # with images and points as bytes
    problems: list[str]  # a line for each figure that could not be stored


def save(path: Path, figures: Sequence[Figure], about: dict[str, Any]) -> list[str]:
    """Write figures to a file atomically; raises a UserError if the file cannot be written.

    Returns:
        A line for each figure that could not be stored, as its values are not as ``tasks.figures`` requires.
    """
    entries, members, problems = [], _ArchiveMembers(), []
    for figure in figures:
        try:
            encoded = _ENCODERS[type(figure)](figure, members)
            texts = {name: one_line(getattr(figure, name, "")) for name in ("title", "note", "folded")}
            entries.append({**encoded, **texts})
        except Exception as error:  # an error of the task; store the other figures
            title = figure.title if type(figure) in _ENCODERS else type(figure).__name__
            problems.append(one_line(f"figure '{title}' was skipped: {type(error).__name__}: {error}"))
    index = {"about": _to_plain(about), "figures": entries, "problems": problems}
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_INDEX, format_json(index), zipfile.ZIP_DEFLATED)
        for name, content in members.content.items():
            archive.writestr(name, content, zipfile.ZIP_STORED)  # compressed already
    return problems


def load(path: Path) -> StoredFigures:
    """Read a file of ``save``; raises an OSError if it cannot be read, a ValueError if it is damaged."""
    try:
        with open_regular(path, "rb") as file, zipfile.ZipFile(file) as archive:
            index = parse_json(_read_member(archive, _INDEX).decode())
            figures = [_resolve_members(entry, archive) for entry in index["figures"]]
            return StoredFigures(index["about"], figures, [str(line) for line in index["problems"]])
    except (
        zipfile.BadZipFile,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zlib.error,
        NotImplementedError,
    ) as error:
        raise ValueError(f"it is damaged ({type(error).__name__}: {error})") from error


def list_galleries(run: Path) -> list[dict[str, Any]]:
    """List the stored galleries of a run's folder; raises a UserError if the file is damaged."""
    try:
        figures = load(run / TRAINING).figures if (run / TRAINING).is_file() else []
        return [figure for figure in figures if figure["kind"] == "gallery"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{run / TRAINING}: {one_line(error)}; remove it to publish without images") from error


class _ArchiveMembers:
    """Files in the archive in addition to the index."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.points_left = _MOST_POINTS

    def add(self, suffix: str, content: bytes) -> dict[str, str]:
        """Add a file, and return its reference for the index."""
        name = f"{len(self.content)}.{suffix}"
        self.content[name] = content
        return {"member": name}


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _LARGEST_MEMBER:
        raise ValueError(f"its member {name} is too large")
    return archive.read(name)


def _resolve_members(value: object, archive: zipfile.ZipFile) -> Any:
    if isinstance(value, dict):
        if set(value) == {"member"}:
            return _read_member(archive, value["member"])
        return {name: _resolve_members(part, archive) for name, part in value.items()}
    return [_resolve_members(part, archive) for part in value] if isinstance(value, list) else value


def _to_plain(value: object) -> Any:
    """Convert a value to numbers, text, lists and dictionaries for JSON; NaN and infinities become None."""
    if isinstance(value, dict):
        return {one_line(name): _to_plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_to_plain(part) for part in value]
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return one_line(value)


def _encode_table(figure: FigureTable, members: _ArchiveMembers) -> dict[str, Any]:
    rows = [_to_plain(tuple(row)) for row in figure.rows]
    if any(len(row) != len(figure.columns) for row in rows):
        raise ValueError(f"a row does not have {len(figure.columns)} cells")
    shares = {"shares": _to_plain(tuple(figure.shares))} if figure.shares else {}
    return {"kind": "table", "columns": _to_plain(tuple(figure.columns)), "rows": rows, **shares}


def _encode_matrix(figure: ConfusionMatrix, members: _ArchiveMembers) -> dict[str, Any]:
    size = len(figure.names)
    if isinstance(figure.values, FilledCells):
        cells = np.stack(figure.values, axis=1).astype(np.int64)
    else:
        values = np.asarray(figure.values)
        if values.shape != (size, size) or values.dtype.kind not in "iu" or (values < 0).any():
            raise ValueError(f"expected whole numbers of shape ({size}, {size}), got {values.dtype} {values.shape}")
        rows, columns = np.nonzero(values)  # most are empty
        cells = np.stack([rows, columns, values[rows, columns]], axis=1).astype(np.int64)
    kind = {"kind": "matrix"} if figure.is_confusion else {"kind": "matrix", "is_pairs": True}
    return {**kind, "names": _to_plain(tuple(figure.names)), "cells": cells.ravel().tolist()}


def _encode_chart(figure: Chart, members: _ArchiveMembers) -> dict[str, Any]:
    if figure.kind not in ("line", "bar"):
        raise ValueError(f"kind '{figure.kind}' is neither line nor bar")
    lines = []
    for name, (x, y) in figure.lines.items():
        places, heights = (np.asarray(values, dtype=np.float64).ravel() for values in (x, y))
        if len(places) != len(heights):
            raise ValueError(f"line '{name}' has {len(places)} x and {len(heights)} y values")
        lines.append({"name": one_line(name), "x": _to_plain(places), "y": _to_plain(heights)})
    labels = {"x_label": one_line(figure.x_label), "y_label": one_line(figure.y_label)}
    return {"kind": "chart", "shape": figure.kind, "lines": lines, **labels}


def _encode_gallery(figure: Gallery, members: _ArchiveMembers) -> dict[str, Any]:
    images = []
    for pixels, caption in figure.images:
        suffix, content, size = encode(np.asarray(pixels), _LARGEST_SIDE)
        entry = {"image": members.add(suffix, content), "suffix": suffix, "size": list(size)}
        images.append({**entry, "caption": [one_line(line) for line in str(caption).split("\n")]})
    return {"kind": "gallery", "images": images}


def _encode_stacks(figure: SliceStack, members: _ArchiveMembers) -> dict[str, Any]:
    stacks = [
        _encode_gallery(Gallery("", [(pixels, caption) for pixels in own]), members) for own, caption in figure.stacks
    ]
    return {"kind": "slices", "stacks": [stack["images"] for stack in stacks if stack["images"]]}


def _encode_points(figure: PointSet, members: _ArchiveMembers) -> dict[str, Any]:
    packed = pack(figure, min(MOST, members.points_left))
    members.points_left = max(members.points_left - packed.number, 0)
    legends = {
        one_line(layer): [[one_line(name), [int(part) for part in color]] for name, color in names]
        for layer, names in figure.legends.items()
    }
    layers = [one_line(layer) for layer in figure.colors]
    shown = {"number": packed.number, "of": len(figure.xyz), "size_m": packed.size_m}
    content = members.add("points", packed.content)
    return {"kind": "points", "layers": layers, "legends": legends, "content": content, **shown}


class PackedPoints(NamedTuple):
    """Points of a figure, packed for the viewer."""

    number: int  # of points
    size_m: float  # side of the cube of coordinates 0 to 65,535, in meters
    content: bytes  # the zlib stream


def pack(figure: PointSet, most: int = MOST) -> PackedPoints:
    """Pack the finite points of a figure, evenly thinned to at most ``most``.

    Raises:
        ValueError: if shapes do not match, or there are no points to show.
    """
    xyz = np.asarray(figure.xyz, dtype=np.float32)
    if xyz.ndim != 2 or xyz.shape[1] != 3:
        raise ValueError(f"expected xyz (points, 3), got {xyz.shape}")
    layers = [np.asarray(values) for values in figure.colors.values()]
    for name, colors in zip(figure.colors, layers):
        if colors.shape != xyz.shape or colors.dtype != np.uint8:
            raise ValueError(f"expected colors uint8 {xyz.shape} for layer '{name}', got {colors.dtype} {colors.shape}")
    indices = np.flatnonzero(np.isfinite(xyz).all(axis=1))
    if len(indices) > most:
        indices = indices[np.linspace(0, len(indices) - 1, most).astype(np.int64)] if most else indices[:0]
    if not len(indices) or not layers:
        raise ValueError("there are no points to show")
    xyz = xyz[indices]
    low = xyz.min(axis=0)
    size = float((xyz - low).max()) or 1.0
    # The cube is centered on the points, so that they rotate about their center.
    low = low - (size - (xyz.max(axis=0) - low)) / 2
    steps = np.clip(np.rint((xyz - low) * (_STEPS / size)), 0, _STEPS).astype(np.uint16)
    order = np.argsort(compute_morton_code(steps >> (16 - _ORDER_BITS)), kind="stable")
    steps = steps[order]
    differences = np.diff(steps, axis=0, prepend=np.zeros((1, 3), np.uint16))  # modulo 2^16
    planes: list[np.ndarray] = []
    for axis in range(3):
        planes += [(differences[:, axis] & 255).astype(np.uint8), (differences[:, axis] >> 8).astype(np.uint8)]
    for colors in layers:
        planes += list(colors[indices[order]].T)
    return PackedPoints(len(indices), size, zlib.compress(np.concatenate(planes).tobytes(), 6))


def compute_morton_code(cells: np.ndarray) -> np.ndarray:
    """Compute the Z-order of cells (points, 3): the interleaved bits of the three axes."""
    code = np.zeros(len(cells), np.int64)
    for bit in range(_ORDER_BITS):
        for axis in range(3):
            code |= ((cells[:, axis].astype(np.int64) >> bit) & 1) << (3 * bit + axis)
    return code


_ENCODERS: dict[type, Callable[[Any, _ArchiveMembers], dict[str, Any]]] = {
    FigureTable: _encode_table,
    ConfusionMatrix: _encode_matrix,
    Chart: _encode_chart,
    Gallery: _encode_gallery,
    SliceStack: _encode_stacks,
    PointSet: _encode_points,
}
