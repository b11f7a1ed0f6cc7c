"""Landmarks of one volume, from a CSV or JSON file beside it."""

from __future__ import annotations

import csv
import json
import math
import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from ..errors import UserError

Positions = Dict[str, Optional[np.ndarray]]  # name -> float64 (3,) in the order x, y, z; None: missing

_JSON_FORM = '{"name": [x, y, z], "missing_one": null} or a list of {"name": ..., "x": ..., "y": ..., "z": ...}'


def find(folder: str, case: str) -> str:
    """Path of the landmark file of a volume.

    Raises:
        UserError: there is none, or two.
    """
    found = [
        path for path in (os.path.join(folder, case + suffix) for suffix in (".csv", ".json")) if os.path.exists(path)
    ]
    if len(found) != 1:
        state = "both a CSV and a JSON file" if found else "no landmarks"
        raise UserError(
            f"volume {case} in {folder} has {state}; expected one file {case}.csv (header name,x,y,z) or {case}.json"
        )
    return found[0]


def read(file: str) -> Positions:
    """Read the landmarks of a file, as they stand there.

    A landmark without a row, with empty or NaN coordinates, or null in JSON, is missing.

    Raises:
        UserError: the file is damaged, a name comes twice, a coordinate is no number, or no landmark has a position.
    """
    try:
        with open(file, encoding="utf-8-sig", newline="") as lines:
            rows = _json_rows(file, lines.read()) if file.endswith(".json") else _csv_rows(file, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    positions: Positions = {}
    for where, name, values in rows:
        if not name:
            raise UserError(f"{where}: the landmark has no name; give it one")
        if name in positions:
            raise UserError(f"{where}: landmark '{name}' comes twice; keep one")
        positions[name] = _position(where, name, values)
    if not any(position is not None for position in positions.values()):
        raise UserError(f"{file}: no landmark has a position; add one, or take the volume out of the folder")
    return positions


def _csv_rows(file: str, lines: Any) -> List[Tuple[str, str, Sequence[Any]]]:
    reader = csv.DictReader(lines, skipinitialspace=True)
    columns = [column.strip().lower() for column in reader.fieldnames or []]
    missing = [column for column in ("name", "x", "y", "z") if column not in columns]
    if missing:
        raise UserError(f"{file}, line 1: no column {', '.join(missing)}; expected the header name,x,y,z")
    reader.fieldnames = columns
    rows = []
    for row in reader:
        values = [row[axis] for axis in ("x", "y", "z")]
        rows.append((f"{file}, line {reader.line_num}", (row["name"] or "").strip(), values))
    return rows


def _json_rows(file: str, text: str) -> List[Tuple[str, str, Sequence[Any]]]:
    try:
        stored = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{file}, line {error.lineno}: no JSON: {error.msg}") from error
    if isinstance(stored, dict) and isinstance(stored.get("landmarks"), (dict, list)):
        stored = stored["landmarks"]
    if isinstance(stored, dict):
        return [(file, name, [None] * 3 if value is None else value) for name, value in stored.items()]
    if isinstance(stored, list) and all(isinstance(row, dict) and "name" in row for row in stored):
        return [(file, str(row["name"]), [row.get(axis) for axis in ("x", "y", "z")]) for row in stored]
    raise UserError(f"{file}: expected {_JSON_FORM}")


def _position(where: str, name: str, values: Any) -> Optional[np.ndarray]:
    if not isinstance(values, (list, tuple)) or len(values) != 3:
        raise UserError(f"{where}: landmark '{name}' is {values!r}, expected three numbers x, y, z, or null")
    numbers = []
    for axis, value in zip("xyz", values):
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise UserError(f"{where}: {axis} of landmark '{name}' is {value!r}, expected a number") from None
        if math.isnan(number):
            return None
        if math.isinf(number):
            raise UserError(f"{where}: {axis} of landmark '{name}' is infinite; leave it empty if it is missing")
        numbers.append(number)
    return np.array(numbers)
