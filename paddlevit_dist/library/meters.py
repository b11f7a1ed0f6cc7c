"""Scores that stand alone: anybody's outputs beside the truth, with intervals, over one process or several.

Each is a thin face over what ``evaluate`` counts with, and gives its numbers.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import paddle

from ..distributed import all_gather, rank, reduce_dict
from ..engine.confidence import Confidence, intervals_of
from ..intervals import Interval
from ..runtime.errors import UserError
from ..tasks.metrics import Metrics

_RESAMPLES = 1000  # of the bootstrap, as EVALUATION.RESAMPLES has it
OfMeter = TypeVar("OfMeter", bound="Meter")


class Scores(NamedTuple):
    """What a meter has come to.

    Attributes:
        values: by name, as an evaluation's.
        intervals: of these values and of more, such as those of each class; ``low`` and ``high``.
    """

    values: dict[str, float]
    intervals: dict[str, Interval]


class Meter:
    """Base class: ``update`` with batches, then ``compute``; both may be repeated.

    Args:
        classes: their number, or the name of each.
        percent: of the intervals; None: there are none.
        options: of the class.
    """

    #: values that the metrics have, and outputs alone do not tell
    unknown: ClassVar[Sequence[str]] = ()

    def __init__(self, classes: int | Sequence[str], *, percent: int | None = 95, **options: Any) -> None:
        names = range(classes) if isinstance(classes, int) else classes
        self._metrics: Any = self._build([str(name) for name in names], **options)
        self._confidence = None if percent is None else Confidence(percent, _RESAMPLES)
        self._samples = 0
        self._indices: list[int] = []

    def _build(self, names: list[str]) -> Metrics:
        raise NotImplementedError

    def _add(self, found: Any, true: Any, number: int) -> None:
        """Count one sample."""
        raise NotImplementedError

    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add the samples of a batch.

        Args:
            outputs, targets: see the class; one for each sample, tensors or arrays. Tensors are waited for.
            indices: of the samples in their data set, int (batch,); all updates have them, or none. With them intervals
                do not depend on who had which sample, and one that is counted twice is an error.
        """
        numbers = range(self._samples, self._samples + len(outputs)) if indices is None else _host(indices).tolist()
        for found, true, number in zip(outputs, targets, numbers, strict=True):
            self._add(found, true, number)
        self._note(len(outputs), [] if indices is None else numbers)

    def _note(self, samples: int, indices: Sequence[int]) -> None:
        self._samples += samples
        self._indices += indices

    def merge(self: OfMeter, other: OfMeter) -> OfMeter:
        """Add what another meter of the same settings has counted; returns this one.

        Raises:
            UserError: it is of another class.
        """
        if type(other) is not type(self):
            raise UserError(f"{type(self).__name__} and {type(other).__name__} cannot be merged: take two of a kind")
        self._metrics.merge(other._metrics)
        self._note(other._samples, other._indices)
        return self

    def compute(self) -> Scores:
        """The scores of all samples of all processes. Every rank must call this.

        Raises:
            UserError: nothing was added, or a sample twice.
        """
        parts = all_gather((self._samples, self._indices))
        given, total = [index for _, own in parts for index in own], sum(samples for samples, _ in parts)
        self._require_once(np.asarray(given, np.int64), total)
        before = sum(samples for samples, _ in parts[: rank()])
        indices = self._indices if given else range(before, before + self._samples)
        values = self._metrics.compute(reduce_dict(self._metrics.state, average=False))
        intervals = intervals_of(self._metrics, indices, self._confidence) if self._confidence else {}
        known = {name: value for name, value in values.items() if name not in self.unknown}
        return Scores(
            {name: value if isinstance(value, int) else float(value) for name, value in known.items()},
            {name: interval for name, interval in intervals.items() if name not in self.unknown},
        )

    def _require_once(self, given: np.ndarray, samples: int) -> None:
        name = type(self).__name__
        if not samples:
            raise UserError(f"{name}: nothing was added; call update(outputs, targets) first")
        if len(given) not in (0, samples):
            raise UserError(f"{name}: {len(given)} indices of {samples} samples: give one for each, or none")
        numbers, times = np.unique(given, return_counts=True)
        if (times > 1).any():
            raise UserError(
                f"{name}: sample {numbers[times > 1][0]} was counted {times.max()} times: Paddle's "
                "DistributedBatchSampler repeats samples; take EvaluationSampler"
            )


class Accuracy(Meter):
    """Top-1 and (from six classes up) top-5 in percent, balanced accuracy, and the mean cross-entropy, of logits
    (batch, classes) beside the true classes (batch,). Nothing waits for the device before ``compute``."""

    def _build(self, names: list[str]) -> Metrics:
        from ..metrics.classification import ClassificationMetrics

        return ClassificationMetrics(len(names), names)

    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add a batch; the arguments are those of every meter."""
        tensors = [one if isinstance(one, paddle.Tensor) else paddle.to_tensor(one) for one in (outputs, targets)]
        self._metrics.update(tensors[0], tensors[1].astype("int64"))
        self._note(len(outputs), [] if indices is None else _host(indices).tolist())


class MeanIoU(Meter):
    """Mean IoU, accuracy and Dice as fractions, the IoU of each class, and of images the boundary IoU; of the class of
    each pixel, int (height, width) for an image, or of each point, int (points,) for a scene, beside the true ones.

    Options: ``of="points"`` for scenes; ``ignored``, the target of what has no label, 255.
    """

    unknown = ("loss",)

    def _build(self, names: list[str], of: str = "pixels", ignored: int = 255) -> Metrics:
        self._ignored = ignored
        if of == "pixels":
            from ..images.segmentation.metrics import SegmentationMetrics

            return SegmentationMetrics(names)
        if of != "points":
            raise UserError(f"MeanIoU: of={of!r}: expected 'pixels' or 'points'")
        from ..points.segmentation.metrics import SemanticMetrics

        return SemanticMetrics(names)

    def _add(self, found: Any, true: Any, number: int) -> None:
        found, true = _host(found), _host(true)
        if found.ndim == 2:
            self._metrics.update(found.astype(np.uint8), np.where(true == self._ignored, 255, true).astype(np.uint8))
        else:
            self._metrics.update(*_points(found, np.where(true == self._ignored, -100, true)))


class CocoAP(Meter):
    """COCO's numbers of boxes and, with the option ``masks=True``, of masks.

    An output is a dictionary of "boxes" (n, 4) x0, y0, x1, y1 in pixels, "scores" (n,), "labels" (n,) from 0; a target
    one of "boxes" and "labels", perhaps with "areas" (n,), else those of the boxes, and "is_crowd" (n,). Masks are
    COCO's run lengths, "masks" of both, with "size", height and width, of the target. Several processes need
    ``indices``.
    """

    def _build(self, names: list[str], masks: bool = False) -> Metrics:
        from ..images.detection.metrics import DetectionMetrics

        return DetectionMetrics(names, with_masks=masks)

    def _add(self, found: Any, true: Any, number: int) -> None:
        from ..images.detection.detections import Detections, as_written

        scores, labels = _host(found["scores"]), _host(found["labels"]).astype(np.int64)
        detections = Detections(_host(found["boxes"]).reshape(-1, 4), scores, labels, found.get("masks"))
        boxes = as_written(_host(true["boxes"]))
        areas = _host(true.get("areas", boxes[:, 2] * boxes[:, 3])).astype(np.float64)
        is_crowd = _host(true.get("is_crowd", np.zeros(len(boxes)))).astype(bool)
        labels, masks = _host(true["labels"]).astype(np.int64), true.get("masks")
        truth = SimpleNamespace(boxes=boxes, labels=labels, areas=areas, is_crowd=is_crowd, masks=masks)
        self._metrics.update(number, truth, detections, true.get("size"))


class ScanNetAP(Meter):
    """Average precision of instances of points by ScanNet's rules, and the IoU of their classes, as fractions.

    An output is a dictionary of "classes", int (points,), and "instances", (class, confidence, indices of its points)
    each; a target one of "classes", -100 for none, and "instances", int (points,), negative for none. The option
    ``instance_classes``: the numbers of the classes that have instances; all, if left out.
    """

    unknown = ("loss",)

    def _build(self, names: list[str], instance_classes: Sequence[int] | None = None) -> Metrics:
        from ..points.instances.metrics import InstanceMetrics

        return InstanceMetrics(names, range(len(names)) if instance_classes is None else instance_classes)

    def _add(self, found: Any, true: Any, number: int) -> None:
        from ..points.instances.metrics import Prediction

        predictions = [Prediction(int(of), float(s), np.unique(_host(points))) for of, s, points in found["instances"]]
        self._metrics.update_semantic(*_points(_host(found["classes"]), _host(true["classes"])), None)
        self._metrics.update_instances(_host(true["classes"]), _host(true["instances"]), predictions)


class RadialError(Meter):
    """Mean radial error of landmarks in millimetres, its deviation, and the share found within 2, 2.5, 3 and 4 mm; of
    places in millimetres, float (landmarks, 3) for a volume, beside the true ones, not a number where one is missing.
    """

    def _build(self, names: list[str]) -> Metrics:
        from ..volumes.landmarks.metrics import LandmarkMetrics

        return LandmarkMetrics(names)

    def _add(self, found: Any, true: Any, number: int) -> None:
        self._metrics.update(np.linalg.norm(_host(found).astype(np.float64) - _host(true), axis=-1))


class VolumeDice(Meter):
    """Dice coefficients of volumes as fractions, and surface distances in millimetres; of the class of each voxel, int
    (depth, height, width) for a volume, beside the true ones, 255 for none. The first class is the background.

    Options: ``distances=False``; ``spacing_mm``, of the voxels (depth, height, width).
    """

    def _build(
        self, names: list[str], distances: bool = True, spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> Metrics:
        from ..volumes.segmentation.metrics import VolumeMetrics

        self._spacing = np.asarray(spacing_mm, np.float64)
        return VolumeMetrics(names, distances)

    def _add(self, found: Any, true: Any, number: int) -> None:
        self._metrics.update(_host(found).astype(np.uint8), _host(true).astype(np.uint8), self._spacing)


def _host(values: Any) -> np.ndarray:
    """A tensor, an array or numbers as an array."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


def _points(*arrays: np.ndarray) -> list[paddle.Tensor]:
    """Classes of points, int64, as the metrics of scenes count them; on the host, where they are."""
    return [paddle.to_tensor(array.astype(np.int64), place=paddle.CPUPlace()) for array in arrays]
