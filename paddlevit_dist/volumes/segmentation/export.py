"""Export of segmentation networks."""

from ...tasks.aspects import TaskAspect
from ...tasks.protocols import Exportable
from ...tasks.step_types import ExportParts
from ..export import segmentation_parts
from ..intensities import IntensityConfig
from .regions import describe_regions
from .task import VolumeSegmentation


class VolumeLabelExport(TaskAspect, Exportable):
    """Describes an exported network."""

    task: VolumeSegmentation

    def export_parts(self) -> ExportParts:
        """Return the input, the output and the description of an exported network."""
        task, volumes = self.task, self.task.config.VOLUMES
        facts = task.class_names, task.numbers, task.channels, task.spacing
        regions = describe_regions(task.class_names, task.regions, task.numbers)
        intensities = IntensityConfig.from_config(volumes, len(task.channels) or 1, task.within)
        return segmentation_parts(volumes, intensities, *facts, regions)
