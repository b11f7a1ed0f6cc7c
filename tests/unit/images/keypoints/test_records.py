"""Records of an evaluation of keypoints, from which figures are built."""

import numpy as np

from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.evaluation.matching import PointTable, match_image
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.records import KeypointRecord, PointRecord

HAND = KeypointSet(("wrist", "thumb"), ((0, 1),), (0.1, 0.1), ())
FISH = KeypointSet(("nose",), (), (0.1,), ())


def annotate(points, labels, is_crowd):
    number = len(labels)
    boxes, areas = np.tile([10.0, 10, 60, 50], (number, 1)), np.full(number, 1600.0)
    crowd = np.array(is_crowd, bool)
    return ImageAnnotations(
        boxes, np.array(labels), areas, crowd, np.arange(number), points=np.array(points, np.float64)
    )


def test_a_record_has_the_matches_and_errors_of_an_image():
    """The second hand has no labeled point, so that the hand at its box is neither right nor wrong."""
    points = [[[90, 90, 2], [0, 0, 0]], [[20, 20, 2], [40, 40, 1]], [[0, 0, 0]] * 2, [[60, 30, 2], [0, 0, 0]]]
    truth = annotate(points, [1, 0, 0, 1], [True, False, False, False])
    places = [[[60, 38, 1], [0, 0, 0]], [[50, 15, 1], [12, 50, 1]], [[23, 20, 1], [40, 40, 1]]]
    found = DetectedKeypoints(np.array(places, np.float32), np.array([0.4, 0.3, 0.9]), np.array([1, 0, 0]))
    matches = match_image(3, truth, found, PointTable.from_sets((HAND, FISH)))
    record = KeypointRecord.from_matches(matches)
    expected = KeypointRecord(
        labels=np.array([0, 0, 1], np.uint16),
        scores=np.array([0.9, 0.3, 0.4], np.float32),
        true_positives=np.array([1023, 0, 7], np.uint16),  # OKS of the fish: exp(-8^2 / (2 * 1600 * 0.2^2)) = 0.607
        ignored=np.array([0, 1023, 0], np.uint16),
        true_labels=np.array([0, 1], np.uint16),
        labeled=np.ones(3, np.uint16),
        points=np.arange(3, dtype=np.uint16),
        distances=np.array([3, 0, 8], np.float32),
        shares=np.array([3 / 40, 0, 8 / 40], np.float32),
        similarities=np.exp([-9 / 128, 0, -64 / 128]).astype(np.float32),
        is_exchanged=np.zeros(3, bool),
    )
    for name, column, own in zip(record._fields, expected, record, strict=True):
        np.testing.assert_allclose(own, column, rtol=1e-6, err_msg=name)
        assert own.dtype == column.dtype, name


def test_a_record_of_one_object_has_its_errors_in_pixels_and_millimeters():
    truth = annotate([[[20, 20, 2], [50, 40, 1]]], [0], [False])
    found = DetectedKeypoints(np.array([[[23, 24, 1], [50, 32, 1]]], np.float32), np.ones(1), np.zeros(1, int))
    errors = np.array([5.0, 8.0])
    for spacing, expected in ((None, [np.nan, np.nan]), ((2.0, 0.5), [np.hypot(6, 2), 4])):
        record = PointRecord.from_errors(errors, truth, found, spacing)
        assert record.side == 30 and record.errors.tolist() == [5, 8]
        np.testing.assert_allclose(record.errors_mm, expected, rtol=1e-6)
        assert record.errors.dtype == record.errors_mm.dtype == np.float32
