"""Scenes of other programs and data sets: every format prepared, read back point by point, trained on and evaluated."""

import json

import numpy as np
import pytest

from paddlevit_dist import settings
from paddlevit_dist.commands.prepare import run_scannet, run_scenes
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, scannet200
from paddlevit_dist.points.data.scenes import Scenes
from paddlevit_dist.points.prepare import s3dis as s3dis_reader
from paddlevit_dist.points.prepare import semantic_kitti as kitti_reader
from paddlevit_dist.points.prepare.formats import FORMATS, format_in
from paddlevit_dist.points.prepare.las import read_las, write_classified
from paddlevit_dist.points.prepare.pcd import read_pcd
from paddlevit_dist.points.prepare.tables import read_table
from paddlevit_dist.points.segmentation.task import SemanticSegmentation
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.tasks.task import EvaluationStep, Step

from .other_scenes import PCD_HEADER, las, lzf, pcd, pointcept, s3dis, semantic_kitti
from .raw_scenes import write_labelled_ply, write_pointgroup, write_scannet
from .test_semantic import tensors


def prepared(tmp_path, capsys, *options):
    """The splits of a store made from tmp_path / raw, and what the command said."""
    run_scenes([str(tmp_path / "raw"), str(tmp_path / "store"), "--workers=1", *options])
    said = capsys.readouterr().out
    lists = {path.stem for path in (tmp_path / "store").glob("*.txt")} - {"classes"}
    return {split: Scenes(str(tmp_path / "store"), split, tmp_path) for split in lists}, said


def by_name(scenes):
    return {scene.name: scene for scene in map(scenes.read, range(len(scenes)))}


def test_s3dis_has_thirteen_classes_and_folds_by_area(tmp_path, capsys):
    written = s3dis(tmp_path / "raw", areas=(1, 2, 5))
    splits, said = prepared(tmp_path, capsys)
    assert "holds scenes of format s3dis" in said
    assert set(splits) == {"train", "val", "area_1", "area_2", "area_5"}
    assert set(by_name(splits["val"])) == {"Area_5_office_1", "Area_5_hallway_2"} == set(by_name(splits["area_5"]))
    assert len(splits["train"]) == 4 and splits["train"].num_classes == 13
    for area in (1, 5):
        scene = by_name(splits[f"area_{area}"])[f"Area_{area}_office_1"]
        rows = np.concatenate([written[area, "office_1", name] for name in ("chair_1", "stairs_1", "wall_2")])
        np.testing.assert_allclose(scene.xyz + scene.offset, rows[:, :3], atol=1e-5)
        assert np.array_equal(scene.rgb, rows[:, 3:])
        assert np.array_equal(scene.semantic, np.repeat([8, 12, 2], 60)) and splits["val"].class_names[8] == "chair"
        assert np.array_equal(scene.instance, np.repeat([0, 1, 2], 60))  # in the order of the files
    again, said = prepared(tmp_path, capsys, "--format=s3dis", "--val_area=1")  # another fold, the same scenes
    assert "(6 were there already)" in said and set(by_name(again["val"])) == {"Area_1_office_1", "Area_1_hallway_2"}


def test_the_damaged_line_of_s3dis_is_read_and_others_are_told(tmp_path, capsys):
    s3dis(tmp_path / "raw")
    damaged = tmp_path / "raw" / "Area_5" / "hallway_2" / "Annotations" / "wall_2.txt"
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184 185\x10187", *lines[7:]]) + "\n")
    splits, said = prepared(tmp_path, capsys)
    assert "wall_2.txt has control characters" in said
    assert by_name(splits["val"])["Area_5_hallway_2"].rgb[126].tolist() == [184, 185, 187]
    damaged.write_text("\n".join([*lines[:6], "1.5 2.5 3.0 184", *lines[7:]]))
    with pytest.raises(UserError, match=r"wall_2.txt is not a table of numbers: .*from 6 to 4 in line 7"):
        prepared(tmp_path, capsys)
    for path in damaged.parent.iterdir():
        path.unlink()
    with pytest.raises(UserError, match=r"hallway_2/Annotations has no file of an object, such as chair_1.txt"):
        prepared(tmp_path, capsys)
    damaged.write_text("1 2 3 4 5 6\n")
    with pytest.raises(UserError, match=r"scenes of Area_1, Area_5 alone, and --val_area=3 is for validation"):
        prepared(tmp_path, capsys, "--val_area=3")


def test_semantic_kitti_has_nineteen_classes_and_standard_sequences(tmp_path, capsys):
    written = semantic_kitti(tmp_path / "raw", sequences=("00", "08", "11"))
    splits, said = prepared(tmp_path, capsys)
    assert {split: len(scenes) for split, scenes in splits.items()} == {"train": 2, "val": 2, "test": 2}
    assert splits["train"].class_names == list(kitti_reader.CLASS_NAMES) and not splits["test"].labelled
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


def test_predictions_for_semantic_kitti_have_its_own_numbers(tmp_path):
    semantic_kitti(tmp_path)
    source = tmp_path / "sequences" / "08" / "velodyne" / "000001.bin"
    name = kitti_reader.prediction_name(str(source))
    assert name == "sequences/08/predictions/000001.label"
    kitti_reader.write_labels(tmp_path / "out" / name, np.arange(19))
    inverse = [10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]  # its learning_map_inv
    assert np.fromfile(tmp_path / "out" / name, "<u4").tolist() == inverse
    kitti_reader.write_labels(tmp_path / "b.label", np.arange(19), np.arange(19) - 3)
    of_none = (0, 1, 2)
    expected = [number + ((place - 2 << 16) if place not in of_none else 0) for place, number in enumerate(inverse)]
    assert np.fromfile(tmp_path / "b.label", "<u4").tolist() == expected


def test_damaged_scans_are_told(tmp_path, capsys):
    semantic_kitti(tmp_path / "raw")
    labels = tmp_path / "raw" / "sequences" / "08" / "labels" / "000000.label"
    whole = labels.read_bytes()
    for content, message in (
        (whole[:-4], "000000.label has 79 labels, its scan 80 points"),
        (whole[:-1], "000000.label has 319 bytes, which are no whole number of 4"),
        (whole[:-4] + b"\x05\0\0\0", "point 79 has the number 5, which is no class of SemanticKITTI"),
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
    assert "-dataset=scenes" in said and splits["train"].class_names == list(scannet200())
    names = splits["train"].class_names
    assert len(names) == 200 and names[:4] == ["wall", "chair", "floor", "table"] and scannet200()["mattress"] == 1191
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
            write_classified(str(tmp_path / "b.las"), tmp_path / "c.las", np.full(90, 300))
        assert not (tmp_path / "c.las").exists()
        return
    write_classified(str(tmp_path / "b.las"), tmp_path / "c.las", np.full(90, 300))
    assert set(np.array(laspy.read(str(tmp_path / "c.las"))["prediction"])) == {300.0}


def test_laser_scans_that_are_cut_off_or_lie_are_told(tmp_path):
    las(tmp_path / "a.las")
    whole = (tmp_path / "a.las").read_bytes()
    for content, message in (
        (whole[:-100], "a.las (ends after|is not a complete LAS file)"),
        (
            whole[:131] + bytes(8) + whole[139:],
            r"a.las has scales \[0.0, 0.001, 0.001\] for x, y and z, expected positive",
        ),
        (whole[:247] + bytes(8) + whole[255:], "a.las has no points; leave it out"),
    ):
        (tmp_path / "a.las").write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_las(str(tmp_path / "a.las"))
    las(tmp_path / "b.laz")
    for content in (b"LASF" + bytes(40), (tmp_path / "b.laz").read_bytes()[:-3]):
        (tmp_path / "b.laz").write_bytes(content)
        with pytest.raises(UserError, match="b.laz is not a complete LAS file"):
            read_las(str(tmp_path / "b.laz"))


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


def test_damaged_pcd_files_are_told(tmp_path):
    path = tmp_path / "a.pcd"
    for kind, message in (
        ("ascii", "its points are not rows of 9 numbers|has 49 rows"),
        ("binary", "it ends after 49 of 50 points"),
        ("binary_compressed", "it has [0-9,]+ of [0-9,]+ bytes"),
    ):
        pcd(path, kind)
        path.write_bytes(path.read_bytes()[:-8])
        with pytest.raises(UserError, match=f"a.pcd is not a complete PCD file: ({message})"):
            read_pcd(str(path))
    for damage in range(0, 40, 3):  # no damage writes outside of the points, or is read as if there were none
        packed = bytearray(lzf(bytes(25 * 2)))
        packed[damage % len(packed)] ^= 0xFF
        body = np.array([len(packed), 50], "<u4").tobytes() + bytes(packed)
        path.write_bytes(PCD_HEADER.format(points=2, kind="binary_compressed").encode() + body)
        try:
            read_pcd(str(path))
        except UserError as error:
            assert "is not a complete PCD file" in str(error)
    for fields, counts, message in (
        ("x y", "", "its header has no proper FIELDS, SIZE, TYPE"),
        ("x y label", "", "vertex 0 has label 300, but its header declares it as uchar"),
        ("x y x", "", r"two of its FIELDS have the same name \(x y x\)"),
        ("x y z", "COUNT 1 1 99999999999999999999\n", "its header has DATA ascii, POINTS 1 and COUNT 1 1 9999"),
    ):
        last = ("1", "U") if fields.endswith("label") else ("4", "F")
        header = f"FIELDS {fields}\nSIZE 4 4 {last[0]}\nTYPE F F {last[1]}\n{counts}POINTS 1\nDATA ascii\n1 2 300\n"
        path.write_bytes(header.encode())
        with pytest.raises(UserError, match=message):
            read_pcd(str(path))


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
        ("", "has no points; leave it out"),
        ("1 2 3\n4 5\n", "is not a table of numbers: the number of columns changed from 3 to 2 in line 2"),
        ("# a\nx y z\n1 2 3\n4 5 six\n", "is not a table of numbers: .*line 4"),
        ("1 2 banana\n", "line 1: '1 2 banana' is neither a row of numbers nor of names"),
        ("x y z\n1 2 3 4\n", "names 3 columns, but its rows have 4 numbers"),
        ("x,y,z,x\n1,2,3,4\n", r"has two columns of one name \(x, y, z, x\); rename one"),
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
    with pytest.raises(UserError, match="e.npy is not a file of numpy's arrays of numbers"):
        read_table(str(tmp_path / "e.npy"), "numpy")


def test_formats_are_found_by_what_a_folder_holds(tmp_path):
    makers = {
        "s3dis": lambda root: s3dis(root),
        "semantic_kitti": lambda root: semantic_kitti(root),
        "pointcept": lambda root: pointcept(root),
        "ply": lambda root: write_labelled_ply(root / "deep" / "a.ply"),
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
        assert format_in(str(tmp_path / kind)) == kind
    assert set(FORMATS) == {*makers, "scannet", "pth"}
    pcd(tmp_path / "las" / "b.pcd", "ascii")
    with pytest.raises(UserError, match=r"scenes of several formats, .*a.LAZ \(las\), .*b.pcd \(pcd\): choose one"):
        format_in(str(tmp_path / "las"))
    (tmp_path / "nothing").mkdir()
    with pytest.raises(UserError, match="holds no scenes of a known format"):
        format_in(str(tmp_path / "nothing"))


def test_options_that_a_format_does_not_know_are_told(tmp_path, capsys):
    s3dis(tmp_path / "raw")
    with pytest.raises(UserError, match="--label is not for scenes of format s3dis"):
        prepared(tmp_path, capsys, "--label=class")
    with pytest.raises(UserError, match="--columns is not for scenes of format s3dis"):
        prepared(tmp_path, capsys, "--columns=x,y,z")


def test_channels_that_a_file_does_not_have_are_told_with_those_it_has(tmp_path, capsys):
    for split in ("train", "val"):
        pcd(tmp_path / "raw" / split / f"{split}.pcd", "binary")
    with pytest.raises(UserError, match=r"has no normal for its points, only intensity; the channels wanted"):
        prepared(tmp_path, capsys, "--channels=intensity,normal")
    splits, _ = prepared(tmp_path, capsys, "--channels=none")
    assert splits["train"].channels == ()


def of_splits(write, suffix):
    """Writes a scene of each split, by its path and a seed."""
    return lambda root: [write(root / split / f"{split}{suffix}", seed) for seed, split in enumerate(("train", "val"))]


def rows_of_five(path, seed):
    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True)
    rows = np.c_[generator.uniform(0, 3, (40, 4)).round(3), generator.integers(0, 3, 40)]
    np.save(path, rows) if path.suffix == ".npy" else np.savetxt(path, rows, "%g")


def arrays(path, seed):
    generator = np.random.default_rng(seed)
    path.parent.mkdir(parents=True)
    points, colors, labels = generator.normal(size=(40, 3)), generator.random((40, 3)), generator.integers(0, 3, 40)
    np.savez(path, points=points, colors=colors, normals=points, label=labels)


def scannet(root):
    for split, name in (("train", "scene0000_00"), ("val", "scene0001_00")):
        write_scannet(root / "scans" / name, name, points=80)
        (root / f"scannetv2_{split}.txt").write_text(f"{name}\n")
    (root / "scannetv2-labels.combined.tsv").write_text("id\traw_category\n1\twall\n3\tfloor\n28\tlamp\n")


_NAMED = ("--columns=x,y,z,intensity,label", "--missing_colors=grey")
# Of each layout: what writes it, what the network sees of it, options of `prepare scenes`, and another command for it.
LAYOUTS = {
    "s3dis": (s3dis, "[rgb, xyz]", (), run_scenes),
    "semantic_kitti": (semantic_kitti, "[xyz, intensity]", (), run_scenes),
    "pointcept": (pointcept, "[rgb, normal]", (), run_scenes),
    "scannet": (scannet, "[rgb]", (), run_scenes),
    "scannet of 200 classes": (scannet, "[rgb, height]", ("--classes=200",), run_scannet),
    "pth": (of_splits(lambda path, seed: write_pointgroup(path.parent, path.name, seed), ""), "[rgb]", (), run_scenes),
    "ply": (of_splits(lambda path, seed: write_labelled_ply(path, 80, seed), ".ply"), "[rgb]", (), run_scenes),
    "las": (of_splits(lambda path, seed: las(path, seed=seed), ".laz"), "[rgb, intensity/65535]", (), run_scenes),
    "pcd": (of_splits(lambda path, seed: pcd(path, "binary", seed=seed), ".pcd"), "[rgb, intensity]", (), run_scenes),
    "numpy": (of_splits(arrays, ".npz"), "[rgb, normal]", (), run_scenes),
    "numpy without names": (of_splits(rows_of_five, ".npy"), "[ones, intensity]", _NAMED, run_scenes),
    "text": (of_splits(rows_of_five, ".txt"), "[ones, intensity]", _NAMED, run_scenes),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_is_trained_on_and_evaluated(tmp_path, layout):
    import paddle

    make, features, options, prepare = LAYOUTS[layout]
    (tmp_path / "raw").mkdir()
    make(tmp_path / "raw")
    prepare([str(tmp_path / "raw"), str(tmp_path / "store"), "--workers=1", *options])
    words = ["-dataset=scenes", f"-data_path={tmp_path / 'store'}", "DATA.VOXEL_SIZE_M", "0.4", "MODEL.NAME"]
    words += ["minkunet_tutorial", "TASK", "semantic_segmentation", "POINTS.FEATURES", features]
    task = SemanticSegmentation(settings.load(words).values)
    train, val = (task.build_dataset(split, tmp_path) for split in ("train", "val"))
    model = task.build_model()
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    before = [parameter.numpy().copy() for parameter in model.parameters()]
    for update in range(2):
        batch = tensors(task.collate([train.sample(0, np.random.default_rng(update))]))
        loss = task.train_step(model, batch, Step(1, update, 2))["loss"]
        (loss.sum / loss.count).backward()
        optimizer.step()
        optimizer.clear_grad()
    assert any((now.numpy() != then).any() for now, then in zip(model.parameters(), before))
    model.eval()
    metrics = task.build_metrics()
    task.eval_step(model, tensors(task.collate([val.sample(0, None)])), EvaluationStep(metrics))
    values = metrics.compute(metrics.state)
    assert values["points"] == (val.dataset.read(0).semantic >= 0).sum() > 0 and 0 <= values["mIoU"] <= 1
    assert json.loads((tmp_path / "store" / "prepared.json").read_text())["kind"] == layout.split()[0]
