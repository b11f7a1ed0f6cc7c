"""Changes of a crop's intensities, float32 (depth, height, width)."""

import numpy as np

from .geometry import gaussian


def blurred(volume: np.ndarray, deviation: float) -> np.ndarray:
    """Smoothed with a Gaussian of this deviation in voxels, cut off at three; the border is repeated outside."""
    weights = gaussian(deviation)
    for axis in range(3):
        length = volume.shape[axis]
        total = np.zeros_like(volume)
        for shift, weight in enumerate(weights, -(len(weights) // 2)):
            total += weight * volume.take(np.clip(np.arange(length) + shift, 0, length - 1), axis=axis)
        volume = total
    return volume


def coarsened(volume: np.ndarray, share: float) -> np.ndarray:
    """As a scan with ``share`` of the voxels along each axis would look: every so-manieth voxel, with straight lines
    between them. (nnU-Net has cubic splines there.)"""
    for axis, length in enumerate(volume.shape):
        kept = np.unique(np.rint(np.linspace(0, length - 1, max(2, round(share * length)))).astype(int))
        after = np.clip(np.searchsorted(kept, np.arange(length), side="right"), 1, max(len(kept) - 1, 1)) % len(kept)
        first, second = kept[after - 1], kept[after]
        part = ((np.arange(length) - first) / np.maximum(second - first, 1)).astype(np.float32)
        part = part.reshape([-1 if own == axis else 1 for own in range(3)])
        volume = volume.take(first, axis=axis) * (1 - part) + volume.take(second, axis=axis) * part
    return volume


def with_gamma(volume: np.ndarray, exponent: float, is_inverted: bool) -> np.ndarray:
    """Intensities, as shares of their range, to the power of ``exponent``; with the mean and deviation of before.

    Args:
        is_inverted: the power is taken of the negative intensities.
    """
    sign = np.float32(-1.0 if is_inverted else 1.0)
    values = volume * sign
    low, high = values.min(), values.max()
    if high <= low:
        return volume
    values = ((values - low) / (high - low)) ** np.float32(exponent)
    values = (values - values.mean()) / max(float(values.std()), 1e-7)
    return sign * (values * volume.std() + (volume * sign).mean()).astype(np.float32)
