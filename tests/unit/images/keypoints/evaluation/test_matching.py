"""Matches of objects with keypoints against pycocotools, and what it has no numbers of."""

import numpy as np
import pytest
from support.networks import keypoint_peer

from paddlevit_dist.images.keypoints.evaluation import matching
from paddlevit_dist.images.keypoints.evaluation.matching import DISTANCE, FOUND, LABELED, SIMILARITY
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet


@pytest.mark.parametrize("seed", range(4))
def test_ten_numbers_are_those_of_pycocotools_for_each_category(seed):
    dataset, results, sigmas = keypoint_peer.random_case(seed)
    values = keypoint_peer.score(keypoint_peer.match(dataset, results, sigmas))
    expected = keypoint_peer.averaged(dataset, results, sigmas)
    np.testing.assert_allclose([*values.values()], [expected[name] for name in values], rtol=0, atol=1e-12)


def test_images_alone_match_as_they_do_together():
    dataset, results, sigmas = keypoint_peer.random_case(7, 10)
    image_ids, truth, found, table = keypoint_peer.inputs(dataset, results, sigmas)
    whole, first = matching.match_keypoints(image_ids, truth, found, table), 0
    for position, image_id in enumerate(image_ids):
        own = matching.KeypointTruth(*(column[truth.images == position] for column in truth))
        own = own._replace(images=np.zeros_like(own.images))
        shown = matching.KeypointCandidates(
            *(None if column is None else column[found.images == position] for column in found)
        )
        shown = shown._replace(images=np.zeros_like(shown.images))
        alone = matching.match_keypoints(np.array([image_id]), own, shown, table)
        end = first + int(alone.table.counts[0])
        assert whole.table.counts[position] == alone.table.counts[0]
        assert whole.table.num_true[position] == alone.table.num_true[0]
        for name in ("labels", "scores", "true_positives", "ignored"):
            np.testing.assert_array_equal(getattr(whole.table, name)[first:end], getattr(alone.table, name))
        np.testing.assert_array_equal(whole.sums[position], alone.sums[0])
        rows = whole.table.annotated[whole.table.annotated[:, 0] == position]
        np.testing.assert_array_equal(rows[:, 1:], alone.table.annotated[:, 1:])
        first = end
    assert first == len(whole.table.labels) > 0


def test_errors_are_of_labeled_points_of_objects_that_are_found():
    """Two categories on two images: a hand is missed, and the first point of the other is where its last one is.

    Annotations and results of other labels do not count.
    """
    fish = KeypointSet(("nose", "tail"), (), (0.1, 0.2), ())
    hand = KeypointSet(("left", "middle", "right"), ((0, 2),), (0.3, 0.1, 0.2), ())
    points = np.zeros((4, 3, 3))
    points[0] = (90, 90, 2), (95, 90, 2), (95, 95, 2)
    points[1] = (10, 10, 2), (20, 10, 1), (7, 7, 2)  # a fish has two points
    points[2] = (10, 10, 2), (20, 10, 2), (40, 10, 1)
    points[3] = (10, 10, 2), (20, 10, 0), (40, 10, 1)
    boxes = np.array([[85, 85, 20, 20], [5, 5, 20, 20], [5, 5, 40, 20], [5, 5, 40, 20]], float)
    images, labels, areas = np.array([0, 0, 0, 1]), np.array([1, 0, 2, 1]), np.array([100.0, 400, 900, 1600])
    no = np.zeros(4, bool)
    truth = matching.KeypointTruth(images, points, boxes, areas, labels, no, no)
    places = np.array([[[38, 10, 0.9], [70, 70, 0.1], [40, 11, 0.8]], [[13, 14, 0.9], [20, 11, 0.8], [0, 0, 0]]])
    places, rows = places[[0, 1, 1, 1]], np.array([1, 0, 0, 1])
    found = matching.KeypointCandidates(rows, places, np.array([0.5, 0.6, 0.9, 0.9]), np.array([1, 0, 2, -1]))
    matches = matching.match_keypoints(np.array([4, 9]), truth, found, matching.PointTable.from_sets([fish, hand]))
    assert matches.table.num_true.tolist() == [2, 1] and (matches.table.true_positives & np.uint64(1)).all()
    assert matches.sums[:, :, LABELED].tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 0, 1]]
    assert matches.sums[:, :, FOUND].tolist() == [[1, 1, 0, 0, 0], [0, 0, 1, 0, 1]]
    np.testing.assert_allclose(matches.sums[:, :, DISTANCE], [[5, 1, 0, 0, 0], [0, 0, 28, 0, 1]], rtol=1e-15)
    parts = np.exp([-25 / (800 * 0.2**2), -1 / (800 * 0.4**2), -(28**2) / (3200 * 0.6**2), -1 / (3200 * 0.4**2)])
    np.testing.assert_allclose(matches.sums[[0, 0, 1, 1], [0, 1, 2, 4], SIMILARITY], parts, rtol=1e-12)
    errors = matches.errors
    assert (errors.images.tolist(), errors.points.tolist()) == ([0, 0, 1, 1], [0, 1, 2, 4])
    assert errors.is_exchanged.tolist() == [False, False, True, False]
    np.testing.assert_allclose(errors.shares, [5 / 20, 1 / 20, 28 / 40, 1 / 40], rtol=1e-12)
    np.testing.assert_allclose(errors.similarities, parts, rtol=1e-12)
