"""PointGroup's clusters: connected points of the same class and scene.

Source: L. Jiang et al., "PointGroup", CVPR 2020, arXiv 2004.01658, algorithm 1.
"""

import math
from typing import NamedTuple

import numpy as np

from ...core.runtime.compiled import compiled
from ...core.runtime.errors import UserError

REACH = 2  # cells that the radius can span along one axis
_MAX_KEY = 1 << 62  # of cell numbers, int64


class PointClusters(NamedTuple):
    """Clusters of points."""

    cluster_numbers: np.ndarray  # int32 (S,), cluster number of each member, ascending
    points: np.ndarray  # int32 (S,), number of the point, ascending within a cluster
    offsets: np.ndarray  # int32 (clusters + 1,), first member of each cluster in ``points``

    @property
    def number(self) -> int:
        """Number of clusters."""
        return len(self.offsets) - 1

    def concat(self, other: "PointClusters") -> "PointClusters":
        """Concatenate both, numbering the other's clusters after these."""
        return PointClusters(
            np.concatenate([self.cluster_numbers, other.cluster_numbers + np.int32(self.number)]),
            np.concatenate([self.points, other.points]),
            np.concatenate([self.offsets, other.offsets[1:] + self.offsets[-1]]),
        )


def cluster_points(
    xyz: np.ndarray, classes: np.ndarray, scenes: np.ndarray, radius_m: float, min_points: int
) -> PointClusters:
    """Find connected components, of at least ``min_points`` points, among the points of each class and scene.

    Two points are connected if they are less than ``radius_m`` apart, in float32 as the original computes it. Clusters
    are numbered by their smallest point, the order in which a breadth-first search from each point finds them.

    The original lists at most 1,000 neighbors of a point, those with the smallest indices, regardless of class; here
    there is no limit. Up to it the results are identical. With more neighbors, when points have been shifted onto the
    center of a large object, the original's search misses points of the object or splits it, depending on the order of
    the points; here the object remains one cluster.

    ``xyz`` is float32 (N, 3), meters; points that are not finite are in no cluster. ``classes`` and ``scenes`` are
    integers (N,), from 0. UserError if the radius is so small that its cells cannot be numbered.
    """
    xyz = np.ascontiguousarray(xyz, np.float32)
    valid = np.flatnonzero(np.isfinite(xyz).all(axis=1))
    if not len(valid):
        return PointClusters(*(np.zeros(size, np.int32) for size in (0, 0, 1)))
    groups = np.asarray(scenes, np.int64)[valid] * (int(np.max(classes)) + 1) + np.asarray(classes, np.int64)[valid]
    keys, steps = _cell_keys(xyz[valid], groups, radius_m)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    starts = np.append(begins, len(keys))
    squared = np.float32(radius_m) * np.float32(radius_m)
    cell_components = connect(keys[begins], starts, xyz[valid[order]], steps, squared)
    component = np.empty(len(valid), np.int64)
    component[order] = np.repeat(cell_components, np.diff(starts))
    return _large_components(component, valid, min_points)


def _cell_keys(xyz: np.ndarray, groups: np.ndarray, radius_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Return each point's cell, consecutive along z, and offsets to the rows of cells with all points in the radius."""
    # The diagonal of a cell is shorter than the radius by more than float32 rounding.
    edge = 0.999 * radius_m / math.sqrt(3)
    axes = [np.floor(values.astype(np.float64) / edge) for values in xyz.T]
    axes = [values - values.min() for values in axes]
    for are_close in (False, True):
        axes = [_close_gaps(values) for values in axes] if are_close else axes
        # A margin on each side, so that no row of neighbors wraps around into the next row.
        widths = [int(values.max()) + 1 + 2 * REACH for values in axes]
        if (int(groups.max()) + 1) * math.prod(widths) <= _MAX_KEY:
            break
    else:
        raise UserError(
            f"a cluster radius of {radius_m} m is too small for {len(xyz):,} points this far apart: set "
            "POINTS.INSTANCES.RADIUS_M to about twice the distance of neighboring points"
        )
    keys = groups
    for column, width in zip(axes, widths):
        keys = keys * width + column.astype(np.int64)
    row, plane = widths[2], widths[2] * widths[1]
    reach = range(-REACH, REACH + 1)
    steps = [x * plane + y * row - REACH for x in reach for y in reach if (x, y) >= (0, 0)]
    return keys, np.array(steps, np.int64)


def _close_gaps(values: np.ndarray) -> np.ndarray:
    """Renumber cells (n,) along an axis so that empty stretches are just too long for the radius, float64 (n,)."""
    occupied, inverse = np.unique(values, return_inverse=True)
    steps = np.minimum(np.diff(occupied, prepend=occupied[0]), REACH + 1)
    return np.cumsum(steps)[inverse.reshape(-1)]


def connect(cells: np.ndarray, starts: np.ndarray, xyz: np.ndarray, steps: np.ndarray, squared: float) -> np.ndarray:
    """Return the component of each cell, named by the smallest cell in it, int64 (C,).

    Args:
        cells: int64 (C,), ascending keys of the occupied cells, consecutive along z.
        starts: int64 (C + 1,), first point of each cell in ``xyz``.
        xyz: float32 (N, 3), by cell.
        steps: int64 (S,), key of the first cell in a row of 2 * REACH + 1 that a cell is compared with, minus the key
            of that cell; rows of smaller keys are omitted because they have already been compared.
        squared: the squared radius; closer points are connected.
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
                    # Find the roots, with path halving.
                    root = cell
                    while parents[root] != root:
                        parents[root] = parents[parents[root]]
                        root = parents[root]
                    other_root = other
                    while parents[other_root] != other_root:
                        parents[other_root] = parents[parents[other_root]]
                        other_root = parents[other_root]
                    if root != other_root:
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
                            parents[max(root, other_root)] = min(root, other_root)
                other += 1
    for cell in range(len(cells)):  # parents are smaller, so each parent already points to its root
        parents[cell] = parents[parents[cell]]
    return parents


def _large_components(component: np.ndarray, numbers: np.ndarray, min_points: int) -> PointClusters:
    """Return the components (n,) of the ascending point numbers (n,) that have at least ``min_points`` points."""
    _, first, inverse, sizes = np.unique(component, return_index=True, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    is_large = sizes >= min_points
    rank = np.full(len(sizes), -1, np.int64)
    large = np.flatnonzero(is_large)
    rank[large[np.argsort(first[large])]] = np.arange(len(large))
    cluster = rank[inverse]  # (n,), -1 if too small
    members = np.flatnonzero(cluster >= 0)
    members = members[np.argsort(cluster[members], kind="stable")]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cluster[members], minlength=len(large)))])
    return PointClusters(cluster[members].astype(np.int32), numbers[members].astype(np.int32), offsets.astype(np.int32))


def proposal_ious(clusters: PointClusters, instances: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Compute the intersection over union of each cluster with each true instance, float32 (clusters, instances).

    The formula is the original's: ``shared / (points + instance points - shared + 1e-5)``. ``instances`` (N,) is the
    true instance of each point, none if outside 0 .. I - 1; ``sizes`` (I,) are their points.
    """
    number = len(sizes)
    member_instances = np.asarray(instances, np.int64)[clusters.points]
    inside = (member_instances >= 0) & (member_instances < number)
    places = clusters.cluster_numbers[inside].astype(np.int64) * number + member_instances[inside]
    shared = np.bincount(places, minlength=clusters.number * number).reshape(clusters.number, number)
    points = np.diff(clusters.offsets).astype(np.int64)[:, None]
    return (shared / (points + np.asarray(sizes, np.int64) - shared + 1e-5)).astype(np.float32)
