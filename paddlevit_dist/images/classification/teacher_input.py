"""The input that a teacher was trained with: of an export's description, of a run, or of published weights."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from yacs.config import CfgNode

from ...core.checkpoint.about_schema import ABOUT
from ...core.checkpoint.finding import find_run_settings
from ...core.checkpoint.model_record import read_facts
from ...core.checkpoint.published import fetch_record, is_fetched
from ...core.checkpoint.records import read_about_file, read_weights_info
from ...core.checkpoint.weight_files import local_file
from ...core.runtime.errors import UserError
from ..expected_input import find_expected_input
from ..image_size import ImageSize, as_pair, as_setting, format_size
from .settings import ClassificationDataSection


class TeacherInput(NamedTuple):
    """The input of a teacher.

    Attributes:
        source: what says so, for the log; empty: nothing, and nothing else is known.
        mean, deviation: per channel, of pixels from 0 to 1; empty: not known.
        image_size: one number of pixels, or [height, width]; None: not known.
        interpolation: of the resize in evaluation; None: not known.
    """

    source: str = ""
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    image_size: ImageSize | None = None
    interpolation: str | None = None

    def format_for(self, data: ClassificationDataSection) -> str:
        """Format how the teacher is fed with the images of a student, for the log."""
        if not self.mean:
            return (
                f"its normalization is not known: it gets images with {_format(*_normalization(data))}, the student's"
            )
        is_equal = (self.mean, self.deviation) == _normalization(data)
        text = f"it gets images with {_format(self.mean, self.deviation)} ({self.source})"
        text += ", as the student" if is_equal else ", unlike the student"
        expected, given = [], []
        if self.image_size is not None and as_pair(self.image_size) != as_pair(data.IMAGE_SIZE):
            expected.append(format_size(self.image_size))
            given.append(format_size(data.IMAGE_SIZE))
        if self.interpolation not in (None, data.INTERPOLATION):
            expected.append(str(self.interpolation))
            given.append(data.INTERPOLATION)
        if not expected:
            return text
        return f"{text}; it expects {', '.join(expected)}, and gets the student's {', '.join(given)}"


def find_exported_input(name: str) -> tuple[TeacherInput, Mapping[str, Any]]:
    """Find the input of an exported model by its path without extension; also return the description of ``export``.

    A ``UserError`` says that the description is damaged, or that the model takes pixels.
    """
    file = Path(f"{name}.{ABOUT}")
    about = read_about_file(file) if file.is_file() else {}
    if about.get("input_type") == "uint8":
        raise UserError(
            f"TRAIN.TEACHER_MODEL {name} takes pixels ({file}), and a teacher gets normalized images: export it "
            "without -input=uint8"
        )
    shape, steps = about.get("input_shape"), about.get("preprocessing")
    sides = shape[-2:] if isinstance(shape, list) else []
    interpolation = str(steps.get("interpolation", "")) if isinstance(steps, Mapping) else ""
    found = TeacherInput(
        str(file),
        _parse_numbers(about.get("mean"), file),
        _parse_numbers(about.get("standard_deviation"), file),
        as_setting(sides) if [type(side) for side in sides] == [int, int] else None,
        interpolation.partition(",")[0] or None,
    )
    return found, about


def find_weights_task(weights: str) -> str | None:
    """Return the task whose run wrote the weights; None if it is not known."""
    return (read_facts(weights) or {}).get("task")


def find_weights_input(name: str, weights: str) -> TeacherInput:
    """Find the input of a registered model with weights: its run's, else what published weights expect.

    A ``UserError`` says that a file next to the weights is damaged.
    """
    if not is_fetched(weights) or fetch_record(weights) is not None:
        file = local_file(weights).path
        data = (find_run_settings(read_weights_info(file), file) or {}).get("DATA")
        if isinstance(data, Mapping) and "IMAGENET_MEAN" in data:
            mean, deviation = (_parse_numbers(data.get(f"IMAGENET_{part}"), file) for part in ("MEAN", "STD"))
            return TeacherInput(str(file), mean, deviation, data.get("IMAGE_SIZE"), data.get("INTERPOLATION"))
    model = {"NAME": name, "PRETRAINED": weights, "PRETRAINED_REQUIRED": False}
    match = find_expected_input(CfgNode({"MODEL": model, "EVAL": True}))
    if match is None:
        return TeacherInput()
    expected = match.expected
    return TeacherInput(match.source, expected.mean, expected.std, expected.image_size, expected.interpolation)


def _normalization(data: ClassificationDataSection) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(data.IMAGENET_MEAN), tuple(data.IMAGENET_STD)


def _format(*parts: Sequence[float]) -> str:
    mean, deviation = (", ".join(f"{value:g}" for value in part) for part in parts)
    return f"mean {mean} and deviation {deviation}"


def _parse_numbers(values: object, file: Path) -> tuple[float, ...]:
    """Return a list of numbers as a tuple; empty for what is not a list, a ``UserError`` if it has other entries."""
    if not isinstance(values, (list, tuple)):
        return ()
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    if len(numbers) != len(values):
        raise UserError(f"{file}: mean and deviation of images are not lists of numbers: restore the file or remove it")
    return tuple(numbers)
