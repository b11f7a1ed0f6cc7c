"""ScanNet's average precision of the outputs of any program."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.library.checks import check_label_pair, host, require, require_classes, require_parts
from ...core.library.meters import NO_CLASS, Meter, to_host_tensors
from ...core.runtime.printing import describe_value
from ...core.tasks.metrics import PerSampleMetrics


class ScanNetAP(Meter):
    """Compute average precision of instances of points by ScanNet's rules, and the IoU of their classes, as fractions.

    An output is a dictionary of "classes", int (points,), and "instances". An instance is (class, confidence,
    points), where the points are indices or bool (points,). A target is a dictionary of "classes", -100 for none, and
    "instances", int (points,), negative for none. Options: ``instance_classes``, the class numbers with instances
    (default: all); ``min_points``, 100, the points of the smallest instance that counts. Without any there is no AP.
    """

    unknown = ("loss",)

    def _build(
        self, names: list[str], instance_classes: Sequence[int] | None = None, min_points: int = 100
    ) -> PerSampleMetrics:
        from .metrics import InstanceMetrics

        chosen = [*range(len(names))] if instance_classes is None else [int(number) for number in instance_classes]
        require(
            set(chosen) <= set(range(len(names))),
            f"instance_classes={chosen}: expected class numbers below {len(names)}",
        )
        require(int(min_points) >= 1, f"min_points={min_points}: expected at least 1")
        return InstanceMetrics(names, chosen, int(min_points))

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        from .matching import InstancePrediction

        for side, record in (("output", output), ("target", target)):
            require_parts(record, side, ["classes", "instances"])
        classes, true_classes = check_label_pair(
            output["classes"], target["classes"], ("points",), len(self._names), [NO_CLASS]
        )
        instances = host(target["instances"])
        require(
            instances.shape == true_classes.shape and instances.dtype.kind in "iu",
            f"instances of the target: {instances.dtype} of shape {instances.shape}: expected a whole number per point",
        )
        predictions = []
        is_list = hasattr(output["instances"], "__len__")
        require(is_list, f"instances of the output: {describe_value(output['instances'])}: expected a list")
        for instance in output["instances"]:
            is_triple = hasattr(instance, "__len__") and len(instance) == 3
            require(is_triple, "an instance of the output has to be (class, confidence, points)")
            label, score, points = map(host, instance)
            require(
                label.size == 1 == score.size and score.dtype.kind in "iuf",
                f"an instance is {describe_value(instance)}",
            )
            require_classes(label, len(self._names), "an instance")
            confidence = float(score.reshape(-1)[0])
            require(bool(np.isfinite(confidence)), f"an instance has the confidence {confidence}: expected a number")
            points = np.flatnonzero(points) if points.dtype == bool and points.shape == classes.shape else points
            is_inside = not points.size or (
                points.dtype.kind in "iu" and points.min() >= 0 and points.max() < len(classes)
            )
            require(bool(is_inside), f"points of an instance have to be indices below {len(classes)}")
            number = int(label.reshape(-1)[0])
            predictions.append(InstancePrediction(number, confidence, np.unique(points).astype(np.int64)))
        return classes, true_classes, instances, predictions

    def _add(self, number: int, *sample: Any) -> None:
        classes, true_classes, instances, predictions = sample
        self._metrics.update(*to_host_tensors(classes, true_classes), None)
        self._metrics.update_instances(true_classes, instances, predictions)
