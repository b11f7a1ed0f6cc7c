"""Columns of a table of images agree with an evaluation of each image alone."""

from collections import Counter

import numpy as np
import pytest

from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation import images
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.detection.records import match_across_classes

NAMES = ["cow", "ant", "dog", "bee"]
IDS = [1007, 3, 512, 88, 9]  # not in order


def draw(index: int) -> tuple[BoxGroundTruth, DetectedObjects]:
    """Boxes of up to four classes, found with noise; the last image has none."""
    generator = np.random.default_rng(index)
    number = 0 if index == len(IDS) - 1 else 2 + index
    corners, sizes = generator.uniform(0, 300, (number, 2)), generator.uniform(30, 60, (number, 2))
    labels = generator.integers(0, 4, number)
    boxes = np.concatenate([corners, sizes], axis=1)
    truth = BoxGroundTruth(boxes, labels, sizes.prod(axis=1), np.zeros(number, bool))
    moved = np.concatenate([corners, corners + sizes], axis=1) + generator.normal(0, 4, (number, 4))
    taken = np.where(generator.random(number) < 0.3, (labels + 1) % 4, labels)
    scores = generator.uniform(0.4, 1.0, number)
    return truth, DetectedObjects(moved.astype(np.float32), scores.astype(np.float32), taken)


def evaluate(indices) -> DetectionMetrics:
    metrics = DetectionMetrics(NAMES)
    for index in indices:
        metrics.update(IDS[index], *draw(index))
    return metrics


@pytest.mark.parametrize("at_once", [1, 2, 256])
def test_scores_of_each_image_are_those_of_the_image_alone(monkeypatch, at_once):
    monkeypatch.setattr(images, "_CHUNK", at_once)
    metrics = evaluate(range(len(IDS)))
    metrics.compute(metrics.state)
    table = metrics.per_sample()
    columns = metrics.columns(table)
    for place, image_id in enumerate(table[0].tolist()):
        index = IDS.index(image_id)
        alone = evaluate([index])
        values = alone.compute(alone.state)
        truth, found = draw(index)
        for name in ("AP", "AP50", "AP75", "AR_100"):
            assert columns[name][place] == pytest.approx(values[name] if len(truth.labels) else np.nan, nan_ok=True)
        for name, labels in (
            ("truth", truth.labels),
            ("prediction", found.labels),
        ):
            counts = sorted(Counter(labels.tolist()).items())
            assert columns[name][place] == ", ".join(f"{NAMES[label]} {number}" for label, number in counts)
        highest = found.scores.max() if len(found.scores) else np.nan
        assert columns["highest score"][place] == pytest.approx(highest, nan_ok=True)
        assert columns["true positives"][place] + columns["missed"][place] == len(truth.labels)


@pytest.mark.parametrize("area", [-400.0, 1e11])
def test_an_annotation_that_no_score_counts_is_not_missed(area):
    boxes = np.array([[5, 5, 20, 20], [35, 5, 20, 20]], float)
    truth = BoxGroundTruth(boxes, np.zeros(2, int), np.array([400, area]), np.zeros(2, bool))
    nothing = DetectedObjects(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    metrics = DetectionMetrics(["cow"])
    metrics.update(3, truth, nothing)
    metrics.compute(metrics.state)
    columns = metrics.columns(metrics.per_sample())
    assert list(columns["truth"]) == ["cow 1"] and list(columns["missed"]) == [1]
    assert match_across_classes(truth, nothing, 1, 0.5).tolist() == [[0, 1]]  # in the table of what is taken for what
