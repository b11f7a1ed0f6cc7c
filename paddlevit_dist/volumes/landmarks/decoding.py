"""From heatmaps to sub-voxel positions."""

from collections.abc import Sequence

import numpy as np
import paddle

_SMALLEST = 1e-6  # of the logarithm's argument


def decode(
    maps: paddle.Tensor, method: str = "quadratic", reach: Sequence[int] = (3, 3, 3)
) -> tuple[np.ndarray, np.ndarray]:
    """Position and confidence of the peak of each map.

    Args:
        maps: float32 (landmarks, depth, height, width), 0 to 1 for the most part.
        method: "quadratic": along each axis the vertex of the parabola through the logarithms of the peak and its two
            neighbours, which is exact for a Gaussian; "soft_argmax": mean position of the voxels around the peak,
            weighted by their values, which is less sensitive to noise.
        reach: of the mean, in voxels on each side (depth, height, width); three deviations leave it unbiased.
    Returns:
        Voxel positions float64 (landmarks, 3) in the order z, y, x, and the values of the peaks, limited to 0 to 1,
        float64 (landmarks,).
    """
    landmarks, *shape = maps.shape
    flat = maps.reshape([landmarks, -1])
    peaks = flat.argmax(axis=-1).numpy()
    reach = np.maximum(np.asarray(reach, dtype=np.int64), 1)
    points, confidences = np.zeros((landmarks, 3)), np.zeros(landmarks)
    for number, peak in enumerate(peaks.tolist()):
        centre = np.array(np.unravel_index(peak, shape))
        low = np.maximum(centre - reach, 0)
        high = np.minimum(centre + reach + 1, shape)
        # Only this neighbourhood leaves the device.
        block = maps[number, low[0] : high[0], low[1] : high[1], low[2] : high[2]].numpy().astype(np.float64)
        refine = {"quadratic": _vertex, "soft_argmax": _mean_position}[method]
        points[number] = low + refine(block, centre - low)
        confidences[number] = block[tuple(centre - low)]
    return points, np.clip(confidences, 0.0, 1.0)


def _vertex(block: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """The vertex of a parabola along each axis; the peak's own index if it is at the border."""
    result = peak.astype(np.float64)
    logarithm = np.log(np.maximum(block, _SMALLEST))
    for axis in range(3):
        if not 0 < peak[axis] < block.shape[axis] - 1:
            continue
        before, at, after = (logarithm[tuple(peak + step * np.eye(3, dtype=int)[axis])] for step in (-1, 0, 1))
        curvature = before - 2 * at + after
        if curvature < 0:
            result[axis] += np.clip(0.5 * (before - after) / curvature, -0.5, 0.5)
    return result


def _mean_position(block: np.ndarray, peak: np.ndarray) -> np.ndarray:
    """Weighted mean over the largest part of the block that is symmetric about the peak along each axis."""
    reach = np.minimum(peak, np.array(block.shape) - 1 - peak)
    part = block[tuple(slice(p - r, p + r + 1) for p, r in zip(peak, reach))]
    weights = np.maximum(part, 0.0)
    total = weights.sum()
    if total <= 0:
        return peak.astype(np.float64)
    offsets = np.meshgrid(*(np.arange(-r, r + 1) for r in reach), indexing="ij")
    return peak + np.array([(weights * offset).sum() / total for offset in offsets])
