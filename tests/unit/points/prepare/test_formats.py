"""Scenes of other programs and data sets: every format prepared, read back point by point, trained on and evaluated."""

from pathlib import Path

import numpy as np
import pytest
from support.files.nuscenes import nuscenes
from support.files.other_scenes import las, pcd, pointcept, s3dis, semantic_kitti
from support.files.prepared_scenes import prepared
from support.files.raw_scenes import write_labeled_ply
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import UserError
from paddlevit_dist.core.registry.register import register_scene_format
from paddlevit_dist.points.inputs import find_scenes
from paddlevit_dist.points.prepare import semantic_kitti as kitti_reader
from paddlevit_dist.points.prepare.formats import detect_format, get_format, get_reader, identify_file, list_readers
from paddlevit_dist.points.prepare.las import read_las, write_classified
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices, SceneReader
from paddlevit_dist.points.prepare.pointcept import PointceptReader
from paddlevit_dist.points.prepare.s3dis import S3disReader, split_by_area
from paddlevit_dist.points.prepare.tables import TableReader, read_table


def test_predictions_for_semantic_kitti_have_its_own_numbers(tmp_path):
    semantic_kitti(tmp_path)
    source = tmp_path / "sequences" / "08" / "velodyne" / "000001.bin"
    name = kitti_reader.get_prediction_path(str(source))
    assert name == "sequences/08/predictions/000001.label"
    kitti_reader.write_labels(tmp_path / "out" / name, np.arange(19))
    inverse = [10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]  # its learning_map_inv
    assert np.fromfile(tmp_path / "out" / name, "<u4").tolist() == inverse
    kitti_reader.write_labels(tmp_path / "b.label", np.arange(19), np.arange(19) - 3)
    of_none = (0, 1, 2)
    expected = [number + ((place - 2 << 16) if place not in of_none else 0) for place, number in enumerate(inverse)]
    assert np.fromfile(tmp_path / "b.label", "<u4").tolist() == expected


def test_labels_of_semantic_kitti_are_classes_and_objects(tmp_path):
    numbers = [10, 252, 99, 0, 40, 81]  # a car, a moving one, another object, nothing, road, a sign
    objects = [3, 65_535, 4, 5, 0, 40_000]
    path = tmp_path / "a.label"
    (np.array(numbers, "<u4") | np.array(objects, "<u4") << 16).tofile(path)
    semantic, instances = get_format("semantic_kitti")().read_labels(str(path))
    assert semantic.tolist() == [0, 0, -100, -100, 8, 18]
    assert instances.tolist() == [10 + (3 << 16), 252 + (65_535 << 16), -100, -100, -100, 81 + (40_000 << 16)]


def surveyed(path, point_format, version):
    """A scan with what a survey adds: a reference system, records of its own, scaled fields, several values in one."""
    import laspy

    las(path, point_format=point_format, version=version)
    scan, noise = laspy.read(str(path)), np.random.default_rng(1)
    scan.header.scales, scan.header.system_identifier = np.array([0.01, 0.001, 0.0001]), "scanner"
    scan.vlrs.append(laspy.vlrs.VLR("LASF_Projection", 2112, "reference", b'PROJCS["UTM"]\0'))
    scan.add_extra_dim(laspy.ExtraBytesParams("height", np.int16, scales=np.array([0.1]), offsets=np.array([3.0])))
    scan.add_extra_dim(laspy.ExtraBytesParams("eigen", "3f4"))
    for name in scan.points.array.dtype.names:  # every bit of every field
        values = scan.points.array[name]
        scan.points.array[name] = (
            noise.normal(size=values.shape) if values.dtype.kind == "f" else noise.integers(0, 127, values.shape)
        )
    if version == "1.4":
        scan.evlrs = laspy.vlrs.vlrlist.VLRList([laspy.vlrs.VLR("surveyor", 9, "long", b"x" * 100)])
    scan.write(str(path))
    return laspy.read(str(path))


def records(found):
    return [(record.user_id, record.record_id, record.record_data_bytes()) for record in found or ()]


@pytest.mark.parametrize("suffix, point_format, version", ((".las", 3, "1.2"), (".laz", 7, "1.4"), (".las", 8, "1.4")))
@pytest.mark.parametrize("largest", (31, 255, 300))
def test_a_copy_of_a_laser_scan_has_the_classes_and_all_else_bit_by_bit(
    tmp_path, suffix, point_format, version, largest
):
    import laspy

    before = surveyed(tmp_path / f"a{suffix}", point_format, version)
    classes, instances = np.arange(90) * largest // 89, np.arange(90) % 4 * 40_000 - 100
    write_classified(str(tmp_path / f"a{suffix}"), tmp_path / f"b{suffix}", classes, instances)
    after = laspy.read(str(tmp_path / f"b{suffix}"))
    fits = largest <= (31 if point_format < 6 else 255)
    changed = "classification" if fits else "prediction"
    assert np.array_equal(np.array(after[changed]), classes)
    assert fits or after[changed].dtype == np.uint16
    assert np.array_equal(np.array(after["predicted_instance"]), np.where(instances < 0, -1, instances))
    for name in before.point_format.dimension_names:
        assert name == changed or np.array_equal(np.array(before[name]), np.array(after[name])), name
    for name in before.points.array.dtype.names:
        raw = before.points.array[name], after.points.array[name]
        assert name.endswith("classification") or raw[0].tobytes() == raw[1].tobytes(), name
    for name in ("offsets", "scales", "mins", "maxs", "system_identifier", "creation_date", "global_encoding"):
        first, second = (vars(scan.header).get(name, getattr(scan.header, name)) for scan in (before, after))
        assert np.array_equal(getattr(first, "value", first), getattr(second, "value", second)), name
    assert records(before.vlrs)[:1] == records(after.vlrs)[:1] != [] and records(before.evlrs) == records(after.evlrs)
    assert after.header.are_points_compressed == (suffix == ".laz")
    assert {path.name for path in tmp_path.iterdir()} == {f"a{suffix}", f"b{suffix}"}


@pytest.mark.parametrize("dtype, remark", ((np.uint8, "of uint8, but predictions reach to 300"), (np.float32, None)))
def test_a_field_for_predictions_that_is_too_small_is_told(tmp_path, dtype, remark):
    import laspy

    las(tmp_path / "a.las")
    scan = laspy.read(str(tmp_path / "a.las"))
    scan.add_extra_dim(laspy.ExtraBytesParams("prediction", dtype))  # float32: CloudCompare has saved the file
    scan.write(str(tmp_path / "b.las"))
    if remark is not None:
        with pytest.raises(UserError, match=f"b.las has a field prediction {remark}"):
            write_classified(str(tmp_path / "b.las"), tmp_path / "c.las", np.arange(90) % 2 * 300)
        assert not (tmp_path / "c.las").exists()
        return
    write_classified(str(tmp_path / "b.las"), tmp_path / "c.las", np.full(90, 300))
    assert set(np.array(laspy.read(str(tmp_path / "c.las"))["prediction"])) == {300.0}


def test_laser_scans_that_are_cut_off_or_lie_are_told(tmp_path):
    las(tmp_path / "a.las")
    whole = (tmp_path / "a.las").read_bytes()
    for content, message in (
        (whole[:-100], "a.las is not a complete LAS file: buffer size must be a multiple of element size; copy"),
        (whole[:-72], "a.las ends after 88 of 90 points; copy or export it again$"),  # two points of 36 bytes
        (
            whole[:131] + bytes(8) + whole[139:],
            r"a.las has scales \[0.0, 0.001, 0.001\] for x, y and z, expected positive",
        ),
        (whole[:247] + bytes(8) + whole[255:], "a.las has no points; remove it"),
        (whole[:243] + b"\xff\xff\xff\x7f" + whole[247:], "complete LAS file: 2,147,483,647 records"),  # extended ones
        (whole[:100] + b"\xff\xff\xff\x7f" + whole[104:], "complete LAS file: 2,147,483,647 records"),
    ):
        (tmp_path / "a.las").write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_las(str(tmp_path / "a.las"))
    las(tmp_path / "b.laz")
    for content in (b"LASF" + bytes(40), (tmp_path / "b.laz").read_bytes()[:-3]):
        (tmp_path / "b.laz").write_bytes(content)
        with pytest.raises(UserError, match="b.laz is not a complete LAS file"):
            read_las(str(tmp_path / "b.laz"))


ROWS = [[1.5, 2.0, 3.25, 10, 20, 30], [4.0, 5.5, 6.0, 40, 50, 60]]


@pytest.mark.parametrize(
    "name, text, columns",
    (
        ("a.xyz", "1.5 2 3.25\n4 5.5 6\n", "x y z"),
        ("a.txt", "1.5\t2\t3.25\t10\t20\t30\n4\t5.5\t6\t40\t50\t60\n", "x y z red green blue"),
        ("a.csv", '"X","Y","Z","Class"\r\n1.5,2,3.25,10\r\n4,5.5,6,40\r\n', "x y z class"),
        ("a.asc", "//X Y Z R G B\n2\n1.5 2 3.25 10 20 30\n4 5.5 6 40 50 60\n", "x y z r g b"),
        ("a.pts", "2\n1.5 2 3.25 10 20 30\n4 5.5 6 40 50 60\n\n", "x y z red green blue"),
        ("a.csv", "# made by me\nx;y;z;nx;ny;nz\n1.5;2;3.25;10;20;30\n4;5.5;6;40;50;60\n", "x y z nx ny nz"),
    ),
)
def test_text_of_many_programs(tmp_path, name, text, columns):
    (tmp_path / name).write_bytes(text.encode())
    found = read_table(str(tmp_path / name), "text")
    assert list(found) == columns.split()
    for number, values in enumerate(found.values()):
        assert values.tolist() == [row[number] for row in ROWS]


def test_text_without_names_needs_them(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3 0.5 7\n4 5 6 0.25 8\n")
    with pytest.raises(
        UserError, match="a.txt has 5 columns without names: name them in its first line, or with --columns"
    ):
        read_table(str(tmp_path / "a.txt"), "text")
    found = read_table(str(tmp_path / "a.txt"), "text", ("x", "y", "z", "intensity", "-"))
    assert list(found) == ["x", "y", "z", "intensity"] and found["intensity"].tolist() == [0.5, 0.25]
    with pytest.raises(UserError, match="has 5 columns, but --columns names 3"):
        read_table(str(tmp_path / "a.txt"), "text", ("x", "y", "z"))
    with pytest.raises(UserError, match="--columns=x,y,z,label,z has a name twice"):
        read_table(str(tmp_path / "a.txt"), "text", ("x", "y", "z", "label", "z"))


@pytest.mark.parametrize(
    "text, message",
    (
        ("", "has no points; remove it"),
        ("1 2 3\n4 5\n", "is not a table of numbers: the number of columns changed from 3 to 2 in line 2"),
        ("# a\nx y z\n1 2 3\n4 5 six\n", "is not a table of numbers: .*line 4"),
        ("1 2 banana\n", "line 1: '1 2 banana' is neither a row of numbers nor of names"),
        ("x y z\n1 2 3 4\n", "names 3 columns, but its rows have 4 numbers"),
        ("x,y,z,x\n1,2,3,4\n", r"has two columns of the same name \(x, y, z, x\); rename one"),
        ("x;y;z\n1,5;2,0;3,25\n", "line 2: .* is neither .*; decimals need a point, not a comma"),
    ),
)
def test_bad_text_is_told_by_its_line(tmp_path, text, message):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        read_table(str(tmp_path / "a.txt"), "text")


def test_arrays_of_numpy(tmp_path):
    table = np.array(ROWS)
    np.save(tmp_path / "a.npy", table)
    assert list(read_table(str(tmp_path / "a.npy"), "numpy")) == ["x", "y", "z", "red", "green", "blue"]
    for fields in ([("X", "f8"), ("Y", "f8"), ("Z", "f8")], [("XYZ", "f4", 3)]):
        np.save(tmp_path / "b.npy", np.zeros(2, [*fields, ("Label", "i4")]))
        assert list(read_table(str(tmp_path / "b.npy"), "numpy")) == ["x", "y", "z", "label"]
    np.savez(tmp_path / "c.npz", points=table[:, :3], normals=table[:, 3:], label=np.array([1, 2]))
    found = read_table(str(tmp_path / "c.npz"), "numpy")
    assert list(found) == ["x", "y", "z", "nx", "ny", "nz", "label"] and found["ny"].tolist() == [20, 50]
    np.savez(tmp_path / "d.npz", points=table[:, :3], label=np.array([1, 2, 3]))
    with pytest.raises(UserError, match=r"d.npz has arrays of different lengths \(points \(2, 3\), label \(3,\)\)"):
        read_table(str(tmp_path / "d.npz"), "numpy")
    np.save(tmp_path / "e.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(UserError, match="e.npy is not a file of numpy arrays of numbers"):
        read_table(str(tmp_path / "e.npy"), "numpy")


def test_formats_are_found_by_what_a_folder_holds(tmp_path):
    makers = {
        "s3dis": lambda root: s3dis(root),
        "semantic_kitti": lambda root: semantic_kitti(root),
        "nuscenes": lambda root: nuscenes(root),
        "pointcept": lambda root: (pointcept(root), write_labeled_ply(root / "train" / "mesh.ply")),
        "ply": lambda root: write_labeled_ply(root / "deep" / "a.ply"),
        "las": lambda root: las(root / "a.LAZ"),
        "pcd": lambda root: pcd(root / "a.pcd", "binary"),
        "numpy": lambda root: np.save(root / "a.npy", np.zeros((2, 3))),
        "text": lambda root: (root / "a.xyz").write_text("1 2 3\n"),
    }
    for kind, make in makers.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "README.txt").write_text("by me\n")
        (tmp_path / kind / "weights.bin").write_bytes(bytes(16))
        make(tmp_path / kind)
        assert detect_format(str(tmp_path / kind)) == kind
    assert set(list_readers()) == {*makers, "scannet", "pth"}
    pcd(tmp_path / "las" / "b.pcd", "ascii")
    with pytest.raises(UserError, match=r"scenes of several formats, .*a.LAZ \(las\), .*b.pcd \(pcd\): select one"):
        detect_format(str(tmp_path / "las"))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="contains no scenes of a known format"):
        detect_format(str(tmp_path / "nothing"))
    (tmp_path / "nothing/link").symlink_to(tmp_path / "text")  # on another disk, as they often are
    assert detect_format(str(tmp_path / "nothing")) == "text"


class TriplesReader(TableReader):
    """A user's format: x, y and z of each point as text, in files that are of the package's "text", too."""

    meaning, suffixes = "triples", (".xyz", ".bin")

    def read_columns(self, path):
        return dict(zip("xyz", np.loadtxt(path, ndmin=2).T))


def test_a_format_from_outside_is_found_first_detected_read_and_predicted(tmp_path):
    for name in ("a.xyz", "b.bin"):
        (tmp_path / name).write_text("1 2 3\n3 2 1\n")
    write_labeled_ply(tmp_path / "c.ply")
    with forgotten():
        register_scene_format("triples", TriplesReader)
        assert detect_format(str(tmp_path)) == next(iter(list_readers())) == "triples"
        reader = get_reader("triples", SceneChoices(gray=True, label="none"))
        sources = reader.sources(str(tmp_path), {})
        assert {name: [source.name for source in split] for name, split in sources.items()} == {
            "train": ["a"],
            "val": ["b"],
        }
        assert reader.kind == "triples" and reader.read(sources["val"][0]).xyz.tolist() == [[-1, 0, 1], [1, 0, -1]]
        with pytest.raises(UserError, match=r"^--columns is not for scenes of format triples \(triples\); drop"):
            get_reader("triples", SceneChoices(columns=("x",)))
        scenes = find_scenes([str(tmp_path)])[0]
        assert [(scene.kind, scene.name) for scene in scenes] == [("triples", "a"), ("triples", "b"), ("ply", "c")]
        register_scene_format("wrong", dict)
        with pytest.raises(UserError, match="^dict is not derived from SceneReader: derive it"):
            identify_file(str(tmp_path / "a.xyz"))
    assert identify_file(str(tmp_path / "a.xyz")) == ("text", "a")
    with pytest.raises(UserError, match="^scene format 'triples' is not known: valid names: las, "):
        get_reader("triples", SceneChoices())


class PairReader(SceneReader):
    """Folders with coordinates and classes, which need not be equally many."""

    def identify(self, path):
        return (Path(path).parent.name, path) if path.endswith("xyz.npy") else None

    def read(self, source):
        x, y, z = np.load(source.files[0]).T
        return self.build_scene(source, {"x": x, "y": y, "z": z}, np.zeros(3, np.int64), np.zeros(4, np.int64))


def test_scenes_of_a_folder_have_the_options_of_built_scenes_and_equally_long_columns(tmp_path):
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "xyz.npy", np.eye(4, 3))
    with forgotten():
        register_scene_format("pairs", PairReader)
        choices = SceneChoices(gray=True, class_names=("one",), channels=("all",), ignore_label=3)
        reader = get_reader("pairs", choices)
        source = RawScene("a", (str(tmp_path / "a" / "xyz.npy"),), True)
        with pytest.raises(UserError, match=r"xyz.npy has columns .*\(x 4, y 4, z 4, class 3, instance 4\)"):
            reader.read(source)


def test_options_that_a_format_does_not_know_are_told(tmp_path, capsys):
    s3dis(tmp_path / "raw")
    with pytest.raises(UserError, match="--label is not for scenes of format s3dis"):
        prepared(tmp_path, capsys, "--label=class")
    with pytest.raises(UserError, match="--columns is not for scenes of format s3dis"):
        prepared(tmp_path, capsys, "--columns=x,y,z")


def test_folders_of_arrays_are_named_read_and_refused(tmp_path):
    pointcept(tmp_path, splits=("train",))
    reader = PointceptReader()
    sources = reader.sources(str(tmp_path), {})["train"]
    folder = Path(sources[0].files[0]).parent
    assert [Path(file).stem for file in sources[0].files] == ["coord", "color", "instance", "normal", "segment20"]
    scene, classes, objects = (
        reader.read(sources[0]),
        *(np.load(folder / f"{n}.npy") for n in ("segment20", "instance")),
    )
    assert scene.semantic.tolist() == np.where(classes < 0, -100, classes).tolist()
    known = objects[(classes >= 0) & (objects >= 0)]
    assert ((scene.instance >= 0) == (classes >= 0) & (objects >= 0)).all() and (objects[classes < 0] >= 0).any()
    assert len({*zip(known.tolist(), scene.instance[scene.instance >= 0].tolist())}) == len(set(known.tolist())) == 5
    (folder / "strange.npy").write_bytes((folder / "segment20.npy").read_bytes())
    (folder / "notes.txt").write_text("mine")
    (folder / "segment200.npy").write_bytes((folder / "segment20.npy").read_bytes())
    everything = PointceptReader(SceneChoices(label="segment20", channels=("all",)))
    files = everything.files(str(folder / "coord.npy"), True)  # other labels are no channels
    assert [Path(file).stem for file in files] == ["coord", "color", "instance", "normal", "segment20", "strange"]
    assert set(everything.read(RawScene("a", files, True)).channels) == {"normal", "strange"}
    (folder / "segment200.npy").unlink()
    np.save(folder / "segment20.npy", np.zeros(3, np.int16))
    with pytest.raises(
        UserError, match=f"^{folder} has arrays of different lengths \\(.*x 70, .*segment20 3\\); write"
    ):
        reader.read(sources[0])
    (folder / "segment20.npy").unlink()
    with pytest.raises(UserError, match=f"^{folder} has no segment20.npy with the class of each point, only color, "):
        reader.files(str(folder / "coord.npy"), True)


def test_a_search_for_formats_ends(tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:04}").mkdir()
    write_labeled_ply(tmp_path / "1999" / "a.ply")
    assert detect_format(str(tmp_path)) == "ply"
    (tmp_path / "0000" / "a").mkdir()
    with pytest.raises(UserError, match="contains no scenes of a known format"):
        detect_format(str(tmp_path))


def test_rooms_of_no_area_have_no_splits_of_areas():
    paths = {"a": "x/Area_1/a", "b": "x/Area_3/b", "c": "x/Area_1/c"}
    assert split_by_area(paths, 3) == {"train": ["a", "c"], "val": ["b"], "area_1": ["a", "c"], "area_3": ["b"]}
    assert split_by_area({**paths, "d": "x/d"}, 3) is None
    with pytest.raises(UserError, match="^there are only scenes of Area_1, Area_3, and --val_area=2 is for validation"):
        split_by_area(paths, 2)


def test_rooms_of_other_folders_and_objects_with_other_columns_are_told(tmp_path):
    s3dis(tmp_path)
    reader = S3disReader()
    (source, *_) = reader.sources(str(tmp_path), {})["train"]
    chair = Path(source.files[0])
    for text in ("1 2 3 4 5\n", "x y z red green blue\n1 2 3 4 5 6\n"):
        chair.write_text(text)
        line = refusal_of(reader.read, source)
        assert line == f"{chair}: expected rows of only x, y, z, red, green, blue, without names; fix the file"
    room = tmp_path / "mine" / "Annotations"
    room.mkdir(parents=True)
    (room / "chair_1.txt").write_text("1 2 3 4 5 6\n")
    message = refusal_of(reader.sources, str(tmp_path / "mine"), {})
    assert message == f"{room} is in no folder Area_1 to Area_6; rename its area"


def test_objects_may_have_suffixes_in_capitals(tmp_path):
    s3dis(tmp_path)
    reader = S3disReader()
    expected = [reader.read(source) for source in reader.sources(str(tmp_path), {})["train"]]
    for file in tmp_path.rglob("*_1.txt"):
        file.rename(file.with_suffix(".TXT"))
    sources = reader.sources(str(tmp_path), {})["train"]
    assert detect_format(str(tmp_path)) == "s3dis" and any(file.endswith(".TXT") for file in sources[0].files)
    for scene, source in zip(expected, sources, strict=True):
        found = reader.read(source)
        for name in ("xyz", "rgb", "semantic", "instance"):
            np.testing.assert_array_equal(getattr(found, name), getattr(scene, name))
