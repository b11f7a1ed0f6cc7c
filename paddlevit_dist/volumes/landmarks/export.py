"""Export of heatmap networks."""

from ...tasks.aspects import TaskAspect
from ...tasks.protocols import Exportable
from ...tasks.step_types import ExportParts
from ..export import export_parts
from ..intensities import IntensityConfig
from .task import LandmarkDetection, compute_sigma


class LandmarkExport(TaskAspect, Exportable):
    """Describes an exported network."""

    task: LandmarkDetection

    def export_parts(self) -> ExportParts:
        """Return the input, the output and the description of an exported network."""
        task, volumes = self.task, self.task.config.VOLUMES
        sigma = None if task.spacing is None else compute_sigma(volumes, task.spacing)
        intensities = IntensityConfig.from_config(volumes, 1, task.within)
        return export_parts(volumes, intensities, task.names, task.spacing, sigma)
