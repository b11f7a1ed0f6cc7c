"""Description of exported networks: everything needed to use one without this package."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..tasks.step_types import ExportParts
from .intensities import IntensityConfig
from .settings import LandmarkVolumes, VolumeSection


def export_parts(
    volumes: LandmarkVolumes,
    intensity_config: IntensityConfig,
    names: Sequence[str],
    spacing: np.ndarray | None,
    sigma: np.ndarray | None,
) -> ExportParts:
    """Return the export description of a heatmap network.

    Args:
        volumes: section VOLUMES of the configuration.
        intensity_config: scaling of intensities.
        names: landmarks in the order of the maps; empty if unknown.
        spacing: millimeters (depth, height, width), or None.
        sigma: deviation of the heatmaps in voxels (depth, height, width), or None.
    """
    size = tuple(int(length) for length in volumes.CROP_SIZE)
    window = volumes.INTENSITY_WINDOW
    intensities: Any
    if list(volumes.NORMALIZE) != ["percentiles"]:
        intensities = intensity_config.about()
    elif window is None:
        intensities = "percentiles 0.5 and 99.5 of each volume are mapped to 0 and 1"
    else:
        intensities = f"{window[0]:g} and {window[1]:g} are mapped to 0 and 1, without clipping"
    is_focal = volumes.LOSS == "focal"
    postprocessing: dict[str, Any] = {
        "maps": "the sigmoid of the outputs" if is_focal else "the outputs",
        "of_overlapping_windows": _WEIGHTS[volumes.WINDOW_WEIGHTS],
        "position": _POSITION[volumes.DECODING],
        "confidence": "value of the map at its highest voxel, limited to 0 to 1",
    }
    if volumes.DECODING == "soft_argmax" and sigma is not None:
        postprocessing["reach_voxels"] = [int(length) for length in np.ceil(3 * sigma)]
    description = {
        "landmarks": list(names) or None,
        "preprocessing": _preprocessing(volumes, spacing, {"intensities": intensities}),
        "output": "one heatmap per landmark, of the input's size",
        "postprocessing": postprocessing,
    }
    shape = (len(names) or None, *size)
    return ExportParts(
        1, description, size, "volume", {"input": _example(size)}, output_names=("heatmaps",), output_shape=shape
    )


def segmentation_parts(
    volumes: VolumeSection,
    intensity_config: IntensityConfig,
    class_names: Sequence[str],
    numbers: Sequence[int],
    channels: Sequence[str],
    spacing: np.ndarray | None,
    regions: dict[str, Any],
) -> ExportParts:
    """Return the export description of a segmentation network; see ``VolumeSegmentation`` for the arguments."""
    size, largest = tuple(int(length) for length in volumes.CROP_SIZE), list(volumes.get("LARGEST_COMPONENT", ()))
    description = {
        "classes": list(class_names) or None,
        "label_numbers": list(numbers) or None,
        **regions,
        "channels": list(channels),
        "preprocessing": _preprocessing(volumes, spacing, intensity_config.about()),
        "output": f"one map per {'region' if regions else 'class'}, of the input's size",
        "postprocessing": {
            "of_overlapping_windows": _WEIGHTS[volumes.WINDOW_WEIGHTS],
            "class": _PAINTED if regions else _LARGEST_OUTPUT,
            **({"largest_component": largest} if largest else {}),
        },
    }
    shape = (len(class_names) or None, *size)
    example = np.repeat(_example(size), len(channels) or 1, axis=1)
    return ExportParts(len(channels) or 1, description, size, "volume", {"input": example}, output_shape=shape)


def _preprocessing(volumes: VolumeSection, spacing: np.ndarray | None, intensities: dict[str, Any]) -> dict[str, Any]:
    return {
        "orientation": "RAS: the array's axes depth, height, width point up, to the front and to the right",
        "spacing_mm": None if spacing is None else [float(length) for length in spacing],
        "resampling": "linear; before voxels become k times as long, a Gaussian of 0.4247 sqrt(k^2 - 1) voxels",
        **intensities,
        "windows": [int(length) for length in volumes.CROP_SIZE],
        "overlap": float(volumes.OVERLAP),
        "outside_of_a_small_volume": 0,
    }


_WEIGHTS = {
    "linear": "weighted mean; a voxel's weight is the product over the axes of min(i + 1, n - i), divided by its "
    "largest value, at index i of n",
    "gaussian": "weighted mean; a voxel's weight is the product over the axes of exp(-32 ((i - (n - 1) / 2) / n)^2) "
    "at index i of n",
}
_LARGEST_OUTPUT = "the largest of the outputs, after linear resampling to the stored spacing"
_PAINTED = (
    "after linear resampling to the stored spacing, 0; then for each region in order its number of regions_class_order "
    "where its output is above 0"
)
_POSITION = {
    "quadratic": "highest voxel of the map, then along each axis the vertex of the parabola through the logarithms of "
    "that voxel and its two neighbors, at most half a voxel away",
    "soft_argmax": "mean position of the voxels around the highest one, weighted by their values",
}


def _example(size: Sequence[int]) -> np.ndarray:
    """Return a bright ball in noise, float32 (1, 1, *size)."""
    places = np.indices(size) - (np.array(size).reshape(3, 1, 1, 1) - 1) / 2
    ball = (places**2).sum(axis=0) < (min(size) / 4) ** 2
    noise = 0.1 * np.random.default_rng(0).random(tuple(size))
    return (0.8 * ball + noise).astype(np.float32)[None, None]
