"""Heatmaps of several categories."""

import numpy as np

from paddlevit_dist.images.keypoints.heatmaps.channels import PointChannels
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet

HAND = KeypointSet(("tip", "nose"), (), (0.05, 0.05), ())
FOOT = KeypointSet(("heel", "toe", "ankle"), ((0, 1),), (0.05,) * 3, ())


def test_categories_with_the_same_points_share_their_heatmaps():
    channels = PointChannels(
        ["dog", "hand", "cat", "foot", "ball"], [FOOT, HAND, FOOT, FOOT, KeypointSet((), (), (), ())]
    )
    assert len(channels) == 5
    assert channels.names == ["heel", "toe", "ankle", "tip", "nose"]
    assert channels.mirror.tolist() == [1, 0, 2, 3, 4]
    values = np.arange(12.0).reshape(2, 3, 2) + 1
    spread = channels.spread(values, np.array([1, 2]))
    np.testing.assert_array_equal(spread[0, 3:], values[0, :2])
    np.testing.assert_array_equal(spread[1, :3], values[1])
    assert not spread[0, :3].any() and not spread[1, 3:].any()
    back = channels.collect(spread, np.array([1, 2]))
    np.testing.assert_array_equal(back[1], values[1])
    np.testing.assert_array_equal(back[0], [*values[0, :2], [0, 0]])
    assert not channels.collect(spread, np.array([4, 4])).any()


def test_points_of_one_name_in_two_categories_are_named_apart():
    channels = PointChannels(["person", "hand"], [COCO_PERSON, HAND])
    assert channels.names[0] == "person: nose" and channels.names[-1] == "hand: nose"
    assert channels.names[1] == "left_eye" and len(set(channels.names)) == 19
