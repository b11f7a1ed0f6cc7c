"""Counts of classes, and of those near boundaries, against loops and against OpenCV's erosions class by class."""

import cv2
import numpy as np
import pytest

from paddlevit_dist.core.intervals import confusion_scores
from paddlevit_dist.core.metrics.counts import (
    boundary_statistics,
    count_confusion,
    count_statistics,
    near_boundary,
    reduce_confusions,
)


def blocks(rng, height, width, classes):
    """Labels in blocks of four pixels, with single pixels of other classes."""
    labels = np.kron(rng.integers(0, classes, (height // 4 + 1, width // 4 + 1)), np.ones((4, 4), int))[:height, :width]
    return np.where(rng.random(labels.shape) < 0.02, rng.integers(0, classes, labels.shape), labels).astype(np.uint8)


def make_boundary(mask, distance):
    """The pixels of a mask that the authors' code calls its boundary: what erosions take away."""
    padded = cv2.copyMakeBorder(mask.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    eroded = cv2.erode(padded, np.ones((3, 3), np.uint8), iterations=distance)[1:-1, 1:-1]
    return mask & (eroded == 0)


@pytest.mark.parametrize("distance", [1, 2, 3, 7, 12])
def test_near_a_boundary_is_what_erosions_take_away(distance):
    rng = np.random.default_rng(distance)
    for height, width in [(1, 1), (1, 9), (6, 1), (5, 40), (31, 23), (40, 40)]:
        labels = blocks(rng, height, width, 3)
        expected = np.any([make_boundary(labels == label, distance) for label in range(3)], axis=0)
        np.testing.assert_array_equal(near_boundary(labels, distance), expected, strict=True)


def test_the_boundary_iou_is_that_of_each_class_over_all_images():
    rng = np.random.default_rng(0)
    right, either, statistics = np.zeros(4), np.zeros(4), []
    for height, width in [(30, 41), (120, 90), (8, 5)]:
        true, found = blocks(rng, height, width, 4), blocks(rng, height, width, 4)
        known = rng.random(true.shape) > 0.1
        statistics.append(boundary_statistics(np.where(known, true, 255), found, 4, known))
        distance = max(1, round(0.02 * (height**2 + width**2) ** 0.5))
        for label in range(4):
            one, other = (make_boundary((labels == label) & known, distance) for labels in (true, found))
            right[label] += (one & other).sum()
            either[label] += (one | other).sum()
    tables = np.stack(statistics)
    values = confusion_scores(tables, list("abcd"), boundaries=tables)(np.ones((1, 3)))
    assert values["boundary IoU"][0] == pytest.approx(np.mean(right / either), rel=1e-12)
    assert values["mIoU"] == values["boundary IoU"]  # the same table was given for both


@pytest.mark.parametrize("other", [2, 200])
def test_a_prediction_that_is_no_class_is_taken_for_none(other):
    true, found = np.zeros((6, 6), np.uint8), np.full((6, 6), other, np.uint8)
    right, own, taken = boundary_statistics(true, found, 2, np.ones((6, 6), bool))
    assert (right.sum(), own.tolist(), taken.sum()) == (0, [20, 0], 0)


def test_pairs_are_counted_without_those_that_have_no_label():
    true, found = np.array([[0, 1, 255], [1, 1, 0]], np.uint8), np.array([[0, 0, 1], [1, 1, 2]], np.uint8)
    confusion = count_confusion(true, found, 3, 255)
    assert confusion.tolist() == [[1, 0, 1], [1, 2, 0], [0, 0, 0]] and confusion.dtype == np.int64
    assert reduce_confusions(confusion).tolist() == [[1, 2, 0], [2, 3, 0], [2, 2, 1]]
    known = true != 255
    assert count_statistics(true[known], found[known], 3).tolist() == [[1, 2, 0], [2, 3, 0], [2, 2, 1]]
    some = np.where(found == 1, -2, found.astype(int))[known]  # predictions of class 1 become no class
    assert count_statistics(true[known], some, 3).tolist() == [[1, 0, 0], [2, 3, 0], [2, 0, 1]]
    np.testing.assert_array_equal(
        count_confusion(np.where(true == 255, -100, true.astype(int)), found, 3), confusion, strict=True
    )


def test_each_of_several_confusions_is_reduced_alone():
    confusions = np.random.default_rng(2).integers(0, 9, (4, 2, 3, 3))
    found = reduce_confusions(confusions)
    assert found.shape == (4, 2, 3, 3)
    for place in np.ndindex(4, 2):
        own = confusions[place]
        right, true, taken = zip(*((own[k, k], own[k].sum(), own[:, k].sum()) for k in range(3)))
        assert found[place].tolist() == [list(right), list(true), list(taken)]
