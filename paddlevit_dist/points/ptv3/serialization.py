"""Voxels along a space-filling curve, and patches of consecutive ones. Needs no Paddle: loader processes call it.

Sources: X. Wu et al., "Point Transformer V3: Simpler, Faster, Stronger", CVPR 2024, arXiv 2312.10035, section 4; for
the Hilbert curve J. Skilling, "Programming the Hilbert curve", AIP Conference Proceedings 707, 2004.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.runtime.compiled import compiled
from ...core.runtime.errors import UserError

ORDERS = ("z", "z-trans", "hilbert", "hilbert-trans")
_KEY_BITS = 63


def find_depths(voxels: np.ndarray, num_scenes: int, is_legacy: bool = False, by_scene: bool = True) -> np.ndarray:
    """Return the bits of a coordinate along the curve in each scene, int64 (scenes,), for voxels int (N, 4).

    They have to hold the largest coordinate plus 1, or with ``is_legacy``, as Pointcept until 1.5.1, the largest one.
    The Hilbert curve's direction depends on them. Not ``by_scene``, all scenes have the bits of the batch, as in
    Pointcept; a scene's order then depends on the others. ValueError for a negative coordinate.
    """
    if len(voxels) and voxels[:, 1:].min() < 0:
        raise ValueError("voxels of a serialized network cannot be negative: subtract the lowest of each scene")
    largest = np.zeros(num_scenes, np.int64)
    np.maximum.at(largest, voxels[:, 0], voxels[:, 1:].max(axis=1, initial=0))
    if not by_scene:
        largest[:] = largest.max(initial=0)
    return np.array([(value + (not is_legacy)).bit_length() for value in largest.tolist()], np.int64)


def serialize(voxels: np.ndarray, depths: np.ndarray, order: str) -> np.ndarray:
    """Return the place of each voxel along a curve, int64 (N,): the scene above the 3 x largest depth bits of its cell.

    Args:
        voxels: integers (N, 4) from 0 on, scene number in column 0.
        depths: bits of a coordinate in each scene, int64 (scenes,), see ``find_depths``.
        order: one of ``ORDERS``; ``-trans`` exchanges the first two axes.

    Raises:
        ValueError: an unknown order.
        UserError: the scenes are too large for a 63-bit key.
    """
    if order not in ORDERS:
        raise ValueError(f"order is '{order}', expected one of {', '.join(ORDERS)}")
    deepest = int(depths.max(initial=0))
    if 3 * deepest + len(depths).bit_length() > _KEY_BITS:
        raise UserError(
            f"a scene is 2 ** {deepest - 1} voxels long or longer, too long to be sorted along a curve: use larger "
            "voxels, or crop scenes"
        )
    voxels = np.ascontiguousarray(voxels, np.int64)
    columns = (2, 1, 3) if order.endswith("-trans") else (1, 2, 3)
    return _encode(voxels, np.array(columns), depths, deepest, order.startswith("hilbert"))


@compiled
def _encode(voxels, columns, depths, deepest, is_hilbert):
    codes = np.empty(len(voxels), np.int64)
    place = np.empty(3, np.int64)
    for row in range(len(voxels)):
        scene = voxels[row, 0]
        depth = depths[scene]
        for axis in range(3):
            place[axis] = voxels[row, columns[axis]]
        if is_hilbert:
            for bit in range(depth - 1, 0, -1):
                low = (1 << bit) - 1
                for axis in range(3):
                    if place[axis] >> bit & 1:
                        place[0] ^= low
                    else:
                        swapped = (place[0] ^ place[axis]) & low
                        place[0] ^= swapped
                        place[axis] ^= swapped
            place[1] ^= place[0]
            place[2] ^= place[1]
            flips = 0
            for bit in range(depth - 1, 0, -1):
                if place[2] >> bit & 1:
                    flips ^= (1 << bit) - 1
            for axis in range(3):
                place[axis] ^= flips
        code = scene << 3 * deepest
        for bit in range(depth):
            for axis in range(3):
                code |= (place[axis] >> bit & 1) << (3 * bit + 2 - axis)
        codes[row] = code
    return codes


class PatchLayout(NamedTuple):
    """Patches of voxels sorted by scene and curve: ``x[filled]`` is cut at ``starts``, results are ``y[places]``."""

    filled: np.ndarray  # int64 (T,), sorted voxels of all patches one after the other; a filling repeats some
    places: np.ndarray  # int64 (N,), the place of each sorted voxel in ``filled``, not in a filling
    starts: np.ndarray  # int64 (patches + 1,), where patches begin, then T


def cut_patches(sizes: Sequence[int], patch_size: int) -> PatchLayout:
    """Cut scenes with ``sizes`` voxels into patches of ``patch_size``; a smaller scene is one short patch.

    The last patch of a larger scene begins with what is left, and is filled up with the voxels that stand one patch
    earlier.
    """
    filled, places, lengths, first, end = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [], 0, 0
    for size, length in ((size, patch_lengths([size], patch_size)) for size in sizes if size):
        rows = np.arange(sum(length))
        places.append(rows[:size] + end)
        filled.append(np.where(rows < size, rows, rows - patch_size) + first)
        lengths += length
        first, end = first + size, end + len(rows)
    return PatchLayout(np.concatenate(filled), np.concatenate(places), np.cumsum([0, *lengths]))


def patch_lengths(sizes: Sequence[int], patch_size: int) -> list[int]:
    """Return the length of each patch of ``cut_patches``."""
    lengths: list[int] = []
    for size in sizes:
        lengths += [patch_size] * -(-size // patch_size) if size > patch_size else [size] * (size > 0)
    return lengths
