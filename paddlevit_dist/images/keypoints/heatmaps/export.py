"""Exported heatmap networks: a function of crops, and how its maps become points."""

import numpy as np

from ....core.tasks.aspects import TaskAspect
from ....core.tasks.protocols import Exportable
from ....core.tasks.step_types import ExportParts
from ...transforms.described import describe_input, draw_image, normalize
from .crops import build_matrix, crop_image, fit_regions
from .decoding import DECODING
from .task import KeypointHeatmaps

_SCORE = "score of the box, 1 if it has none, times the mean of its points' scores above {:g}; 0 without one"
_MIRRORED = "mean of a crop's maps and the mirrored crop's maps, mirrored back, in the order 'heatmaps'"


class HeatmapExport(TaskAspect, Exportable):
    """Describes an exported heatmap network."""

    task: KeypointHeatmaps
    image_size_key = "HEATMAPS.CROP_SIZE"

    def export_parts(self) -> ExportParts:
        """Return the description of the exported model."""
        task, keys = self.task, self.task.config.HEATMAPS
        height, width = task.crop_size
        rows, columns = task.crops.heatmap_size
        crop = (
            f"a box is enlarged to the proportions of the crop and by {keys.BOX_SCALE:g}; its region, from the center "
            f"of the first pixel to that of the last, becomes {width} x {height} pixels; the box of a whole image is "
            "0, 0, its width and height; levels are rounded"
        )
        labels, numbers = np.arange(len(task.keypoint_sets)), np.arange(len(task.channels))
        heatmaps = task.channels.collect(np.tile(numbers, (len(labels), 1)), labels)
        description = {
            **describe_input(task.config.DATA, task.turns, [height, width], "bilinear, 0 outside of the image"),
            "crop": crop,
            "output": f"float32 (batch, {len(task.channels)}, {rows}, {columns}), a heatmap for each point",
            "points": task.point_names,
            "heatmaps_of_classes": {
                name: own[: len(each.names)].tolist()
                for name, each, own in zip(task.class_names, task.keypoint_sets, heatmaps)
            },
            "decoding": {"kernel": keys.KERNEL, **DECODING, "object": _SCORE.format(keys.POINT_SCORE)},
        }
        if task.finder.mirrors:
            description["mean_with_mirrored"] = {"maps": _MIRRORED, "heatmaps": task.channels.mirror.tolist()}
        image = draw_image(90, 120)
        region = fit_regions(np.array([20.0, 10.0, 60.0, 70.0]), task.crop_size, keys.BOX_SCALE)[0]
        pixels = crop_image(image.transpose(2, 0, 1), build_matrix(region, task.crop_size), task.crop_size)
        example = {"picture": image, "input": normalize(pixels.transpose(1, 2, 0), task.config.DATA)}
        shape = (len(task.channels), rows, columns)
        return ExportParts(
            3, description, task.crop_size, example=example, output_names=("heatmaps",), output_shape=shape
        )
