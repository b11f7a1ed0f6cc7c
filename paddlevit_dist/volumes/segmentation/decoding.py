"""From the outputs of a network to the label of each stored voxel."""

from collections.abc import Iterator, Sequence

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.runtime.transfers import to_device
from ..geometry import interpolation_weights
from .dataset import IGNORED
from .regions import LabelRegion

_VALUES_AT_ONCE = 1 << 25  # outputs resampled to the stored grid, about 500 MB with intermediate values


def split_planes(outputs: int, shape: Sequence[int]) -> Iterator[slice]:
    """Yield ranges of the depth of stored voxels (depth, height, width), each small enough to resample at once."""
    count = max(1, _VALUES_AT_ONCE // (outputs * shape[1] * shape[2]))
    for first in range(0, shape[0], count):
        yield slice(first, min(first + count, shape[0]))


def choose_labels(maps: paddle.Tensor, regions: Sequence[LabelRegion]) -> paddle.Tensor:
    """Return the label of each voxel of outputs (outputs, depth, height, width), uint8. It is the largest output.

    Regions are painted one after another where their output is above 0, which is nnU-Net's probability above 0.5. A
    voxel with an output that is not finite is ``IGNORED``.
    """
    if regions:
        labels = paddle.zeros(maps.shape[1:], dtype="int32")
        for region, outputs in zip(regions, maps):
            labels = paddle.where(outputs > 0, paddle.full_like(labels, region.painted), labels)
    else:
        labels = maps.argmax(axis=0, dtype="int32")
    is_finite = paddle.isfinite(maps).all(axis=0)
    return paddle.where(is_finite, labels, paddle.full_like(labels, IGNORED)).astype("uint8")


class MeanProbabilities:
    """Mean of the probabilities of several networks, on the host.

    Source: nnU-Net's ``ensemble.py``: probabilities on the stored grid, ``shape`` (depth, height, width), are averaged,
    then labels are chosen. Without ``regions``, outputs are classes.
    """

    def __init__(self, outputs: int, shape: Sequence[int], regions: Sequence[LabelRegion]) -> None:
        self._sum, self._count, self._regions = np.zeros((outputs, *shape), np.float32), 0, regions

    def add(self, maps: paddle.Tensor, steps: np.ndarray) -> None:
        """Add a network's outputs (outputs, depth, height, width) before resampling; ``steps``: ``resample_maps``."""
        shape = self._sum.shape[1:]
        for planes in split_planes(len(self._sum), shape):
            part = resample_maps(maps, shape, steps, planes)
            probabilities = F.sigmoid(part) if self._regions else F.softmax(part, axis=0)
            missing = paddle.full_like(part, float("nan"))
            self._sum[:, planes] += paddle.where(paddle.isfinite(part), probabilities, missing).numpy()
        self._count += 1

    def choose_labels(self) -> np.ndarray:
        """Return the label of each voxel, uint8; ``IGNORED`` where an output of a network is not finite."""
        mean = self._sum / np.float32(self._count)
        if self._regions:
            labels = np.zeros(mean.shape[1:], np.uint8)
            for region, probabilities in zip(self._regions, mean):
                labels[probabilities > 0.5] = region.painted
        else:
            labels = mean.argmax(axis=0).astype(np.uint8)
        labels[~np.isfinite(mean).all(axis=0)] = IGNORED
        return labels


def resample_maps(
    maps: paddle.Tensor, shape: Sequence[int], steps: np.ndarray, planes: slice = slice(None)
) -> paddle.Tensor:
    """Resample maps (classes, depth, height, width) linearly at 0, step, 2 step and so on along each axis.

    Values beyond the last voxel repeat it. ``shape`` (depth, height, width) is of the result, ``steps`` are in voxels
    of ``maps``, and ``planes`` the range of the result's depth to compute.
    """
    for axis, (count, step) in enumerate(zip(shape, steps), 1):
        length, axis_range = maps.shape[axis], planes if axis == 1 else slice(None)
        if count == length and abs(step - 1) < 1e-6:
            maps = maps[:, planes] if axis == 1 else maps
            continue
        lower, share = (values[axis_range] for values in interpolation_weights(length, count, step))
        first, second = (
            paddle.index_select(maps, to_device(np.minimum(lower + offset, length - 1)), axis) for offset in (0, 1)
        )
        maps = first + to_device(share).reshape([-1 if other == axis else 1 for other in range(4)]) * (second - first)
    return maps
