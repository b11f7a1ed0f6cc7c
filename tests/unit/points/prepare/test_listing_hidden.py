"""Files of macOS and other systems beside the data are not read: ._x, .DS_Store, __MACOSX."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.files import other_scenes

from paddlevit_dist.points.data.scene_store import list_splits
from paddlevit_dist.points.inputs import find_scenes
from paddlevit_dist.points.prepare.formats import detect_format, get_reader
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.store import _open_output
from paddlevit_dist.points.shapes.data import ModelNet40
from paddlevit_dist.points.submission import SubmissionFiles

NO_LISTS = dict.fromkeys(("train", "val", "test"))


def write_s3dis(root):
    other_scenes.s3dis(root)


def write_pointcept(root):
    other_scenes.pointcept(root)


def write_kitti(root):
    other_scenes.semantic_kitti(root)


def write_las(root):
    for split in ("train", "val"):
        other_scenes.las(root / split / f"{split}.las")


def add_hidden_files(root: Path) -> None:
    """Add the files that macOS writes beside each file, in each folder, and in an archive."""
    for folder, _, names in list(os.walk(root)):
        (Path(folder) / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        for name in names:
            (Path(folder) / f"._{name}").write_bytes(b"\0\5\x16\7\0\2\0\0Mac OS X")
    shutil.copytree(root, root / "__MACOSX" / root.name, ignore=list_visible)


def list_visible(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(".") and os.path.isfile(os.path.join(folder, name))]


def read_all(root: Path, choices: SceneChoices) -> dict:
    reader = get_reader(detect_format(str(root)), choices)
    sources = reader.sources(str(root), NO_LISTS)
    return {split: [reader.read(source) for source in each] for split, each in sources.items()}


@pytest.mark.parametrize("write", [write_s3dis, write_pointcept, write_kitti, write_las])
def test_scenes_are_those_without_the_files_of_a_system(tmp_path, write):
    root = tmp_path / "data"
    root.mkdir()
    write(root)
    choices = SceneChoices() if write is write_s3dis else SceneChoices(channels=("all",))
    expected, inputs = read_all(root, choices), find_scenes([str(root)])
    add_hidden_files(root)
    found = read_all(root, choices)
    assert list(found) == list(expected) and find_scenes([str(root)])[:2] == inputs[:2]
    for split, scenes in expected.items():
        assert [scene.name for scene in found[split]] == [scene.name for scene in scenes]
        for one, other in zip(found[split], scenes):
            np.testing.assert_array_equal(one.xyz, other.xyz, strict=True)
            np.testing.assert_array_equal(one.semantic, other.semantic, strict=True)
            assert list(one.channels) == list(other.channels)


def test_meshes_submissions_and_stores_are_those_without_the_files_of_a_system(tmp_path):
    for split in ("train", "test"):
        (tmp_path / "m" / "chair" / split).mkdir(parents=True)
        (tmp_path / "m" / "chair" / split / f"chair_{split}.off").write_text("OFF\n")
    (tmp_path / "found" / "predicted_masks").mkdir(parents=True)
    (tmp_path / "found" / "a.txt").write_text("1\n")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "train.txt").write_text("a\n")
    (tmp_path / "empty").mkdir()
    for name in ("m", "found", "store", "empty"):
        add_hidden_files(tmp_path / name)
    meshes = ModelNet40(str(tmp_path / "m"), "train", None)
    assert (meshes.names, meshes.class_names) == (["chair/train/chair_train.off"], ["chair"])
    assert SubmissionFiles(str(tmp_path / "found")).names == ["a.txt"]
    assert list_splits(tmp_path / "store") == ["train"]
    assert _open_output(tmp_path / "empty", {"version": 1, "kind": "pcd", "source": "in"}) == {}
