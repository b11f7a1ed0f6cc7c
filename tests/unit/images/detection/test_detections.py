"""Detections of one image: which are kept, their formats, and the speed that an evaluation logs."""

import numpy as np

from paddlevit_dist.images.detection.detections import (
    DetectedObjects,
    SpeedMeter,
    boxes_to_corners,
    corners_to_boxes,
)

SCORES = [0.2, 0.9, 0.5, 0.5, 0.7, 0.5, 0.1, 0.8]
LABELS = [2, 0, 2, 2, 1, 2, 0, 0]


def detected(with_masks=False):
    boxes = np.arange(32, dtype=np.float32).reshape(8, 4)
    masks = [{"counts": str(number)} for number in range(8)] if with_masks else None
    return DetectedObjects(boxes, np.array(SCORES, np.float32), np.array(LABELS), masks)


def kept(objects):
    return (objects.boxes[:, 0] / 4).astype(int).tolist()


def test_the_best_of_each_class_stay_in_their_order_and_the_first_of_equal_ones():
    objects = detected(with_masks=True)
    for most in range(1, 5):
        ranked = sorted(range(8), key=lambda place: -objects.scores[place])  # stable
        expected = [place for place in range(8) if _rank(ranked, place) < most]
        best = objects.best_of_classes(most)
        assert kept(best) == expected
        assert best.labels.tolist() == [LABELS[place] for place in expected]
        assert [mask["counts"] for mask in best.masks] == list(map(str, expected))
        np.testing.assert_array_equal(best.scores, objects.scores[expected], strict=True)
    assert kept(objects.best_of_classes(2)) == [1, 2, 3, 4, 7]
    assert objects.best_of_classes(None) is objects is objects.best_of_classes(8)


def _rank(ranked, place):
    """The place among the detections of its class."""
    return [other for other in ranked if LABELS[other] == LABELS[place]].index(place)


def test_detections_that_are_not_finite_are_left_out():
    objects = detected()
    assert objects.finite() is objects
    objects.boxes[1, 3], objects.scores[4], objects.boxes[6] = np.inf, np.nan, np.nan
    assert kept(objects.finite()) == [0, 2, 3, 5, 7] and objects.finite().masks is None


def test_boxes_and_corners_are_inverse_in_float64():
    corners = np.array([[1, 2, 5, 10], [0.25, 7, 3, 7.5]], np.float32)
    boxes = corners_to_boxes(corners)
    assert boxes.dtype == np.float64 and boxes.tolist() == [[1, 2, 4, 8], [0.25, 7, 2.75, 0.5]]
    assert boxes_to_corners(boxes).tolist() == corners.tolist()
    assert corners_to_boxes([]).shape == boxes_to_corners([]).shape == (0, 4)


def test_the_speed_is_of_all_batches_but_the_first():
    meter = SpeedMeter()
    meter.add(50, 9.0, 90.0, 9.0)
    assert meter.line() == ""
    meter.add(4, 0.1, 0.3, 0.05)
    meter.add(2, 0.5, 0.12, 0.01)
    assert meter.line() == (
        "12.5 images/s from pixels to boxes (3 at a time, one process): 70.0 ms per image in the network, 10.0 ms from "
        "its outputs to boxes; plus 100.0 ms to read and prepare it, in a loader process"
    )
