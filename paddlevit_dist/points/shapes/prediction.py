"""Prediction of shapes in files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.metrics.classifier_prediction import ClassifierPrediction
from ...core.tasks.prediction import InputSamples, find_inputs
from ..data.scene_store import is_hidden
from .data import SUFFIXES, read_shape
from .settings import ShapeSection
from .task import ShapeClassification, ShapeSample, build_sample


class ShapeInputs(InputSamples):
    """Files of shapes to be predicted, without augmentation."""

    labeled = False

    def __init__(
        self,
        shapes: ShapeSection,
        names: Sequence[str],
        unreadable: Sequence[tuple[str, str]],
        notices: Sequence[str] = (),
    ) -> None:
        self.shapes, self.names, self.unreadable, self.notices = shapes, names, unreadable, notices

    def sample(self, index: int, generator: np.random.Generator) -> ShapeSample:
        """Return shape ``index`` as network input."""
        return build_sample(read_shape(self.names[index]), self.shapes)


class ShapePrediction(ClassifierPrediction):
    """Predicts the classes of shapes."""

    task: ShapeClassification

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> ShapeInputs:
        """Return the samples of the shapes in paths, for ``predict``."""
        expected = f"expected {', '.join(SUFFIXES)}, or a folder of these"
        paths, unreadable, skipped = find_inputs(inputs, _find_shapes, _check_suffix, what="shape", expected=expected)
        return ShapeInputs(self.task.config.SHAPES, paths, unreadable, skipped)


def _check_suffix(path: str) -> str | None:
    return path if path.lower().endswith(SUFFIXES) else None


def _find_shapes(folder: str, others: list[str]) -> Iterator[str]:
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_file() or any(map(is_hidden, path.relative_to(folder).parts)):
            continue
        if _check_suffix(str(path)):
            yield str(path)
        else:
            others.append(str(path))
