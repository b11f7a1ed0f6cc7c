"""A path without a dataset name, for tasks of keypoints."""

import json

import pytest
from support.files.coco_writer import write_image
from support.files.keypoint_writer import posed, write_keypoints
from support.files.yolo_writer import write_yolo

from paddlevit_dist import UserError
from paddlevit_dist.registry.lookup import find_layouts, guess_dataset

POSE = "names: [bug]\nkpt_shape: [3, 3]\n"


def guess(path):
    found = guess_dataset(str(path), "keypoint_heatmaps")
    return found and found.dataset


def write_table(root, heading="image,x1,y1"):
    write_image(root / "a.png", 20, 30)
    (root / "points.csv").write_text(f"{heading}\na.png,3,4\n")


def test_layouts_are_recognized(tmp_path):
    file = write_keypoints(tmp_path / "coco", [posed(1, 11)])
    assert guess(tmp_path / "coco") == guess(file) == "coco_keypoints"
    write_yolo(tmp_path / "yolo", names=POSE)
    assert guess(tmp_path / "yolo") == "yolo_pose"
    write_table(tmp_path / "wide")
    write_table(tmp_path / "labels", "image,label,fold")
    assert guess(tmp_path / "wide") == guess(tmp_path / "wide" / "points.csv") == "keypoint_table"
    assert guess(tmp_path / "labels") is None
    reasons = [
        guess_dataset(str(path), "keypoint_heatmaps").reason for path in (file, tmp_path / "wide" / "points.csv")
    ]
    assert reasons == [
        f"{file} contains annotations in COCO's format",
        f"{tmp_path}/wide/points.csv is a table, read as one of points",
    ]
    assert find_layouts("coco_keypoints", str(tmp_path / "yolo")) == ["yolo_pose"]


def test_several_layouts_and_other_files_are_refused(tmp_path):
    write_keypoints(tmp_path, [posed(1, 11)])
    write_yolo(tmp_path, names=POSE)
    with pytest.raises(UserError, match="select one with -dataset"):
        guess(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.json").write_text(json.dumps({"version": "5.0", "shapes": [{"label": "tip"}]}))
    with pytest.raises(UserError, match="Labelme file of one image"):
        guess(tmp_path / "one")
    for place, message in (("none", "does not exist"), ("data.yaml", "is a file; give the folder")):
        with pytest.raises(UserError, match=message):
            guess(tmp_path / place)
    with pytest.raises(UserError, match="is an address"):
        guess("s3://bucket/points")
