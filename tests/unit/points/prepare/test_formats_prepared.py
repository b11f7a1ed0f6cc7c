"""Scenes of other programs and data sets, prepared and read back point by point."""

import numpy as np
import pytest
from support.files.other_scenes import las, pcd, pointcept, s3dis, semantic_kitti
from support.files.prepared_scenes import prepared
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, load_scannet200_classes
from paddlevit_dist.points.prepare import s3dis as s3dis_reader
from paddlevit_dist.points.prepare import semantic_kitti as kitti_reader
from paddlevit_dist.points.prepare.listing import RawScene

pytestmark = pytest.mark.usefixtures("pools_in_this_process")


def by_name(scenes):
    return {scene.name: scene for scene in map(scenes.read, range(len(scenes)))}


def test_s3dis_has_thirteen_classes_and_folds_by_area(tmp_path, capsys):
    written = s3dis(tmp_path / "raw", areas=(1, 2, 5))
    splits, said = prepared(tmp_path, capsys)
    assert "contains scenes of format s3dis" in said
    assert set(splits) == {"train", "val", "area_1", "area_2", "area_5"}
    assert set(by_name(splits["val"])) == {"Area_5_office_1", "Area_5_hallway_2"} == set(by_name(splits["area_5"]))
    assert len(splits["train"]) == 4 and splits["train"].num_classes == 13
    for area in (1, 5):
        scene = by_name(splits[f"area_{area}"])[f"Area_{area}_office_1"]
        rows = np.concatenate([written[area, "office_1", name] for name in ("chair_1", "stairs_1", "wall_2")])
        np.testing.assert_allclose(scene.xyz + scene.offset, rows[:, :3], atol=1e-5)
        assert np.array_equal(scene.rgb, rows[:, 3:])
        assert (
            np.array_equal(scene.semantic, np.repeat([8, 12, 2], [60, 67, 73]))
            and splits["val"].class_names[8] == "chair"
        )
        assert np.array_equal(scene.instance, np.repeat([0, 1, 2], [60, 67, 73]))  # in the order of the files
    again, said = prepared(tmp_path, capsys, "--format=s3dis", "--val_area=1")  # another fold, the same scenes
    assert "(6 were prepared before)" in said and set(by_name(again["val"])) == {"Area_1_office_1", "Area_1_hallway_2"}


def test_the_damaged_line_of_s3dis_is_read_and_others_are_told(tmp_path, capsys):
    s3dis(tmp_path / "raw")
    damaged = tmp_path / "raw" / "Area_5" / "hallway_2" / "Annotations" / "wall_2.txt"
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184 185\x10187", *lines[7:]]) + "\n")
    splits, said = prepared(tmp_path, capsys)
    assert "wall_2.txt has control characters" in said
    assert by_name(splits["val"])["Area_5_hallway_2"].rgb[60 + 67 + 6].tolist() == [184, 185, 187]
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184", *lines[7:]]))
    with pytest.raises(UserError, match=r"wall_2.txt is not a table of numbers: .*from 6 to 4 in line 7"):
        prepared(tmp_path, capsys)
    for path in damaged.parent.iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"hallway_2/Annotations has no file of an object, such as chair_1.txt"):
        prepared(tmp_path, capsys)
    damaged.write_text("1 2 3 4 5 6\n")
    with pytest.raises(UserError, match=r"only scenes of Area_1, Area_5, and --val_area=3 is for validation"):
        prepared(tmp_path, capsys, "--val_area=3")


def test_areas_are_splits_unless_a_room_is_in_none():
    paths = {"z": "/in/Area_2/z/A", "b": "/in/Area_3/b/A", "a": "/in/Area_2/a/A", "c": "/in/Area_5/c/A"}
    splits = s3dis_reader.split_by_area(paths, 3)
    expected = {"train": ["a", "c", "z"], "val": ["b"], "area_2": ["a", "z"], "area_3": ["b"], "area_5": ["c"]}
    assert splits == expected and list(splits) == list(expected)
    assert s3dis_reader.split_by_area({**paths, "d": "/in/other/d/A"}, 3) is None
    for only in ("b", "c"):
        with pytest.raises(UserError, match=rf"there are only scenes of {paths[only][4:10]}, and --val_area=3 is for"):
            s3dis_reader.split_by_area({only: paths[only]}, 3)


@pytest.mark.parametrize("text", ["x y z red green blue\n1 2 3 4 5 6\n", "1 2 3\n"])
def test_objects_of_other_columns_are_refused(tmp_path, text):
    (tmp_path / "chair_1.txt").write_text(text)
    message = refusal_of(s3dis_reader.S3disReader().read, RawScene("a", (f"{tmp_path}/chair_1.txt",), True))
    expected = "expected rows of only x, y, z, red, green, blue, without names; fix the file"
    assert message == f"{tmp_path}/chair_1.txt: {expected}"
    with pytest.raises(
        UserError, match="contains no Area_1/office_1/Annotations/chair_1.txt, but 1 .txt; give the folder"
    ):
        s3dis_reader.S3disReader().find(str(tmp_path))


def test_rooms_have_the_objects_of_their_folders_alone_also_behind_links(tmp_path):
    s3dis(tmp_path / "disk", areas=(1,))
    root = tmp_path / "in"
    for folder in (root, root / ".old" / "Annotations"):
        folder.mkdir(parents=True, exist_ok=True)
    (root / "Area_1").symlink_to(tmp_path / "disk" / "Area_1")
    objects = root / "Area_1" / "office_1" / "Annotations"
    for name in ("table_9.txt", "notes.md", "board_2.txt", "chair_0.txt"):
        (objects / name).write_text("1 2 3 4 5 6\n")
    reader = s3dis_reader.S3disReader()
    paths = reader.find(str(root))
    assert paths == {f"Area_1_{room}": f"{root}/Area_1/{room}/Annotations" for room in ("hallway_2", "office_1")}
    names = ("board_2", "chair_0", "chair_1", "stairs_1", "table_9", "wall_2")
    assert reader.files(str(objects), True) == tuple(f"{objects}/{name}.txt" for name in names)
    (tmp_path / "disk" / "Area_1" / "lobby_1" / "Annotations").mkdir(parents=True)
    with pytest.raises(UserError, match="/in/Area_1/lobby_1/Annotations has no file of an object, such as chair_1.txt"):
        reader.find(str(root))


def test_semantic_kitti_has_nineteen_classes_and_standard_sequences(tmp_path, capsys):
    written = semantic_kitti(tmp_path / "raw", sequences=("00", "08", "11"))
    splits, said = prepared(tmp_path, capsys)
    assert {split: len(scenes) for split, scenes in splits.items()} == {"train": 2, "val": 2, "test": 2}
    assert splits["train"].class_names == list(kitti_reader.CLASS_NAMES) and splits["test"].labeled
    # The configuration of its authors: number in the files -> class from 1, 0 for none.
    learning_map = {0: 0, 1: 0, 10: 1, 11: 2, 13: 5, 15: 3, 16: 5, 18: 4, 20: 5, 30: 6, 31: 7, 32: 8, 40: 9, 44: 10}
    learning_map |= {48: 11, 49: 12, 50: 13, 51: 14, 52: 0, 60: 9, 70: 15, 71: 16, 72: 17, 80: 18, 81: 19, 99: 0}
    learning_map |= {252: 1, 253: 7, 254: 6, 255: 8, 256: 5, 257: 5, 258: 4, 259: 5}
    for split, sequence in (("train", "00"), ("val", "08")):
        for scan in ("000000", "000001"):
            cloud, labels = written[sequence, scan]
            scene = by_name(splits[split])[f"{sequence}_{scan}"]
            np.testing.assert_allclose(scene.xyz + scene.offset, cloud[:, :3], atol=1e-5)
            assert np.array_equal(scene.channels["intensity"][:, 0], cloud[:, 3]) and (scene.rgb == 128).all()
            expected = [
                learning_map[number] - 1 if learning_map[number] else -100 for number in (labels & 0xFFFF).tolist()
            ]
            assert scene.semantic.tolist() == expected
            ids = {}
            for own, number, found in zip(expected, labels.tolist(), scene.instance.tolist()):
                assert (found >= 0) == (own >= 0 and number >> 16 > 0)
                assert found < 0 or ids.setdefault(number, found) == found
            assert len(set(ids.values())) == len(ids)


def test_damaged_scans_are_told(tmp_path, capsys):
    semantic_kitti(tmp_path / "raw")
    labels = tmp_path / "raw" / "sequences" / "08" / "labels" / "000000.label"
    whole = labels.read_bytes()
    for content, message in (
        (whole[:-4], "000000.label has 79 labels, its scan 80 points"),
        (whole[:-1], "000000.label has 319 bytes, not a multiple of 4"),
        (whole[:-4] + b"\x05\0\0\0", "point 79 has the number 5, which is not a class of SemanticKITTI"),
    ):
        labels.write_bytes(content)
        with pytest.raises(UserError, match=message):
            prepared(tmp_path, capsys)
    labels.unlink()
    (tmp_path / "own").mkdir()
    semantic_kitti(tmp_path / "own" / "raw", sequences=("100",))
    with pytest.raises(UserError, match=r"no split has any of the 2 scenes of .*, such as 100_000000: .*--train_list"):
        prepared(tmp_path / "own", capsys)
    with pytest.raises(UserError, match=r"000000.label is missing, the labels of .*000000.bin"):
        prepared(tmp_path, capsys)


def test_pointcepts_folders_keep_normals_and_scannets_classes(tmp_path, capsys):
    written = pointcept(tmp_path / "raw")
    splits, said = prepared(tmp_path, capsys)
    assert "-dataset=scannet -data_path=" in said and splits["train"].class_names == list(CLASS_NAMES)
    for number, split in enumerate(("train", "val")):
        scene, arrays = by_name(splits[split])[f"scene000{number}_00"], written[split]
        np.testing.assert_allclose(scene.xyz + scene.offset, arrays["coord"], atol=1e-5)
        assert np.array_equal(scene.rgb, arrays["color"]) and np.array_equal(scene.channels["normal"], arrays["normal"])
        assert np.array_equal(scene.semantic, np.where(arrays["segment20"] < 0, -100, arrays["segment20"]))
        known = (arrays["instance"] >= 0) & (arrays["segment20"] >= 0)
        assert np.array_equal(scene.instance >= 0, known)


def test_pointcepts_scannet200_and_s3dis(tmp_path, capsys):
    pointcept(tmp_path / "raw", label="segment200", classes=200)
    splits, said = prepared(tmp_path, capsys)
    assert "-dataset=scenes" in said and splits["train"].class_names == list(load_scannet200_classes())
    names = splits["train"].class_names
    assert (
        len(names) == 200
        and names[:4] == ["wall", "chair", "floor", "table"]
        and load_scannet200_classes()["mattress"] == 1191
    )
    (tmp_path / "of_s3dis").mkdir()
    pointcept(tmp_path / "of_s3dis" / "raw", splits=("Area_1", "Area_5"), label="segment", classes=13)
    splits, _ = prepared(tmp_path / "of_s3dis", capsys)
    assert splits["val"].class_names == list(s3dis_reader.CLASS_NAMES)
    assert list(by_name(splits["val"])) == ["Area_5_scene0001_00"]


@pytest.mark.parametrize("suffix, point_format, version", ((".las", 3, "1.2"), (".las", 7, "1.4"), (".laz", 7, "1.4")))
def test_laser_scans_keep_their_place_and_channels(tmp_path, capsys, suffix, point_format, version):
    extra = np.arange(90, dtype=np.float32)
    options = {"point_format": point_format, "version": version}
    written = {
        split: las(tmp_path / "raw" / split / f"{split}{suffix}", seed=seed, curvature=extra, **options)
        for seed, split in enumerate(("train", "val"))
    }
    splits, said = prepared(tmp_path, capsys, "--channels=intensity,curvature")
    assert "of format las" in said and splits["train"].class_names == list("01234")
    for split, expected in written.items():
        scene = splits[split].read(0)
        assert np.abs(scene.xyz).max() < 10 and np.allclose(scene.xyz + scene.offset, expected["xyz"], atol=2e-6)
        assert np.array_equal(scene.rgb, expected["rgb"]) and np.array_equal(scene.semantic, expected["label"])
        assert np.array_equal(scene.channels["intensity"][:, 0], expected["intensity"])
        assert np.array_equal(scene.channels["curvature"][:, 0], extra)


@pytest.mark.parametrize("kind", ("ascii", "binary", "binary_compressed"))
def test_pcd_files_of_three_kinds(tmp_path, capsys, kind):
    written = {split: pcd(tmp_path / "raw" / split / f"{split}.pcd", kind) for split in ("train", "val")}
    splits, said = prepared(tmp_path, capsys)
    assert "of format pcd" in said
    for split, expected in written.items():
        scene = splits[split].read(0)
        np.testing.assert_allclose(scene.xyz + scene.offset, expected["xyz"], atol=1e-6)
        assert np.array_equal(scene.rgb, expected["rgb"]) and np.array_equal(scene.semantic, expected["label"])
        assert np.array_equal(scene.channels["intensity"][:, 0], expected["intensity"])


def test_channels_that_a_file_does_not_have_are_told_with_those_it_has(tmp_path, capsys):
    for split in ("train", "val"):
        pcd(tmp_path / "raw" / split / f"{split}.pcd", "binary")
    with pytest.raises(UserError, match=r"has no channel normal, only intensity; add it to the file"):
        prepared(tmp_path, capsys, "--channels=intensity,normal")
    splits, _ = prepared(tmp_path, capsys, "--channels=none")
    assert splits["train"].channels == ()
