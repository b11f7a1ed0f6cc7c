"""Which tables of a coordinate plan a network needs: small, plain, and free of Paddle, so that it can be pickled."""

from __future__ import annotations

from typing import NamedTuple, Tuple


class MapKey(NamedTuple):
    """One kernel map: which voxel of the coarse level meets which voxel of the fine level at which kernel offset.

    Attributes:
        fine: tensor stride of the finer level.
        coarse: tensor stride of the coarser level, a multiple of ``fine``; the same for a stride of 1.
        kernel_size: voxels along each axis.
        dilation: distance of neighbouring kernel offsets in units of ``fine``.
    """

    fine: int
    coarse: int
    kernel_size: int
    dilation: int = 1

    @property
    def is_symmetric(self) -> bool:
        """With a voxel's neighbour at offset k, the voxel is its neighbour's neighbour at offset K - 1 - k."""
        return self.fine == self.coarse and self.kernel_size % 2 == 1


class PlanSpec(NamedTuple):
    """What a network asks of the plan of each batch.

    Attributes:
        maps: kernel maps, in the order of their first use.
        scene_levels: tensor strides at which it must be known to which scene each voxel belongs (global pooling).
        block_rows: most voxels of one block, as the device of the network prefers it.
    """

    maps: Tuple[MapKey, ...] = ()
    scene_levels: Tuple[int, ...] = ()
    block_rows: int = 8192
