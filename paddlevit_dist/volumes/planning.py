"""Plan of a network for volumes: spacing, patch, kernels and strides from the sizes of a dataset.

Source: F. Isensee et al., 2021, "nnU-Net", Nature Methods 18, supplementary note 2, and the rules of nnU-Net 2.8 for
``3d_fullres`` (``default_experiment_planner.py``, ``network_topology.py``). The same numbers follow, in the order of
the data's axes, which nnU-Net changes. Memory is estimated for nnU-Net's plain U-Net, which has one convolution less in
each level of the encoder than ``unet3d``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..core.runtime.errors import UserError

WIDTH, MAX_WIDTH = 32, 320  # channels of the first level, and most channels
_SMALLEST_EDGE = 4  # voxels of the coarsest level along an axis
_ANISOTROPIC = 3  # spacing of an axis, as a multiple of the other axes' largest spacing
_FIRST_PATCH = 256**3  # voxels, more than any plan has
_VALUES_PER_GB = 560_000_000 / 8  # features of a batch of two, which nnU-Net counts as 8 GB
_BATCH, _MOST_SHARE = 2, 0.05  # smallest batch; share of the dataset's voxels in one
Size = tuple[int, int, int]  # depth, height, width


class LevelPlan(NamedTuple):
    """Levels of a U-Net."""

    strides: list[Size]  # steps to each level below the first, 1 or 2 along each axis
    kernels: list[Size]  # sides of the convolutions of each level, the first too, 1 or 3 along each axis
    size: Size  # input, voxels, enlarged such that each level halves it without remainder

    @property
    def multiple(self) -> np.ndarray:
        """Return the numbers that the input's size is a multiple of."""
        return np.prod([(1, 1, 1), *self.strides], axis=0)

    def turned(self, order: Sequence[int]) -> "LevelPlan":
        """Return the plan for axes 0, 1 and 2 from this one, whose axes are in the order ``order``."""
        strides, kernels, (size,) = (
            [_to_size(np.array(each)[np.argsort(order)]) for each in sizes]
            for sizes in (self.strides, self.kernels, [self.size])
        )
        return LevelPlan(strides, kernels, size)


class NetworkPlan(NamedTuple):
    """Network, input and batch for a dataset."""

    spacing_mm: tuple[float, ...]  # voxels after resampling
    levels: LevelPlan  # network and patch
    batch_size: int  # patches of an update
    features: int  # values of all feature maps of one patch


def plan_network(
    spacings: np.ndarray, shapes: np.ndarray, outputs: int, memory_gb: float, num_volumes: int
) -> NetworkPlan:
    """Plan a network for volumes of ``spacings``, millimeters, and ``shapes``, voxels, (volumes, 3).

    ``memory_gb`` is a device's memory, by nnU-Net's estimate. A batch has at most a twentieth of the voxels of
    ``num_volumes``. UserError if the volumes are too small for levels, or no patch fits into the memory.
    """
    target = choose_spacing(spacings, shapes)
    sizes = np.median(np.rint(spacings / target * shapes), axis=0)  # of an even number of volumes: also half voxels
    # nnU-Net plans with the coarsest axis in front. It decides between axes if a patch covers an equal share of them.
    coarsest = int(target.argmax())
    order = [coarsest, *(axis for axis in range(3) if axis != coarsest)]
    spacing, median = target[order], sizes[order]
    aspect = 1 / spacing
    largest = np.rint(aspect * (_FIRST_PATCH / aspect.prod()) ** (1 / 3))
    levels = plan_levels(spacing, np.minimum(largest, median))
    if not levels.strides:
        size = " x ".join(f"{length:g}" for length in sizes)
        at_spacing = f"at {format_lengths(target)} mm"
        raise UserError(f"volumes of {size} voxels {at_spacing} are too small: no level can be halved")
    limit = _VALUES_PER_GB * memory_gb
    while (features := count_features(levels, outputs)) > limit:
        levels = _shrink(levels, spacing, median)
        if not levels.strides:
            raise UserError(f"no patch fits into {memory_gb:g} GB of memory: raise -memory_gb")
    covering = round(median.prod() * num_volumes * _MOST_SHARE / np.prod(levels.size))
    batch_size = max(min(round(limit / features * _BATCH), covering), _BATCH)
    return NetworkPlan(tuple(target.tolist()), levels.turned(order), batch_size, features)


def _shrink(levels: LevelPlan, spacing: np.ndarray, median: np.ndarray) -> LevelPlan:
    """Return the plan of the next smaller patch, along the axis where it covers the largest share of a volume.

    It has no level below the first if the axis ends.
    """
    size = np.array(levels.size)
    axis = int(np.argsort(size / median, kind="stable")[-1])
    smaller = size.copy()
    smaller[axis] -= levels.multiple[axis]
    # A shorter axis may have fewer levels, and so a smaller multiple: sizes in between are not skipped.
    size[axis] -= plan_levels(spacing, np.maximum(smaller, 1)).multiple[axis]
    return plan_levels(spacing, np.maximum(size, 1))


def choose_spacing(spacings: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Return the spacing to resample to, millimeters (depth, height, width).

    It is the median, but the 10th percentile along an axis with thick slices and few voxels: few volumes then lose
    slices.
    """
    spacing, size = np.median(spacings, axis=0), np.median(shapes, axis=0)
    axis = int(spacing.argmax())
    other_spacing, other_size = np.delete(spacing, axis).max(), np.delete(size, axis).min()
    if spacing[axis] > _ANISOTROPIC * other_spacing and size[axis] * _ANISOTROPIC < other_size:
        low = float(np.percentile(spacings[:, axis], 10))
        spacing[axis] = low if low >= other_spacing else other_spacing + 1e-5
    return spacing


def plan_levels(spacing: Sequence[float] | np.ndarray, size: Sequence[float] | np.ndarray) -> LevelPlan:
    """Plan strides and kernels such that voxels become isotropic first and are halved along all axes then.

    An axis is halved if the level has at least 8 voxels along it and its voxels are shorter than twice the shortest of
    such axes; a single axis only from 12 voxels on. A kernel has 3 voxels along an axis from the level on where voxels
    are shorter than twice the shortest of all, and everywhere in the last level.
    """
    lengths, voxels = np.array(spacing, np.float64), np.array(size, np.float64)
    kernel, strides, kernels = np.ones(3, np.int64), [], []
    while True:
        halved = voxels >= 2 * _SMALLEST_EDGE
        if not halved.any():
            break
        halved &= lengths / lengths[halved].min() < 2
        if halved.sum() == 1 and voxels[halved][0] < 3 * _SMALLEST_EDGE:
            break
        kernel = np.where(lengths / lengths.min() < 2, 3, kernel)
        strides.append(_to_size(np.where(halved, 2, 1)))
        kernels.append(_to_size(kernel))
        lengths, voxels = np.where(halved, 2 * lengths, lengths), np.where(halved, -(-voxels // 2), voxels)
    multiple = np.prod([(1, 1, 1), *strides], axis=0)
    return LevelPlan(strides, [*kernels, (3, 3, 3)], _to_size(np.ceil(np.array(size) / multiple) * multiple))


def count_features(levels: LevelPlan, outputs: int) -> int:
    """Count the values of the feature maps of one patch in nnU-Net's plain U-Net, its measure of memory.

    Each level has two convolutions on the way down, and two with a transposed convolution on the way up.
    """
    sizes = np.array(levels.size) // np.cumprod([(1, 1, 1), *levels.strides], axis=0)
    values = [int(size.prod()) * min(WIDTH * 2**level, MAX_WIDTH) for level, size in enumerate(sizes)]
    return 2 * sum(values) + 3 * sum(values[:-1]) + outputs * int(sizes[0].prod())


def _to_size(values: Sequence[int] | np.ndarray) -> Size:
    depth, height, width = (int(value) for value in values)
    return depth, height, width


def format_lengths(lengths: Iterable[float]) -> str:
    """Format lengths along the axes, or sizes."""
    return " x ".join(f"{length:.4g}" for length in lengths)
