"""Selection of a file's columns as channels of a scene: normals, and others by name."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ...core.runtime.column_roles import COLORS, NORMALS, Role, find_together
from ...core.runtime.errors import UserError
from ..data.features import BUILTIN_FEATURES
from ..data.scene import NORMAL

ALL, WITHOUT = "all", "none"
USUAL = (NORMAL, "intensity")  # default: kept if a file has them
_RESERVED = Role((NORMAL, "x", "y", "z", "rgb", "xyz", *(word for words in (*COLORS, *NORMALS) for word in words)))
_PREFIX = "scalar_"  # of CloudCompare's names


def normalize_name(column: str) -> str:
    """Return the name of a channel: CloudCompare's scalar_Intensity, LAS's intensity and Intensity are the same."""
    return column.lower().removeprefix(_PREFIX).strip()


def _find_channels(columns: Iterable[str], excluded: Sequence[str | None]) -> dict[str, tuple[str, ...]]:
    """Return the available channels, each with the columns that contain it; a feature's name gets ``_PREFIX``."""
    available: dict[str, tuple[str, ...]] = {}
    headings = list(columns)
    for column in headings:
        name = normalize_name(column)
        if not _RESERVED.has(name) and column not in excluded:
            name = f"{_PREFIX}{name}" if name in BUILTIN_FEATURES else name
            available.setdefault(column if name in available else name, (column,))  # two that differ in case only
    normals = find_together(NORMALS, list(map(normalize_name, headings)))
    if normals:
        available[NORMAL] = tuple(headings[place] for place in normals)
    return available


def select_channels(
    path: str, columns: Mapping[str, np.ndarray], requested: Sequence[str] | None, excluded: Sequence[str | None] = ()
) -> dict[str, np.ndarray]:
    """Return the channels of a scene, see ``Scene.channels``, from its columns, (points,) each.

    ``requested`` are names of channels; ("all",): all channels; ("none",): no channels; None: ``USUAL``, if available.
    ``excluded`` are columns with another meaning, such as the class. UserError if the file does not have a requested
    channel; the message lists the available ones.
    """
    available = _find_channels(columns, excluded)
    if requested is None or tuple(requested) == (ALL,):
        selected = [channel for channel in available if requested is not None or channel in USUAL]
    else:
        selected = [channel for channel in requested if channel != WITHOUT]
    missing = [channel for channel in selected if channel not in available]
    other = next((f"{_PREFIX}{name}" for name in missing if f"{_PREFIX}{name}" in available), "")
    if other:
        name = other.removeprefix(_PREFIX)
        raise UserError(f"{path}: {name} is also computed: to keep this property as a channel, call it {other}")
    if missing:
        alternatives = f"only {', '.join(available)}" if available else "only points, colors and labels"
        raise UserError(
            f"{path} has no channel {', '.join(missing)}, {alternatives}; add it to the file, or request other channels"
        )
    return {
        channel: np.stack([columns[heading] for heading in available[channel]], axis=1).astype(np.float32)
        for channel in selected
    }
