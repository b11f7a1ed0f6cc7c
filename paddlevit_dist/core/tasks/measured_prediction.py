"""Predictions of a ``MeasuredTask``: a row for each file, by its ``read_input`` and ``predict``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import describe_value, one_line
from .aspects import TaskAspect
from .measured_task import NamedParts, require_rows
from .prediction import InputSamples, Row
from .protocols import Predictable
from .sample_checks import BadSample


class ReadInputs(InputSamples):
    """Files, read by a task's ``read_input``."""

    def __init__(self, task: Any, names: Sequence[str]) -> None:
        self.task, self.names = task, names

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """Read file ``index``."""
        return self.task.read_input(self.names[index])


class MeasuredPrediction(TaskAspect, Predictable):
    """Predicts files, and all files of folders."""

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """List the files, or the files of a folder in the order of their names, without hidden ones."""
        names: list[str] = []
        for path in map(Path, inputs):
            inside = sorted(path.iterdir()) if path.is_dir() else [path]
            names += [str(file) for file in inside if file.is_file() and (file == path or file.name[0] != ".")]
        return ReadInputs(self.task, names)

    def predict_step(self, model: Any, batch: dict[str, Any]) -> list[Any]:
        """Return the predicted numbers of each sample by name; BadSample if one does not fit the network."""
        count, place = len(next(iter(batch.values()))), f"{type(self.task).__name__}.predict"
        try:
            found = self.task.predict(model, NamedParts(batch, place))
        except ValueError as error:  # also Paddle's, of a shape that does not fit a layer
            parts = ", ".join(f"{name} {describe_value(part)}" for name, part in batch.items())
            raise BadSample(f"{place} of {parts}: {type(error).__name__}: {one_line(error)}") from error
        if not isinstance(found, Mapping):
            raise UserError(
                f"{place} returns {describe_value(found)}, expected a dictionary of tensors with a number for each of "
                f"the {count} samples"
            )
        require_rows(found, count, place)
        columns = {name: values.tolist() for name, values in found.items()}
        return [{name: values[row] for name, values in columns.items()} for row in range(count)]

    def prediction_rows(self, prediction: Any) -> list[Row]:
        """Return the numbers of an input as a row."""
        if not np.isfinite(list(prediction.values())).all():
            raise BadSample("the model's outputs for it are not finite")
        return [dict(prediction)]
