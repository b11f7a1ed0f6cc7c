"""Raw scenes of ScanNet: what is read from them, against a simple second reader, and what is rejected."""

import json

import numpy as np
import pytest
from support.files.raw_scenes import make_points, no_lists, write_scannet

from paddlevit_dist import UserError
from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, from_nyu40
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.scannet import ScanNetReader

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


def test_the_benchmarks_classes_are_those_of_nyu40():
    found = from_nyu40(np.arange(41))
    assert [number for number in range(41) if found[number] >= 0] == BENCHMARK
    assert found[BENCHMARK].tolist() == list(range(20)) == [CLASS_NAMES.index(name) for name in CLASS_NAMES]
    assert CLASS_NAMES[2] == "cabinet" and CLASS_NAMES[15] == "shower curtain" and found[0] == found[40] == -100


def test_scannet_scenes_have_their_classes_and_objects_without_walls_and_floors(raw):
    reader = ScanNetReader()
    splits = reader.sources(str(raw), no_lists())
    assert reader.remarks == []
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
    (raw / "scannetv2-labels.combined.tsv").write_text(f"id\traw_category\tcategory\n{rows}5\ttable\tagain\n")
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


@pytest.mark.parametrize("walls, expected", [(200, 0), (201, -100)])
def test_an_object_is_no_wall_unless_most_of_its_points_are(raw, walls, expected):
    folder = raw / "scans" / "scene0000_00"
    is_wall = np.arange(400) < walls
    (folder / "scene0000_00.aggregation.json").write_text('{"segGroups": [{"segments": [3, 12]}]}')
    segments = {"segIndices": np.where(is_wall, 3, 12).tolist()}
    (folder / "scene0000_00_vh_clean_2.0.010000.segs.json").write_text(json.dumps(segments))
    write_points(folder / "scene0000_00_vh_clean_2.labels.ply", {"label": np.where(is_wall, 1, 5).astype(np.uint16)})
    scene = ScanNetReader().read(ScanNetReader().sources(str(raw), no_lists())["train"][1])
    assert scene.semantic.tolist() == np.where(is_wall, 0, 4).tolist() and set(scene.instance) == {expected}


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
    reader = ScanNetReader()
    splits = reader.sources(str(other), no_lists())
    assert reader.remarks == []
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
        (rewrite(".aggregation.json", '{"segGroups": [{"segments": [3, 96]}]}'), "object 0 has segments missing in"),
        (rewrite(".aggregation.json", '{"segGroups": [{"segments": []}]}'), "object 0 has segments missing in"),
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
