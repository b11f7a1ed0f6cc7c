"""Thresholds are as defined, in each draw those of a data set with that many copies of each image."""

import functools

import numpy as np
import pytest

from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.evaluation.images import compute_image_quality
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.matching import BoxGroundTruth
from paddlevit_dist.images.detection.evaluation.operating_points import (
    ClassDetections,
    ThresholdCurve,
    WishedRates,
    find_thresholds,
    shorten_threshold,
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


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_score_has_a_higher_f1_than_the_best(seed, dtype):
    random, images = np.random.default_rng(seed), 5
    counts = random.integers(0, 8, images)
    scores = random.integers(1, 30, counts.sum()).astype(dtype) / 31 if seed % 2 else random.random(counts.sum())
    bits = random.integers(0, 3, len(scores)).astype(np.uint64)  # 0: wrong, 1: right, 2: ignored
    right = np.bincount(np.repeat(np.arange(images), counts)[bits == 1], minlength=images)
    table = MatchTable.empty(1)._replace(
        image_ids=np.arange(images),
        counts=counts,
        num_true=right + random.integers(0, 3, images),
        labels=np.zeros(len(scores), np.uint16),
        scores=scores.astype(dtype),
        true_positives=(bits == 1).astype(np.uint64),
        ignored=(bits == 2).astype(np.uint64),
    )

    def compute_f1(score):
        quality = compute_image_quality(table, score)
        hits, wrong, missed = (int(part.sum()) for part in quality[:3])
        return 2 * hits / (2 * hits + wrong + missed)

    curve = ThresholdCurve.from_table(table)
    best = curve.find_best()
    assert compute_f1(best) == max(map(compute_f1, table.scores)) == curve.compute_rates(np.array([best]))[2][0]
    some = np.array([0.0, 0.3, 0.5, 0.77, 1.0])
    np.testing.assert_allclose(curve.compute_rates(some)[2], list(map(compute_f1, some)), rtol=1e-12)


@pytest.mark.parametrize(
    ("scores", "threshold", "expected"),
    [
        ([0.9], 0.9, 0.9),
        ([0.8379, 0.2], 0.8379, 0.83),  # 0.84 would omit it
        ([0.8379, 0.834, 0.2], 0.8379, 0.837),
        ([0.8379, 0.8378999], 0.8379, 0.8379),
        ([0.8379, 0.2], 0.2, 0.2),
    ],
)
def test_a_short_threshold_keeps_the_same_detections(scores, threshold, expected):
    scores = np.array(scores, np.float32)
    threshold = float(np.float32(threshold))
    assert shorten_threshold(threshold, scores.astype(np.float64)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("wished", [WishedRates(0.9), WishedRates(recall=0.5)])
def test_one_wish_alone_is_found(wished):
    metrics = DetectionMetrics(["dog"], wished=wished)
    truth = BoxGroundTruth(np.array([[5.0, 5, 20, 20]]), np.array([0]), np.array([400.0]), np.array([False]))
    found = DetectedObjects(np.array([[5, 5, 25, 25]], np.float32), np.array([0.75], np.float32), np.array([0]))
    metrics.update(0, truth, found)
    (kind,) = [kind for kind in wished._fields if getattr(wished, kind)]
    values, name = metrics.compute(metrics.state), wished.name(kind, "dog")
    assert [own for own in values if own.startswith("score for")] == [name] and values[name] == 0.75
    assert metrics.scores.find_ranges({"wished": np.array(wished, float)}, ["dog"])[name] == (0.0, 1.0)
