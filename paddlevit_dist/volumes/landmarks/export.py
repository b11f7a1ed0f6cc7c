"""Export of heatmap networks."""

from typing import Any

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..export import NORMALIZATIONS, WEIGHTS, describe_preprocessing, make_example
from ..intensities import IntensityConfig
from .task import LandmarkDetection, compute_sigma

_POSITION = {
    "quadratic": "highest voxel of the map, then along each axis the vertex of the parabola through the logarithms of "
    "that voxel and its two neighbors, at most half a voxel away",
    "soft_argmax": "mean position of the voxels around the highest one, weighted by their values",
}


class LandmarkExport(TaskAspect, Exportable):
    """Describes an exported network."""

    task: LandmarkDetection

    def export_parts(self) -> ExportParts:
        """Return the input, the output and the description of an exported network."""
        task, volumes = self.task, self.task.config.VOLUMES
        names, spacing = task.names, task.spacing
        intensity_config = IntensityConfig.from_config(volumes, 1, task.within)
        size = tuple(int(length) for length in volumes.CROP_SIZE)
        window = volumes.INTENSITY_WINDOW
        intensities: str | dict[str, Any]
        if list(volumes.NORMALIZE) != ["percentiles"]:
            intensities = intensity_config.about()
        elif window is None:
            intensities = "percentiles 0.5 and 99.5 of each volume are mapped to 0 and 1"
        else:
            intensities = f"{window[0]:g} and {window[1]:g} are mapped to 0 and 1, without clipping"
        is_focal = volumes.LOSS == "focal"
        postprocessing: dict[str, Any] = {
            "maps": "the sigmoid of the outputs" if is_focal else "the outputs",
            "of_overlapping_windows": WEIGHTS[volumes.WINDOW_WEIGHTS],
            "position": _POSITION[volumes.DECODING],
            "confidence": "value of the map at its highest voxel, limited to 0 to 1",
        }
        if volumes.DECODING == "soft_argmax" and spacing is not None:
            postprocessing["reach_voxels"] = [int(length) for length in np.ceil(3 * compute_sigma(volumes, spacing))]
        description = {
            "landmarks": list(names) or None,
            "preprocessing": describe_preprocessing(volumes, spacing, {"intensities": intensities}),
            "normalizations": {kind: NORMALIZATIONS[kind] for kind in dict.fromkeys(intensity_config.kinds)},
            "output": "one heatmap per landmark, of the input's size",
            "postprocessing": postprocessing,
        }
        shape = (len(names) or None, *size)
        return ExportParts(
            1,
            description,
            size,
            "volume",
            {"input": make_example(size)},
            output_names=("heatmaps",),
            output_shape=shape,
        )
