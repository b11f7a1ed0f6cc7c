"""Points of categories from what annotations say."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.images.keypoints.described_points import (
    SIGMA,
    DescribedPoints,
    complete_sets,
    find_opposites,
    pair_up,
)
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON, KeypointSet


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


def test_lines_say_where_pairs_and_sigmas_of_each_category_are_from():
    people = COCO_PERSON.pairs
    described = {
        "ball": DescribedPoints(0),
        "cat": DescribedPoints(3, ["nose", "left ear", "right ear"], None, None, [(0, 1)]),
        "dog": DescribedPoints(3, ["left ear", "nose", "right ear"]),
        "pole": DescribedPoints(1, ["tip"], [(0, 0)], [0.1]),
        "rope": DescribedPoints(2, None, [(0, 0), (1, 1)], (0.1, 0.2)),
        "worm": DescribedPoints(2, ["head", "tail"], []),
        "baby": DescribedPoints(17, None, [(0, 0), *people]),
        "crowd": DescribedPoints(17, None, people[1:]),
        "wall": DescribedPoints(0),
    }
    sets, lines = complete_sets(list(described), list(described.values()))
    assert dict(zip(described, sets)) == {
        "ball": KeypointSet((), (), (), ()),
        "cat": KeypointSet(("nose", "left ear", "right ear"), ((1, 2),), (SIGMA,) * 3, ((0, 1),)),
        "dog": KeypointSet(("left ear", "nose", "right ear"), ((0, 2),), (SIGMA,) * 3, ()),
        "pole": KeypointSet(("tip",), ((0, 0),), (0.1,), ()),
        "rope": KeypointSet(("point 1", "point 2"), ((0, 0), (1, 1)), (0.1, 0.2), ()),
        "worm": KeypointSet(("head", "tail"), (), (SIGMA,) * 2, ()),
        "baby": COCO_PERSON._replace(pairs=((0, 0), *people)),
        "crowd": KeypointSet(tuple(f"point {k + 1}" for k in range(17)), people[1:], (SIGMA,) * 17, ()),
        "wall": KeypointSet((), (), (), ()),
    }
    given = f"sigma {SIGMA} of all points, since nothing gives them (KEYPOINTS.SIGMAS)"
    none = "no mirrored pairs, so images are not mirrored (KEYPOINTS.PAIRS names pairs; a/a: a is its own)"
    alone = "images are mirrored and no points exchanged, by the annotations (KEYPOINTS.PAIRS names pairs)"
    assert lines == [
        "keypoints of ball, wall: without points",
        f"keypoints of cat, dog: 3 points, 1 mirrored pair by left and right in their names; {given}",
        "keypoints of pole: 1 point, 0 mirrored pairs by the annotations; sigmas by the annotations",
        f"keypoints of rope: 2 points, {alone}; sigmas by the annotations",
        f"keypoints of worm: 2 points, {none}; {given}",
        "keypoints of baby: 17 points, 8 mirrored pairs by the annotations; COCO's sigmas for its 17 points",
        f"keypoints of crowd: 17 points, 7 mirrored pairs by the annotations; {given}",
    ]


def test_keys_replace_what_annotations_say():
    keys = SimpleNamespace(NAMES=None, PAIRS=["b/1", "tail/tail"], SIGMAS=[0.3, 0.4], SKELETON=[" 2 / a ", "tail/head"])
    described = [DescribedPoints(2, ["a", "b"], [], [1, 2], [(0, 0)]), DescribedPoints(2, ["head", "tail"])]
    sets, lines = complete_sets(["one", "two"], described, keys)
    assert sets == (
        KeypointSet(("a", "b"), ((1, 0),), (0.3, 0.4), ((1, 0),)),
        KeypointSet(("head", "tail"), ((1, 1),), (0.3, 0.4), ((1, 0),)),
    )
    assert lines[0] == ("keypoints of one: 2 points, 1 mirrored pair by KEYPOINTS.PAIRS; sigmas by KEYPOINTS.SIGMAS")


def test_sides_in_names_without_spaces_may_have_any_case():
    for names in (["lefteye", "righteye", "nose"], ["LEFTEYE", "RIGHTEYE", "NOSE"], ["Lefteye", "Righteye", "Nose"]):
        assert find_opposites(names) == [(0, 1)], names
