"""Export of segmentation networks."""

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.protocols import Exportable
from ...core.tasks.step_types import ExportParts
from ..export import NORMALIZATIONS, WEIGHTS, describe_preprocessing, make_example
from ..intensities import IntensityConfig
from .regions import describe_regions
from .task import VolumeSegmentation

_LARGEST_OUTPUT = "the largest of the outputs, after linear resampling to the stored spacing"
_PAINTED = (
    "after linear resampling to the stored spacing, 0; then for each region in order its number of regions_class_order "
    "where its output is above 0"
)


class VolumeLabelExport(TaskAspect, Exportable):
    """Describes an exported network."""

    task: VolumeSegmentation

    def export_parts(self) -> ExportParts:
        """Return the input, the output and the description of an exported network."""
        task, volumes = self.task, self.task.config.VOLUMES
        class_names, channels = task.class_names, task.channels
        intensity_config = IntensityConfig.from_config(volumes, len(channels) or 1, task.within)
        regions = describe_regions(class_names, task.regions, task.numbers)
        size, largest = tuple(int(length) for length in volumes.CROP_SIZE), list(volumes.get("LARGEST_COMPONENT", ()))
        description = {
            "classes": list(class_names) or None,
            "label_numbers": list(task.numbers) or None,
            **regions,
            "channels": list(channels),
            "preprocessing": describe_preprocessing(volumes, task.spacing, intensity_config.about()),
            "normalizations": {kind: NORMALIZATIONS[kind] for kind in dict.fromkeys(intensity_config.kinds)},
            "output": f"one map per {'region' if regions else 'class'}, of the input's size",
            "postprocessing": {
                **({"mean_with_mirrored": list(volumes.MIRROR_AXES)} if volumes.TEST_MIRROR else {}),
                "of_overlapping_windows": WEIGHTS[volumes.WINDOW_WEIGHTS],
                "class": _PAINTED if regions else _LARGEST_OUTPUT,
                **({"largest_component": largest} if largest else {}),
            },
        }
        shape = (len(class_names) or None, *size)
        example = np.repeat(make_example(size), len(channels) or 1, axis=1)
        return ExportParts(len(channels) or 1, description, size, "volume", {"input": example}, output_shape=shape)
