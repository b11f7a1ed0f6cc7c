"""Objects from heatmaps: their scores, and those that are found twice."""

import numpy as np
import paddle

from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.heatmaps.inference import score_objects, suppress_similar
from paddlevit_dist.images.keypoints.heatmaps.targets import flip_back
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet

SETS = [KeypointSet(("a", "b"), (), (0.05, 0.1), ()), KeypointSet(("a",), (), (0.05,), ())]


def test_the_score_is_the_mean_of_points_that_are_seen():
    scores = np.array([[0.9, 0.5, 0.1], [0.2, 0.1, 0.0], [0.3, 0.2, 0.2]])
    np.testing.assert_allclose(score_objects(scores, 0.2), [0.7, 0, 0.3])


def detect(points, scores, labels):
    points = np.array(points, np.float32)
    boxes = np.tile(np.array([0, 0, 100, 100], np.float32), (len(points), 1))
    return DetectedKeypoints(points, np.array(scores, np.float32), np.array(labels), boxes)


def test_the_worse_of_similar_objects_of_a_category_is_removed():
    first, near, far = [[10, 10, 1], [50, 50, 1]], [[12, 10, 1], [50, 50, 1]], [[30, 10, 1], [80, 50, 1]]
    found = detect([first, near, far, near], [0.5, 0.8, 0.1, 0.3], [0, 0, 0, 1])
    # OKS of the first two: exp(-4 / (2 * 0.01 * 10000)) and 1
    similarity = (np.exp(-4 / 200) + 1) / 2
    assert suppress_similar(found, SETS, similarity + 1e-6).tolist() == [1, 0, 3, 2]
    assert suppress_similar(found, SETS, similarity - 1e-6).tolist() == [1, 3, 2]


def test_objects_of_equal_scores_stay_in_their_order():
    scores = np.random.default_rng(0).integers(0, 3, 60) / 2
    found = detect([[[500 * place, 10, 1], [500 * place, 60, 1]] for place in range(60)], scores, [0] * 60)
    assert suppress_similar(found, SETS, 0.5).tolist() == sorted(range(60), key=lambda place: -scores[place])


def test_mirrored_heatmaps_return():
    maps = np.arange(24.0).reshape(1, 3, 2, 4)
    found = flip_back(paddle.to_tensor(maps), [1, 0, 2]).numpy()
    np.testing.assert_array_equal(found, maps[:, [1, 0, 2], :, ::-1])
