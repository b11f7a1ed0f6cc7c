"""Score anybody's outputs beside the truth, with intervals, over one process or several.

Each meter is a thin face over what ``evaluate`` counts with, and gives its numbers.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import paddle

from ..distributed import all_gather, rank, reduce_dict
from ..engine.confidence import IntervalConfig, compute_intervals
from ..intervals import ConfidenceInterval
from ..runtime.errors import UserError
from ..tasks.metrics import Metrics
from .checks import check_corners, host, label_pair, prefix_errors, require, require_classes, require_few, require_parts

_RESAMPLES = 1000  # of the bootstrap, as EVALUATION.RESAMPLES has it
_NO_CLASS = -100  # of points
OfMeter = TypeVar("OfMeter", bound="Meter")
Method = TypeVar("Method", bound=Callable[..., Any])


def _named(method: Method) -> Method:
    """Begin what a method of a meter refuses with the meter's name."""

    @functools.wraps(method)
    def call(self: "Meter", *arguments: Any, **options: Any) -> Any:
        with prefix_errors(type(self).__name__):
            return method(self, *arguments, **options)

    return cast(Method, call)


class MeterScores(NamedTuple):
    """Hold what a meter has computed.

    Attributes:
        values: by name, as an evaluation's.
        intervals: of these values and of more, such as those of each class; each has ``low`` and ``high``.
    """

    values: dict[str, float]
    intervals: dict[str, ConfidenceInterval]


class Meter:
    """Count batches with ``update``, then score them with ``compute``; both may be repeated.

    An update that is refused adds nothing.

    Args:
        classes: their number, or the name of each.
        percent: the level of the intervals, 1 to 99; None computes none.
        options: of the class.

    Raises:
        UserError: an argument is wrong.
    """

    #: values that the metrics have, and outputs alone do not tell
    unknown: ClassVar[Sequence[str]] = ()

    @_named
    def __init__(self, classes: int | Sequence[str], *, percent: int | None = 95, **options: Any) -> None:
        given: Any = range(classes) if isinstance(classes, (int, np.integer)) else classes
        is_known = isinstance(given, Iterable) and not isinstance(given, str)
        names = [str(name) for name in given] if is_known else []
        is_each_once = 0 < len(names) == len(set(names))
        require(is_each_once, f"classes={classes!r}: expected their number, at least 1, or each name once")
        is_percent = percent in (None, *range(1, 100))
        require(is_percent, f"percent={percent!r}: expected 1 to 99, such as 95, or None for no intervals")
        self._names = names
        self._metrics: Any = self._build(names, **options)
        self._settings = names, {name: np.asarray(value).tolist() for name, value in options.items()}
        self._confidence = None if percent is None else IntervalConfig(int(percent), _RESAMPLES)
        self._samples = 0
        self._indices: list[int] = []

    def _build(self, names: list[str]) -> Metrics:
        raise NotImplementedError

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        """Check one sample, and return it as ``_add`` takes it.

        Raises:
            UserError: it is none.
        """
        raise NotImplementedError

    def _add(self, number: int, *sample: Any) -> None:
        """Count one sample."""
        self._metrics.update(*sample)

    @_named
    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add the samples of a batch.

        Args:
            outputs: one for each sample, tensors or arrays; see the class. Tensors are waited for.
            targets: likewise.
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
        """Check that this is a batch, and return the numbers of its samples."""
        for one in (outputs, targets):
            is_batch = hasattr(one, "__len__") and not isinstance(one, (str, Mapping))
            said = f"this is a {type(one).__name__}, not a batch: update takes lists or arrays with one for each sample"
            require(is_batch, said)
        require(len(outputs) == len(targets), f"{len(outputs)} outputs beside {len(targets)} targets")
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
        """Count samples once all of them are sound."""
        samples = []
        for found, true, number in zip(outputs, targets, numbers, strict=True):
            with prefix_errors(f"sample {number}"):
                samples.append(self._check(found, true))
        for number, sample in zip(numbers, samples, strict=True):
            self._add(number, *sample)

    @_named
    def merge(self: OfMeter, other: OfMeter) -> OfMeter:
        """Add what another meter of the same settings has counted, and return this one.

        Raises:
            UserError: it is of another class, has other classes or options, or is this one.
        """
        is_of_kind = type(other) is type(self)
        require(is_of_kind, f"a {type(other).__name__} cannot be merged with it: take two of a kind")
        require(other._settings == self._settings, "meters of other classes or options cannot be merged")
        require(other is not self, "a meter cannot be merged with itself, which would count all twice")
        self._metrics.merge(other._metrics)
        self._samples += other._samples
        self._indices += other._indices
        return self

    @_named
    def compute(self) -> MeterScores:
        """Compute the scores of all samples of all processes. Every rank must call this.

        Raises:
            UserError: nothing was added, or a sample twice.
        """
        parts = all_gather((self._samples, self._indices))
        given, total = [index for _, own in parts for index in own], sum(samples for samples, _ in parts)
        _require_once(np.asarray(given, np.int64), total)
        before = sum(samples for samples, _ in parts[: rank()])
        indices = self._indices if given else range(before, before + self._samples)
        values = self._metrics.compute(reduce_dict(self._metrics.state, average=False))
        intervals = compute_intervals(self._metrics, indices, self._confidence) if self._confidence else {}
        known = {name: value for name, value in values.items() if name not in self.unknown}
        return MeterScores(
            {name: value if isinstance(value, int) else float(value) for name, value in known.items()},
            {name: interval for name, interval in intervals.items() if name not in self.unknown},
        )


def _require_once(given: np.ndarray, samples: int) -> None:
    require(samples > 0, "nothing was added; call update(outputs, targets) first")
    require(len(given) in (0, samples), f"{len(given)} indices of {samples} samples: give one for each, or none")
    numbers, times = np.unique(given, return_counts=True)
    if (times > 1).any():
        raise UserError(
            f"sample {numbers[times > 1][0]} was counted {times.max()} times: Paddle's DistributedBatchSampler repeats "
            "samples; take EvaluationSampler"
        )


class Accuracy(Meter):
    """Compute top-1 and (from six classes up) top-5 in percent, balanced accuracy, and the mean cross-entropy.

    Outputs are logits (batch, classes). Targets are the true classes, int (batch,) or (batch, 1). Nothing waits for a
    GPU before ``compute``, so classes that are on a GPU are not checked.
    """

    def _build(self, names: list[str]) -> Metrics:
        from ..metrics.classification import ClassificationMetrics

        return ClassificationMetrics(len(names), names)

    def _count(self, outputs: Any, targets: Any, numbers: Sequence[int]) -> None:
        logits, labels = (one if isinstance(one, paddle.Tensor) else host(one) for one in (outputs, targets))
        require(
            logits.ndim == 2 and logits.shape[1] == len(self._names),
            f"outputs of shape {tuple(logits.shape)}: expected (batch, {len(self._names)}), a logit of each class",
        )
        require(
            tuple(labels.shape) in ((len(numbers),), (len(numbers), 1)) and "int" in str(labels.dtype),
            f"targets of shape {tuple(labels.shape)}, {labels.dtype}: expected whole numbers, one for each sample",
        )
        if not isinstance(labels, paddle.Tensor) or labels.place.is_cpu_place():
            require_classes(host(labels), len(self._names), "targets")
        tensors = [one if isinstance(one, paddle.Tensor) else paddle.to_tensor(one) for one in (logits, labels)]
        self._metrics.update(tensors[0], tensors[1].reshape([-1]).astype("int64"))


class MeanIoU(Meter):
    """Compute mean IoU, accuracy and Dice as fractions, the IoU of each class, and the boundary IoU of images.

    An output is the class of each pixel of an image, int (height, width), or of each point of a scene, int (points,). A
    target is the true class of each.

    Options: ``of="points"`` for scenes; ``ignored``, the target of what has no label, 255.
    """

    unknown = ("loss",)

    def _build(self, names: list[str], of: str = "pixels", ignored: int = 255) -> Metrics:
        self._of, self._ignored = of, ignored
        if of == "pixels":
            from ..images.segmentation.metrics import SegmentationMetrics

            require_few(names)
            return SegmentationMetrics(names)
        require(of == "points", f"of={of!r}: expected 'pixels' or 'points'")
        from ..points.segmentation.metrics import SemanticMetrics

        return SemanticMetrics(names)

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        of_points = self._of == "points"
        axes = ("points",) if of_points else ("height", "width")
        none = [self._ignored, _NO_CLASS] if of_points else [self._ignored]
        found, true = label_pair(found, true, axes, len(self._names), none)
        if of_points:
            return tuple(_points(found, np.where(true == self._ignored, _NO_CLASS, true)))
        return found.astype(np.uint8), np.where(true == self._ignored, 255, true).astype(np.uint8)


class CocoAP(Meter):
    """Compute COCO's numbers of boxes and, with the option ``masks=True``, of masks.

    An output is a dictionary of "boxes" (n, 4) x0, y0, x1, y1 in pixels, "scores" (n,) and "labels" (n,) from 0. A
    target is a dictionary of "boxes" and "labels". It may have "areas" (n,), else those of the boxes count, and
    "is_crowd" (n,). Masks are COCO's run lengths: "masks" of both, and the target's "size", height and width. Several
    processes, and meters that are merged, need ``indices``.
    """

    def _build(self, names: list[str], masks: bool = False) -> Metrics:
        from ..images.detection.metrics import DetectionMetrics

        self._with_masks = masks
        return DetectionMetrics(names, with_masks=masks)

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        from ..images.detection.detections import DetectedObjects, corners_to_boxes

        more = ["masks"] if self._with_masks else []
        require_parts(found, "output", ["boxes", "scores", "labels", *more])
        require_parts(true, "target", ["boxes", "labels", *more, *(["size"] if more else [])])
        corners, true_corners = check_corners(found["boxes"]), check_corners(true["boxes"])
        for side, one, number in (("output", found, len(corners)), ("target", true, len(true_corners))):
            for name in ("scores", "labels", "areas", "is_crowd", "masks"):
                if (values := one.get(name)) is not None:
                    require(hasattr(values, "__len__"), f"the {side}'s {name} are a {type(values).__name__}, no list")
                    require(len(values) == number, f"the {side} has {number} boxes and {len(values)} {name}")
        require(
            bool((true_corners[:, :2] <= true_corners[:, 2:]).all()),
            "a true box ends before it begins: expected corners x0, y0, x1, y1, not x, y, width, height",
        )
        scores = host(found["scores"]).astype(np.float64, copy=False)
        labels, true_labels = (host(one["labels"]) for one in (found, true))
        boxes = corners_to_boxes(true_corners)
        areas = host(true.get("areas", boxes[:, 2] * boxes[:, 3])).astype(np.float64)
        is_crowd = host(true.get("is_crowd", np.zeros(len(boxes)))).astype(bool)
        require_classes(labels, len(self._names), "labels of the output")
        require_classes(true_labels, len(self._names), "labels of the target")
        detections = DetectedObjects(corners, scores, labels.astype(np.int64), found.get("masks"))
        truth = SimpleNamespace(
            boxes=boxes, labels=true_labels.astype(np.int64), areas=areas, is_crowd=is_crowd, masks=true.get("masks")
        )
        return truth, detections, true.get("size")

    def _add(self, number: int, *sample: Any) -> None:
        self._metrics.update(number, *sample)


class ScanNetAP(Meter):
    """Compute average precision of instances of points by ScanNet's rules, and the IoU of their classes, as fractions.

    An output is a dictionary of "classes", int (points,), and "instances". An instance is (class, confidence, its
    points), where the points are indices or bool (points,). A target is a dictionary of "classes", -100 for none, and
    "instances", int (points,), negative for none. The option ``instance_classes`` lists the numbers of the classes that
    have instances; all have, if it is left out.
    """

    unknown = ("loss",)

    def _build(self, names: list[str], instance_classes: Sequence[int] | None = None) -> Metrics:
        from ..points.instances.metrics import InstanceMetrics

        chosen = [*range(len(names))] if instance_classes is None else [int(one) for one in instance_classes]
        require(set(chosen) <= set(range(len(names))), f"instance_classes={chosen}: expected numbers of {len(names)}")
        return InstanceMetrics(names, chosen)

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        from ..points.instances.metrics import InstancePrediction

        for side, one in (("output", found), ("target", true)):
            require_parts(one, side, ["classes", "instances"])
        classes, true_classes = label_pair(
            found["classes"], true["classes"], ("points",), len(self._names), [_NO_CLASS]
        )
        instances = host(true["instances"])
        require(
            instances.shape == true_classes.shape and instances.dtype.kind in "iu",
            f"instances of the target are {instances.dtype} of shape {instances.shape}: expected a whole number each",
        )
        predictions = []
        for given in found["instances"]:
            require(len(given) == 3, "an instance of the output is no (class, confidence, its points)")
            of, confidence, points = int(given[0]), float(given[1]), host(given[2])
            require_classes(np.array(of), len(self._names), "an instance")
            points = np.flatnonzero(points) if points.dtype == bool and points.shape == classes.shape else points
            is_inside = not points.size or (
                points.dtype.kind in "iu" and points.min() >= 0 and points.max() < len(classes)
            )
            require(bool(is_inside), f"points of an instance are no indices of {len(classes)} points")
            predictions.append(InstancePrediction(of, confidence, np.unique(points).astype(np.int64)))
        return classes, true_classes, instances, predictions

    def _add(self, number: int, *sample: Any) -> None:
        classes, true_classes, instances, predictions = sample
        self._metrics.update_semantic(*_points(classes, true_classes), None)
        self._metrics.update_instances(true_classes, instances, predictions)


class RadialError(Meter):
    """Compute the radial error of landmarks: mean and deviation in mm, and the share within 2, 2.5, 3 and 4 mm.

    An output is places in mm, float (landmarks, 3) for a volume or (landmarks, 2) for an image. A target is the true
    places, not a number where a landmark is missing.
    """

    def _build(self, names: list[str]) -> Metrics:
        from ..volumes.landmarks.metrics import LandmarkMetrics

        return LandmarkMetrics(names)

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        found, true = host(found), host(true)
        require(
            found.shape == true.shape and found.shape in ((len(self._names), 3), (len(self._names), 2)),
            f"outputs of shape {found.shape} beside targets of {true.shape}: expected ({len(self._names)}, 3) of both",
        )
        errors = np.linalg.norm(found.astype(np.float64) - true, axis=-1)
        lost = np.flatnonzero(~np.isfinite(errors) & np.isfinite(true).all(axis=-1))
        require(not lost.size, f"landmark {self._names[lost[0]] if lost.size else ''} is there, its output no number")
        return (errors,)


class VolumeDice(Meter):
    """Compute Dice coefficients of volumes as fractions, and surface distances in mm.

    An output is the class of each voxel, int (depth, height, width). A target is the true class of each, 255 for none.
    The first class is the background.

    Options: ``distances=False`` leaves distances out; ``spacing_mm``, of the voxels (depth, height, width).
    """

    def _build(
        self, names: list[str], distances: bool = True, spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> Metrics:
        from ..volumes.segmentation.metrics import VolumeMetrics

        require_few(names)
        require(len(names) > 1, f"classes={names}: expected the background and at least one more")
        self._spacing = np.asarray(spacing_mm, np.float64)
        require(
            self._spacing.shape == (3,) and bool((self._spacing > 0).all()),
            f"spacing_mm={spacing_mm}: expected millimeters of depth, height and width",
        )
        return VolumeMetrics(names, distances)

    def _check(self, found: Any, true: Any) -> tuple[Any, ...]:
        found, true = label_pair(found, true, ("depth", "height", "width"), len(self._names), [255])
        return found.astype(np.uint8), true.astype(np.uint8), self._spacing


def _points(*arrays: np.ndarray) -> list[paddle.Tensor]:
    """Return classes of points, int64, on the host, as the metrics of scenes count them."""
    return [paddle.to_tensor(array.astype(np.int64), place=paddle.CPUPlace()) for array in arrays]
