"""Description of exported networks: everything needed to use one without this package."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .settings import VolumeSection


def describe_preprocessing(
    volumes: VolumeSection, spacing: np.ndarray | None, intensities: dict[str, Any]
) -> dict[str, Any]:
    """Describe what a volume needs before the network."""
    return {
        "orientation": "RAS: the array's axes depth, height, width point up, to the front and to the right",
        "spacing_mm": None if spacing is None else [float(length) for length in spacing],
        "resampling": "linear; before voxels become k times as long, a Gaussian of 0.4247 sqrt(k^2 - 1) voxels",
        **intensities,
        "windows": [int(length) for length in volumes.CROP_SIZE],
        "overlap": float(volumes.OVERLAP),
        "outside_of_a_small_volume": 0,
    }


_STARTS = (
    "; windows start at round(k (length - window) / (m - 1)), halves to the even number, k from 0 to m - 1, along each "
    "axis, m = 1 + ceil((length - window) / max(1, int(window (1 - overlap)))); a short volume is filled up at its end"
)
WEIGHTS = {
    "linear": "weighted mean; a voxel's weight is the product over the axes of min(i + 1, n - i), divided by its "
    f"largest value, at index i of n{_STARTS}",
    "gaussian": "weighted mean; a voxel's weight is the product over the axes of exp(-32 ((i - (n - 1) / 2) / n)^2) "
    f"at index i of n{_STARTS}",
}
NORMALIZATIONS = {  # by the values of VOLUMES.NORMALIZE
    "ct": "limited to intensity_window; then minus its middle, divided by half its length, or by intensity_mean_std",
    "percentiles": "minus the first number of intensity_window, divided by its length, without limits; null: "
    "percentiles 0.5 and 99.5 of the volume",
    "z_score": "minus the mean of the volume, divided by its standard deviation, before resampling; z_score box: of "
    "the box around what is not 0 in any channel; mask: of this with its holes filled, and 0 elsewhere",
    "min_max": "minus the smallest value of the volume, divided by largest - smallest",
    "none": "unchanged",
}


def make_example(size: Sequence[int]) -> np.ndarray:
    """Return a bright ball in noise, float32 (1, 1, *size)."""
    places = np.indices(size) - (np.array(size).reshape(3, 1, 1, 1) - 1) / 2
    ball = (places**2).sum(axis=0) < (min(size) / 4) ** 2
    noise = 0.1 * np.random.default_rng(0).random(tuple(size))
    return (0.8 * ball + noise).astype(np.float32)[None, None]
