"""Scenes of tables of points: their properties, colors and splits, and what is rejected."""

import numpy as np
import pytest
from support.files.odd_names import ODD_NAMES
from support.files.raw_scenes import UNIT_COLORS, make_points, no_lists
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.formats import detect_format
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices, split_scenes
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import NumpyReader, PlyReader, TextReader


def ply_source(path):
    return RawScene("room", (str(path),), True)


def test_a_ply_scene_with_label_and_instance_under_any_name(tmp_path):
    path = tmp_path / "room.ply"
    columns = make_points(6)
    classes, objects = np.array([0, 2, -1, 7, 2, 1], np.float32), np.array([50, 9, -1, 9, 50, 7], np.int32)
    write_points(path, {**columns, "kind": classes, "thing": objects})
    scene = PlyReader(SceneChoices(label="kind", instance="thing", ignore_label=7)).read(ply_source(path))
    assert scene.semantic.tolist() == [0, 2, -100, -100, 2, 1]
    assert scene.instance.tolist() == [2, 1, -100, 1, 3, 0]  # number 50 has two classes
    write_points(path, {**columns, "scalar_label": classes, "object_id": objects})
    known = PlyReader().read(ply_source(path))
    assert known.semantic.tolist() == [0, 2, -100, 7, 2, 1]
    assert known.instance.tolist() == [1, 2, -100, 4, 3, 0]  # and number 9, where 7 is a class
    bare = PlyReader(SceneChoices(instance="none")).read(ply_source(path))
    assert set(bare.instance) == {-100} and bare.semantic.tolist() == known.semantic.tolist()


def test_a_scene_has_at_most_the_instances_that_two_bytes_number(tmp_path):
    path, number = tmp_path / "room.ply", 1 << 15
    columns = {
        **make_points(number),
        "label": np.zeros(number, np.uint8),
        "instance": np.arange(number, dtype=np.int32),
    }
    write_points(path, columns)
    message = refusal_of(PlyReader().read, ply_source(path))
    assert message == f"{path} has 32,768 instances; at most 32,767 are possible in a scene: split it"
    write_points(path, {**columns, "instance": np.arange(number, dtype=np.int32) - 1})
    assert PlyReader().read(ply_source(path)).instance.tolist() == [-100, *range(number - 1)]


@pytest.mark.parametrize("name", ("scalar_Classification", "scalar_classification", "Classification", "classification"))
def test_classes_as_lidar_programs_name_them(tmp_path, name):
    write_points(tmp_path / "room.ply", {**make_points(3), name: np.array([2, 5, 1], np.uint8)})
    reader = PlyReader()
    assert reader.read(ply_source(tmp_path / "room.ply")).semantic.tolist() == [2, 5, 1] and reader.remarks == []


def test_which_of_several_label_properties_was_taken_is_told(tmp_path):
    labels = {"classification": np.array([2, 5, 1], np.uint8), "label": np.array([0, 1, 1], np.uint8)}
    write_points(tmp_path / "room.ply", {**make_points(3), **labels})
    reader = PlyReader()
    assert reader.read(ply_source(tmp_path / "room.ply")).semantic.tolist() == [0, 1, 1]
    (line,) = reader.remarks
    assert "(label, classification): 'label' is used; choose another with --label" in line
    reader = PlyReader(SceneChoices(label="classification"))
    assert reader.read(ply_source(tmp_path / "room.ply")).semantic.tolist() == [2, 5, 1] and reader.remarks == []


def test_colors_of_other_names_and_types(tmp_path):
    path = tmp_path / "room.ply"
    columns = make_points(4)
    colors = [columns.pop(name) for name in ("red", "green", "blue")]
    columns["label"] = np.zeros(4, np.uint8)
    bytes_ = np.stack(colors, axis=1)
    for names, values in (
        (("r", "g", "b"), colors),
        (("diffuse_red", "diffuse_green", "diffuse_blue"), [color.astype(np.uint16) for color in colors]),
        (("red", "green", "blue"), [(color / 255).astype(np.float32) for color in colors]),
        (("red", "green", "blue"), [color.astype(np.float32) for color in colors]),
    ):
        write_points(path, {**columns, **dict(zip(names, values))})
        np.testing.assert_array_equal(PlyReader().read(ply_source(path)).rgb, bytes_, strict=True)
    write_points(path, columns)
    assert np.unique(PlyReader(SceneChoices(gray=True)).read(ply_source(path)).rgb).tolist() == [128]


COLORS = [  # as in a file, as bytes, and what is remarked
    (UNIT_COLORS * np.float32(1.0000001), UNIT_COLORS * 255, ""),
    (UNIT_COLORS - 1e-7, UNIT_COLORS * 255, ""),
    (UNIT_COLORS.round(), UNIT_COLORS.round() * 255, "colors reach 1, in fields of float64: taken as parts of 1"),
    (UNIT_COLORS * 0, UNIT_COLORS * 0, ""),
    (UNIT_COLORS.round().astype(np.int32), UNIT_COLORS.round(), ""),  # integers are of 255
    (UNIT_COLORS.round() * 7, UNIT_COLORS.round() * 7, ""),  # dark, but whole numbers
    (UNIT_COLORS * 200 + 0.3, UNIT_COLORS * 200, ""),
    ((UNIT_COLORS * 65535).astype(np.uint16), UNIT_COLORS * 255, ""),
    (
        (UNIT_COLORS * 255).round().astype(np.uint16),
        UNIT_COLORS * 255,
        "colors reach 255, in fields of uint16: taken as parts of 255",
    ),
]


def scene_in(path, values):
    """A file of points with these colors, and its source."""
    x = np.arange(len(values), dtype=float)
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npz":
        np.savez(path, xyz=np.c_[x, x, x], rgb=values)
    elif path.suffix == ".ply":
        write_points(path, {**dict.fromkeys("xyz", x), **dict(zip(("red", "green", "blue"), values.T))})
    else:
        rows = [f"{place} {place} {place} {' '.join(map(repr, map(float, row)))}" for place, row in zip(x, values)]
        path.write_text("x y z r g b\n" + "\n".join(rows) + "\n")
    return RawScene("room", (str(path),), False)


@pytest.mark.parametrize("values, expected, remark", COLORS)
@pytest.mark.parametrize("name", ["room.ply", "room.npz", "room.txt"])
def test_the_range_of_colors_is_not_guessed_from_the_largest(tmp_path, name, values, expected, remark):
    if name.endswith("txt") and values.dtype.kind != "f":
        pytest.skip("text has no types")
    reader = {"ply": PlyReader, "npz": NumpyReader, "txt": TextReader}[name[-3:]]()
    assert abs(reader.read(scene_in(tmp_path / name, values)).rgb.astype(float) - expected).max() <= 0.5
    assert [remark in line for line in reader.remarks] == [True] * bool(remark)


@pytest.mark.parametrize("values", [UNIT_COLORS * 3, np.r_[UNIT_COLORS, [[90.5, 90, 90]]], UNIT_COLORS + 1.5])
def test_colors_that_may_be_of_1_or_of_255_are_refused(tmp_path, values):
    source = scene_in(tmp_path / "room.txt", values)
    with pytest.raises(UserError, match="clip them to 1, or round them if they are of 255, or .*--missing_colors=gray"):
        TextReader().read(source)
    reader = TextReader(SceneChoices(gray=True))  # as for a network without colors
    assert np.unique(reader.read(source).rgb).tolist() == [128] and "range is unknown: gray" in reader.remarks[0]
    for repaired in (values.clip(0, 1), values.round()):
        TextReader().read(scene_in(tmp_path / "room.txt", repaired))


def with_value(name, position, value):
    columns = {**make_points(5), "label": np.zeros(5, np.int32)}
    columns[name] = columns[name].copy()
    columns[name][position] = value
    return columns


def without(*names):
    columns = {**make_points(5), "label": np.zeros(5, np.int32)}
    return {name: column for name, column in columns.items() if name not in names}


@pytest.mark.parametrize(
    "columns, message",
    (
        (without("red"), r"has no colors \(properties red, green and blue\); .* --missing_colors=gray"),
        (without("z"), "has no property z"),
        (without("label"), "has no property label or class .*; name it with --label"),
        (with_value("x", slice(None), np.nan), "has no points with finite coordinates"),
        (with_value("label", 4, 3), "point 4 has label 3, which is out of range; with 3 classes labels go from 0 to 2"),
        ({name: column[:0] for name, column in without().items()}, "has no points"),
        (
            {**without(), "red": np.full(5, 65535, np.int32)},
            "colors from .* to 65535; .* or 16 bits as ushort: divide values of 16 bits by 257",
        ),
        ({**without(), "red": np.full(5, 1e6, np.float32)}, r"to 1e\+06; expected .* as float"),
        ({**without(), "red": np.array([9, 9, -1, 9, 9], np.int32)}, "has colors from -1 to .*: export it again"),
        ({**without(), "red": np.full(5, 300, np.int32)}, "has colors from 0|has colors from"),
        (
            {**without(), "label": np.array([0, 1, np.inf, 0.5, 2], np.float32)},
            "has label inf, which is not a whole number",
        ),
        (
            {**without(), "label": np.array([0, -3, 2, -1e30, 7], np.float32)},
            r"has label -1e\+30, which is not a whole",
        ),
        ({**without(), "label": np.full(5, 1e30, np.float32)}, r"has label 1e\+30, which is not a whole number"),
    ),
)
def test_what_is_wrong_with_a_ply_scene_is_told_in_one_line(tmp_path, columns, message):
    path = tmp_path / "room.ply"
    write_points(path, columns)
    with pytest.raises(UserError, match=message) as error:
        PlyReader(SceneChoices(("a", "b", "c"))).read(ply_source(path))
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_points_that_are_not_finite_are_left_out_with_their_labels_and_counted(tmp_path):
    columns = {**with_value("z", 3, np.inf), "label": np.array([0, 1, 2, 7, 1], np.int32)}
    columns["x"][1] = np.nan
    write_points(tmp_path / "room.ply", columns)
    reader = PlyReader(SceneChoices(("a", "b", "c")))
    scene = reader.read(ply_source(tmp_path / "room.ply"))
    assert scene.semantic.tolist() == [0, 2, 1] and scene.skipped_rows == (1, 3)
    assert np.isfinite(scene.xyz).all() and len(scene.rgb) == 3
    assert reader.remarks[0] == f"{tmp_path / 'room.ply'}: 2 points without finite coordinates are skipped"


def test_scenes_without_labels_can_be_prepared_and_test_scenes_need_none(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write_points(tmp_path / split / f"{split}_room.ply", make_points(3))
    splits = PlyReader(SceneChoices(label="none")).sources(str(tmp_path), no_lists())
    assert not splits["train"][0].labeled and set(PlyReader().read(splits["train"][0]).semantic) == {-100}
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert splits["train"][0].labeled and not splits["test"][0].labeled


def test_hidden_files_and_folders_are_no_scenes(tmp_path):
    for name in ("val/e.ply", "val/d.ply", "train/b.ply", "train/a.ply", "c.ply", "._a.ply", ".trash/f.ply"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_points(tmp_path / name, make_points(1))
    assert list(PlyReader().find(str(tmp_path))) == ["c", "a", "b", "d", "e"]
    assert detect_format(str(tmp_path)) == "ply"
    for hidden in (".notes.xyz", ".trash/rows.csv"):
        (tmp_path / hidden).write_text("1 2 3\n")
    assert detect_format(str(tmp_path)) == "ply"
    for name in ("val/cloud.pcd", "train/cloud.pcd"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"{tmp_path}/c.ply .ply., {tmp_path}/train/cloud.pcd .pcd.: select one with"):
        detect_format(str(tmp_path))


def test_scenes_of_a_split_are_in_the_order_of_their_names_wherever_they_are(tmp_path):
    for name in ("train/b/first.ply", "train/a/second.ply", "val/y/third.ply", "val/x/fourth.ply"):
        (tmp_path / name).parent.mkdir(parents=True)
        write_points(tmp_path / name, make_points(1))
    paths = PlyReader().find(str(tmp_path))
    assert list(paths) == ["second", "first", "fourth", "third"]
    splits = split_scenes(str(tmp_path), paths, no_lists())
    assert splits == {"train": ["first", "second"], "val": ["fourth", "third"]}


def test_scenes_that_are_tested_and_validated_keep_their_labels(tmp_path):
    for name in "abc":
        write_points(tmp_path / f"{name}.ply", {**make_points(3), "label": np.zeros(3, np.uint8)})
    for split, names in (("train", "a\n"), ("val", "b\n"), ("test", "b\nc\n")):
        (tmp_path / f"{split}.txt").write_text(names)
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert [source.labeled for split in splits.values() for source in split] == [True, True, True, None]


@pytest.mark.usefixtures("pools_in_this_process")
def test_labels_of_a_test_folder_are_read_where_files_have_them(tmp_path):
    """DALES has labels in test/; another file has none, and a third one number at all points, which says nothing."""
    labels = np.arange(6, dtype=np.uint8) % 3
    for name, fields in {
        "train/a": {"label": labels},
        "test/b": {"label": labels},
        "test/c": {},
        "test/d": {"label": np.full(6, 2, np.uint8)},
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_points(tmp_path / f"{name}.ply", {**make_points(6), **fields})
    reader = PlyReader()
    splits = reader.sources(str(tmp_path), no_lists())
    assert "--val_list" in reader.remarks[0]
    summary = prepare_store(reader, splits, str(tmp_path), tmp_path / "store", 1)
    assert any("d.ply: label is 2 at each point: taken as not labeled" in line for line in summary.remarks)
    test = PreparedScenes(str(tmp_path / "store"), "test", tmp_path)
    assert test.labeled and "2 of 3 scenes of test have no labels" in test.notices[0]
    assert test.read(0).semantic.tolist() == labels.tolist()


def test_a_listed_name_may_have_any_sign_and_is_not_cut_to_another(tmp_path):
    names = [name for name in ODD_NAMES if name != "room"]
    for name in [*names, "room"]:
        write_points(tmp_path / f"{name}.ply", make_points(1))
    (tmp_path / "train.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    (tmp_path / "val.txt").write_text("scans/room.ply\n")
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert [source.name for source in splits["train"]] == names and [each.name for each in splits["val"]] == ["room"]
    for line in ("room 1", "room.5"):
        (tmp_path / "val.txt").write_text(f"{line}\n")
        with pytest.raises(UserError, match=f"val.txt names scene {line}, which is not in "):
            PlyReader().sources(str(tmp_path), no_lists())
    write_points(tmp_path / "line\nbreak.ply", make_points(1))
    with pytest.raises(UserError, match="line.nbreak.ply': a scene's name is a line of a list, so it has no line brea"):
        PlyReader().sources(str(tmp_path), no_lists())


def test_lists_may_have_suffixes_in_capitals_and_are_no_scenes(tmp_path):
    for name in "abc":
        (tmp_path / f"{name}.xyz").write_text("1 2 3\n")
    (tmp_path / "train.TXT").write_text("b\na\n")
    (tmp_path / "val.txt").write_text("c\n")
    splits = TextReader().sources(str(tmp_path), no_lists())
    assert {split: [each.name for each in scenes] for split, scenes in splits.items()} == {
        "train": ["b", "a"],
        "val": ["c"],
    }


def test_without_lists_and_folders_every_fifth_scene_is_held_out(tmp_path):
    for number in range(11):
        write_points(tmp_path / f"room{number:02d}.ply", make_points(1))
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert [source.name for source in splits["val"]] == ["room04", "room09"] and len(splits["train"]) == 9
    for number in range(1, 11):
        (tmp_path / f"room{number:02d}.ply").unlink()
    with pytest.raises(UserError, match="is the only one"):
        PlyReader().sources(str(tmp_path), no_lists())
