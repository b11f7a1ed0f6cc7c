"""Target heatmaps, their loss, and the way from heatmaps of mirrored crops to heatmaps of the crops.

Source: Huang et al., CVPR 2020, section 3.2: the Gaussian's center is the point's exact place, not the nearest cell.
"""

from collections.abc import Sequence

import numpy as np
import paddle

from ....core.registry.extension_points import GAUSSIAN_LOSSES
from ....core.runtime.transfers import constant

_CUT = 3.0  # deviations from the map beyond which a point does not count


def find_cells(points: np.ndarray, crop_size: tuple[int, int], heatmap_size: tuple[int, int]) -> np.ndarray:
    """Map points of crops, x and y (..., 2) in pixels, to cells of their heatmaps, float32 (..., 2)."""
    factors = [(cells - 1) / (side - 1) for cells, side in zip(reversed(heatmap_size), reversed(crop_size))]
    return (points * np.array(factors)).astype(np.float32)


def weigh_points(cells: np.ndarray, visible: np.ndarray, heatmap_size: tuple[int, int], deviation: float) -> np.ndarray:
    """Return 1 for visible points within three deviations of the map, else 0: float32 of the shape of ``visible``."""
    limits = np.array([heatmap_size[1] - 1, heatmap_size[0] - 1]) + _CUT * deviation
    is_near = (cells >= -_CUT * deviation) & (cells <= limits)
    return (visible & is_near.all(axis=-1)).astype(np.float32)


def draw_targets(cells: paddle.Tensor, heatmap_size: tuple[int, int], deviation: float) -> paddle.Tensor:
    """Draw a Gaussian around each point, with the value 1 at its place, (batch, points, rows, columns).

    Args:
        cells: x and y of the points in cells, (batch, points, 2).
        heatmap_size: rows and columns.
        deviation: standard deviation in cells.
    """
    rows, columns = (constant(_count_cells, size, _dtype(cells)) for size in heatmap_size)
    across = paddle.exp((columns - cells[:, :, :1]) ** 2 * (-0.5 / deviation**2))  # (batch, points, columns)
    down = paddle.exp((rows - cells[:, :, 1:]) ** 2 * (-0.5 / deviation**2))  # (batch, points, rows)
    return down.unsqueeze(3) * across.unsqueeze(2)


def heatmap_losses(maps: paddle.Tensor, targets: paddle.Tensor, weights: paddle.Tensor) -> paddle.Tensor:
    """Return the mean squared error over all cells of each crop, (batch,); points of weight 0 count as exact.

    Args:
        maps, targets: (batch, points, rows, columns).
        weights: (batch, points).
    """
    return ((maps - targets) ** 2 * weights.unsqueeze([2, 3])).mean(axis=[1, 2, 3])


def gaussian_losses(
    maps: paddle.Tensor, cells: paddle.Tensor, weights: paddle.Tensor, deviation: float
) -> paddle.Tensor:
    """Return ``heatmap_losses`` of maps, for targets of ``draw_targets``."""
    compiled = GAUSSIAN_LOSSES.find()
    fast = None if compiled is None else compiled(maps, cells, weights, deviation)
    if fast is not None:
        return fast
    rows, columns = maps.shape[2:]
    return heatmap_losses(maps, draw_targets(cells, (rows, columns), deviation), weights)


def flip_back(maps: paddle.Tensor, mirror: Sequence[int]) -> paddle.Tensor:
    """Turn heatmaps (batch, points, rows, columns) of mirrored crops into heatmaps of the crops.

    Args:
        maps: the heatmaps.
        mirror: for each point the one that a mirrored object has in its place, (points,).
    """
    return paddle.flip(paddle.index_select(maps, constant(_as_indices, tuple(map(int, mirror))), axis=1), axis=[3])


def _count_cells(size: int, dtype: str) -> np.ndarray:
    return np.arange(size, dtype=dtype)


def _as_indices(mirror: tuple[int, ...]) -> np.ndarray:
    return np.array(mirror, np.int64)


def _dtype(tensor: paddle.Tensor) -> str:
    return "float64" if tensor.dtype == paddle.float64 else "float32"
