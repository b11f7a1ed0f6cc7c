"""Connected components of points that lie closer than a radius: the inner loops, compiled by numba.

Points are sorted into cells so small that all points of one cell are connected. Only points of neighbouring cells that
are not known to be connected yet have to be compared, so that dense places, where a ball holds thousands of points,
cost no more than others.
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled

REACH = 2  # cells that a radius can span along one axis


def connect(cells: np.ndarray, starts: np.ndarray, xyz: np.ndarray, steps: np.ndarray, squared: float) -> np.ndarray:
    """The component of each cell, named by the smallest cell in it, int64 (C,).

    Args:
        cells: int64 (C,), ascending keys of the occupied cells; neighbours along z follow one another.
        starts: int64 (C + 1,), where each cell's points begin in ``xyz``.
        xyz: float32 (N, 3), by cell.
        steps: int64 (S,), key of the first cell in a row of 2 * REACH + 1 that are compared with one, minus the key of
            that one; rows of smaller keys than its own are left out, they have met it already.
        squared: the radius, squared; closer points are connected.
    """
    return _connect(cells, starts, xyz, steps, np.float32(squared))


@compiled
def _connect(cells, starts, xyz, steps, squared):
    parents = np.arange(len(cells))
    for step in steps:
        candidate = 0
        for cell in range(len(cells)):
            lowest = cells[cell] + step
            highest = lowest + 4  # 2 * REACH
            while candidate < len(cells) and cells[candidate] < lowest:
                candidate += 1
            other = candidate
            while other < len(cells) and cells[other] <= highest:
                if other > cell:
                    # The roots, with the way to them made shorter.
                    one = cell
                    while parents[one] != one:
                        parents[one] = parents[parents[one]]
                        one = parents[one]
                    two = other
                    while parents[two] != two:
                        parents[two] = parents[parents[two]]
                        two = parents[two]
                    if one != two:
                        is_near = False
                        for i in range(starts[cell], starts[cell + 1]):
                            for j in range(starts[other], starts[other + 1]):
                                dx = xyz[i, 0] - xyz[j, 0]
                                dy = xyz[i, 1] - xyz[j, 1]
                                dz = xyz[i, 2] - xyz[j, 2]
                                if dx * dx + dy * dy + dz * dz < squared:
                                    is_near = True
                                    break
                            if is_near:
                                break
                        if is_near:
                            parents[max(one, two)] = min(one, two)
                other += 1
    for cell in range(len(cells)):  # parents are smaller: each is a root's child by now
        parents[cell] = parents[parents[cell]]
    return parents
