"""Scenes of one place on one side, and instance numbers that begin anew in each class."""

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.points.data.scene import IGNORED
from paddlevit_dist.points.prepare.listing import hold_out, separate_classes
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.tables import TextReader


def test_only_lists_at_the_top_are_no_scenes(tmp_path):
    (tmp_path / "hall").mkdir()
    for name in ("train.txt", "classes.txt", "hall/train.txt", "hall/room.txt", "hall/.room2.txt", "hall/notes.md"):
        (tmp_path / name).write_text("1 2 3\n")
    reader = TextReader()
    assert reader.find(str(tmp_path)) == {name: str(tmp_path / f"hall/{name}.txt") for name in ("room", "train")}
    assert reader.other_files == ["notes.md"]


def test_a_download_of_test_scenes_alone_needs_no_list(tmp_path):
    reader, lists = ScanNetReader(), dict.fromkeys(("train", "val", "test"))
    names = ["scene0708_00", "scene0707_00"]
    paths = {name: str(tmp_path / "scans_test" / name / f"{name}_vh_clean_2.ply") for name in names}
    assert reader.splits(str(tmp_path), paths, lists) == {"test": names[::-1]}
    assert reader.remarks == ["no list names the test scenes: the 2 in scans_test are used; the benchmark has 100"]
    paths["scene0000_00"] = str(tmp_path / "scans" / "scene0000_00" / "scene0000_00_vh_clean_2.ply")
    with pytest.raises(UserError, match=r"has no lists of splits: put ScanNet's lists scannetv2_train\.txt and scan"):
        reader.splits(str(tmp_path), paths, lists)


def test_scans_of_one_place_are_on_one_side():
    found, remarks = {f"scene{place:04d}_{scan:02d}": "" for place in range(10) for scan in range(3)}, []
    splits = hold_out(found, remarks)
    places = [{name[:9] for name in names} for names in splits.values()]
    assert not places[0] & places[1] and len(places[1]) == 2
    assert remarks == ["every fifth scene is for validation: the 30 scenes are of 10"]


def test_other_scenes_are_held_out_one_by_one():
    remarks = []
    splits = hold_out({f"room{n}": "" for n in (3, 0, 4, 1, 2)}, remarks)
    assert splits == {"train": ["room0", "room1", "room2", "room3"], "val": ["room4"]} and not remarks
    assert hold_out({"b": "", "a": ""}, remarks) == {"train": ["a"], "val": ["b"]}


def test_a_number_of_several_classes_is_an_instance_of_each():
    labels = np.array([0, 0, 0, 1, 1, 2, IGNORED, IGNORED], np.int16)
    numbers, remarks = np.array([0, 0, 1, 0, 0, 3, 0, 3]), []
    keyed = separate_classes("room.ply", numbers, labels, remarks)
    assert len(set(keyed[:6].tolist())) == 4
    assert keyed[0] == keyed[1] != keyed[3] == keyed[4] and keyed[6] == IGNORED and keyed[7] == keyed[5] == 3
    assert remarks == [
        "room.ply: 1 of 3 instance numbers have points of several classes, such as number 0 of classes 0, 1: points of "
        "each class are a separate instance"
    ]


def test_numbers_of_one_class_each_stay():
    numbers, remarks = np.array([4, 4, 7, -100]), []
    assert separate_classes("room.ply", numbers, np.array([1, 1, 1, 2]), remarks) is numbers and not remarks


def test_numbers_of_prepared_formats_are_told_alone():
    remarks = []
    separate_classes("scene.pth", np.array([0, 0]), np.array([1, 2], np.int16), remarks, warn_only=True)
    assert remarks[0].endswith("such as number 0 of classes 1, 2: each is one instance")


@pytest.mark.parametrize(("number", "val"), [(2, [1]), (4, [3]), (5, [4]), (12, [4, 9])])
def test_every_fifth_scene_is_held_out_or_the_last_of_few(number, val):
    names = [f"room {letter}" for letter in "abcdefghijkl"[:number]]
    remarks: list[str] = []
    found = hold_out({name: name for name in names[::-1]}, remarks)
    assert found == {
        "train": [name for place, name in enumerate(names) if place not in val],
        "val": [names[place] for place in val],
    }
    assert remarks == []
