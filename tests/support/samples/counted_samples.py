"""Metrics of each kind with samples for them, and the intervals of a share of the samples."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.data.sampler import EvaluationSampler
from paddlevit_dist.core.distributed import broadcast_object, is_main, rank, reduce_dict, world_size
from paddlevit_dist.core.metrics.classification import ClassificationMetrics
from paddlevit_dist.core.metrics.confidence import IntervalConfig, PerSampleResults, compute_intervals
from paddlevit_dist.core.tasks.sample_groups import SampleGroups
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.multi_label.metrics import LabelMetrics
from paddlevit_dist.images.segmentation.metrics import SegmentationMetrics
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.segmentation.metrics import SemanticMetrics
from paddlevit_dist.volumes.landmarks.metrics import LandmarkMetrics
from paddlevit_dist.volumes.segmentation.metrics import VolumeMetrics
from support.samples.instance_scenes import NAMES, scene

SAMPLES, BATCH = 11, 2
CONFIDENCE = IntervalConfig(95, 100)
GROUPS = SampleGroups("video", np.array(list("aabbbcadcdd")), "a file")


def add_images(metrics: ClassificationMetrics, indices: list) -> None:
    logits = np.random.default_rng(0).normal(size=(SAMPLES, 7)).astype(np.float32)
    labels = np.arange(SAMPLES) % 7
    metrics.update(paddle.to_tensor(logits[indices]), paddle.to_tensor(labels[indices]))


def add_tags(metrics: LabelMetrics, indices: list) -> None:
    generator = np.random.default_rng(0)
    labels, logits = generator.integers(-1, 2, (SAMPLES, 3), np.int8), generator.normal(size=(SAMPLES, 3)).round(1)
    metrics.update(paddle.to_tensor(logits[indices].astype(np.float32)), paddle.to_tensor(labels[indices]))


def add_boxes(metrics: DetectionMetrics, indices: list) -> None:
    for index in indices:
        generator = np.random.default_rng(index)
        corners = generator.uniform(0, 50, (4, 2))
        boxes = np.concatenate([corners, generator.uniform(20, 60, (4, 2))], axis=1)
        truth = BoxGroundTruth(boxes, np.arange(4) % 3, boxes[:, 2:].prod(axis=1), np.zeros(4, bool))
        moved = np.concatenate([corners, corners + boxes[:, 2:]], axis=1) + generator.normal(0, 3, (4, 4))
        found = DetectedObjects(moved.astype(np.float32), generator.random(4).astype(np.float32), np.arange(4) % 3)
        metrics.update(1000 - index, truth, found)


def add_scenes(metrics: InstanceMetrics, indices: list) -> None:
    for index in indices:
        true_class, true_instance, predictions = scene(index)
        metrics.update_instances(true_class, true_instance, predictions)
        labels = paddle.to_tensor(true_class)
        metrics.update((labels + index) % 3, labels, paddle.to_tensor(1.0))


def add_segments(metrics: InstanceMetrics, indices: list) -> None:
    for index in indices:
        add_scenes(metrics, [index])
        true_class, true_instance, predictions = scene(index)
        classes = (true_class + (np.random.default_rng(index).random(len(true_class)) < 0.2)) % 3
        metrics.update_panoptic(true_class, true_instance, classes, predictions, 50)


def add_points(metrics: SemanticMetrics, indices: list) -> None:
    for index in indices:
        labels = paddle.to_tensor(scene(index)[0])
        losses = np.random.default_rng(index).gamma(1.0, 1.0, len(labels))
        metrics.update((labels + index) % 3, labels, paddle.to_tensor(losses))


def add_volumes(metrics: LandmarkMetrics, indices: list) -> None:
    for index in indices:
        metrics.update(np.random.default_rng(index).gamma(2.0, 1.0, 5))


def add_label_maps(metrics: SegmentationMetrics, indices: list) -> None:
    for index in indices:
        generator = np.random.default_rng(index)
        true = np.kron(generator.integers(0, 4, (5, 4 + index)), np.ones((6, 6), int)).astype(np.uint8)
        found = np.roll(true, 1 + index % 3, axis=1)
        metrics.update(found, np.where(generator.random(true.shape) < 0.1, 255, true).astype(np.uint8))


def add_organs(metrics: VolumeMetrics, indices: list) -> None:
    for index in indices:
        true = np.random.default_rng(index).integers(0, 4 if index % 2 else 3, (4, 5, 6)).astype(np.uint8)
        metrics.update(np.roll(true, 1 + index % 3, axis=2), true, np.array([2.0, 1.0, 0.7]))


KINDS = {
    "pictures": (lambda: ClassificationMetrics(7, ["b", "a"]), add_images),
    "tagged images": (lambda: LabelMetrics(list("cab"), np.array([0.5, 0.3, 0.6])), add_tags),
    "boxes": (lambda: DetectionMetrics(["c", "a", "b"], SAMPLES), add_boxes),
    "scenes": (lambda: InstanceMetrics(NAMES, [1, 2, 3]), add_scenes),
    "segments": (lambda: InstanceMetrics(NAMES, [1, 2, 3]), add_segments),
    "points": (lambda: SemanticMetrics(NAMES), add_points),
    "label maps": (lambda: SegmentationMetrics(list("dbeac")), add_label_maps),
    "volumes": (lambda: LandmarkMetrics(list("dbeac")), add_volumes),
    "organs": (lambda: VolumeMetrics(["background", *"cab"]), add_organs),
}


def plain(table: PerSampleResults) -> list:
    kept, columns = table.to_sample_table(), table.metrics.columns(table.columns)
    rows = {name: [str(value) for value in column] for name, column in columns.items()}
    arrays = {name: str(array.tolist()) for name, array in kept.arrays.items()}  # as text not a number is itself
    return [table.indices.tolist(), kept.kind, arrays, rows]


def evaluate_share() -> dict:
    """Values and intervals of all samples of each kind, and what is kept of them; this rank has seen its share."""
    found = {}
    for kind, (make, add) in KINDS.items():
        metrics = make()
        sampler = EvaluationSampler(range(SAMPLES), BATCH, rank=rank(), world_size=world_size())
        for keys in sampler:
            add(metrics, [key.index for key in keys])
        metrics.indices = sampler.indices()
        values = metrics.compute(reduce_dict(metrics.state, average=False))
        found[f"values of {kind}"] = values
        kept: list = []
        found[kind] = compute_intervals(metrics, sampler.indices(), CONFIDENCE, kept.append)
        found[f"{kind} in groups"] = compute_intervals(metrics, sampler.indices(), CONFIDENCE, None, GROUPS)
        found[f"what is kept of {kind}"] = broadcast_object(plain(*kept) if is_main() else None)
        for name, interval in found[kind].items():
            assert name not in values or values[name] == pytest.approx(interval.value), name
    return found
