"""COCO's files with keypoints and what programs make of them."""

import functools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from pycocotools.coco import COCO
from support.files.coco_writer import BOX, annotation, refused_by, write_coco
from support.files.keypoint_writer import BUG, POINTS, posed, write_keypoints

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.keypoints.data.coco_keypoints import CocoKeypoints
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointsPart, is_posed
from paddlevit_dist.images.keypoints.keypoint_set import COCO_PERSON

refused = functools.partial(refused_by, CocoKeypoints)
PERSON = {"id": 1, "name": "person", "keypoints": list(COCO_PERSON.names)}


def keys(**values):
    return SimpleNamespace(**dict.fromkeys(("NAMES", "PAIRS", "SIGMAS", "SKELETON")) | values)


def test_points_are_as_coco_s_own_tools_have_them(tmp_path, cache):
    generator = np.random.default_rng(0)
    skeleton = [[one + 1, other + 1] for one, other in COCO_PERSON.skeleton]
    images = [{"id": 3 * n, "file_name": f"{n}.png", "height": 40, "width": 50} for n in range(20)]
    annotations = []
    for number in generator.permutation(60).tolist():
        visible = generator.integers(0, 3, 17)
        places = np.concatenate([generator.integers(0, 80, (17, 2)) / 2, visible[:, None]], axis=1)
        annotations.append(posed(number + 1, 3 * (number % 20), places.reshape(-1).tolist(), category=1))
        annotations[-1]["num_keypoints"] = int((visible > 0).sum())
    write_keypoints(tmp_path, annotations, images=images, categories=[{**PERSON, "skeleton": skeleton}])
    (tmp_path / "train2017").mkdir()
    (tmp_path / "train2017" / "0.png").touch()
    theirs = COCO(str(tmp_path / "annotations" / "person_keypoints_train2017.json"))
    ours = pickle.loads(pickle.dumps(CocoKeypoints(str(tmp_path), "train", cache)))
    assert ours.keypoint_sets == (COCO_PERSON,) and ours.num_points == 17 and ours.can_mirror
    for index in range(20):
        entries = theirs.imgToAnns[ours.image_id(index)]
        expected = np.array([entry["keypoints"] for entry in entries]).reshape(-1, 17, 3)
        np.testing.assert_array_equal(ours.annotations(index).points, expected)
    counts = ours.count_points()
    assert counts.sum() == 60 * 17
    assert counts[0, :, 1:].sum() == sum(entry["num_keypoints"] for entry in annotations)


def test_objects_with_points_to_learn_are_found_without_opening_images(tmp_path, cache):
    nothing = [0.0] * 9
    objects = [
        posed(1, 13),
        posed(2, 11, nothing),
        posed(3, 11),
        posed(4, 12, iscrowd=1),
        posed(5, 13, box=[1, 1, 0, 9]),
    ]
    write_keypoints(tmp_path, [*objects, annotation(6, 13, BOX), posed(7, 13)])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.posed_objects().tolist() == [[0, 1], [2, 0], [2, 3]]
    assert dataset.summary().endswith("1 of them a crowd, not learned; 6 labeled points, 3 of them hidden")
    assert dataset.summary(np.array([0])).endswith("; 2 labeled points, 1 of them hidden")
    assert dataset.count_points().tolist() == [[[2, 0, 3], [2, 3, 0], [5, 0, 0]]]
    assert dataset.count_points(np.array([2])).tolist() == [[[1, 0, 2], [1, 2, 0], [3, 0, 0]]]
    assert dataset.object_counts().tolist() == [[1, 1], [0, 0], [2, 2]]
    write_keypoints(tmp_path / "seen", [posed(1, 13, [1, 2, 2, 3, 4, 0, 5, 6, 0])])
    assert CocoKeypoints(str(tmp_path / "seen"), "train", cache).summary().endswith("; 1 labeled point")
    assert is_posed(dataset.annotations(2)).tolist() == [True, False, False, True]
    np.save(tmp_path / "rows.npy", np.array([0, 2]))
    part = KeypointsPart(dataset, tmp_path / "rows.npy")
    assert part.posed_objects().tolist() == [[0, 1], [1, 0], [1, 3]] and part.keypoint_sets == dataset.keypoint_sets
    assert part.count_points().tolist() == dataset.count_points().tolist()
    assert part.count_points(np.array([1])).tolist() == [[[1, 0, 2], [1, 2, 0], [3, 0, 0]]]
    assert part.mirrors.tolist() == [[0, 2, 1]] and part.num_points == 3 and not part.has_whole_objects


def test_names_give_pairs_and_the_file_the_skeleton(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11)])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    (bug,) = dataset.keypoint_sets
    assert bug == (("head", "left_wing", "right_wing"), ((1, 2),), (0.05,) * 3, ((0, 1), (0, 2)))
    assert dataset.mirrors.tolist() == [[0, 2, 1]]
    assert dataset.notices[-1] == (
        "train: keypoints of bug: 3 points, 1 mirrored pair by left and right in their names; sigma 0.05 of all "
        "points, since nothing gives them (KEYPOINTS.SIGMAS)"
    )


def test_links_of_points_that_a_category_lacks_are_of_the_others(tmp_path, cache):
    fish = {"id": 8, "name": "fish", "keypoints": ["head", "tail"]}
    write_keypoints(tmp_path, [posed(1, 11)], categories=[BUG, fish])
    chosen = keys(SKELETON=["3/1", "head/tail", "2 / 1", "left_wing/head"])
    sets = CocoKeypoints(str(tmp_path), "train", cache, keys=chosen).keypoint_sets
    assert [points.skeleton for points in sets] == [((2, 0), (1, 0), (1, 0)), ((0, 1), (1, 0))]


def test_keys_win_over_the_file(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, "sigmas": [0.1, 0.2, 0.3], "flip_idx": [0, 2, 1]}])
    from_file = CocoKeypoints(str(tmp_path), "train", cache).keypoint_sets[0]
    assert from_file.sigmas == (0.1, 0.2, 0.3) and from_file.pairs == ((0, 0), (1, 2))
    chosen = keys(NAMES=["a", "b", "c"], PAIRS=["a/2", "c/c"], SIGMAS=0.07, SKELETON=["3/1"])
    found = CocoKeypoints(str(tmp_path), "train", cache, keys=chosen).keypoint_sets[0]
    assert found == (("a", "b", "c"), ((0, 1), (2, 2)), (0.07,) * 3, ((2, 0),))
    assert not CocoKeypoints(str(tmp_path), "train", cache, keys=keys(PAIRS=[])).can_mirror
    words = [
        "TASK",
        "keypoint_heatmaps",
        "-dataset=coco_keypoints",
        f"-data_path={tmp_path}",
        "KEYPOINTS.SIGMAS",
        "0.3",
    ]
    assert CocoKeypoints.open(load(words).values, "train", cache).keypoint_sets[0].sigmas == (0.3,) * 3


@pytest.mark.parametrize(
    "chosen, message",
    [
        (keys(NAMES=["a", "b"]), "KEYPOINTS.NAMES has 2 values, but bug has 3 points"),
        (keys(SIGMAS=[0.1]), "KEYPOINTS.SIGMAS has 1 values, but bug has 3 points"),
        (
            keys(PAIRS=["head/tail"]),
            "KEYPOINTS.PAIRS head/tail: the points are not of one category; expected two of head, left_wing, "
            "right_wing or of the numbers 1 to 3, such as head/right_wing",
        ),
        (keys(PAIRS=["1/2", "2/3"]), "KEYPOINTS.PAIRS: left_wing is in two pairs"),
        (keys(SKELETON=["1-2"]), "KEYPOINTS.SKELETON 1-2: one slash is needed"),
        (keys(NAMES=["a", "b", "a"]), "KEYPOINTS.NAMES ['a', 'b', 'a']: expected each name only once"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path, cache, chosen, message):
    write_keypoints(tmp_path, [posed(1, 11)])
    assert message in refused(tmp_path, cache, keys=chosen)


def test_categories_have_their_own_points(tmp_path, cache):
    fish = {"id": 9, "name": "fish", "keypoints": ["mouth", "tail"]}
    write_keypoints(
        tmp_path,
        [posed(1, 11), posed(2, 11, [1, 2, 2, 3, 4, 1], category=9), posed(3, 13, category=7), posed(4, 11)],
        categories=[BUG, fish, {"id": 2, "name": "rock"}],
    )
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.class_names == ["rock", "bug", "fish"]
    assert [len(points.names) for points in dataset.keypoint_sets] == [0, 3, 2]
    np.testing.assert_array_equal(dataset.annotations(0).points[1], [[1, 2, 2], [3, 4, 1], [0, 0, 0]])
    assert dataset.object_counts().tolist() == [[3, 2], [0, 0], [1, 1]]
    bugs, fish = [[0, 0, 3], [0, 3, 0], [3, 0, 0]], [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert dataset.count_points().tolist() == [[[0] * 3] * 3, bugs, fish]
    assert dataset.mirrors.tolist() == [[0, 1, 2], [0, 2, 1], [0, 1, 2]]
    assert not dataset.can_mirror  # a fish is not symmetric
    assert any("fish: 2 points, no mirrored pairs, so images are not mirrored" in line for line in dataset.notices)
    chosen = keys(PAIRS=["mouth/mouth", "left_wing/right_wing"])
    mirrored = CocoKeypoints(str(tmp_path), "train", cache, keys=chosen)
    assert mirrored.can_mirror and [points.pairs for points in mirrored.keypoint_sets] == [(), ((1, 2),), ((0, 0),)]


def test_names_are_on_one_line_and_a_skeleton_may_use_them(tmp_path, cache):
    names = ["nose", "left\n eye", "ne\u0301"]
    skeleton = [["nose", "left\n eye"], ["n\u00e9", 1], ["tail", 1], [1, 2, 3], "12", {"1": 2, "2": 3}]
    for form in ("left\n eye", "left eye"):
        skeleton[0][1] = form
        write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, "keypoints": names, "skeleton": skeleton}])
        (points,) = CocoKeypoints(str(tmp_path), "train", cache).keypoint_sets
        assert points.names == ("nose", "left eye", "n\u00e9")
        assert points.skeleton == ((0, 1), (2, 0))


PAIRS = "expected pairs of its points, by names or numbers from 0"


@pytest.mark.parametrize(
    "field, value, expected",
    [
        ("keypoints", "head", "expected a list of names"),
        ("keypoints", ["a", " ", "b"], "expected no empty name"),
        ("keypoints", ["a", "b", "a"], "expected each name only once"),
        ("flip_idx", [0, 2, 2], "expected the numbers 0 to 2, exchanged in pairs"),
        ("flip_pairs", [["head", "tail"]], PAIRS),
        ("flip_pairs", [[0, 1], [1, 2]], f"{PAIRS}, each in one pair"),
        ("sigmas", [0.1, 0.2], "expected a number above 0 for each of its 3 points"),
    ],
)
def test_wrong_descriptions_of_points_are_refused(tmp_path, cache, field, value, expected):
    file = write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, field: value}])
    assert refused(tmp_path, cache) == f"{file}: category 'bug' has {field} {value!r}: {expected}"


def test_a_skeleton_that_is_no_list_is_told(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, "skeleton": "1-2"}])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.keypoint_sets[0].skeleton == () and any("skeleton is not a list" in line for line in dataset.notices)


def test_a_skeleton_that_counts_from_0_is_told(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, "skeleton": [[0, 1], [2, 0]]}])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.keypoint_sets[0].skeleton == ((0, 1), (2, 0))
    expected = "1 category whose skeleton counts points from 0, although COCO counts from 1"
    assert any(expected in line for line in dataset.notices)


STATED = "object whose num_keypoints is not the number of its labeled points, which is used"
OUTSIDE = "object with a labeled point outside its image: scored as COCO's tools do, but not learned"
ODD = {
    "no box": (
        posed(1, 11, [4, 5, 2, 14, 5, 1, 0, 0, 0], box=None),
        "1 object without a box: the extent of its points",
    ),
    "stated": (posed(5, 11, num_keypoints=3), f"1 {STATED}, such as 5"),
    "stated too many": (posed(5, 11, num_keypoints=2**70), f"1 {STATED}, such as 5"),
    "stated as text": (posed(5, 11, num_keypoints="2"), f"1 {STATED}, such as 5"),
    "stated as a fraction": (posed(5, 11, num_keypoints=2.5), f"1 {STATED}, such as 5"),
    "stated below 0": (posed(5, 11, num_keypoints=-1), f"1 {STATED}, such as 5"),
    "outside at the right": (posed(5, 11, [30.5, 5, 2, *POINTS[3:]]), f"1 {OUTSIDE}, such as 5"),
    "outside below": (posed(5, 11, [*POINTS[:3], 5, 20.5, 1, *POINTS[6:]]), f"1 {OUTSIDE}, such as 5"),
    "outside above": (posed(5, 11, [5, -0.5, 1, *POINTS[3:]]), f"1 {OUTSIDE}, such as 5"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_told(tmp_path, cache, name):
    entry, expected = ODD[name]
    border = [0, 0, 1, 30, 20, 2, 99, 99, 0]
    write_keypoints(
        tmp_path, [entry, posed(2, 11, num_keypoints=2), posed(3, 12, num_keypoints=2.0), posed(4, 12, border)]
    )
    assert any(expected in line for line in CocoKeypoints(str(tmp_path), "train", cache).notices)


def test_an_object_without_a_box_gets_one_around_its_points(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11, [4, 5, 2, 24, 9, 1, 0, 0, 0], box=None, area=None)])
    found = CocoKeypoints(str(tmp_path), "train", cache).annotations(0)
    assert found.boxes.tolist() == [[2.0, 3.0, 24.0, 8.0]] and found.areas.tolist() == [24.0 * 8.0]
    outline = [[3, 2, 25, 2, 25, 11]]  # used only where no point is labeled
    outlined = [
        posed(number, 11, points, box=None, segmentation=outline) for number, points in ((1, POINTS), (2, None))
    ]
    write_keypoints(tmp_path, outlined)
    first, second = CocoKeypoints(str(tmp_path), "train", cache).annotations(0).boxes.tolist()
    assert first != second == [3.0, 2.0, 22.0, 9.0]


def test_an_object_without_a_box_and_labeled_points_is_never_learned(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11, [4, 5, 0] * 3, box=None), posed(2, 12), posed(3, 13, None, box=None)])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert dataset.annotations(0).boxes.tolist() == [[0.0] * 4] and dataset.posed_objects().tolist() == [[1, 0]]
    assert any("2 objects without a box: never learned or matched" in line for line in dataset.notices)


def test_pairs_may_be_in_both_orders(tmp_path, cache):
    pairs = [["left_wing", "right_wing"], [2, 1], [0, 0]]
    write_keypoints(tmp_path, [posed(1, 11)], categories=[{**BUG, "flip_pairs": pairs}])
    assert CocoKeypoints(str(tmp_path), "train", cache).keypoint_sets[0].pairs == ((0, 0), (1, 2))


WRONG = {
    "length": (
        [posed(1, 11), posed(5, 11, [1, 2, 2])],
        "annotations[1] (id 5) has 3 numbers of keypoints: expected 9: x, y and visibility of each point of 'bug'",
    ),
    "visibility": (
        [posed(1, 11), posed(5, 11, [1, 2, 3, *POINTS[3:]])],
        "annotations[1] (id 5) has another visibility: expected 0 (not labeled), 1 (hidden) or 2 (visible) for each",
    ),
    "text": ([posed(1, 11, ["a", 2, 2, *POINTS[3:]])], "annotations[0]: Expected `float`, got `str`"),
    "size": (
        [posed(1, 11), posed(5, 11, [1e200, 2, 2, *POINTS[3:]])],
        "annotations[1] (id 5) has keypoints far from any image: expected finite numbers",
    ),
    "size below 0": ([posed(5, 11, [1, -1e9, 2, *POINTS[3:]])], "annotations[0] (id 5) has keypoints far from any"),
    "no objects": ([], "has no labeled point: it has no objects; expected objects with visibilities 1 or 2"),
    "nothing": ([posed(1, 11, [1, 2, 0, 3, 4, 0, 5, 6, 0])], "has no labeled point: the visibility, third number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_points_are_refused(tmp_path, cache, name):
    annotations, expected = WRONG[name]
    write_keypoints(tmp_path, annotations)
    assert expected in refused(tmp_path, cache)


def test_a_file_without_points_is_refused(tmp_path, cache):
    write_coco(tmp_path, [annotation(1, 11, BOX)])
    assert "has no keypoints: expected objects with keypoints" in refused(tmp_path, cache)


def test_points_without_names_are_numbered(tmp_path, cache):
    write_keypoints(tmp_path, [posed(1, 11)], categories=[{"id": 7, "name": "bug"}])
    assert CocoKeypoints(str(tmp_path), "train", cache).keypoint_sets[0].names == ("point 1", "point 2", "point 3")


def test_images_without_annotations_have_the_points_of_their_categories(tmp_path, cache):
    write_keypoints(tmp_path, None)
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    assert not dataset.labeled and dataset.num_points == 3 and dataset.annotations(0).points.shape == (0, 3, 3)
    assert dataset.posed_objects().shape == (0, 2) and dataset.count_points().sum() == 0


def test_a_box_of_zeros_with_labeled_points_is_the_one_around_them(tmp_path, cache):
    objects = [posed(1, 11, box=[0, 0, 0, 0]), posed(2, 11, box=None), posed(3, 11, [0.0] * 9, box=[0, 0, 0, 0])]
    write_keypoints(tmp_path, [*objects, posed(4, 11, box=[7, 7, 0, 5])])
    dataset = CocoKeypoints(str(tmp_path), "train", cache)
    found = dataset.annotations(0)
    np.testing.assert_array_equal(found.boxes[0], found.boxes[1])
    assert found.areas[0] == found.boxes[0, 2:].prod() > 0
    assert dataset.posed_objects().tolist() == [[0, 0], [0, 1]]
    assert any("2 objects without a box: the extent of its points" in line for line in dataset.notices)
