"""Statistics of a scene's instances, and contiguous numbering of them, as PointGroup's losses need.

Source: the data pipeline of the published program of L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import compiled
from ..data.scene import IGNORED


class InstanceTable(NamedTuple):
    """Statistics of a scene's instances. Attributes:
    rows: float32 (instances, 9): mean, minimum and maximum (x, y, z each, metres) of each instance's points.
    sizes: int32 (instances,), points of each.
    """

    rows: np.ndarray
    sizes: np.ndarray

    def of_points(self, instance: np.ndarray, columns: int = 9) -> np.ndarray:
        """The first columns for the instance that each point belongs to, all -100 if it belongs to none.

        Args:
            instance: integers (n,), as passed to ``instance_table``.

        Returns:
            float32 (n, columns).
        """
        last = np.full((1, columns), IGNORED, np.float32)  # selected by index -1
        return np.concatenate([self.rows[:, :columns], last])[np.maximum(instance, -1)]


def without_gaps(instance: np.ndarray) -> np.ndarray:
    """Renumber instances contiguously from 0, after some have lost all their points.

    As in the original: the largest number moves into the lowest gap, until there are no gaps.

    Args:
        instance: integers (n,), -100 for none.
    """
    present = set(np.unique(instance[instance >= 0]).tolist())
    moves = {}
    gap = 0
    while present and gap < max(present):
        if gap not in present:
            largest = max(present)
            present.remove(largest)
            present.add(gap)
            moves[largest] = gap
        gap += 1
    if not moves:
        return instance
    renumbered = np.arange(max(moves) + 1, dtype=instance.dtype)
    renumbered[list(moves)] = list(moves.values())
    return np.where(instance >= 0, renumbered[np.maximum(instance, 0)], instance)


def instance_table(xyz: np.ndarray, instance: np.ndarray) -> InstanceTable:
    """Mean, minimum, maximum and number of points of each instance; numbers must be contiguous.

    A scene without instances has no sizes. (The original reports -99 instances then.)

    Args:
        xyz: float (n, 3).
        instance: integers (n,), from 0 or -100.
    """
    number = int(instance.max(initial=-1)) + 1
    rows, sizes = np.zeros((number, 9)), np.zeros(number, np.int64)
    rows[:, 3:6], rows[:, 6:] = np.inf, -np.inf
    _gather_instances(xyz, instance, rows, sizes)
    rows[:, :3] /= sizes[:, None]
    return InstanceTable(rows.astype(np.float32), sizes.astype(np.int32))


@compiled
def _gather_instances(xyz, instance, rows, sizes):
    """Accumulate sums, minima and maxima into the rows."""
    for n in range(len(xyz)):
        if instance[n] >= 0:
            row = rows[instance[n]]
            sizes[instance[n]] += 1
            for axis in range(3):
                value = np.float64(xyz[n, axis])
                row[axis] += value
                row[3 + axis] = min(row[3 + axis], value)
                row[6 + axis] = max(row[6 + axis], value)


def compile_loop() -> None:
    """Compile or load the loop of ``instance_table``: once, for all processes forked from this one."""
    xyz, instance = np.zeros((1, 3), np.float32), np.zeros(1, np.int32)
    instance_table(xyz, instance)
    xyz.flags.writeable = False  # like arrays from a file: numba compiles for each kind of array
    instance_table(xyz, instance)
