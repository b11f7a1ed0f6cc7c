"""A path without a dataset name, for tasks of keypoints."""

import json
import os

import pytest
from support.files.coco_writer import write_image
from support.files.keypoint_writer import posed, write_keypoints
from support.files.yolo_writer import write_yolo
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.lookup import find_layouts, guess_dataset

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
    write_yolo(tmp_path / "boxes", names="names: [bug]  # kpt_shape: none\n")
    assert guess(tmp_path / "boxes") is None
    write_table(tmp_path / "wide")
    write_table(tmp_path / "labels", "image,label,fold")
    assert guess(tmp_path / "wide") == guess(tmp_path / "wide" / "points.csv") == "keypoint_table"
    assert guess(tmp_path / "labels") is None
    reasons = [
        guess_dataset(str(path), "keypoint_heatmaps").reason
        for path in (file, tmp_path / "wide" / "points.csv", tmp_path / "wide", f"{tmp_path / 'yolo'}/")
    ]
    assert reasons == [
        f"{file} contains annotations in COCO's format",
        f"{tmp_path}/wide/points.csv is a table, read as one of points",
        f"{tmp_path}/wide has points.csv, a table of points",
        f"{tmp_path}/yolo has data.yaml with kpt_shape",
    ]
    relative = os.path.relpath(tmp_path / "wide")
    found = guess_dataset(f"{relative}/", "keypoint_heatmaps")
    assert found.reason == f"{relative} has points.csv, a table of points"
    assert [each.dataset for each in find_layouts("coco_keypoints", str(tmp_path / "yolo"))] == ["yolo_pose"]


def test_several_layouts_and_other_files_are_refused(tmp_path):
    write_keypoints(tmp_path, [posed(1, 11)])
    write_yolo(tmp_path, names=POSE)
    assert refusal_of(guess, tmp_path) == (
        f"{tmp_path} has annotations in COCO's format, such as annotations/person_keypoints_train2017.json "
        f"(-dataset=coco_keypoints), and {tmp_path} has data.yaml with kpt_shape (-dataset=yolo_pose): select one with "
        "-dataset, or move them to separate folders"
    )
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.json").write_text(json.dumps({"version": "5.0", "shapes": [{"label": "tip"}]}))
    with pytest.raises(UserError, match="Labelme file of one image"):
        guess(tmp_path / "one")
    assert guess(tmp_path / "data.yaml") == "yolo_pose"  # the file decides
    place = tmp_path / "a.yaml"
    place.write_text("a: 1\n")
    for path, message in (
        (tmp_path / "none", f"data path {tmp_path / 'none'} does not exist"),
        (place, f"data path {place} is a file; give the folder with this file and the images: {tmp_path}"),
        ("s3://bucket/points", "s3://bucket/points is an address, but keypoints are read from files of this machine: "
         "copy them here"),
    ):  # fmt: skip
        assert refusal_of(guess, path) == message


@pytest.mark.parametrize("name", ["POINTS.CSV", "a.TSV"])
def test_tables_with_endings_in_capitals(tmp_path, name):
    write_table(tmp_path)
    (tmp_path / "points.csv").rename(tmp_path / name)
    assert guess(tmp_path / name) == guess(tmp_path) == "keypoint_table"
