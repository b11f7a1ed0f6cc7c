"""YOLO's labels with keypoints."""

import functools
import pickle

import numpy as np
import pytest
from support.files.coco_writer import refused_by
from support.files.yolo_writer import write_yolo

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.data.yolo import Yolo
from paddlevit_dist.images.keypoints.data.yolo_pose import YoloPose

refused = functools.partial(refused_by, YoloPose)
YAML = "names: [bug, fly]\nkpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\n"
LABELS = {  # of images of 20 x 40 pixels, height x width
    "1": "0 0.5 0.5 0.4 0.6 0.25 0.5 2 0.75 0.4 1 0 0 0\n1 0.5 0.5 0.2 0.2 0 0 0 0 0 0 0 0 0\n",
    "2": "0 0.5 0.5 0.5 0.5\n",
    "3": None,
}


def list_bytes(dataset):
    """What identifies a dataset's content."""
    return {name: b"".join(bytes(part) for part in parts) for name, parts in dataset.listed().items()}


def test_points_are_fractions_of_the_image(tmp_path, cache):
    write_yolo(tmp_path, labels=LABELS, names=YAML)
    dataset = pickle.loads(pickle.dumps(YoloPose(str(tmp_path), "train", cache)))
    found = dataset.annotations(0)
    np.testing.assert_allclose(found.points[0], [[10, 10, 2], [30, 8, 1], [0, 0, 0]])
    assert not found.points[1].any() and dataset.annotations(1).points.shape == (1, 3, 3)
    assert dataset.posed_objects().tolist() == [[0, 0]]
    names = ("point 1", "point 2", "point 3")
    assert dataset.keypoint_sets == ((names, ((0, 0), (1, 2)), (0.05,) * 3, ()),) * 2
    assert not any("outside" in line for line in dataset.notices)
    boxes = Yolo(str(tmp_path), "train", cache)  # a detector reads the boxes
    np.testing.assert_array_equal(boxes.annotations(0).boxes, found.boxes)
    assert boxes.annotations(0).points is None


def test_keys_win_over_the_file_and_other_points_are_other_data(tmp_path, cache):
    write_yolo(tmp_path, labels=LABELS, names=YAML)
    words = ["TASK", "keypoint_heatmaps", "-dataset=yolo_pose", f"-data_path={tmp_path}", "KEYPOINTS.SIGMAS", "0.3"]
    dataset = YoloPose.open(load(words).values, "train", cache)
    assert [points.sigmas for points in dataset.keypoint_sets] == [(0.3,) * 3] * 2
    before = list_bytes(dataset)
    write_yolo(tmp_path, labels={**LABELS, "1": LABELS["1"].replace("0.75 0.4 1", "0.75 0.4 2")}, names=YAML)
    after = list_bytes(YoloPose(str(tmp_path), "train", cache))
    assert [name for name in before if before[name] != after[name]] == ["points"]


def test_points_outside_of_their_image_are_told(tmp_path, cache):
    write_yolo(tmp_path, labels={"1": LABELS["1"].replace("0.75 0.4 1", "1.25 0.4 1")}, names=YAML)
    told = "1 object with a labeled point outside the image, not learned"
    dataset = YoloPose(str(tmp_path), "train", cache)
    assert told in dataset.notices
    far = LABELS["1"].replace("0 0 0\n1", "12 -30 0\n1").replace("0.75 0.4 1", "9.9 -9.9 1")  # as far as points may be
    write_yolo(tmp_path, labels={"1": far + far}, names=YAML)
    dataset = YoloPose(str(tmp_path), "train", cache)
    np.testing.assert_allclose(dataset.annotations(0).points[2], [[10, 10, 2], [396, -198, 1], [480, -600, 0]])
    assert "2 objects with a labeled point outside the image, not learned" in dataset.notices


def test_points_without_visibility_are_labeled_unless_they_are_zero(tmp_path, cache):
    yaml = "names: [bug]\nkpt_shape: [3, 2]\nkpt_names:\n  0: [nose, left ear, right ear]\n"
    lines = "0 0.5 0.5 0.4 0.6 0.25 0.5 0 0 -1 -1\n0 0.5 0.5 0.4 0.6 0 0.5 0.5 -0.1 0.25 0\n"
    write_yolo(tmp_path, labels={"1": lines}, names=yaml)
    dataset = YoloPose(str(tmp_path), "train", cache)
    assert dataset.annotations(0).points[:, :, 2].tolist() == [[2, 0, 0], [2, 0, 2]]
    assert dataset.annotations(0).points[1, [0, 2], :2].tolist() == [[0, 10], [10, 0]]
    assert dataset.keypoint_sets[0].names == ("nose", "left ear", "right ear")
    assert dataset.keypoint_sets[0].pairs == ((1, 2),)


def test_a_mirror_that_exchanges_nothing_is_told(tmp_path, cache):
    """Roboflow writes so without knowing the points."""
    write_yolo(tmp_path, labels={"1": LABELS["1"]}, names=YAML.replace("2, 1", "1, 2"))
    dataset = YoloPose(str(tmp_path), "train", cache)
    assert any("mirrored and no points exchanged, by the annotations (KEYP" in line for line in dataset.notices)
    assert dataset.keypoint_sets[0].pairs == ((0, 0), (1, 1), (2, 2))


def test_names_of_points_are_of_the_class_that_they_name(tmp_path, cache):
    write_yolo(tmp_path, labels={"1": LABELS["1"]}, names=YAML + "kpt_names: {fly: [a, b, c], 0: [d, e, f]}\n")
    dataset = YoloPose(str(tmp_path), "train", cache)
    assert [points.names for points in dataset.keypoint_sets] == [("d", "e", "f"), ("a", "b", "c")]


FRACTIONS = "expected points as fractions of the image from 0 to 1, not pixels; kpt_shape in data.yaml says how many"
VISIBILITY = (
    "expected the visibility of each point to be 0 (not labeled), 1 (hidden) or 2 (visible); kpt_shape in data.yaml "
    "says how many"
)


@pytest.mark.parametrize(
    "yaml, label, message",
    [
        ("names: [bug]\n", LABELS["2"], "has no kpt_shape: expected data.yaml with a line such as kpt_shape: [17, 3]"),
        ("names: [bug]\nkpt_shape: [3, 4]\n", LABELS["2"], "kpt_shape [3, 4]: expected the number of keypoints"),
        (YAML.replace("2, 1", "2, 2"), LABELS["1"], "flip_idx [0, 2, 2]: expected the numbers 0 to 2, exchanged"),
        (YAML + "kpt_names: [a, b]\n", LABELS["1"], "kpt_names ['a', 'b']: expected 3 different names"),
        (YAML + "kpt_names: [a, a, b, c]\n", LABELS["1"], "kpt_names ['a', 'a', 'b', 'c']: expected 3 different names"),
        (YAML + "kpt_names: {'0': [a, b, c]}\n", LABELS["1"], "kpt_names: there is no class '0': expected one of 0, 1"),
        (
            YAML,
            LABELS["2"] + "0 0.5 0.5 0.4 0.6 0.2 0.5 3 1 1 1 0 0 0\n",
            f"/labels/train/1.txt, object 2: {VISIBILITY}",
        ),
        (YAML, f"{LABELS['2']}{LABELS['2']}0 0.5 0.5 0.4 0.6 25 50 2 1 1 1 0 0 0\n", f"1.txt, object 3: {FRACTIONS}"),
        (YAML, "0 0.5 0.5 0.4 0.6 0.5 -50 2 1 1 1 0 0 0\n", f"/labels/train/1.txt, object 1: {FRACTIONS}"),
        (YAML, "0 0.5 0.5 0.4 0.6 0.5 0.5 2 10 1 1 0 0 0\n", f"/labels/train/1.txt, object 1: {FRACTIONS}"),
        (YAML, "0 0.5 0.5 0.4 0.6 0.2 0.5 -1 1 1 1 0 0 0\n", f"/labels/train/1.txt, object 1: {VISIBILITY}"),
        (
            YAML,
            LABELS["2"],
            "no label file has a labeled point: expected lines class x y width height x1 y1 v1 x2 y2 v2 ",
        ),
        (YAML, "0 0.5 0.5 0.4 0.6 0.2\n", "6 numbers; expected class x y width height and 9 numbers of keypoints"),
        (YAML, "0 0.5 0.5 0.4 0.6 nan 0.5 2 1 1 1 0 0 0\n", "expected points as fractions of the image from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, cache, yaml, label, message):
    write_yolo(tmp_path, labels={"1": label}, names=yaml)
    assert message in refused(tmp_path, cache)


def test_a_box_of_zeros_with_labeled_points_is_the_one_around_them(tmp_path, cache):
    labels = {"1": "0 0 0 0 0 0.25 0.5 2 0.75 0.4 1 0 0 0\n0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"}
    write_yolo(tmp_path, labels=labels, names=YAML)
    dataset = YoloPose(str(tmp_path), "train", cache)
    found = dataset.annotations(0)  # points at 10, 10 and 30, 8, with a tenth of 20 around them
    np.testing.assert_allclose(found.boxes, [[8, 6, 24, 6], [0, 0, 0, 0]])
    np.testing.assert_allclose(found.areas, [144, 0])
    assert dataset.posed_objects().tolist() == [[0, 0]] and found.is_learnable.tolist() == [True, False]
