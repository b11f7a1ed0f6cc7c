"""What the positions of landmarks of several volumes say: landmarks that none has, sides that are exchanged."""

from collections.abc import Sequence

import numpy as np

from .mirroring import propose_pairs

_NEARLY_ALL = 0.9  # fraction of volumes with exchanged sides that triggers the note


def find_absent(where: str, worlds: Sequence[np.ndarray], names: Sequence[str]) -> list[str]:
    """Return a note if no volume has a position of some landmarks.

    ``where`` is what the volumes are, ``worlds`` the positions of each, (landmarks, 3), millimeters in RAS.
    """
    is_present = np.isfinite(np.stack(worlds)).all(axis=-1).any(axis=0)
    absent = [name for name, present in zip(names, is_present) if not present]
    if not absent:
        return []
    return [f"note: {where}: no volume has a position of {', '.join(absent)}: the model cannot learn it"]


def find_exchanged(where: str, worlds: Sequence[np.ndarray], names: Sequence[str]) -> list[str]:
    """Return a note if the left one of two landmarks is to the right of the right one in nearly all volumes."""
    names = list(names)
    pairs = [pair.partition(":")[::2] for pair in propose_pairs(names)]
    rows = [(names.index(left), names.index(right)) for left, right in pairs]
    compared = exchanged = 0
    for world in worlds:
        ahead = np.array([world[left, 0] - world[right, 0] for left, right in rows])  # x grows to the right
        ahead = ahead[np.isfinite(ahead)]
        compared += len(ahead) > 0
        exchanged += bool(2 * (ahead > 0).sum() > len(ahead))
    if not compared or exchanged < _NEARLY_ALL * compared:
        return []
    return [
        f"note: {where}: in {exchanged:,} of {compared:,} volumes landmarks named left are to the right of landmarks "
        f"named right ({', '.join(map(':'.join, pairs))}); check VOLUMES.COORDINATE_SYSTEM (ras or lps), the names, "
        "and the orientation of the volumes"
    ]
