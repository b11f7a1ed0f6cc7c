"""Points of categories from what annotations say."""

import pytest

from paddlevit_dist.images.keypoints.described_points import find_opposites, pair_up


@pytest.mark.parametrize(
    "names, expected",
    [
        (["nose", "left_eye", "right_eye"], [(1, 2)]),
        (["R-Shoulder", "L-Shoulder", "Neck"], [(0, 1)]),
        (["LeftFrontPaw", "RightBackPaw", "RightFrontPaw"], [(0, 2)]),
        (["ear l", "ear r", "tail"], [(0, 1)]),
        (["左眼", "右眼", "左耳", "右耳", "鼻"], [(0, 1), (2, 3)]),
        (["bright spot", "leftover", "tail"], []),
        (["left", "left", "right"], []),
        (["lefteye_x", "righteye_x", "nose"], [(0, 1)]),
        (["point 1", "point 2"], []),
    ],
)
def test_left_and_right_in_names_are_opposites(names, expected):
    assert find_opposites(names) == expected


@pytest.mark.parametrize(
    "mirror, expected", [([0, 2, 1], [(0, 0), (1, 2)]), ([1, 2, 0], None), ([0, 1], None), ([0, 3, 1], None)]
)
def test_a_mirror_exchanges_points_in_pairs(mirror, expected):
    assert pair_up(mirror, 3) == expected
