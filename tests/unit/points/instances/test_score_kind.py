"""Average precision of weighted scenes is the benchmark's sum over scenes repeated as often as they count."""

import numpy as np
import pytest

from paddlevit_dist.points.instances.matching import (
    IOU_THRESHOLDS,
    InstanceMatchTable,
    InstancePrediction,
    flatten_tables,
    match_scene,
)
from paddlevit_dist.points.instances.score_kind import average_precisions, class_precisions

CLASSES = 3


def draw_table(generator) -> InstanceMatchTable:
    """Matches of a scene with equal scores, and with classes that have no true instance or no decision."""
    number = int(generator.integers(0, 60))
    classes, thresholds = generator.integers(0, CLASSES, number), generator.integers(0, len(IOU_THRESHOLDS), number)
    scores = np.round(generator.random(number), int(generator.integers(1, 4)))
    num_true = generator.poisson(generator.choice([0, 0.5, 3]), CLASSES)
    missed, is_right = np.repeat(num_true[:, None], len(IOU_THRESHOLDS), axis=1), np.zeros(number, bool)
    for row in np.flatnonzero(generator.random(number) < 0.6):
        is_right[row] = missed[classes[row], thresholds[row]] > 0
        missed[classes[row], thresholds[row]] -= is_right[row]
    return InstanceMatchTable(classes, thresholds, scores, is_right, missed, num_true)


def sum_precisions(scenes: list[InstanceMatchTable], label: int, threshold: int) -> float:
    """Sum the precision at each score times half the difference of its neighbors' recalls, as the benchmark does."""
    true = sum(scene.num_true[label] for scene in scenes)
    if not true:
        return np.nan
    decisions = [
        (score, right)
        for scene in scenes
        for number, place, score, right in zip(*scene[:4])
        if (number, place) == (label, threshold)
    ]
    points = [(1.0, 0.0)]  # precision and recall, from the highest score on
    for limit in sorted({score for score, _ in decisions}, reverse=True):
        rights = [right for score, right in decisions if score >= limit]
        points.append((sum(rights) / len(rights), sum(rights) / true))
    recalls = [0.0, *(recall for _, recall in points), points[-1][1]]
    return sum(points[k][0] * (recalls[k + 2] - recalls[k]) / 2 for k in range(len(points)))


@pytest.mark.parametrize("seed", range(8))
def test_scenes_count_as_often_as_their_weights_say(seed):
    generator = np.random.default_rng(seed)
    scenes = [draw_table(generator) for _ in range(int(generator.integers(1, 5)))]
    weights = generator.integers(0, 3, (4, len(scenes)))
    weights[0] = 1
    found = average_precisions(flatten_tables(scenes), weights.astype(float))
    for draw, counts in enumerate(weights):
        repeated = [scene for scene, count in zip(scenes, counts) for _ in range(count)]
        expected = [[sum_precisions(repeated, k, place) for place in range(10)] for k in range(CLASSES)]
        np.testing.assert_allclose(found[draw], expected, rtol=0, atol=1e-12)


def test_matches_at_the_limits_of_sizes_overlaps_and_void():
    """Instances of 200, 100 and 99 points, and 100 points of void; an overlap has to exceed its threshold."""
    true_class, numbers = np.repeat([0, 0, 0, -1], [200, 100, 99, 100]), np.repeat([5, 2, 7, 0], [200, 100, 99, 100])
    predictions = [
        InstancePrediction(0, 0.9, np.arange(100)),  # half of the first
        InstancePrediction(0, 0.8, np.arange(200, 299)),  # a point too small
        InstancePrediction(0, 0.7, np.r_[100:200, 399:499]),  # a third of the first, and as much void
        InstancePrediction(0, 0.6, np.arange(200, 300)),  # the second
        InstancePrediction(1, 0.5, np.arange(200, 300)),
    ]
    table = match_scene(true_class, numbers, predictions, 2)
    assert table.num_true.tolist() == [2, 0]
    found = {(round(float(iou), 2), label): [] for label in range(2) for iou in IOU_THRESHOLDS}
    for label, place, score, right in zip(*table[:4]):
        found[round(float(IOU_THRESHOLDS[place]), 2), int(label)].append((float(score), bool(right)))
    both = [(0.6, True), (0.7, False), (0.9, True)]  # the second one to find the first is wrong
    void = [(0.6, True), (0.7, False), (0.9, False)]  # half of it is void, which has to exceed the threshold, too
    assert {key: sorted(rows) for key, rows in found.items()} == {
        key: ([(0.5, False)] if key[1] else both if key[0] == 0.25 else void) for key in found
    }
    assert table.missed.tolist() == [[1] * 9 + [0], [0] * 10]


def test_ap_is_the_mean_without_the_lowest_threshold():
    scenes = [draw_table(np.random.default_rng(3)), draw_table(np.random.default_rng(5))]
    arrays, weights = flatten_tables(scenes), np.array([[1.0, 1.0], [2.0, 0.0]])
    precisions, found = average_precisions(arrays, weights), class_precisions(arrays, weights)
    by_iou = dict(zip(np.round(IOU_THRESHOLDS, 2).tolist(), np.moveaxis(precisions, 2, 0)))
    np.testing.assert_allclose(found["AP"], np.mean([by_iou[iou] for iou in by_iou if iou >= 0.5], axis=0))
    np.testing.assert_array_equal([found["AP50"], found["AP25"]], [by_iou[0.5], by_iou[0.25]], strict=True)
