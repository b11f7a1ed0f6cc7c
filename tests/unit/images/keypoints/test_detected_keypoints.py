"""Objects with keypoints in one image."""

import numpy as np

from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints

POINTS = np.array([[[1, 2, 0.5], [4, 0, 0.1]], [[np.nan, 2, 0.5], [4, 3, 0.1]], [[7, 8, 0.5], [9, 9, 1]]], np.float32)
OBJECTS = DetectedKeypoints(POINTS, np.array([0.5, 0.6, 0.7], np.float32), np.array([0, 1, 0]))


def test_finite_drops_objects_with_a_point_a_score_or_a_box_that_is_not():
    assert OBJECTS.finite().scores.tolist() == np.float32([0.5, 0.7]).tolist()
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, np.inf, 1]], np.float32)
    assert OBJECTS._replace(boxes=boxes).finite().labels.tolist() == [0]
    assert len(OBJECTS._replace(scores=np.full(3, np.nan)).finite().points) == 0
    assert OBJECTS.finite().boxes is None


def test_boxes_are_the_extents_of_the_points_where_there_are_none():
    assert OBJECTS.only(np.array([2, 0])).span_boxes().tolist() == [[7, 8, 9, 9], [1, 0, 4, 2]]
    boxes = np.zeros((3, 4), np.float32)
    assert OBJECTS._replace(boxes=boxes).span_boxes() is boxes
    assert OBJECTS.only(np.zeros(3, bool)).span_boxes().shape == (0, 4)
