"""Scores of the outputs of any program, with confidence intervals, over one or several processes.

Each meter is a thin interface to the metrics of ``evaluate``, and gives equal numbers. Meters of one modality are next
to its metrics.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import paddle

from ..distributed import all_gather, rank, reduce_dict
from ..intervals import ConfidenceInterval
from ..metrics.confidence import IntervalConfig, compute_intervals
from ..registry.extension_points import METRICS
from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..tasks.metrics import PerSampleMetrics
from .checks import check_label_pair, host, prefix_errors, require, require_classes, require_few

_RESAMPLES = 1000  # half samples, the default of EVALUATION.RESAMPLES
NO_CLASS = -100  # points without a label
OfMeter = TypeVar("OfMeter", bound="Meter")
Method = TypeVar("Method", bound=Callable[..., Any])


def _named(method: Method) -> Method:
    """Prefix errors of a meter's method with the meter's name."""

    @functools.wraps(method)
    def call(self: "Meter", *arguments: Any, **options: Any) -> Any:
        with prefix_errors(type(self).__name__):
            return method(self, *arguments, **options)

    return cast(Method, call)


class MeterScores(NamedTuple):
    """Scores of a meter.

    Attributes:
        values: scores by name, with the names of an evaluation.
        intervals: confidence intervals of these scores and of each class; each has ``low`` and ``high``.
    """

    values: dict[str, float]
    intervals: dict[str, ConfidenceInterval]


class Meter:
    """Count batches with ``update``, then score them with ``compute``; both may be repeated.

    An update that raises an error adds nothing.

    Args:
        classes: number of classes, or their names.
        percent: level of the intervals, 1 to 99; None: no intervals.
        options: options of the class.

    Raises:
        UserError: an argument is wrong.
    """

    #: values of the metrics that cannot be computed from outputs
    unknown: ClassVar[Sequence[str]] = ()

    @_named
    def __init__(self, classes: int | Sequence[str], *, percent: int | None = 95, **options: Any) -> None:
        items: Any = range(classes) if isinstance(classes, (int, np.integer)) else classes
        is_list = isinstance(items, Iterable) and not isinstance(items, str)
        names = [str(name) for name in items] if is_list else []
        is_each_once = 0 < len(names) == len(set(names))
        require(is_each_once, f"classes={classes!r}: expected a number of at least 1, or unique names")
        is_percent = percent in (None, *range(1, 100))
        require(is_percent, f"percent={percent!r}: expected 1 to 99, such as 95, or None for no intervals")
        self._names = names
        self._metrics: Any = self._build(names, **options)
        self._settings = names, {name: np.asarray(value).tolist() for name, value in options.items()}
        self._confidence = None if percent is None else IntervalConfig(int(percent), _RESAMPLES)
        self._samples = 0
        self._indices: list[int] = []
        self._told: set[tuple[str, str]] = set()  # keys that are not read

    def _build(self, names: list[str]) -> PerSampleMetrics:
        raise NotImplementedError

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        """Check one sample, and return the arguments of ``_add``; raises a UserError if the sample is invalid."""
        raise NotImplementedError

    def _note_unread(self, side: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
        """Report once the keys of "outputs" or "targets" that are not read."""
        unread = [str(name) for name in given if name not in known and (side, str(name)) not in self._told]
        self._told.update((side, name) for name in unread)
        if unread and rank() == 0:
            names = ", ".join(map(shorten, map(repr, unread)))
            print(f"note: {type(self).__name__} does not read {names} of {side}", file=sys.stderr)

    def _add(self, number: int, *sample: Any) -> None:
        """Count one sample."""
        self._metrics.update(*sample)

    @_named
    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add the samples of a batch.

        Args:
            outputs: one output per sample, tensors or arrays; see the class. This waits for tensors of a GPU.
            targets: one target per sample, tensors or arrays; see the class.
            indices: of the samples in their data set, int (batch,). Give them in all updates or in none. With them,
                intervals do not depend on which process had which sample, and a sample that is counted twice is an
                error.

        Raises:
            UserError: an argument is wrong; nothing was added.
        """
        numbers = self._numbers(outputs, targets, indices)
        self._count(outputs, targets, numbers)
        self._samples += len(numbers)
        self._indices += [] if indices is None else numbers

    def _numbers(self, outputs: Any, targets: Any, indices: Any) -> list[int]:
        """Check that the arguments are a batch, and return the indices of its samples."""
        for values in (outputs, targets):
            is_batch = hasattr(values, "__len__") and not isinstance(values, (str, Mapping))
            kind = type(values).__name__
            require(is_batch, f"a {kind} is not a batch: update takes lists or arrays with one entry per sample")
        require(
            len(outputs) == len(targets), f"{len(outputs)} outputs and {len(targets)} targets: expected equal numbers"
        )
        if indices is None:
            return [*range(self._samples, self._samples + len(outputs))]
        numbers = host(indices)
        require(
            numbers.shape == (len(outputs),) and (not numbers.size or numbers.dtype.kind in "iu"),
            f"indices of shape {numbers.shape}, {numbers.dtype}: expected a whole number for each of {len(outputs)} "
            "samples",
        )
        return [int(number) for number in numbers]

    def _count(self, outputs: Any, targets: Any, numbers: Sequence[int]) -> None:
        """Check all samples, then count them."""
        samples = []
        for output, target, number in zip(outputs, targets, numbers, strict=True):
            with prefix_errors(f"sample {number}"):
                samples.append(self._check(output, target))
        for number, sample in zip(numbers, samples, strict=True):
            self._add(number, *sample)

    @_named
    def merge(self: OfMeter, other: OfMeter) -> OfMeter:
        """Add the counts of another meter with equal settings, and return this one.

        Raises:
            UserError: the other meter has another type, other classes or options, or is this one.
        """
        is_of_kind = type(other) is type(self)
        require(is_of_kind, f"a {type(other).__name__} cannot be merged with it: merge meters of the same type")
        require(other._settings == self._settings, "meters with other classes or options cannot be merged")
        require(other is not self, "a meter cannot be merged with itself: all samples would count twice")
        self._metrics.merge(other._metrics)
        self._samples += other._samples
        self._indices += other._indices
        return self

    @_named
    def compute(self) -> MeterScores:
        """Compute the scores of all samples of all processes. Every rank must call this.

        Raises:
            UserError: no samples were added, or a sample was added twice.
        """
        parts = all_gather((self._samples, self._indices))
        all_indices = [index for _, group in parts for index in group]
        _require_once(np.asarray(all_indices, np.int64), sum(samples for samples, _ in parts))
        before = sum(samples for samples, _ in parts[: rank()])
        indices = self._indices if all_indices else range(before, before + self._samples)
        self._metrics.indices = indices
        values = self._metrics.compute(reduce_dict(self._metrics.state, average=False))
        intervals = compute_intervals(self._metrics, indices, self._confidence) if self._confidence else {}
        known_values = {name: value for name, value in values.items() if name not in self.unknown}
        return MeterScores(
            {name: value if isinstance(value, int) else float(value) for name, value in known_values.items()},
            {name: interval for name, interval in intervals.items() if name not in self.unknown},
        )


def _require_once(indices: np.ndarray, samples: int) -> None:
    require(samples > 0, "no samples were added; call update(outputs, targets) first")
    require(len(indices) in (0, samples), f"{len(indices)} indices of {samples} samples: give one for each, or none")
    numbers, times = np.unique(indices, return_counts=True)
    if (times > 1).any():
        first = int(np.argmax(times > 1))
        raise UserError(
            f"sample {numbers[first]} was counted {times[first]} times: Paddle's DistributedBatchSampler repeats "
            "samples; use EvaluationSampler"
        )


class Accuracy(Meter):
    """Compute top-1 and (from six classes up) top-5 in percent, balanced accuracy, and the mean cross-entropy.

    Outputs are logits (batch, classes). Targets are the true classes, int (batch,) or (batch, 1). Only ``compute``
    waits for a GPU, so targets on a GPU are not checked.
    """

    def _build(self, names: list[str]) -> PerSampleMetrics:
        from ..metrics.classification import ClassificationMetrics

        return ClassificationMetrics(len(names), names)

    def _count(self, outputs: Any, targets: Any, numbers: Sequence[int]) -> None:
        logits, labels = (x if isinstance(x, paddle.Tensor) else host(x) for x in (outputs, targets))
        require(
            logits.ndim == 2 and logits.shape[1] == len(self._names),
            f"outputs of shape {tuple(logits.shape)}: expected logits (batch, {len(self._names)})",
        )
        require(
            tuple(labels.shape) in ((len(numbers),), (len(numbers), 1)) and "int" in str(labels.dtype),
            f"targets of shape {tuple(labels.shape)}, {labels.dtype}: expected one whole number per sample",
        )
        if not isinstance(labels, paddle.Tensor) or labels.place.is_cpu_place():
            require_classes(host(labels), len(self._names), "targets")
        tensors = [x if isinstance(x, paddle.Tensor) else paddle.to_tensor(x) for x in (logits, labels)]
        self._metrics.update(tensors[0], tensors[1].reshape([-1]).astype("int64"))


class MeanIoU(Meter):
    """Compute mean IoU, accuracy and Dice as fractions, the IoU of each class, and the boundary IoU of images.

    An output is the class of each pixel of an image, int (height, width), or of each point of a scene, int (points,). A
    target is the true class of each. Options: ``of="points"`` for scenes; ``ignored``, the target of elements without a
    label, 255.
    """

    unknown = ("loss",)

    def _build(self, names: list[str], of: str = "pixels", ignored: int = 255) -> PerSampleMetrics:
        self._of, self._ignored = of, ignored
        require(of in ("pixels", "points"), f"of={of!r}: expected 'pixels' or 'points'")
        if of == "pixels":
            require_few(names)
        return METRICS[of].require()(names)

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        takes_points = self._of == "points"
        axes = ("points",) if takes_points else ("height", "width")
        none = [self._ignored, NO_CLASS] if takes_points else [self._ignored]
        predicted, true = check_label_pair(output, target, axes, len(self._names), none)
        if takes_points:
            return tuple(to_host_tensors(predicted, np.where(true == self._ignored, NO_CLASS, true)))
        return predicted.astype(np.uint8), np.where(true == self._ignored, 255, true).astype(np.uint8)


def to_host_tensors(*arrays: np.ndarray) -> list[paddle.Tensor]:
    """Convert classes of points to int64 tensors on the host, for the metrics of scenes."""
    return [paddle.to_tensor(array.astype(np.int64), place=paddle.CPUPlace()) for array in arrays]
