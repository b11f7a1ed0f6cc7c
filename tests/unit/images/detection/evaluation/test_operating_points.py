"""Thresholds are as defined, in each draw those of a data set with that many copies of each image."""

import functools

import numpy as np
import pytest

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.evaluation.operating_points import (
    ClassDetections,
    WishedRates,
    find_thresholds,
)
from paddlevit_dist.images.detection.metrics import DetectionMetrics


def brute_thresholds(detections, wished, weights):
    """By definition, over copies of the images: NaN where no score reaches the wish."""
    rows = [
        (score, right)
        for score, image, right in zip(detections.scores, detections.images, detections.is_right)
        for _ in range(int(weights[image]))
    ]
    total = int((detections.annotated * weights[detections.true_images]).sum())
    precise = found = np.nan
    for score in sorted({score for score, _ in rows}):  # ascending
        kept = [right for own, right in rows if own >= score]
        if np.isnan(precise) and sum(kept) >= wished.precision * len(kept) - 1e-9:
            precise = score
        if total and sum(kept) >= wished.recall * total - 1e-9:
            found = score
    return precise, found


@pytest.mark.parametrize("seed", range(8))
def test_each_draw_has_the_thresholds_of_copies_of_its_images(seed):
    random, images = np.random.default_rng(seed), 6
    number = int(random.integers(0, 40))
    scores = np.sort(random.integers(1, 15, number) / 15)[::-1]  # with ties
    detections = ClassDetections(
        scores,
        random.integers(0, images, number),
        random.random(number) < 0.3 + 0.6 * scores,
        np.arange(images),
        random.integers(0, 8, images),
    )
    wished = WishedRates(0.8, 0.5)
    weights = np.concatenate([np.ones((1, images)), random.integers(0, 3, (30, images))]).astype(float)
    found = find_thresholds([detections], ["cat"], wished, weights)
    assert list(found) == ["score for precision 0.8 cat", "score for recall 0.5 cat"]
    expected = np.array([brute_thresholds(detections, wished, own) for own in weights])
    np.testing.assert_array_equal(np.stack(list(found.values()), axis=1), expected, strict=True)


def test_metrics_have_the_thresholds_of_each_class_and_their_intervals():
    """Images with one object each; the box of every third is wrong; the scores of right ones are higher."""
    metrics, wished = DetectionMetrics(["dog", "cat"], wished=WishedRates(0.9, 0.5)), WishedRates(0.9, 0.5)
    random, rows = np.random.default_rng(3), {0: [], 1: []}
    for image in range(30):
        label, is_right, score = image % 2, image % 3 > 0, float(np.float32(random.uniform(0.2, 0.8)))
        score = float(np.float32(score + 0.15 * is_right))
        truth = BoxGroundTruth(np.array([[5.0, 5, 20, 20]]), np.array([label]), np.array([400.0]), np.array([False]))
        box = [5, 5, 25, 25] if is_right else [40, 40, 60, 60]
        found = DetectedObjects(np.array([box], np.float32), np.array([score], np.float32), np.array([label]))
        metrics.update(image, truth, found)
        rows[label].append((score, image, is_right))
    values = metrics.compute(metrics.state)
    intervals = bootstrap(functools.partial(metrics.bootstrap_values, metrics.per_sample()), 30, resamples=200)
    checked = 0
    for label, name in enumerate(("dog", "cat")):
        own = sorted(rows[label], reverse=True)
        annotated = np.array([int(image % 2 == label) for image in range(30)])
        detections = ClassDetections(*(np.array(column) for column in zip(*own)), np.arange(30), annotated)
        expected = brute_thresholds(detections, wished, np.ones(30))
        for kind, value in zip(WishedRates._fields, expected):
            key = wished.name(kind, name)
            if np.isnan(value):  # no score reaches it
                assert key not in values and key not in intervals
                continue
            checked += 1
            assert values[key] == pytest.approx(value) == intervals[key].value
            assert intervals[key].low <= value <= intervals[key].high and intervals[key].low < intervals[key].high
    assert checked >= 3
    assert not any(name.startswith("score for") for name in DetectionMetrics(["cat"]).compute({"images": 0}))
