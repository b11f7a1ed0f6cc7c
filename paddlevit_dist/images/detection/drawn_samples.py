"""Samples of a detector with their boxes, as images."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Color
from ...core.tasks.protocols import CaptionedImage, Drawable
from ..drawing import build_legend
from .data.samples import host_facts
from .data.split_checks import list_crowds
from .data.transforms import build_evaluation_transform
from .drawing import CROWD, draw_annotations, draw_batch, get_label_colors
from .prediction import DetectionInput
from .task import Detection


class BoxDrawing(TaskAspect, Drawable):
    """Draws images with boxes."""

    task: Detection

    def visualize_batch(self, dataset: TransformedDataset, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return the images of a training batch as the model receives them, with boxes, and captions."""
        facts = host_facts(batch)
        return draw_batch(batch, facts["sizes"], facts["box_counts"], self.task.class_names)

    def visualize_eval_samples(self, dataset: TransformedDataset, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return images as in an evaluation with all annotations, and captions; crowds are gray."""
        transform, rng = DetectionInput(build_evaluation_transform(self.task.config)), np.random.default_rng(0)
        read = (dataset.dataset.read(index) for index in indices)
        images = ((transform(stored, rng).image, stored.size, annotations) for stored, annotations in read)
        return [draw_annotations(*image, self.task.class_names) for image in images]

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return the names and colors of categories."""
        names, number = self.task.class_names, len(self.task.class_names)
        return [*build_legend(names, get_label_colors(np.arange(number), number)), ("a crowd", CROWD)]

    def summarize_samples(self, dataset: TransformedDataset) -> Iterable[str]:
        """Return a table of objects and images per category."""
        counts, names = dataset.dataset.class_counts(), self.task.class_names
        width = max(map(len, [*names, "category"]))
        return [
            f"{'category':{width}}   objects    images",
            *(f"{name:{width}} {objects:9,} {images:9,}" for name, (objects, images) in zip(names, counts.tolist())),
            *list_crowds(dataset.dataset),
        ]
