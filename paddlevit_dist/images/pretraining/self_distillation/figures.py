"""What a log and ``inspect data`` ask of self-distillation: signs of a collapse, and views."""

from typing import Any

import numpy as np
import paddle

from ....core.tasks.aspects import TaskAspect, get_aspect
from ....core.tasks.model import as_model
from ....core.tasks.protocols import Recomputable, StateKeeping
from ...drawing import join_cells
from ..checks import PretrainingDrawing, PretrainingLog
from .losses import LARGE_VIEWS
from .task import SelfDistillation
from .teacher import TeacherKeeping


class CollapseLog(PretrainingLog):
    """Warns once if the teacher's outputs say nothing of the images."""

    task: SelfDistillation
    _has_warned = False

    def finish_epoch(self) -> list[str]:
        """Return log lines after an epoch's last step; every rank must call this."""
        lines = super().finish_epoch()
        keeping = get_aspect(self.task, StateKeeping)
        state = keeping.state if isinstance(keeping, TeacherKeeping) else None
        signs = None if state is None else state.take_signs()
        warning = "" if state is None or signs is None or self._has_warned else state.describe_collapse(signs)
        self._has_warned = self._has_warned or bool(warning)
        return [*lines, warning] if warning else lines


class ViewRecomputation(TaskAspect, Recomputable):
    """Recomputes the blocks of the student."""

    task: SelfDistillation

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the blocks of the backbone."""
        return as_model(model).recomputed_layers()


class ViewDrawing(PretrainingDrawing):
    """Draws the views of each image side by side."""

    task: SelfDistillation

    def visualize_batch(self, dataset: Any, batch: dict[str, np.ndarray], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return for each image its large and small views, uint8 (height, width[, 3])."""
        parts = [batch["images"], *([batch["small"]] if "small" in batch else [])]
        rows: list[list[np.ndarray]] = [[] for _ in batch["labels"]]
        for images in parts:
            for number, (pixels, _) in enumerate(self.draw(images)):
                rows[number % len(rows)].append(pixels)
        note = f"{LARGE_VIEWS} large views, {len(rows[0]) - LARGE_VIEWS} small ones"
        return [(join_cells(row, 0), note) for row in rows]

    def visualize_eval_samples(self, dataset: Any, indices: Any) -> list[tuple[np.ndarray, str]]:
        """Return the whole images as an evaluation sees them."""
        return self.draw(np.stack([dataset.sample(index, np.random.default_rng(0))[0][0] for index in indices]))
