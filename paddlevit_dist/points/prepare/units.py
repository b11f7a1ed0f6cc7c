"""Units of length that the header of a file declares, and conversion of its coordinates to meters."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten

US_SURVEY_FOOT_M = 1200 / 3937
_METERS_BY_NAME = {
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1.0),
    **dict.fromkeys(("mm", "millimeter", "millimeters", "millimetre", "millimetres"), 1e-3),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), 1e-2),
    **dict.fromkeys(("dm", "decimeter", "decimeters", "decimetre", "decimetres"), 0.1),
    **dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres"), 1e3),
    **dict.fromkeys(("um", "micrometer", "micrometers", "micrometre", "micrometres", "micron", "microns"), 1e-6),
    **dict.fromkeys(("ft", "foot", "feet", "international foot", "international feet"), 0.3048),
    **dict.fromkeys(("us survey foot", "us survey feet", "survey feet", "us ft", "ftus", "us foot"), US_SURVEY_FOOT_M),
    **dict.fromkeys(("in", "inch", "inches"), 0.0254),
    **dict.fromkeys(("yd", "yard", "yards"), 0.9144),
}
_ANGLES = ("deg", "degree", "degrees", "rad", "radian", "radians")
# Comments such as "unit feet", "Units: mm" and "coordinate units = m".
_UNIT = re.compile(
    r"(?:(?:length|linear|coordinates?|vertex|xyz)[ _-]?)?units?(?:\s*[:=]\s*|\s+)(?:is |are |in )?(\S.*)", re.I
)
# Comments such as "scale 0.01", "offset 500000 5400000 0" and "up axis y".
_CHANGE = re.compile(r"(?:global[ _-]?)?(scal(?:e|ing)|shift|offset|translation|up|[xyz][ _-]?up)(?![a-z]).*", re.I)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.I)


class DeclaredUnit(NamedTuple):
    """A unit of coordinates."""

    name: str  # as the file calls it
    horizontal_m: float  # meters in a unit of x and y
    vertical_m: float  # meters in a unit of z; negative if z points down


def refuse_angles(path: str, system: str) -> UserError:
    """Return the error for coordinates that are degrees on the earth."""
    return UserError(
        f"{path}: its header says that x and y are longitudes and latitudes ({shorten(system, 60)}), not lengths: "
        "project it first, to UTM for example (pdal translate, las2las)"
    )


def find_in_comments(path: str, comments: Iterable[str], remarks: list[str]) -> DeclaredUnit | None:
    """Return the unit that a line of a header's comments declares; None: none does.

    A line is appended to ``remarks`` for each comment on coordinates that is not understood or not applied. UserError
    if coordinates are angles.
    """
    found = None
    for line in map(str.strip, comments):
        unit = _UNIT.fullmatch(line)
        if unit is None:
            if _changes(line):
                remarks.append(f"{path}: its comment {shorten(repr(line), 60)} is not applied to the coordinates")
            continue
        name = re.sub(r"[\s._-]+", " ", unit[1].lower()).strip(" \"'")
        if name in _ANGLES:
            raise refuse_angles(path, line)
        length = _METERS_BY_NAME.get(name)
        if length is None:
            remarks.append(f"{path}: its comment {shorten(repr(line), 60)} names no known unit: read as meters")
        elif found is None:
            found = DeclaredUnit(unit[1].strip(), length, length)
    return found


def _changes(comment: str) -> bool:
    """Return whether a comment names a scale other than 1, an offset other than 0, or an axis other than z as up."""
    change = _CHANGE.fullmatch(comment)
    if change is None:
        return False
    if "up" in change[1].lower():
        return "z" not in comment.lower()
    neutral = 1.0 if change[1].lower().startswith("scal") else 0.0
    return any(float(number) != neutral for number in _NUMBER.findall(comment))


def convert_units(
    path: str, columns: Mapping[str, np.ndarray], unit: DeclaredUnit | None, unit_m: float, remarks: list[str]
) -> dict[str, np.ndarray]:
    """Return the columns of points with x, y and z in units of ``unit_m`` meters; None: they are so already.

    A line is appended to ``remarks`` if they were converted.
    """
    converted = dict(columns)
    if unit is None:
        return converted
    for axis, length in zip("xyz", (unit.horizontal_m, unit.horizontal_m, unit.vertical_m)):
        if axis in converted and length != unit_m:
            values = converted[axis]
            kind = values.dtype if values.dtype.kind == "f" else np.float64
            converted[axis] = (values.astype(np.float64) * (length / unit_m)).astype(kind)
    if (unit.horizontal_m, unit.vertical_m) != (unit_m, unit_m):
        axes = "x, y and z" if unit.horizontal_m == unit.vertical_m else "x and y"
        factors = f"{axes} times {unit.horizontal_m / unit_m:.9g}"
        factors += "" if unit.horizontal_m == unit.vertical_m else f", z times {unit.vertical_m / unit_m:.9g}"
        target = "to meters" if unit_m == 1.0 else f"to DATA.UNIT_M {unit_m:g}"
        remarks.append(f"{path}: converted from {shorten(unit.name, 60)} {target} ({factors})")
    return converted
