"""Landmarks of 3D Slicer: point lists in .fcsv and .mrk.json files, which specify their own coordinate system."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..core.runtime.errors import UserError
from ..core.runtime.json_format import format_json
from ..core.runtime.printing import shorten

COLUMNS = "id,x,y,z,ow,ox,oy,oz,vis,sel,lock,label,desc,associatedNodeID"
_SCHEMA = (
    "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/Schema/"
    "markups-schema-v1.0.3.json#"
)
_SPACES = {"RAS": "ras", "0": "ras", "LPS": "lps", "1": "lps", "IJK": "ijk", "2": "ijk"}
_HEADER = re.compile(r"#\s*(coordinatesystem|columns)\s*=\s*(.*)", re.IGNORECASE)
_DEFINED_STATUS = "2"  # first of two unnamed columns that Slicer 5 adds at the end of a row
_MISSING_STATUS = ("undefined", "preview", "missing")


class LandmarkRow(NamedTuple):
    """A landmark of a file, before its values are parsed."""

    where: str  # file and line, for messages
    name: str
    values: object  # x, y and z as read, or any other value if there are not three
    # "ras", "lps" or "ijk" if the file specifies it; None if its format cannot; "unknown" if it should but does not
    space: str | None


class LandmarkPoint(NamedTuple):
    """A landmark for output: ``position`` is x, y, z as text, in the file's coordinate system."""

    name: str
    position: tuple[str, str, str]
    description: str


def parse_fcsv(file: str, text: str) -> list[LandmarkRow]:
    """Parse the rows of an .fcsv file; a point that is not placed has the values None.

    UserError if columns for name or position are missing, the coordinate system is unknown, or a row is too short.
    """
    columns, space, rows = COLUMNS.split(","), "unknown", []
    reader = csv.reader(io.StringIO(text, newline=""))
    for cells in reader:
        where = f"{file}, line {reader.line_num}"
        if cells and cells[0].lstrip().startswith("#"):
            match = _HEADER.match(",".join(cells).strip())
            if match and match.group(1).lower() == "columns":
                columns = [column.strip() for column in match.group(2).split(",")]
            elif match:
                space = _space(where, match.group(2).strip())
        elif any(cell.strip() for cell in cells):
            rows.append(_fcsv_row(where, columns, cells, space))
    return rows


def _fcsv_row(where: str, columns: list[str], cells: list[str], space: str) -> LandmarkRow:
    absent = [column for column in ("label", "x", "y", "z") if column not in columns[: len(cells)]]
    if absent:
        raise UserError(f"{where}: no {', '.join(absent)}; expected the columns {COLUMNS}")
    values: list[str | None] = [cells[columns.index(axis)] for axis in "xyz"]
    if len(cells) == len(columns) + 2 and cells[-2].strip() != _DEFINED_STATUS:
        values = [None] * 3
    return LandmarkRow(where, cells[columns.index("label")].strip(), values, space)


def parse_markups(file: str, stored: object) -> list[LandmarkRow]:
    """Parse the rows of all point lists of a .mrk.json file; a point that is not placed has the values None.

    UserError if it contains other markups than point lists, or an unknown coordinate system, unit or status.
    """
    markups = stored.get("markups") if isinstance(stored, dict) else None
    if not isinstance(markups, list) or not all(isinstance(each, dict) for each in markups):
        raise UserError(f'{file}: it has no list "markups"; expected a point list that Slicer saved as .mrk.json')
    rows = []
    for markup in markups:
        kind, units = markup.get("type"), markup.get("coordinateUnits", "mm")
        if kind != "Fiducial":
            raise UserError(
                f"{file}: contains a {kind}, expected point lists (type Fiducial); save only point lists to it"
            )
        if (units[0] if isinstance(units, list) and units else units) != "mm":
            raise UserError(f"{file}: coordinateUnits is {units!r}, expected mm; convert the coordinates")
        space = _space(file, markup.get("coordinateSystem", "LPS"))  # the format's own default
        points = markup.get("controlPoints", [])
        if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
            raise UserError(f"{file}: controlPoints is not a list of points; save it from Slicer again")
        rows += [LandmarkRow(file, str(point.get("label", "")).strip(), _place(file, point), space) for point in points]
    return rows


def _place(file: str, point: Mapping[str, Any]) -> object:
    """Return the position of a control point, three times None if it has none."""
    status, position = point.get("positionStatus", "defined"), point.get("position")
    if status != "defined" and status not in _MISSING_STATUS:
        expected = ", ".join(("defined", *_MISSING_STATUS))
        raise UserError(
            f"{file}: positionStatus of '{shorten(point.get('label'))}' is {status!r}, expected one of {expected}"
        )
    return [None] * 3 if status != "defined" or position in (None, "") else position


def _space(where: str, value: object) -> str:
    space = _SPACES.get(str(value).strip().upper())
    if space is None:
        raise UserError(f"{where}: the coordinate system is {value!r}, expected RAS (0), LPS (1) or IJK (2)")
    return space


def format_fcsv(points: Sequence[LandmarkPoint], convention: str) -> str:
    """Format an .fcsv file, with positions in a convention's millimeters ("ras" or "lps")."""
    text = io.StringIO(newline="")
    header = ["# Markups fiducial file version = 4.13", f"# CoordinateSystem = {convention.upper()}"]
    text.write("\n".join([*header, f"# columns = {COLUMNS}"]) + "\n")
    writer = csv.writer(text, lineterminator="\n")
    for number, point in enumerate(points, start=1):
        writer.writerow([number, *point.position, 0, 0, 0, 1, 1, 1, 0, point.name, point.description, ""])
    return text.getvalue()


def format_markups(points: Sequence[LandmarkPoint], convention: str) -> str:
    """Format a .mrk.json file, with positions in a convention's millimeters ("ras" or "lps")."""
    controls = [
        {
            "id": str(number),
            "label": point.name,
            "description": point.description,
            "position": [float(value) for value in point.position],
            "selected": True,
            "locked": False,
            "visibility": True,
            "positionStatus": "defined",
        }
        for number, point in enumerate(points, start=1)
    ]
    markup = {
        "type": "Fiducial",
        "coordinateSystem": convention.upper(),
        "coordinateUnits": "mm",
        "controlPoints": controls,
    }
    return format_json({"@schema": _SCHEMA, "markups": [markup]}, indent=1, ensure_ascii=False) + "\n"
