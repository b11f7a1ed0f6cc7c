"""Tables of a batch for serialized networks, built with the coordinate plan: patches, coarse cells, positions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..sparse.coordinate_plan import CoordinatePlan, PlanTable
from .serialization import cut_patches, find_depths, serialize


@dataclass(frozen=True)
class PatchTable(PlanTable):
    """Patches of a level in one order: rows (T,), places (N,) and starts (patches + 1,), see ``PatchLayout``.

    Rows are numbers in the level: ``x[rows]`` are the patches, and ``y[places]`` has the level's rows again.

    Args:
        strides: tensor stride of the level.
        order: one of ``serialization.ORDERS``.
        patch_size: voxels of a patch.
        is_fresh: a level's depth comes from its own cells, not from the finest level's; only the curve's direction
            depends on it.
        is_legacy, by_scene: see ``find_depths``.
        cut_to_smallest: patches are no larger than the smallest scene of the batch, as in Pointcept without flash
            attention; a scene's result then depends on the others.
    """

    order: str
    patch_size: int
    is_fresh: bool = False
    is_legacy: bool = False
    by_scene: bool = True
    cut_to_smallest: bool = False

    def find_size(self, sizes: Sequence[int]) -> int:
        """Return the voxels of a patch for scenes of these sizes."""
        return min([self.patch_size, *filter(None, sizes)]) if self.cut_to_smallest else self.patch_size

    def build(self, plan: CoordinatePlan) -> list[np.ndarray]:
        """Return the three arrays."""
        (stride,) = self.strides
        cells = plan.level(stride).coordinates // np.array([1, stride, stride, stride])
        finest = cells if self.is_fresh or stride == 1 else plan.level(1).coordinates
        depths = find_depths(finest, plan.num_scenes, self.is_legacy, self.by_scene)
        if not self.is_fresh:
            depths = np.maximum(depths - stride.bit_length() + 1, 0)
        order = np.argsort(serialize(cells, depths, self.order), kind="stable")
        sizes = np.bincount(cells[:, 0], minlength=plan.num_scenes).tolist()
        layout = cut_patches(sizes, self.find_size(sizes))
        places = np.empty(len(order), np.int32)
        places[order] = layout.places
        return [order[layout.filled].astype(np.int32), places, layout.starts.astype(np.int32)]


@dataclass(frozen=True)
class CellTable(PlanTable):
    """Of two levels: the coarse cell of each voxel, (N,); then for each n the cells with an n-th voxel, and these."""

    def build(self, plan: CoordinatePlan) -> list[np.ndarray]:
        """Return 1 + 2 n arrays."""
        fine, coarse = self.strides
        voxels = plan.level(fine).coordinates.copy()
        voxels[:, 1:] -= voxels[:, 1:] % coarse
        cells = plan.find(coarse, voxels)
        rows = np.argsort(cells, kind="stable")
        sizes = np.bincount(cells)
        ranks = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        lists = [rows[ranks == rank] for rank in range(int(sizes.max(initial=0)))]
        return [each.astype(np.int32) for each in (cells, *(side for part in lists for side in (cells[part], part)))]


@dataclass(frozen=True)
class GridTable(PlanTable):
    """The cells of a level, (N * 3,)."""

    def build(self, plan: CoordinatePlan) -> list[np.ndarray]:
        """Return the array."""
        (stride,) = self.strides
        return [(plan.level(stride).coordinates[:, 1:] // stride).astype(np.int32).ravel()]
