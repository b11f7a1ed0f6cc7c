"""Scores that stand alone: anybody's outputs beside the truth, with intervals, over one process or several.

Each is a thin face over what ``evaluate`` counts with, and gives its numbers.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import paddle

from ..distributed import all_gather, rank, reduce_dict
from ..engine.confidence import Confidence, intervals_of
from ..intervals import Interval
from ..runtime.errors import UserError
from ..tasks.metrics import Metrics

if TYPE_CHECKING:
    from ..images.detection.metrics import DetectionMetrics
    from ..images.segmentation.metrics import SegmentationMetrics
    from ..metrics.classification import ClassificationMetrics
    from ..points.instances.metrics import InstanceMetrics
    from ..points.segmentation.metrics import SemanticMetrics
    from ..volumes.landmarks.metrics import LandmarkMetrics
    from ..volumes.segmentation.metrics import VolumeMetrics

Counted = TypeVar("Counted", bound=Metrics)
Self = TypeVar("Self", bound="Meter[Any]")
Classes = int | Sequence[str]
Array = npt.NDArray[Any]


class Scores(NamedTuple):
    """What a meter has come to.

    Attributes:
        values: by name, as an evaluation's.
        intervals: of these values and of more, such as those of each class; ``low`` and ``high``.
    """

    values: dict[str, float]
    intervals: dict[str, Interval]


class Meter(Generic[Counted]):
    """Base class: ``update`` with batches, then ``compute``; both may be repeated.

    Args:
        metrics: counts.
        percent: of the intervals; None: there are none.
        resamples: of the bootstrap.
    """

    #: values that the metrics have, and outputs alone do not tell
    unknown: ClassVar[Sequence[str]] = ()

    def __init__(self, metrics: Counted, percent: float | None = 95.0, resamples: int = 1000) -> None:
        self._metrics = metrics
        self._confidence = None if percent is None else Confidence(percent, resamples)
        self._samples = 0
        self._indices: list[int] = []

    def compute(self) -> Scores:
        """The scores of all samples of all processes. Every rank must call this.

        Raises:
            UserError: nothing was added, or a sample twice.
        """
        counts = all_gather((self._samples, self._indices))
        if not sum(samples for samples, _ in counts):
            raise UserError(f"{type(self).__name__}: nothing was added; call update(outputs, targets) first")
        given = [index for _, indices in counts for index in indices]
        self._require_once(given, sum(samples for samples, _ in counts))
        values = self._metrics.compute(reduce_dict(self._metrics.state, average=False))
        indices = self._indices
        if not given:
            before = sum(samples for samples, _ in counts[: rank()])
            indices = list(range(before, before + self._samples))
        intervals = intervals_of(self._metrics, indices, self._confidence) if self._confidence else {}
        for name in self.unknown:
            values.pop(name, None), intervals.pop(name, None)
        return Scores({name: value if isinstance(value, int) else float(value) for name, value in values.items()}, intervals)

    def merge(self: Self, other: Self) -> Self:
        """Add what another meter of the same settings has counted; returns this one.

        Raises:
            UserError: it is of other settings.
        """
        if type(other) is not type(self) or vars(other._metrics).keys() != vars(self._metrics).keys():
            raise UserError(f"{type(self).__name__}: only another {type(self).__name__} can be merged")
        self._metrics.merge(other._metrics)
        self._samples += other._samples
        self._indices += other._indices
        return self

    def _count(self, samples: int, indices: Any) -> None:
        self._samples += samples
        numbers = [] if indices is None else np.asarray(_host(indices)).reshape(-1).tolist()
        if indices is not None and len(numbers) != samples:
            raise UserError(f"{type(self).__name__}: {len(numbers)} indices of {samples} samples: give one for each")
        self._indices += numbers

    def _require_once(self, given: Sequence[int], samples: int) -> None:
        name = type(self).__name__
        if given and len(given) != samples:
            raise UserError(f"{name}: indices were given for {len(given)} of {samples} samples: give all, or none")
        numbers, times = np.unique(np.asarray(given, np.int64), return_counts=True)
        if (times > 1).any():
            raise UserError(
                f"{name}: sample {numbers[times > 1][0]} was counted {times.max()} times: Paddle's "
                "DistributedBatchSampler repeats samples; take EvaluationSampler"
            )


class Accuracy(Meter["ClassificationMetrics"]):
    """Top-1 and (from six classes up) top-5 in percent, balanced accuracy, and the mean cross-entropy.

    Args:
        classes: their number, or the name of each.
    """

    def __init__(self, classes: Classes, percent: float | None = 95.0, resamples: int = 1000) -> None:
        from ..metrics.classification import ClassificationMetrics

        super().__init__(ClassificationMetrics(len(_names(classes)), _names(classes)), percent, resamples)

    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add a batch. Nothing waits for the device.

        Args:
            outputs: logits, float (batch, classes), a tensor or an array.
            targets: the true classes, int (batch,).
            indices: of the samples in their data set, int (batch,): intervals then do not depend on who had which.
        """
        tensors = [one if isinstance(one, paddle.Tensor) else paddle.to_tensor(one) for one in (outputs, targets)]
        self._metrics.update(tensors[0], tensors[1].astype("int64"))
        self._count(len(outputs), indices)


class MeanIoU(Meter["SegmentationMetrics | SemanticMetrics"]):
    """Mean IoU, accuracy and Dice as fractions, the IoU of each class; of images the boundary IoU, too.

    Args:
        classes: their number, or the name of each.
        of: "pixels" of images, or "points" of scenes.
        ignored: the target of what has no label.
    """

    unknown = ("loss",)

    def __init__(
        self,
        classes: Classes,
        of: str = "pixels",
        ignored: int = 255,
        percent: float | None = 95.0,
        resamples: int = 1000,
    ) -> None:
        if of not in ("pixels", "points"):
            raise UserError(f"MeanIoU: of={of!r}: expected 'pixels' or 'points'")
        metrics: SegmentationMetrics | SemanticMetrics
        if of == "pixels":
            from ..images.segmentation.metrics import SegmentationMetrics

            metrics = SegmentationMetrics(_names(classes))
        else:
            from ..points.segmentation.metrics import SemanticMetrics

            metrics = SemanticMetrics(_names(classes))
        super().__init__(metrics, percent, resamples)
        self._ignored, self._of = ignored, of

    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add images, or scenes.

        Args:
            outputs: the class of each pixel, int (height, width) for each image; of each point, int (points,).
            targets: the same of the truth, or ``ignored``.
        """
        for found, true in zip(map(_host, outputs), map(_host, targets), strict=True):
            if self._of == "pixels":
                known = np.where(true == self._ignored, 255, true).astype(np.uint8)
                self._metrics.update(found.astype(np.uint8), known)  # type: ignore[arg-type]
            else:
                self._metrics.update(*_points(found, np.where(true == self._ignored, -100, true)))  # type: ignore[arg-type]
        self._count(len(outputs), indices)


class CocoAP(Meter["DetectionMetrics"]):
    """COCO's numbers of boxes, and of masks.

    Args:
        classes: their number, or the name of each.
        masks: they are compared as well.
    """

    def __init__(
        self, classes: Classes, masks: bool = False, percent: float | None = 95.0, resamples: int = 1000
    ) -> None:
        from ..images.detection.metrics import DetectionMetrics

        super().__init__(DetectionMetrics(_names(classes), with_masks=masks), percent, resamples)

    def update(
        self,
        outputs: Sequence[Mapping[str, Any]],
        targets: Sequence[Mapping[str, Any]],
        indices: Any = None,
    ) -> None:
        """Add images.

        Args:
            outputs: of each image "boxes" (n, 4) x0, y0, x1, y1 in pixels, "scores" (n,), "labels" (n,) from 0, and
                with masks "masks", COCO's run lengths.
            targets: of each image "boxes" and "labels"; also "areas" (n,), those of the boxes where missing,
                "is_crowd" (n,); with masks "masks", and "size", height and width.
            indices: of the images in their data set; needed with several processes.
        """
        from ..images.detection.detections import Detections, as_written
        from ..images.detection.evaluation.matching import Truth

        numbers = range(self._samples, self._samples + len(outputs)) if indices is None else _host(indices).tolist()
        for number, found, true in zip(numbers, outputs, targets, strict=True):
            scores, labels = _host(found["scores"]), _host(found["labels"]).astype(np.int64)
            detections = Detections(_host(found["boxes"]).reshape(-1, 4), scores, labels, found.get("masks"))
            boxes = as_written(_host(true["boxes"]))
            areas = _host(true.get("areas", boxes[:, 2] * boxes[:, 3])).astype(np.float64)
            is_crowd = _host(true.get("is_crowd", np.zeros(len(boxes)))).astype(bool)
            truth: Any = Truth(boxes, _host(true["labels"]).astype(np.int64), areas, is_crowd)
            if "masks" in true:
                truth = _WithMasks(*truth, true["masks"])
            self._metrics.update(int(number), truth, detections, true.get("size"))
        self._count(len(outputs), indices)


class _WithMasks(NamedTuple):
    """As ``Truth``, with its masks."""

    boxes: Array
    labels: Array
    areas: Array
    is_crowd: Array
    masks: Sequence[Any]


class ScanNetAP(Meter["InstanceMetrics"]):
    """Average precision of instances of points by ScanNet's rules, and the IoU of their classes, as fractions.

    Args:
        classes: the name of each semantic class.
        instance_classes: the numbers of those that have instances.
    """

    unknown = ("loss",)

    def __init__(
        self,
        classes: Classes,
        instance_classes: Sequence[int],
        percent: float | None = 95.0,
        resamples: int = 1000,
    ) -> None:
        from ..points.instances.metrics import InstanceMetrics

        super().__init__(InstanceMetrics(_names(classes), instance_classes), percent, resamples)

    def update(
        self, outputs: Sequence[Mapping[str, Any]], targets: Sequence[Mapping[str, Any]], indices: Any = None
    ) -> None:
        """Add scenes.

        Args:
            outputs: of each scene "classes", int (points,), and "instances": (class, confidence, the indices of its
                points) each.
            targets: of each scene "classes", int (points,), -100 for none, and "instances", int (points,), negative
                for none.
        """
        from ..points.instances.metrics import Prediction

        for found, true in zip(outputs, targets, strict=True):
            classes = _host(true["classes"]).astype(np.int64)
            predictions = [Prediction(int(c), float(s), np.unique(_host(p))) for c, s, p in found["instances"]]
            self._metrics.update_semantic(*_points(_host(found["classes"]), classes), None)
            self._metrics.update_instances(classes, _host(true["instances"]), predictions)
        self._count(len(outputs), indices)


class RadialError(Meter["LandmarkMetrics"]):
    """Mean radial error of landmarks in millimetres, its deviation, and the share found within 2, 2.5, 3 and 4 mm.

    Args:
        landmarks: their number, or the name of each.
    """

    def __init__(self, landmarks: Classes, percent: float | None = 95.0, resamples: int = 1000) -> None:
        from ..volumes.landmarks.metrics import LandmarkMetrics

        super().__init__(LandmarkMetrics(_names(landmarks)), percent, resamples)

    def update(self, outputs: Any, targets: Any, indices: Any = None) -> None:
        """Add volumes.

        Args:
            outputs: places in millimetres, float (volumes, landmarks, 3).
            targets: the true ones; not a number where one is missing.
        """
        for found, true in zip(map(_host, outputs), map(_host, targets), strict=True):
            self._metrics.update(np.linalg.norm(found.astype(np.float64) - true.astype(np.float64), axis=-1))
        self._count(len(outputs), indices)


class VolumeDice(Meter["VolumeMetrics"]):
    """Dice coefficients of volumes as fractions, and surface distances in millimetres.

    Args:
        classes: their number, or the name of each; the background first.
        distances: surface distances are computed; needs scipy.
    """

    def __init__(
        self, classes: Classes, distances: bool = True, percent: float | None = 95.0, resamples: int = 1000
    ) -> None:
        from ..volumes.segmentation.metrics import VolumeMetrics

        super().__init__(VolumeMetrics(_names(classes), distances), percent, resamples)

    def update(
        self, outputs: Any, targets: Any, spacing_mm: Sequence[float] = (1.0, 1.0, 1.0), indices: Any = None
    ) -> None:
        """Add volumes.

        Args:
            outputs: the class of each voxel, int (depth, height, width) for each volume.
            targets: the true ones, 255 for none.
            spacing_mm: of the voxels (depth, height, width).
        """
        for found, true in zip(map(_host, outputs), map(_host, targets), strict=True):
            self._metrics.update(found.astype(np.uint8), true.astype(np.uint8), np.asarray(spacing_mm, np.float64))
        self._count(len(outputs), indices)


def _names(classes: Classes) -> list[str]:
    return [str(number) for number in range(classes)] if isinstance(classes, int) else [str(name) for name in classes]


def _host(values: Any) -> Array:
    """A tensor, an array or numbers as an array; waits for the device."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


def _points(*arrays: Array) -> list[paddle.Tensor]:
    """Classes of points, int64, as the metrics of scenes count them; on the host, where they are."""
    return [paddle.to_tensor(array.astype(np.int64), place=paddle.CPUPlace()) for array in arrays]
