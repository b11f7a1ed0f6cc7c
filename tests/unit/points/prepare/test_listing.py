"""Raw scenes of all kinds: what is read from them, against a simple second reader, and what is rejected."""

import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from support.files.raw_scenes import legacy, make_points, pointgroup_arrays, write_scannet, zipped

from paddlevit_dist import UserError
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, from_nyu40
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices
from paddlevit_dist.points.prepare.pointgroup import PthReader, load_arrays
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.tables import NumpyReader, PlyReader, TextReader

BENCHMARK = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 24, 28, 33, 34, 36, 39]  # of NYU's forty, in class order


def expected_scannet(folder, name):
    """Classes and instances point by point, walls and floors left out by the names of their objects."""
    from paddlevit_dist.points.data.ply import read_vertices

    numbers = read_vertices(folder / f"{name}_vh_clean_2.labels.ply")["label"].tolist()
    semantic = [BENCHMARK.index(number) if number in BENCHMARK else -100 for number in numbers]
    segments = json.loads((folder / f"{name}_vh_clean_2.0.010000.segs.json").read_text())["segIndices"]
    groups = json.loads((folder / f"{name}.aggregation.json").read_text())["segGroups"]
    things = [group["segments"] for group in groups if group["label"] not in ("wall", "floor")]
    instance = [next((i for i, own in enumerate(things) if segment in own), -100) for segment in segments]
    return semantic, instance


def mean_row_by_row(xyz):
    """The mean as PointGroup's prepare_data_inst.py has it: a sum of rows in the precision of the file."""
    total = np.zeros(3, xyz.dtype)
    for row in xyz:
        total += row
    return total / xyz.dtype.type(len(xyz))


@pytest.fixture
def raw(tmp_path):
    root = tmp_path / "raw"
    for number in range(3):
        name = f"scene000{number}_00"
        write_scannet(root / "scans" / name, name, seed=number)
    write_scannet(root / "scans_test" / "scene0707_00", "scene0707_00", labeled=False)
    (root / "scannetv2_train.txt").write_text("scene0002_00\nscene0000_00\n")
    (root / "scannetv2_val.txt").write_text("scene0001_00\n")
    (root / "scannetv2_test.txt").write_text("scene0707_00\n")
    return root


def no_lists():
    return {"train": None, "val": None, "test": None}


def test_the_benchmarks_classes_are_those_of_nyu40():
    found = from_nyu40(np.arange(41))
    assert [number for number in range(41) if found[number] >= 0] == BENCHMARK
    assert found[BENCHMARK].tolist() == list(range(20)) == [CLASS_NAMES.index(name) for name in CLASS_NAMES]
    assert CLASS_NAMES[2] == "cabinet" and CLASS_NAMES[15] == "shower curtain" and found[0] == found[40] == -100


def test_scannet_scenes_have_their_classes_and_objects_without_walls_and_floors(raw):
    splits = ScanNetReader().sources(str(raw), no_lists())
    assert {split: [source.name for source in sources] for split, sources in splits.items()} == {
        "train": ["scene0002_00", "scene0000_00"],
        "val": ["scene0001_00"],
        "test": ["scene0707_00"],
    }
    for source in [*splits["train"], *splits["val"]]:
        scene = ScanNetReader().read(source)
        semantic, instance = expected_scannet(raw / "scans" / source.name, source.name)
        assert scene.semantic.tolist() == semantic and scene.instance.tolist() == instance
        columns = make_points(400, int(source.name[8]))
        xyz = np.stack([columns[name] for name in "xyz"], axis=1)
        np.testing.assert_array_equal(scene.xyz, xyz - mean_row_by_row(xyz), strict=True)
        assert scene.offset == tuple(mean_row_by_row(xyz).tolist())
        np.testing.assert_array_equal(
            scene.rgb, np.stack([columns[name] for name in ("red", "green", "blue")], axis=1), strict=True
        )
    test = ScanNetReader().read(splits["test"][0])
    assert set(test.semantic) == set(test.instance) == {-100} and not splits["test"][0].labeled


def test_scannet200_has_the_classes_of_objects(raw, tmp_path):
    names = {
        "wall": (1, 0),
        "office chair": (10, 9),
        "floor": (3, 2),
        "table": (4, 3),
        "lamp": (28, 24),
        "paper": (12, None),
    }
    rows = "".join(f"{number}\t{name}\tx\n" for name, (number, _) in names.items())
    with pytest.raises(
        UserError, match=r"scannetv2-labels.combined.tsv cannot be read: .*ScanNet's script \(--label_map\)"
    ):
        ScanNetReader(SceneChoices(two_hundred=True)).sources(str(raw), no_lists())
    for text, missing in (
        (f"id\tcategory\n{rows}", "'raw_category'"),
        ("id\traw_category\none\twall\n", "invalid literal .*"),
    ):
        (raw / "scannetv2-labels.combined.tsv").write_text(text)
        message = (
            rf"labels.combined.tsv is damaged: no table with raw_category and id \({missing}\); download it again$"
        )
        with pytest.raises(UserError, match=message):
            ScanNetReader(SceneChoices(two_hundred=True)).sources(str(raw), no_lists())
    (raw / "scannetv2-labels.combined.tsv").write_text(f"id\traw_category\tcategory\n{rows}")
    reader = ScanNetReader(SceneChoices(two_hundred=True))
    source = reader.sources(str(raw), no_lists())["train"][0]
    scene, folder = reader.read(source), raw / "scans" / source.name
    segments = json.loads((folder / f"{source.name}_vh_clean_2.0.010000.segs.json").read_text())["segIndices"]
    groups = json.loads((folder / f"{source.name}.aggregation.json").read_text())["segGroups"]
    of_segment = {segment: group["label"] for group in groups for segment in group["segments"]}
    for segment, label, instance in zip(segments, scene.semantic.tolist(), scene.instance.tolist()):
        name = of_segment.get(segment)
        expected = names[name][1] if name else None
        assert label == (-100 if expected is None else expected)
        assert (instance >= 0) == (name not in (None, "wall", "floor"))
    assert (
        len(reader.class_names) == 200 and reader.class_names[9] == "office chair" and reader.class_names[24] == "lamp"
    )
    assert ScanNetReader().settings != reader.settings


def test_labels_that_are_not_nyu40s_are_no_class_and_told(raw):
    path = raw / "scans" / "scene0000_00" / "scene0000_00_vh_clean_2.labels.ply"
    write_points(path, {"label": np.array([1, 50, 0, 39, 149, 13, 40, 2] * 50, np.uint16)})
    reader = ScanNetReader()
    scene = reader.read(reader.sources(str(raw), no_lists())["train"][1])
    assert scene.semantic.tolist() == [0, -100, -100, 19, -100, -100, -100, 1] * 50
    assert reader.remarks == [f"{path}: 100 points have labels above 40 (50, 149): no class"]


def test_objects_that_are_listed_twice_count_once(raw):
    folder, name = raw / "scans" / "scene0000_00", "scene0000_00"
    path = folder / f"{name}.aggregation.json"
    semantic, instance = expected_scannet(folder, name)
    groups = json.loads(path.read_text())["segGroups"]
    path.write_text(json.dumps({"segGroups": groups + groups[1:2]}))
    scene = ScanNetReader().read(ScanNetReader().sources(str(raw), no_lists())["train"][1])
    assert scene.name == name and scene.instance.tolist() == instance and scene.semantic.tolist() == semantic


def test_a_scene_without_objects_has_no_instances(raw):
    (raw / "scans" / "scene0000_00" / "scene0000_00.aggregation.json").write_text('{"segGroups": []}')
    scene = ScanNetReader().read(ScanNetReader().sources(str(raw), no_lists())["train"][1])
    assert set(scene.instance) == {-100} and (scene.semantic >= 0).any()


def test_lists_of_the_user_and_folders_named_like_splits(raw, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("somewhere/scene0001_00.ply\n")
    splits = ScanNetReader().sources(str(raw), {**no_lists(), "train": str(mine)})
    assert [source.name for source in splits["train"]] == ["scene0001_00"] and list(splits) == ["train"]
    other = tmp_path / "other"
    write_scannet(other / "train", "scene0003_00")
    write_scannet(other / "val", "scene0004_00")
    write_scannet(other / "test", "scene0708_00", labeled=False)
    splits = ScanNetReader().sources(str(other), no_lists())
    assert {split: sources[0].name for split, sources in splits.items()} == {
        "train": "scene0003_00",
        "val": "scene0004_00",
        "test": "scene0708_00",
    }


def remove(suffix):
    return lambda folder, root: (folder / f"scene0000_00{suffix}").unlink()


def rewrite(suffix, text):
    return lambda folder, root: (folder / f"scene0000_00{suffix}").write_text(text)


def labels(values):
    def change(folder, root):
        write_points(folder / "scene0000_00_vh_clean_2.labels.ply", {"label": np.asarray(values)})

    return change


@pytest.mark.parametrize(
    "change, message",
    (
        (remove("_vh_clean_2.labels.ply"), r"labels\.ply is missing, scene scene0000_00 needs it; download"),
        (remove(".aggregation.json"), r"aggregation\.json is missing"),
        (remove("_vh_clean_2.0.010000.segs.json"), r"segs\.json is missing"),
        (remove("_vh_clean_2.ply"), r"train\.txt names scene scene0000_00, which is not in"),
        (rewrite(".aggregation.json", "{"), r"aggregation\.json is damaged: not JSON with 'segGroups'"),
        (rewrite(".aggregation.json", "[]"), r"aggregation\.json is damaged: not JSON with 'segGroups'"),
        (rewrite(".aggregation.json", '{"segGroups": 3}'), "'segGroups' is not a list"),
        (rewrite(".aggregation.json", '{"segGroups": [{"segments": [4]}]}'), "object 0 has segments missing in"),
        (
            rewrite("_vh_clean_2.0.010000.segs.json", '{"segIndices": [1, 2]}'),
            "segments of 2 points, the scene has 400",
        ),
        (rewrite("_vh_clean_2.0.010000.segs.json", '{"segIndices": []}'), "segments of 0 points"),
        (
            rewrite("_vh_clean_2.0.010000.segs.json", '{"segIndices": [[1], 2]}'),
            "segIndices is not a list of whole numbers",
        ),
        (rewrite(".aggregation.json", '{"segGroups": [{"segments": ["a"]}]}'), "segments of object 0 is not a list"),
        (rewrite(".aggregation.json", '{"segGroups": [7]}'), "segments of object 0 is not a list of whole numbers"),
        (
            lambda folder, root: write_points(folder / "scene0000_00_vh_clean_2.labels.ply", {"kind": np.zeros(400)}),
            r"labels\.ply has no property 'label'; it is not the labels file of ScanNet v2: download it again$",
        ),
        (
            lambda folder, root: [
                remove(".aggregation.json")(folder, root),
                (folder / "scene0000_00.aggregation.json").mkdir(),
            ],
            r"aggregation\.json cannot be read: Is a directory$",
        ),
        (labels(np.zeros(399, np.int32)), "has 399 points, the scene has 400"),
        (labels(np.full(400, 0.5, np.float32)), "has label 0.5, which is not a whole number"),
        (rewrite("_vh_clean_2.ply", "ply\n"), "is not a complete PLY file: its header has no end"),
        (lambda folder, root: (root / "scannetv2_train.txt").write_text("scene9999_00\n"), "names scene scene9999_00"),
        (
            lambda folder, root: (root / "scannetv2_train.txt").write_text("\n"),
            r"scannetv2_train\.txt is empty; write one scene name per line$",
        ),
        (lambda folder, root: [path.unlink() for path in root.glob("*.txt")], "has no lists of splits"),
        (lambda folder, root: write_scannet(root / "copy", "scene0000_00"), "scene0000_00 exists twice"),
    ),
)
def test_what_is_wrong_with_raw_scannet_is_told_in_one_line(raw, change, message):
    change(raw / "scans" / "scene0000_00", raw)
    with pytest.raises(UserError, match=message) as error:
        for sources in ScanNetReader().sources(str(raw), no_lists()).values():
            for source in sources:
                ScanNetReader().read(source)
    assert "\n" not in str(error.value)


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
    with pytest.raises(UserError) as error:
        PlyReader().read(ply_source(path))
    assert str(error.value) == f"{path} has 32,768 instances; at most 32,767 are possible in a scene: split it"
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


FLOATS = np.array([[0, 0.25, 1], [0.5, 1, 0.75], [0.1, 0, 0.2]])
COLORS = [  # as in a file, as bytes, and what is remarked
    (FLOATS * np.float32(1.0000001), FLOATS * 255, ""),
    (FLOATS - 1e-7, FLOATS * 255, ""),
    (FLOATS.round(), FLOATS.round() * 255, "colors reach 1, in fields of float64: taken as parts of 1"),
    (FLOATS * 0, FLOATS * 0, ""),
    (FLOATS.round() * 7, FLOATS.round() * 7, ""),  # dark, but whole numbers
    (FLOATS * 200 + 0.3, FLOATS * 200, ""),
    ((FLOATS * 65535).astype(np.uint16), FLOATS * 255, ""),
    (
        (FLOATS * 255).round().astype(np.uint16),
        FLOATS * 255,
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
    if name.endswith("txt") and values.dtype == np.uint16:
        pytest.skip("text has no types")
    reader = {"ply": PlyReader, "npz": NumpyReader, "txt": TextReader}[name[-3:]]()
    assert abs(reader.read(scene_in(tmp_path / name, values)).rgb.astype(float) - expected).max() <= 0.5
    assert [remark in line for line in reader.remarks] == [True] * bool(remark)


@pytest.mark.parametrize("values", [FLOATS * 3, np.r_[FLOATS, [[90.5, 90, 90]]], FLOATS + 1.5])
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
        ({**without(), "red": np.full(5, 300, np.int32)}, "has colors from 0|has colors from"),
        ({**without(), "label": np.full(5, np.inf, np.float32)}, "has label inf, which is not a whole number"),
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
    for name in ("a.ply", "b.ply", "._a.ply", ".trash/c.ply"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_points(tmp_path / name, make_points(1))
    assert list(PlyReader().find(str(tmp_path))) == ["a", "b"]


def test_scenes_that_are_tested_and_validated_keep_their_labels(tmp_path):
    for name in "abc":
        write_points(tmp_path / f"{name}.ply", {**make_points(3), "label": np.zeros(3, np.uint8)})
    for split, names in (("train", "a\n"), ("val", "b\n"), ("test", "b\nc\n")):
        (tmp_path / f"{split}.txt").write_text(names)
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert [source.labeled for split in splits.values() for source in split] == [True, True, True, False]


def test_without_lists_and_folders_every_fifth_scene_is_held_out(tmp_path):
    for number in range(11):
        write_points(tmp_path / f"room{number:02d}.ply", make_points(1))
    splits = PlyReader().sources(str(tmp_path), no_lists())
    assert [source.name for source in splits["val"]] == ["room04", "room09"] and len(splits["train"]) == 9
    for number in range(1, 11):
        (tmp_path / f"room{number:02d}.ply").unlink()
    with pytest.raises(UserError, match="is the only one"):
        PlyReader().sources(str(tmp_path), no_lists())


@pytest.mark.parametrize("write", (legacy, zipped))
def test_pointgroups_files_are_read_without_torch(tmp_path, write):
    arrays, rgb = pointgroup_arrays()
    path = tmp_path / "scene0000_00_inst_nostuff.pth"
    write(path, arrays)
    sources = PthReader().sources(str(_two(tmp_path)), no_lists())
    scene = PthReader().read(sources["train"][0])
    assert scene.name == "scene0000_00"
    assert np.array_equal(scene.xyz, arrays[0]) and np.array_equal(scene.rgb, rgb)
    assert np.array_equal(scene.semantic, arrays[2]) and np.array_equal(scene.instance, arrays[3])
    write(path, arrays[:2])
    test = PthReader().read(RawScene("scene0000_00", (str(path),), False))
    assert np.array_equal(test.xyz, arrays[0]) and set(test.semantic) == {-100}


TORCH_COLORS = [  # floats in a file, as bytes, and what is remarked; None: refused
    (FLOATS * 2 - 1, FLOATS * 255, ""),
    ((FLOATS * 2 - 1) * 1.0001, FLOATS * 255, ""),
    (FLOATS * 0, FLOATS * 0 + 127.5, ""),
    (FLOATS * 0.01 - 1, FLOATS * 1.275, ""),  # dark
    (FLOATS, FLOATS * 127.5 + 127.5, "from 0 to 1, taken as parts of -1 to 1"),
    (FLOATS * 255, None, "has colors from 0 to 255; expected -1 to 1 as float, or 0 to 255"),
]


@pytest.mark.parametrize("values, expected, remark", TORCH_COLORS)
def test_colors_of_a_torch_file_are_of_minus_1_to_1_or_told(tmp_path, values, expected, remark):
    legacy(tmp_path / "a.pth", (np.eye(3), values))
    reader, source = PthReader(), RawScene("a", (str(tmp_path / "a.pth"),), False)
    if expected is None:
        with pytest.raises(UserError, match=remark):
            reader.read(source)
        return
    assert abs(reader.read(source).rgb - expected).max() <= 0.5
    assert [remark in line for line in reader.remarks] == [True] * bool(remark)


def _two(folder):
    legacy(folder / "scene0001_00_inst_nostuff.pth", pointgroup_arrays()[0])
    return folder


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    "value, message",
    (
        ((np.zeros((3, 3)),) * 3, "contains 3 arrays, expected 4"),
        ((np.zeros((3, 3)),) * 2, "contains 2 arrays, expected 4"),
        ((np.zeros((3, 3)), np.zeros((3, 3)), np.zeros(2), np.zeros(3)), r"its class is float64 \(2,\), expected"),
        ({"a": 1}, "is not a tuple of numpy arrays"),
        ((1, 2), "is not a tuple of numpy arrays"),
        ((Evil(),), "is rejected: .* no code was executed"),
        ((np.zeros((3, 3)), np.zeros((3, 3)), np.full(3, 20.0), np.zeros(3)), "point 0 has label 20, which is out"),
        (
            (np.full((3, 3), np.nan), np.zeros((3, 3)), np.zeros(3), np.zeros(3)),
            "has no points with finite coordinates",
        ),
        ((np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros(0)), "has no points"),
    ),
)
@pytest.mark.parametrize("write", (legacy, zipped))
def test_what_is_wrong_with_a_torch_file_is_told_in_one_line(tmp_path, monkeypatch, write, value, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pth"
    write(path, value)
    with pytest.raises(UserError, match=message) as error:
        PthReader().read(RawScene("a", (str(path),), True))
    assert "\n" not in str(error.value) and str(path) in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_files_that_torch_did_not_write_are_told(tmp_path):
    path = tmp_path / "a.pth"
    with pytest.raises(UserError, match="cannot be read"):
        load_arrays(str(path))
    for content in (b"", b"nothing", pickle.dumps((1, 2), protocol=2) * 3):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is damaged|is not a torch.save file"):
            load_arrays(str(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps((np.zeros(10**6),), protocol=2))
    with pytest.raises(UserError, match="is rejected: its entries are compressed"):
        load_arrays(str(path))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(pointgroup_arrays()[0], protocol=2))
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(UserError, match="is damaged|is not a torch.save file"):
        load_arrays(str(path))
