"""A task of a user that says how its samples are measured; batches, loss terms and scores follow from that."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import paddle

from ..intervals import means
from ..registry.required_methods import missing_method
from ..runtime.errors import UserError
from ..runtime.metrics_file import REPORT_FIELDS, require_free_names
from ..runtime.printing import describe_value
from .dataset import Dataset, dataset_class
from .metrics import TableMetrics
from .sample_arrays import as_array
from .sample_checks import BadSample, UnlikeSamples, require_finite
from .score_kind import Arrays, Recompute, ScoreKind
from .step_types import EvaluationStep, LossTerm, StepPosition, TaskTraits
from .task import Task

_NAMES = ("inputs", "targets")  # of the parts of a sample without names
_DTYPES = {"f": np.float32, "i": np.int64, "u": np.int64, "b": np.bool_}  # of a batch, by kind; bytes stay


class MeasuredTask(Task):
    """A task with a method ``measure``: the numbers of each sample; the loss is learned, and means are scores.

    Its datasets may be anything with a length and samples by index, such as a ``paddle.io.Dataset``. An evaluation has
    the mean of each measure, with its interval.
    """

    aspects = {"Predictable": ".measured_prediction:MeasuredPrediction"}
    best_metric = ("loss", False)
    traits = TaskTraits(normalizers_per_sample={"loss": 1})

    @abstractmethod
    def measure(self, model: Any, batch: dict[str, paddle.Tensor]) -> Mapping[str, paddle.Tensor]:
        """Return numbers of each sample of a batch by name, (batch,) each: "loss", and others that are only reported.

        Args:
            model: the network; call it, as gradients are not synchronized otherwise.
            batch: tensors by name, see ``stack_samples``.

        A measure other than the loss may be NaN for a sample: it is undefined there, and its mean is of the others. One
        that is infinite for a sample makes the mean infinite, which ends a training run.
        """

    def read_input(self, path: str) -> Any:
        """Read a file for a prediction: a sample without its targets, for ``collate``; UserError if it is damaged."""
        raise missing_method(type(self), "read_input")

    def predict(self, model: Any, batch: dict[str, paddle.Tensor]) -> Mapping[str, paddle.Tensor]:
        """Return numbers of each sample by name, (batch,) each: the columns of ``predict``."""
        raise missing_method(type(self), "predict")

    def build_dataset(self, split: str, cache_folder: Any) -> Any:
        """Open the dataset that DATA.DATASET names; a task that needs no such key returns its samples here."""
        return dataset_class(self.config, Dataset).open(self.config, split, cache_folder)

    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Stack the parts of samples, see ``stack_samples``."""
        return stack_samples(samples)

    def check_sample(self, sample: Any) -> None:
        """Check a sample when it is read: its numbers are finite, and its parts are numbers unless you collate them.

        Raises BadSample, to which the name of the sample is added.
        """
        require_finite(sample)
        if type(self).collate is MeasuredTask.collate:
            for name, part in _name_parts(sample).items():
                if not _is_text(sample, part):
                    _to_numbers(name, part)

    def train_step(self, model: Any, batch: dict[str, paddle.Tensor], step: StepPosition) -> dict[str, LossTerm]:
        """Return the sum of the loss, and of the other measures, without a weight, of the samples that define them."""
        measured, count = self._measure(model, batch)
        return {
            name: LossTerm(values.sum(), count) if name == "loss" else _sum_defined(values.detach())
            for name, values in measured.items()
        }

    def build_metrics(self) -> TableMetrics:
        """Return a table of the measures."""
        return TableMetrics("measures")

    def eval_step(self, model: Any, batch: dict[str, paddle.Tensor], step: EvaluationStep) -> None:
        """Add the measures of a batch."""
        step.metrics.add_batch(**self._measure(model, batch)[0])

    def _measure(self, model: Any, batch: dict[str, paddle.Tensor]) -> tuple[dict[str, paddle.Tensor], int]:
        """Return the measures of a batch as float32, and the number of its samples; UserError if they are not that."""
        count, place = len(next(iter(batch.values()))), f"{type(self).__name__}.measure"
        measured = self.measure(model, NamedParts(batch, place))
        if not isinstance(measured, Mapping) or "loss" not in measured:
            raise UserError(f"{place} returns {describe_value(measured)}, expected a dictionary of tensors with 'loss'")
        require_free_names(measured, f"measures of {place}", REPORT_FIELDS)
        require_rows(measured, count, place)
        if not measured["loss"].is_floating_point():
            raise UserError(
                f"{place} returns {describe_value(measured['loss'])} as 'loss', from which nothing is learned: "
                "expected floating-point numbers; compute it without astype"
            )
        return {name: values.astype("float32") for name, values in measured.items()}, count


class MeasuredScores(ScoreKind):
    """The mean of each measure of a ``MeasuredTask``."""

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return the means of weighted samples."""
        return means(self.join(parts))


class NamedParts(dict[str, Any]):
    """The parts of a batch by name; ``place`` is the method of a user that reads them, for a message."""

    def __init__(self, parts: Mapping[str, Any], place: str) -> None:
        super().__init__(parts)
        self.place = place

    def __missing__(self, name: str) -> NoReturn:
        raise UserError(f"{self.place} reads the part {name!r} of a batch, expected one of {', '.join(self)}")


def require_rows(found: Mapping[str, Any], count: int, place: str) -> None:
    """Check that a method of a user's task returns numbers of each of the ``count`` samples; UserError names others."""
    for name, values in found.items():
        if not isinstance(values, paddle.Tensor) or list(values.shape) != [count]:
            raise UserError(
                f"{place} returns {describe_value(values)} as '{name}', expected a tensor with a number for each "
                f"of the {count} samples: do not reduce a batch (reduction='none'), and take the mean over other "
                "axes"
            )


def stack_samples(samples: Sequence[Any]) -> dict[str, Any]:
    """Stack the parts of samples to a batch by name, (batch, ...): floats as float32, whole numbers as int64.

    The parts of a dictionary have its names, a pair's are "inputs" and "targets", a sample alone is "inputs". Bytes
    (uint8), such as in images, stay bytes. Texts and paths of a dictionary are a list of texts. Raises UserError: a
    part is made of something else, or differs in shape.
    """
    named = [_name_parts(sample) for sample in samples]
    batch: dict[str, Any] = {}
    for name in named[0]:
        other = _find_other([parts.keys() for parts in named])
        if other:
            lists = [", ".join(map(str, named[place])) or "none" for place in (0, other)]
            raise UnlikeSamples(
                f"samples of a batch have the parts {' and '.join(lists)}: give all the same", (0, other)
            )
        texts = [_is_text(sample, parts[name]) for sample, parts in zip(samples, named)]
        if all(texts):
            batch[name] = [str(os.fspath(parts[name])) for parts in named]
            continue
        arrays = [_to_numbers(name, parts[name]) for parts in named]
        other = _find_other([array.shape for array in arrays])
        if other:
            raise UnlikeSamples(
                f"the part '{name}' has shapes {arrays[0].shape} and {arrays[other].shape} in a batch: give all "
                "one, or override collate",
                (0, other),
            )
        stacked = np.stack(arrays)
        batch[name] = (
            stacked if stacked.dtype == np.uint8 and stacked.ndim > 1 else stacked.astype(_DTYPES[stacked.dtype.kind])
        )
    return batch


def _find_other(values: Sequence[Any]) -> int:
    """Return the position of the first value that differs from the first one; 0 if none does."""
    return next((place for place, value in enumerate(values) if value != values[0]), 0)


def _is_text(sample: Any, part: Any) -> bool:
    """Return whether a part is a text with a name, such as of a file; a class's name in a pair must be a number."""
    is_named = isinstance(sample, Mapping) or hasattr(sample, "_asdict")
    return is_named and isinstance(part, (str, os.PathLike))


def _to_numbers(name: str, part: Any) -> np.ndarray:
    """Return a part of a sample as numbers that a batch can have; BadSample if it is something else."""
    array = as_array(part)
    if array is None or array.dtype.kind not in _DTYPES:
        raise BadSample(
            f"the part '{name}' of a sample is {describe_value(part)}, expected numbers: remove it, or override collate"
        )
    if array.dtype == np.uint64 and array.max(initial=0) > np.iinfo(np.int64).max:
        raise BadSample(f"the part '{name}' of a sample has {array.max()}, expected numbers of int64")
    return array


def _sum_defined(values: paddle.Tensor) -> LossTerm:
    """Return the sum and the number of the values that are not NaN, as ``means`` counts them in an evaluation."""
    is_defined = ~paddle.isnan(values)
    return LossTerm(paddle.where(is_defined, values, paddle.zeros_like(values)).sum(), is_defined.sum(), weight=0.0)


def _name_parts(sample: Any) -> Mapping[str, Any]:
    if isinstance(sample, Mapping):
        return sample
    if isinstance(sample, tuple) and hasattr(sample, "_asdict"):
        return sample._asdict()
    if not isinstance(sample, (tuple, list)):
        return {_NAMES[0]: sample}
    if len(sample) > len(_NAMES):
        raise BadSample(f"a sample is {describe_value(sample)}: return a dictionary, which names more than two parts")
    return dict(zip(_NAMES, sample))
