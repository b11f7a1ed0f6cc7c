"""Matches of objects with keypoints against pycocotools, and what it has no numbers of."""

import numpy as np
import pytest
from support.networks import keypoint_peer

from paddlevit_dist.images.keypoints.evaluation import matching
from paddlevit_dist.images.keypoints.evaluation.matching import DISTANCE, FOUND, LABELED, SIMILARITY


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
    # two persons of area 400 with three points: one is found, with its second point hidden, its third not labeled
    points = np.array([[[10, 10, 2], [20, 10, 1], [0, 0, 0]], [[90, 90, 2], [95, 90, 2], [95, 95, 2]]], float)
    boxes = np.array([[5, 5, 20, 20], [85, 85, 20, 20]], float)
    no, one = np.zeros(2, bool), np.zeros(2, int)
    truth = matching.KeypointTruth(one, points, boxes, np.full(2, 400.0), one, no, no)
    places = np.array([[[13, 14, 0.9], [20, 11, 0.8], [70, 70, 0.1]]])
    found = matching.KeypointCandidates(one[:1], places, np.array([0.5]), one[:1])
    table = matching.PointTable.from_sets(keypoint_peer.build_sets([[0.1, 0.2, 0.1]]))
    matches = matching.match_keypoints(np.array([4]), truth, found, table)
    assert matches.table.num_true.tolist() == [2] and matches.table.true_positives[0] & np.uint64(1)
    assert matches.sums[0, :, LABELED].tolist() == [2, 2, 1]
    assert matches.sums[0, :, FOUND].tolist() == [1, 1, 0]
    np.testing.assert_allclose(matches.sums[0, :, DISTANCE], [5, 1, 0], rtol=1e-15)
    parts = [np.exp(-25 / (2 * 400 * 0.2**2)), np.exp(-1 / (2 * 400 * 0.4**2)), 0]
    np.testing.assert_allclose(matches.sums[0, :, SIMILARITY], parts, rtol=1e-12)
    np.testing.assert_allclose(matches.errors.shares, [5 / 20, 1 / 20], rtol=1e-12)
