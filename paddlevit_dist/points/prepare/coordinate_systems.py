"""Units and directions in the coordinate systems that laser scans declare: well-known text, and keys of GeoTIFF.

Sources: OGC 01-009 and 18-010r11, ISO 19162 (well-known text, versions 1 and 2); OGC 19-008r4 (GeoTIFF); ASPRS, LAS
Specification 1.4 R15, "Coordinate Reference System"; EPSG's registry (units, and projections in feet).
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.printing import shorten
from .units import US_SURVEY_FOOT_M, DeclaredUnit, refuse_angles

_TOKEN = re.compile(r'(?:\s+|"((?:[^"]|"")*)"|([A-Za-z_][A-Za-z0-9_]*)|([-+.0-9][-+.0-9eE]*)|([][(),]))')
_JOINED = ("COMPD_CS", "COMPOUNDCRS", "BOUNDCRS", "SOURCECRS")  # contain the systems of x and y, and of z
_PLANE = ("PROJCS", "PROJCRS", "PROJECTEDCRS", "DERIVEDPROJCRS", "LOCAL_CS", "ENGCRS", "ENGINEERINGCRS")
_ON_EARTH = ("GEOGCS", "GEOGCRS", "GEOGRAPHICCRS", "GEODCRS", "GEODETICCRS", "GEOCCS")
_VERTICAL = ("VERT_CS", "VERTCS", "VERTCRS", "VERTICALCRS")
_UNITS = ("UNIT", "LENGTHUNIT")

_MODEL, _PROJECTED, _LENGTH, _LENGTH_M, _HEIGHTS, _HEIGHT = 1024, 3072, 3076, 3077, 4096, 4099  # numbers of keys
_GEOGRAPHIC, _GEOCENTRIC, _OWN = 2, 3, 32767
_DOUBLES = 34736
_EPSG_UNITS = {  # number -> name, meters
    1025: ("millimeter", 0.001),
    1033: ("centimeter", 0.01),
    9001: ("meter", 1.0),
    9002: ("foot", 0.3048),
    9003: ("US survey foot", US_SURVEY_FOOT_M),
    9005: ("Clarke's foot", 0.3047972654),
    9031: ("German legal meter", 1.0000135965),
    9036: ("kilometer", 1000.0),
    9037: ("Clarke's yard", 0.9143917962),
    9039: ("Clarke's link", 0.201166195164),
    9040: ("British yard", 0.9143984146160287),
    9041: ("British foot", 0.3047994715386762),
    9042: ("British chain", 20.116765121552632),
    9062: ("British chain", 20.1167824943759),
    9080: ("Indian foot", 0.30479951024814694),
    9084: ("Indian yard", 0.9143985307444408),
    9094: ("Gold Coast foot", 0.3047997101815088),
    9095: ("British foot", 0.3048007491),
    9096: ("yard", 0.9144),
    9098: ("link", 0.201168),
    9301: ("British chain", 20.116756),
}


class _Node(NamedTuple):
    """A keyword of well-known text and what is in its brackets: texts, numbers and other nodes."""

    keyword: str
    parts: list["str | float | _Node"]

    def children(self, *keywords: str) -> list["_Node"]:
        return [part for part in self.parts if isinstance(part, _Node) and part.keyword in keywords]


def parse_wkt(path: str, text: str) -> DeclaredUnit | None:
    """Return the unit in well-known text, of version 1 (also Esri's) or 2; None: it names none that is understood.

    Heights without a system of their own have the unit of x and y. UserError: x and y are angles, or z does not point
    up from the ground.
    """
    horizontal, vertical = None, None
    for system in _find_systems(_parse_nodes(text)):
        if system.keyword in _VERTICAL:
            vertical = _find_unit(system, -1)
            if vertical is not None and _points_down(system):
                vertical = f"{vertical[0]} downwards", -vertical[1]
        elif system.keyword in _ON_EARTH:
            raise _refuse(path, system)
        else:
            horizontal = _find_unit(system, 0)
            vertical = vertical or (_find_unit(system, 2) if len(system.children("AXIS")) > 2 else None)
    return None if horizontal is None else _combine(horizontal, vertical)


def parse_geo_keys(path: str, directory: bytes, doubles: bytes) -> DeclaredUnit | None:
    """Return the unit that keys of GeoTIFF declare; None: they name none that is understood.

    ``directory`` and ``doubles`` are the records 34735 and 34736. UserError: x and y are angles, or z does not point up
    from the ground.
    """
    numbers = struct.unpack(f"<{len(directory) // 2}H", directory[: len(directory) // 2 * 2])
    entries = [numbers[at : at + 4] for at in range(4, len(numbers) - 3, 4)][: numbers[3] if len(numbers) > 3 else 0]
    keys = {key: value for key, place, _, value in entries if place == 0}
    if keys.get(_MODEL) == _GEOGRAPHIC:
        raise refuse_angles(path, f"GTModelTypeGeoKey {_GEOGRAPHIC}")
    if keys.get(_MODEL) == _GEOCENTRIC:
        raise _refuse_geocentric(path, f"GTModelTypeGeoKey {_GEOCENTRIC}")
    horizontal = _EPSG_UNITS.get(keys.get(_LENGTH, 0))
    places = {key: value for key, place, _, value in entries if place == _DOUBLES}
    if keys.get(_LENGTH) == _OWN and 8 * places.get(_LENGTH_M, len(doubles)) + 8 <= len(doubles):
        (length,) = struct.unpack_from("<d", doubles, 8 * places[_LENGTH_M])
        horizontal = (f"units of {length:g} m", length) if 0 < length < float("inf") else None
    system, heights = keys.get(_PROJECTED, 0), keys.get(_HEIGHTS, 0)
    if not keys.get(_LENGTH) and system not in (0, _OWN):
        horizontal = _look_up_unit(system)
    vertical = _EPSG_UNITS.get(keys.get(_HEIGHT, 0)) or (_look_up_unit(heights) if heights not in (0, _OWN) else None)
    return None if horizontal is None else _combine(horizontal, vertical)


def _combine(horizontal: tuple[str, float], vertical: tuple[str, float] | None) -> DeclaredUnit:
    name = horizontal[0] if vertical is None or vertical == horizontal else f"{horizontal[0]}, heights in {vertical[0]}"
    return DeclaredUnit(name, horizontal[1], (vertical or horizontal)[1])


def _parse_nodes(text: str) -> list[_Node]:
    """Parse the nodes of well-known text; what follows a mistake is missing."""
    top = _Node("", [])
    open_nodes, end = [top], 0
    for token in _TOKEN.finditer(text):
        if token.start() != end:
            break
        end = token.end()
        quoted, word, number, sign = token.groups()
        if token[0].isspace():
            continue
        inside = open_nodes[-1].parts
        if quoted is not None:
            inside.append(quoted.replace('""', '"'))
        elif word is not None:
            inside.append(_Node(word.upper(), []))
        elif number is not None:
            inside.append(_to_number(number))
        elif sign in "[(" and inside and isinstance(inside[-1], _Node):
            open_nodes.append(inside[-1])
        elif sign in "])" and len(open_nodes) > 1:
            open_nodes.pop()
    return [part for part in top.parts if isinstance(part, _Node)]


def _to_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _find_systems(nodes: list[_Node]) -> Iterator[_Node]:
    """Yield the systems of x and y, and of z, at the top or in compounds."""
    for node in nodes:
        if node.keyword in _JOINED:
            yield from _find_systems([part for part in node.parts if isinstance(part, _Node)])
        elif node.keyword in (*_PLANE, *_ON_EARTH, *_VERTICAL):
            yield node


def _find_unit(system: _Node, axis: int) -> tuple[str, float] | None:
    """Return name and meters of the unit of an axis, or else of all axes; None: there is none."""
    axes = system.children("AXIS")
    own = axes[axis].children(*_UNITS) if -len(axes) <= axis < len(axes) else []
    for unit in [*own, *system.children(*_UNITS)[-1:]]:
        length = next((part for part in unit.parts if isinstance(part, float)), 0.0)
        if 0 < length < float("inf"):
            return next((part for part in unit.parts if isinstance(part, str)), "a unit without a name"), length
    return None


def _points_down(system: _Node) -> bool:
    directions = [part.keyword for axis in system.children("AXIS") for part in axis.parts if isinstance(part, _Node)]
    signs = [node.parts for node in system.children("PARAMETER")]  # Esri's
    return "DOWN" in directions or ["Direction", -1.0] in signs


def _refuse(path: str, system: _Node) -> UserError:
    name = f"{system.keyword} {next((part for part in system.parts if isinstance(part, str)), '')}".strip()
    kinds = [part.keyword for node in system.children("CS") for part in node.parts if isinstance(part, _Node)]
    is_geocentric = system.keyword == "GEOCCS" or "CARTESIAN" in kinds
    return _refuse_geocentric(path, name) if is_geocentric else refuse_angles(path, name)


def _refuse_geocentric(path: str, system: str) -> UserError:
    return UserError(
        f"{path}: its header says that x, y and z are from the center of the earth ({shorten(system, 60)}), so z does "
        "not point up: project it first, to UTM for example (pdal translate, las2las)"
    )


def _look_up_unit(system: int) -> tuple[str, float]:
    """Return the unit of a projection or of heights by EPSG's number: the listed one, else meters."""
    for line in Path(__file__).with_name("epsg_units.txt").read_text(encoding="ascii").splitlines()[2:]:
        number, *systems = line.split()
        if system in _expand(systems):
            name, length = _EPSG_UNITS[abs(int(number))]
            return (f"{name} downwards", -length) if number.startswith("-") else (name, length)
    return _EPSG_UNITS[9001]


def _expand(numbers: list[str]) -> Iterator[int]:
    """Yield the numbers in words such as 2222-2224 and 2251."""
    for part in numbers:
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
