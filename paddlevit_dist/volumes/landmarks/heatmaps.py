"""Heatmaps of landmarks, dense or as the product of three short factors, and the positions of their peaks.

A Gaussian of three axes is the product of three Gaussians of one axis, so depth + height + width numbers determine a
landmark's whole map. The losses use these factors and never build the dense map. Positions are voxel indices in the
order z, y, x, with the center of voxel 0 at 0. NaN marks a missing landmark, whose map is 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import paddle

from ...core.runtime.transfers import constant

_SMALLEST = 1e-6  # lower bound of the logarithm's argument


class HeatmapFactors(NamedTuple):
    """Heatmaps as products: ``map[b, l, z, y, x] = depth[b, l, z] * height[b, l, y] * width[b, l, x]``."""

    depth: paddle.Tensor  # (batch, landmarks, depth)
    height: paddle.Tensor  # (batch, landmarks, height)
    width: paddle.Tensor  # (batch, landmarks, width)

    def power(self, exponent: int) -> "HeatmapFactors":
        """Return the factors of the maps raised to a power."""
        return HeatmapFactors(*(factor**exponent for factor in self))

    def dense(self) -> paddle.Tensor:
        """Compute the maps, (batch, landmarks, depth, height, width)."""
        # Matrix products are several times as fast as broadcasting on the CPU.
        plane = paddle.matmul(self.depth.unsqueeze(-1), self.height.unsqueeze(-2))  # (batch, landmarks, depth, height)
        batch, landmarks, depth, height = plane.shape
        maps = paddle.matmul(plane.reshape([batch, landmarks, depth * height, 1]), self.width.unsqueeze(-2))
        return maps.reshape([batch, landmarks, depth, height, self.width.shape[-1]])

    def integral(self) -> paddle.Tensor:
        """Sum each map over its voxels, (batch, landmarks)."""
        return self.depth.sum(axis=-1) * self.height.sum(axis=-1) * self.width.sum(axis=-1)


def gaussian_factors(points: paddle.Tensor, shape: Sequence[int], sigma: Sequence[float]) -> HeatmapFactors:
    """Compute the factors of Gaussians, which are 1 at the exact, sub-voxel position of the landmark.

    The value is ``exp(-d^2 / 2)``, where d is the distance from the landmark in deviations, ``sigma`` voxels (depth,
    height, width). ``points`` are float32 or float64 (batch, landmarks, 3), which may be outside; ``shape`` truncates
    the Gaussians.
    """
    offsets, present = _offsets(points, shape, truncates=False)
    deviations = constant(_repeat, tuple(map(float, sigma)), _to_ints(shape), _dtype_name(points))
    return _split_axes(paddle.exp(-0.5 * (offsets / deviations) ** 2) * present, shape)


def radius_factors(points: paddle.Tensor, shape: Sequence[int], radius: int) -> HeatmapFactors:
    """Compute the factors of the maps of ``radius_heatmaps``, equal up to the last bit of float32."""
    offsets, present = _offsets(points, shape, truncates=True)
    sigma = (2 * radius + 1) / 6
    inside = (offsets.abs() <= radius).astype(points.dtype)
    return _split_axes(paddle.exp(offsets * offsets * (-0.5 / sigma**2)) * inside * present, shape)


def _offsets(points: paddle.Tensor, shape: Sequence[int], truncates: bool) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute the distances of all voxels from the landmarks along each axis, and whether landmarks are present.

    They are (batch, landmarks, depth + height + width), concatenated to save operations, and 1 or 0, (batch, landmarks,
    1).
    """
    is_finite = is_known(points)
    positions = paddle.where(is_finite, points, paddle.zeros_like(points))
    if truncates:
        positions = paddle.trunc(positions)
    axes = constant(_repeat, (0, 1, 2), _to_ints(shape), "int64")
    voxels = constant(_number_voxels, _to_ints(shape), _dtype_name(points))
    offsets = voxels - paddle.index_select(positions, axes, axis=-1)
    return offsets, is_finite.all(axis=-1, keepdim=True).astype(points.dtype)


def is_known(points: paddle.Tensor) -> paddle.Tensor:
    """Return whether each number is finite, bool; unlike ``paddle.isfinite`` without waiting for a GPU."""
    return points - points == 0


def _repeat(values: tuple[float, ...], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Repeat a value per axis for each of its voxels, axes concatenated: (depth + height + width,)."""
    return np.repeat(np.asarray(values, dtype), shape)


def _number_voxels(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return the index of every voxel of the three axes, concatenated: (depth + height + width,)."""
    return np.concatenate([np.arange(length) for length in shape]).astype(dtype)


def _to_ints(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(length) for length in shape)


def _dtype_name(tensor: paddle.Tensor) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _split_axes(lines: paddle.Tensor, shape: Sequence[int]) -> HeatmapFactors:
    return HeatmapFactors(*paddle.split(lines, list(_to_ints(shape)), axis=-1))


def gaussian_heatmaps(
    points: paddle.Tensor, shape: Sequence[int], sigma_mm: Sequence[float], spacing_mm: Sequence[float] = (1, 1, 1)
) -> paddle.Tensor:
    """Compute dense Gaussian heatmaps ([batch,] landmarks, depth, height, width) on the device of ``points``.

    These are float32 or float64 ([batch,] landmarks, 3). Deviation and spacing are along depth, height and width.
    """
    sigma = [float(s) / float(step) for s, step in zip(sigma_mm, spacing_mm)]
    batched = points if points.ndim == 3 else points.unsqueeze(0)
    maps = gaussian_factors(batched, shape, sigma).dense()
    return maps if points.ndim == 3 else maps.squeeze(0)


def radius_heatmaps(
    points: np.ndarray, shape: Sequence[int], radius: int, channels: Sequence[int] | None = None
) -> np.ndarray:
    """Compute heatmaps bit-identical to CenterNet's ``draw_umich_gaussian``, extended to three dimensions.

    Positions (landmarks, 3) are truncated to voxels. A cube of 2 * radius + 1 voxels around each, cut off at the
    border, contains a Gaussian of deviation (2 * radius + 1) / 6. If several landmarks share a channel, the larger
    value wins. ``channels`` is the channel of each landmark; None: a separate one
    for each. The result is float32 (channels, depth, height, width). Source: X. Zhou et al., 2019, "Objects as Points",
    arXiv 1904.07850, section 3.
    """
    points = np.asarray(points, dtype=np.float64).reshape(-1, 3)
    channels = list(range(len(points))) if channels is None else list(channels)
    maps = np.zeros((max(channels, default=-1) + 1, *shape), dtype=np.float32)
    cube = gaussian_cube(radius)
    for point, channel in zip(points, channels):
        if not np.isfinite(point).all():
            continue
        targets, sources = [], []
        for center, length in zip(np.trunc(point).astype(np.int64), shape):
            first, last = max(center - radius, 0), min(center + radius + 1, length)
            targets.append(slice(first, max(last, first)))
            sources.append(slice(first - center + radius, max(last, first) - center + radius))
        part = maps[channel][tuple(targets)]
        if part.size:
            np.maximum(part, cube[tuple(sources)], out=part)
    return maps


def gaussian_cube(radius: int) -> np.ndarray:
    """Return a Gaussian, float64 (2 * radius + 1,) * 3: 1 at its center voxel.

    CenterNet sets values below machine epsilon to 0; here all are at least exp(-13.5).
    """
    steps = np.arange(-radius, radius + 1, dtype=np.float64)
    z, y, x = np.ix_(steps, steps, steps)
    sigma = (2 * radius + 1) / 6
    return np.exp(-(x * x + y * y + z * z) / (2 * sigma * sigma))


def decode(
    maps: paddle.Tensor, method: str = "quadratic", reach: Sequence[int] = (3, 3, 3)
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the peak of each map: voxels z, y, x, float64 (landmarks, 3), and confidence, 0 to 1, (landmarks,).

    A map with a number that is not finite has no peak: position and confidence are NaN.

    Args:
        maps: float32 (landmarks, depth, height, width), mostly 0 to 1.
        method: "quadratic": along each axis the vertex of the parabola through the logarithms of the peak and its two
            neighbors, exact for a Gaussian; "soft_argmax": mean position of the voxels around the peak, weighted by
            their values, less sensitive to noise.
        reach: voxels of the mean on each side (depth, height, width); three deviations make it unbiased.
    """
    landmarks, *shape = maps.shape
    flat = maps.reshape([landmarks, -1])
    is_finite = is_known(flat).all(axis=-1).astype("int64")
    peaks, finite = paddle.stack([flat.argmax(axis=-1), is_finite]).numpy()  # waits once for a GPU
    reach = np.maximum(np.asarray(reach, dtype=np.int64), 1)
    points, confidences = np.zeros((landmarks, 3)), np.zeros(landmarks)
    for number, peak in enumerate(peaks.tolist()):
        if not finite[number]:
            points[number] = confidences[number] = np.nan
            continue
        center = np.array(np.unravel_index(peak, shape))
        low = np.maximum(center - reach, 0)
        high = np.minimum(center + reach + 1, shape)
        # Only this neighborhood is copied from the device.
        block = maps[number, low[0] : high[0], low[1] : high[1], low[2] : high[2]].numpy().astype(np.float64)
        refine = {"quadratic": _vertex, "soft_argmax": _mean_position}[method]
        points[number] = low + refine(block, center - low)
        confidences[number] = block[tuple(center - low)]
    return points, np.clip(confidences, 0.0, 1.0)


def _vertex(block: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """Return the vertex of a parabola along each axis, or the peak's index if it is at the border."""
    result = peak.astype(np.float64)
    logarithm = np.log(np.maximum(block, _SMALLEST))
    for axis in range(3):
        if not 0 < peak[axis] < block.shape[axis] - 1:
            continue
        before, at, after = (logarithm[tuple(peak + step * np.eye(3, dtype=int)[axis])] for step in (-1, 0, 1))
        curvature = before - 2 * at + after
        if curvature < 0:
            result[axis] += 0.5 * (before - after) / curvature  # at most half a voxel: neither neighbor is larger
    return result


def _mean_position(block: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """Return the weighted mean position over the largest part of the block that is symmetric about the peak."""
    reach = np.minimum(peak, np.array(block.shape) - 1 - peak)
    part = block[tuple(slice(p - r, p + r + 1) for p, r in zip(peak, reach))]
    weights = np.maximum(part, 0.0)
    total = weights.sum()
    if total <= 0:
        return peak.astype(np.float64)
    offsets = np.meshgrid(*(np.arange(-r, r + 1) for r in reach), indexing="ij")
    return peak + np.array([(weights * offset).sum() / total for offset in offsets])
