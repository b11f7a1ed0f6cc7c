"""Landmarks of one volume, from a file next to it: CSV, JSON, or Slicer's .fcsv and .mrk.json."""

import csv
import io
import itertools
import json
import math
import os
import reprlib
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.column_roles import LANDMARK, Role
from ..core.runtime.errors import UserError
from ..core.runtime.files import readable
from ..core.runtime.printing import shorten
from ..core.runtime.tables import csv_errors_as_user_errors
from ..core.runtime.text_files import parse_json, read_text
from .geometry import convert
from .slicer_files import LandmarkRow, parse_fcsv, parse_markups

SUFFIXES = (".csv", ".json", ".fcsv", ".mrk.json")
TABLES = ("landmarks.csv", "per_landmark.csv")  # written next to an evaluation's landmark files
_PREDICTED = ("predictions.jsonl", "predictions.csv", "about.json")  # written next to a prediction's landmark files
_JSON_FORM = '{"name": [x, y, z], "missing_one": null} or a list of {"name": ..., "x": ..., "y": ..., "z": ...}'
_COLUMNS = ("name", "x", "y", "z")

Positions = dict[str, np.ndarray | None]  # name -> float64 (3,) in the order x, y, z; None: missing


class FileLandmarks(NamedTuple):
    """Landmarks of a file."""

    positions: Positions  # positions in ``space``
    # "ras" or "ijk" (voxel indices) if the file specifies it; LPS files are converted. None for CSV and JSON, which use
    # their volume's convention; "unknown" for a Slicer file that should specify it but does not.
    space: str | None


def find(folder: str, case: str) -> str:
    """Find the landmark file of a volume; UserError if there is none, or several."""
    paths = find_landmark_files(folder, case)
    if len(paths) != 1:
        state = f"{len(paths)} landmark files ({', '.join(map(os.path.basename, paths))})"
        raise UserError(
            f"volume {case} in {folder} has {state if paths else 'no landmarks'}; expected one file {case}.csv (header "
            f"name,x,y,z), {case}.json, {case}.fcsv or {case}.mrk.json"
        )
    return paths[0]


def find_landmark_files(folder: str, case: str) -> list[str]:
    """Find the landmark files of a volume; the suffix may be uppercase."""
    spellings = [case + spelled for suffix in SUFFIXES for spelled in (suffix, suffix.upper())]
    matches = [name for name in spellings if os.path.exists(os.path.join(folder, name))]
    if not matches and os.path.isdir(folder):  # suffix in mixed case
        matches = [name for name in list_files(folder) if get_case(name) == case]
    # On file systems that ignore case, such as exFAT and Windows shares, both spellings are one file.
    paths = [os.path.join(folder, name) for name in matches]
    return [path for number, path in enumerate(paths) if not any(os.path.samefile(path, p) for p in paths[:number])]


def list_files(folder: str) -> list[str]:
    """List the names of the visible landmark files in a folder, sorted.

    Without the ``TABLES`` of an evaluation, and without the tables of a prediction.
    """
    names = os.listdir(folder)
    tables = {name for tables in (TABLES, _PREDICTED) if set(tables) <= set(names) for name in tables}
    return sorted(name for name in names if name.lower().endswith(SUFFIXES) and name[0] != "." and name not in tables)


def get_case(name: str) -> str:
    """Return the name of the volume that a landmark file belongs to."""
    suffix = max((ending for ending in SUFFIXES if name.lower().endswith(ending)), key=len)
    return name[: -len(suffix)]


def read(file: str) -> FileLandmarks:
    """Read the landmarks of a file.

    A landmark is missing if it has no row, empty or NaN coordinates, null in JSON, or is not placed in Slicer.
    UserError if the file is damaged, a name is repeated, a coordinate is not a number, or no landmark has a position.
    """
    text = read_landmark_text(file)
    with csv_errors_as_user_errors(file):
        rows = _rows(file, text)
    positions: Positions = {}
    for row in rows:
        if not row.name:
            raise UserError(f"{row.where}: the landmark has no name; give it one")
        if row.name in positions:
            raise UserError(f"{row.where}: landmark '{shorten(row.name)}' appears twice; keep one")
        position = parse_position(row.where, row.name, row.values)
        positions[row.name] = position if position is None or row.space != "lps" else convert(position, "lps")
    if not any(place is not None for place in positions.values()):
        raise UserError(f"{file}: no landmark has a position; add one, or remove the volume from the folder")
    spaces = {"ras" if entry.space == "lps" else entry.space for entry in rows}
    if len(spaces) > 1:
        raise UserError(f"{file}: some landmarks are in voxels (IJK) and some in millimeters; save all as LPS")
    return FileLandmarks(positions, spaces.pop())


def read_landmark_text(file: str) -> str:
    """Read the text of a file; UserError if it cannot be read or is not UTF-8."""
    with readable(file):
        return read_text(file)


def _rows(file: str, text: str) -> list[LandmarkRow]:
    lowered = file.lower()
    if lowered.endswith(".fcsv"):
        return parse_fcsv(file, text)
    if not lowered.endswith(".json"):
        return _csv_rows(file, text)
    try:
        stored = parse_json(text, lambda pairs: _without_repeats(file, pairs))
    except json.JSONDecodeError as error:
        raise UserError(f"{file}, line {error.lineno}: not valid JSON: {error.msg}") from error
    except ValueError as error:
        raise UserError(f"{file}: {error}; expected {_JSON_FORM}") from None
    is_slicers = isinstance(stored, dict) and isinstance(stored.get("markups"), list)
    return parse_markups(file, stored) if is_slicers or lowered.endswith(".mrk.json") else _json_rows(file, stored)


def _without_repeats(file: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert a JSON object to a dictionary; the standard reader silently keeps the last of duplicate names."""
    stored: dict[str, Any] = {}
    for name, value in pairs:
        if name in stored:
            raise UserError(f"{file}: '{shorten(name)}' appears twice; keep one")
        stored[name] = value
    return stored


def _csv_rows(file: str, text: str) -> list[LandmarkRow]:
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    columns = [column.strip() for column in reader.fieldnames or []]
    places = {word: LANDMARK.find(columns) if word == "name" else Role((word,)).find(columns) for word in _COLUMNS}
    same = [place is None or len(Role((columns[place],)).find_all(columns)) > 1 for place in places.values()]
    missing = list(itertools.compress(places, same))
    if missing:
        separator = next((mark for mark in ";\t" if mark in "".join(reader.fieldnames or [])), None)
        if separator is not None:
            name = "tabs" if separator == "\t" else f"'{separator}'"
            raise UserError(
                f"{file}, line 1: columns are separated by {name}: save it with commas, and decimals with a point"
            )
        raise UserError(f"{file}, line 1: no column {', '.join(missing)}, or two; expected the header name,x,y,z")
    reader.fieldnames = [next((word for word in places if places[word] == at), f" {at}") for at in range(len(columns))]
    rows = []
    for row in reader:
        where = f"{file}, line {reader.line_num}"
        if any((cell or "").strip() for cell in row.get(None, [])):
            raise UserError(f"{where}: more values than the header has columns; write decimals with a point")
        rows.append(LandmarkRow(where, (row["name"] or "").strip(), [row[axis] for axis in "xyz"], None))
    return rows


def _json_rows(file: str, stored: object) -> list[LandmarkRow]:
    if isinstance(stored, dict) and isinstance(stored.get("landmarks"), (dict, list)):
        stored = stored["landmarks"]
    if isinstance(stored, dict):
        return [LandmarkRow(file, name, [None] * 3 if value is None else value, None) for name, value in stored.items()]
    if isinstance(stored, list) and all(isinstance(row, dict) and "name" in row for row in stored):
        return [
            LandmarkRow(file, str(row["name"]), [row.get(axis) for axis in ("x", "y", "z")], None) for row in stored
        ]
    raise UserError(f"{file}: expected {_JSON_FORM}")


def parse_position(where: str, name: str, values: object) -> np.ndarray | None:
    """Convert three values to float64 (3,), None if one is empty or not a number; else UserError."""
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise UserError(
            f"{where}: landmark '{shorten(name)}' is {reprlib.repr(values)}, expected three numbers x, y, z, or null"
        )
    numbers = []
    for axis, value in zip("xyz", values):
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            if isinstance(value, bool):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                f"{where}: {axis} of landmark '{shorten(name)}' is {reprlib.repr(value)}, expected a number"
            ) from None
        if math.isnan(number):
            return None
        if math.isinf(number):
            raise UserError(
                f"{where}: {axis} of landmark '{shorten(name)}' is infinite; leave it empty if it is missing"
            )
        numbers.append(number)
    return np.array(numbers)
