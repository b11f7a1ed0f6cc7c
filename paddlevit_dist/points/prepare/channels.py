"""Which columns of a file become channels of a scene: normals, and others by their names."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...runtime.errors import UserError
from ..data.scene import NORMAL

ALL, WITHOUT = "all", "none"
USUAL = (NORMAL, "intensity")  # kept where a file has them and nobody has chosen
_NORMALS = (("nx", "ny", "nz"), ("normal_x", "normal_y", "normal_z"), ("normalx", "normaly", "normalz"))
_NO_CHANNELS = {"x", "y", "z", "rgb", "xyz", "red", "green", "blue", "r", "g", "b", "alpha", "height", "ones", NORMAL}
_NO_CHANNELS |= {"diffuse_red", "diffuse_green", "diffuse_blue"}


def plain_name(column: str) -> str:
    """The name of a channel: CloudCompare's scalar_Intensity, LAS's intensity and Intensity are one."""
    return column.lower().removeprefix("scalar_").strip()


def channels_in(
    path: str, columns: Mapping[str, np.ndarray], wanted: Sequence[str] | None, others: Sequence[str | None] = ()
) -> dict[str, np.ndarray]:
    """The channels of a scene.

    Args:
        columns: of its file, by name, (points,) each.
        wanted: names of channels; ("all",): whatever there is; ("none",); None: ``USUAL``, where they are.
        others: columns with another meaning, such as the class.

    Returns:
        As ``Scene.channels``.

    Raises:
        UserError: the file does not have one that is wanted; lists what it has.
    """
    there: dict[str, tuple[str, ...]] = {}
    for column in columns:
        name = plain_name(column)
        if name not in _NO_CHANNELS and column not in others and not any(name in three for three in _NORMALS):
            there.setdefault(name, (column,))
    lowered = {plain_name(column): column for column in columns}
    for three in _NORMALS:
        if all(name in lowered for name in three):
            there[NORMAL] = tuple(lowered[name] for name in three)
            break
    if wanted is None or tuple(wanted) == (ALL,):
        chosen = [name for name in there if wanted is not None or name in USUAL]
    else:
        chosen = [name for name in wanted if name != WITHOUT]
    absent = [name for name in chosen if name not in there]
    if absent:
        has = f"only {', '.join(there)}" if there else "nothing but points, colors and labels"
        raise UserError(
            f"{path} has no {', '.join(absent)} for its points, {has}; the channels wanted have to be there"
        )
    return {name: np.stack([columns[column] for column in there[name]], axis=1).astype(np.float32) for name in chosen}
