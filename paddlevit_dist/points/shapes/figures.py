"""Images of shapes: the figures of a report, and samples with their classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.metrics.classification import join_records, require_num_classes
from ...core.metrics.classifier_figures import EvaluatedPredictions, galleries, tables
from ...core.runtime.errors import UserError
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure
from ...core.tasks.protocols import CaptionedImage, Drawable, Reportable
from ...core.tasks.sample_checks import BadSample
from ..data.images import draw
from .task import ShapeClassification, ShapeSamples

_IMAGE_PX = 80  # small enough that neighboring voxels touch


class ShapeFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation."""

    task: ShapeClassification

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Return galleries of predictions, and tables of classes."""

        def render_image(index: int) -> np.ndarray | None:
            try:
                return draw_shape(
                    samples.sample(index, np.random.default_rng(0)).voxels, self.task.config.SHAPES.UP_AXIS
                )
            except (UserError, BadSample, OSError):
                return None

        answers, number = join_records(records), require_num_classes(self.task.num_classes)
        evaluated = EvaluatedPredictions(*answers, number, self.task.class_names, self.task.traits.sample_name)
        return [*galleries(evaluated, render_image, samples.describe), *tables(evaluated)]


class ShapeDrawing(TaskAspect, Drawable):
    """Draws shapes with their classes."""

    task: ShapeClassification

    def visualize_batch(self, samples: ShapeSamples, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return the shapes of a training batch with their classes."""
        scenes, voxels = batch["coordinates"][:, 0], batch["coordinates"][:, 1:]
        shapes = [(voxels[scenes == number], label) for number, label in enumerate(batch["labels"].tolist())]
        up, names = self.task.config.SHAPES.UP_AXIS, self.task.class_names
        return [(draw_shape(shape, up), f"{names[label]}, {len(shape):,} voxels") for shape, label in shapes]

    def visualize_eval_samples(self, samples: ShapeSamples, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return shapes without augmentation, with their classes."""
        plain = ShapeSamples(samples.dataset, samples.shapes, is_training=False)
        generator = np.random.default_rng(0)
        return self.visualize_batch(plain, self.task.collate([plain.sample(index, generator) for index in indices]), 0)


def draw_shape(voxels: np.ndarray, up: str) -> np.ndarray:
    """Draw voxels (M, 3) seen obliquely from above, colored by position, uint8 (height, ``_IMAGE_PX``, 3)."""
    upright = np.roll(voxels, 2 - "xyz".index(up), axis=1).astype(np.float32)  # rotates about (1, 1, 1)
    shares = (upright - upright.min(axis=0)) / np.maximum(np.ptp(upright, axis=0), 1)
    colors = np.rint(40 + 180 * shares).astype(np.uint8)
    return draw(upright, colors, np.ones(len(upright), bool), _IMAGE_PX)
