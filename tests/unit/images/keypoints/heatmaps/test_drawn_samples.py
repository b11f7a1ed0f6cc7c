"""Crops of objects with the points of all heatmaps."""

from types import SimpleNamespace

from paddlevit_dist.images.keypoints.heatmaps.channels import PointChannels
from paddlevit_dist.images.keypoints.heatmaps.drawn_samples import join_points
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet


def test_heatmaps_of_all_categories_have_their_lines_and_each_pair_once():
    hand = KeypointSet(("tip", "nose"), (), (0.05, 0.05), ((1, 0),))
    foot = KeypointSet(("heel", "toe", "ankle"), ((0, 1),), (0.05,) * 3, ((0, 2), (2, 1)))
    sets = [foot, hand, foot]
    joined = join_points(SimpleNamespace(channels=PointChannels(["dog", "hand", "cat"], sets), keypoint_sets=sets))
    assert joined == KeypointSet(
        ("heel", "toe", "ankle", "tip", "nose"), ((0, 1),), (1.0,) * 5, ((0, 2), (2, 1), (4, 3))
    )
