"""Scenes to be predicted: which files are found, that they are read as prepared scenes are, and what is written."""

import numpy as np
import pytest
from support.files.nuscenes import nuscenes
from support.files.other_scenes import las, pcd, pointcept, semantic_kitti
from support.files.raw_scenes import make_points, pointgroup_arrays, write_pointgroup, write_scannet, zipped
from support.files.scene_inputs import SEMANTIC, make_inputs, recalled
from support.networks.varied import vary
from support.samples.small_scenes import make_scene, tensors

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, output_names
from paddlevit_dist.core.tasks.protocols import Predictable
from paddlevit_dist.points import inputs
from paddlevit_dist.points.data.ply import read_vertices, write_points
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES, NYU40_NUMBERS
from paddlevit_dist.points.data.scene import AS_GIVEN, CENTERED
from paddlevit_dist.points.inputs import InputScenes, find_scenes
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.task import InstanceSegmentation
from paddlevit_dist.points.prepare.semantic_kitti import CLASS_NAMES as KITTI_CLASSES
from paddlevit_dist.points.segmentation.task import SemanticSegmentation

INSTANCES = ["TASK", "pointgroup", "MODEL.NAME", "pointgroup", "MODEL.OPTIONS.width", "4"]
INSTANCES += ["MODEL.OPTIONS.repeats", "1", "DATA.VOXEL_SIZE_M", "0.4"]


def predicted(task, inputs):
    """The prediction of each input, all in one batch."""
    model = vary(task.build_model())
    readings = [inputs.sample(index, np.random.default_rng(0)) for index in range(len(inputs))]
    for sample in readings:
        task.check_sample(sample)
    return get_aspect(task, Predictable).predict_step(model, tensors(task.collate(readings)))


def test_a_download_has_one_scene_for_each_of_its_folders(tmp_path):
    for name in ("scene0001_00", "scene0000_00"):
        write_scannet(tmp_path / name, name)
        write_points(tmp_path / name / f"{name}_vh_clean.ply", make_points(9))  # the finer mesh, and no class labels
    found, unreadable, _ = find_scenes([str(tmp_path), str(tmp_path / "nothing"), __file__])
    assert [(scene.name, scene.kind) for scene in found] == [("scene0000_00", "scannet"), ("scene0001_00", "scannet")]
    assert [path for path, _ in unreadable] == [str(tmp_path / "nothing"), __file__]
    assert "no such file" in unreadable[0][1] and "not a scene by its name" in unreadable[1][1]


def test_inputs_keep_their_order_and_no_two_outputs_have_one_name(tmp_path):
    for name in ("b/room.ply", "a/room.ply", "a/Room.ply", "a/.hidden.ply", "a/.old/other.ply"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_points(tmp_path / name, make_points(30))
    scenes, unreadable = make_inputs(tmp_path / "b", tmp_path / "a", tmp_path / "b" / "room.ply")
    assert [
        path.relative_to(tmp_path).as_posix() for path in map(tmp_path.joinpath, map(scenes.describe, range(4)))
    ] == [
        "b/room.ply",
        "a/Room.ply",
        "a/room.ply",
        "b/room.ply",
    ]
    assert scenes.names == ["room", "Room_2", "room_3", "room_4"] and not unreadable
    assert output_names(["a_2", "a", "a"]) == ["a_2", "a", "a_3"]


def test_pointgroups_files_need_no_labels_and_stay_where_they_are(tmp_path):
    write_pointgroup(tmp_path, "scene0000_00")
    zipped(tmp_path / "scene0001_00_inst_nostuff.pth", pointgroup_arrays()[0][:2])
    scenes, _ = make_inputs(tmp_path)
    for index in range(2):
        np.testing.assert_array_equal(scenes.read(index).xyz, pointgroup_arrays()[0][0], strict=True)
        assert (scenes.read(index).semantic == -100).all()


def test_points_are_where_the_network_expects_them(tmp_path):
    columns = make_points(50)
    write_points(tmp_path / "a.ply", columns)
    xyz = np.stack([columns[axis] for axis in "xyz"], axis=1)
    np.testing.assert_array_equal(make_inputs(tmp_path, coordinates=AS_GIVEN)[0].read(0).xyz, xyz, strict=True)
    centered = make_inputs(tmp_path)[0].read(0)
    assert np.allclose(centered.xyz.mean(axis=0), 0, atol=1e-6) and np.allclose(centered.xyz + centered.offset, xyz)


def test_colors_are_needed_by_networks_that_see_them(tmp_path):
    write_points(tmp_path / "a.ply", {axis: make_points(50)[axis] for axis in "xyz"})
    with pytest.raises(UserError, match=r"has no colors \(properties red, green and blue\); add them$"):
        make_inputs(tmp_path)[0].read(0)
    assert (make_inputs(tmp_path, needs_colors=False)[0].read(0).rgb == 128).all()


def test_classes_are_written_where_the_points_came_from(tmp_path):
    columns = make_points(80)
    far = {**columns, "x": columns["x"].astype(np.float64) + 500_000, "y": columns["y"].astype(np.float64) + 5.4e6}
    write_points(tmp_path / "near.ply", make_points(60, seed=1))
    write_points(tmp_path / "far.ply", far)
    task = recalled(SemanticSegmentation, SEMANTIC)
    inputs = get_aspect(task, Predictable).open_inputs(
        [str(tmp_path / "near.ply"), str(tmp_path / "far.ply")], tmp_path
    )
    predictions = predicted(task, inputs)
    output = tmp_path / "output"
    output.mkdir()
    writer = get_aspect(task, Predictable).prediction_writer(output, inputs)
    files = writer.write(1, predictions[1])
    assert files == {"ply": "far.ply", "picture": "far.png", "text": "far.txt"}
    assert sorted(path.name for path in output.iterdir()) == sorted(files.values())
    points = read_vertices(output / "far.ply")
    assert all(np.allclose(points[axis], far[axis], rtol=0, atol=1e-5) for axis in "xyz")
    assert np.array_equal(points["label"], predictions[1])
    lines = (output / "far.txt").read_text().split()
    assert lines == [str(NYU40_NUMBERS[number]) for number in predictions[1]]
    (row,) = get_aspect(task, Predictable).prediction_rows(predictions[1])
    assert row["points"] == 80 and row["points_chair"] == np.count_nonzero(predictions[1] == 4)
    (line,) = writer.finish([])
    assert str(output) in line and "NAME.png from above" in line


def test_laser_scans_come_back_as_copies_with_their_classes(tmp_path):
    import laspy

    las(tmp_path / "in" / "a.laz", points=70)
    las(tmp_path / "in" / "b.las", points=60, seed=1, point_format=3, version="1.2")
    task = recalled(SemanticSegmentation, [*SEMANTIC, "POINTS.FEATURES", "[rgb, intensity/65535]"])
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path / "in")], tmp_path)
    predictions = predicted(task, inputs)
    output = tmp_path / "in"  # into the folder of the scans themselves
    writer = get_aspect(task, Predictable).prediction_writer(output, inputs)
    for index, name in enumerate(("a.laz", "b.las")):
        stem, suffix = name.split(".")
        before = laspy.read(str(tmp_path / "in" / name))
        row = writer.write(index, predictions[index])
        assert row["as_source"] == f"{stem}_classified.{suffix}" and row["ply"] == f"{stem}.ply"
        copy, after = (laspy.read(str(output / one)) for one in (row["as_source"], name))
        assert np.array_equal(np.array(copy.classification), predictions[index])
        for axis in "xyz":
            np.testing.assert_array_equal(np.array(copy[axis]), np.array(before[axis]), strict=True)
        np.testing.assert_array_equal(np.array(after.classification), np.array(before.classification), strict=True)
    assert "NAME_classified.las or .laz" in writer.finish([])[-1]


def test_scans_of_semantic_kitti_become_its_labels(tmp_path):
    semantic_kitti(tmp_path / "in", sequences=("11",), labeled=False)
    words = ["POINTS.FEATURES", "[xyz, intensity]"]
    task = SemanticSegmentation(settings.load([*SEMANTIC, *words, "-eval", "-pretrained=x", "-dataset=scenes"]).values)
    task.load_meta(CheckpointMeta(19, KITTI_CLASSES, {"coordinates": CENTERED}))
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path / "in")], tmp_path)
    predictions = predicted(task, inputs)
    (tmp_path / "out").mkdir()
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path / "out", inputs)
    numbers = [10, 11, 15, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 70, 71, 72, 80, 81]
    for index in range(2):
        name = f"sequences/11/predictions/00000{index}.label"
        assert writer.write(index, predictions[index])["as_source"] == name
        expected = [numbers[number] for number in predictions[index]]
        assert np.fromfile(tmp_path / "out" / name, "<u4").tolist() == expected


def test_a_scan_of_kitti_may_be_in_any_folder(tmp_path):
    scan = np.random.default_rng(0).normal(size=(30, 4)).astype("<f4")
    for folder, name in (("drive/velodyne", "000000"), ("mine", "rain")):
        (tmp_path / folder).mkdir(parents=True)
        scan.tofile(tmp_path / folder / f"{name}.bin")
        (found,), unreadable, _ = find_scenes([str(tmp_path / folder / f"{name}.bin")])
        assert found[:2] == (str(tmp_path / folder / f"{name}.bin"), "semantic_kitti") and not unreadable
        assert found.name.endswith(name)
        (read,) = [InputScenes([found], None, False, ["a"], ["intensity"]).read(0)]
        np.testing.assert_allclose(read.xyz + np.array(read.offset), scan[:, :3], atol=1e-6)
        np.testing.assert_array_equal(read.channels["intensity"].ravel(), scan[:, 3])
        assert (read.semantic == -100).all() and (read.rgb == read.rgb[0, 0]).all()


def test_labels_of_nuscenes_are_not_scans(tmp_path):
    nuscenes(tmp_path / "in")
    scenes, unreadable, _ = find_scenes([str(tmp_path / "in")])
    files = sorted((tmp_path / "in").glob("*/LIDAR_TOP/*.pcd.bin"))
    assert [(scene.path, scene.kind) for scene in scenes] == [(str(file), "nuscenes") for file in files] and files
    assert unreadable == []
    assert find_scenes([str(next((tmp_path / "in").glob("lidarseg/*/*.bin")))])[0] == []


def test_points_without_finite_coordinates_are_left_out_and_files_keep_their_rows(tmp_path):
    """The others are predicted as if these had never been there, and written in the rows where they stand."""
    holes = np.array([0, 3, 4, 39])
    whole = make_points(40)
    seen = {name: np.delete(column, holes) for name, column in whole.items()}
    for name, value in (("x", np.nan), ("y", np.inf), ("z", -np.inf)):
        whole[name] = whole[name].copy()
        whole[name][holes[[0, 1, 3]]], whole[name][holes[2]] = value, np.nan
    write_points(tmp_path / "whole.ply", whole)
    write_points(tmp_path / "seen.ply", seen)
    scan = np.random.default_rng(0).normal(size=(30, 4)).astype("<f4")
    scan[7, 1] = np.nan
    (tmp_path / "velodyne").mkdir()
    scan.tofile(tmp_path / "velodyne" / "000000.bin")
    task = recalled(SemanticSegmentation, SEMANTIC)
    inputs = get_aspect(task, Predictable).open_inputs(
        [str(tmp_path / name) for name in ("whole.ply", "seen.ply")], tmp_path
    )
    assert any("whole.ply: 4 points without finite coordinates are skipped" in line for line in inputs.notices)
    predictions = predicted(task, inputs)
    np.testing.assert_array_equal(predictions[0], predictions[1], strict=True)
    (tmp_path / "out").mkdir()
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path / "out", inputs)
    for index in range(2):
        writer.write(index, predictions[index])
    rows, expected = (np.loadtxt(tmp_path / "out" / f"{name}.txt", int) for name in ("whole", "seen"))
    assert len(rows) == 40 and not rows[holes].any()  # 0 is no class of ScanNet's
    np.testing.assert_array_equal(np.delete(rows, holes), expected, strict=True)

    instances = InstanceSegmentation(settings.load([*INSTANCES, "-eval", "-pretrained=x", "-dataset=scenes"]).values)
    instances.load_meta(CheckpointMeta(19, KITTI_CLASSES, {"coordinates": CENTERED}))
    scans = get_aspect(instances, Predictable).open_inputs([str(tmp_path / "velodyne" / "000000.bin")], tmp_path)
    classes = np.arange(29) % 19
    writer = get_aspect(instances, Predictable).prediction_writer(tmp_path / "out", scans)
    row = writer.write(0, (classes, [InstancePrediction(3, 0.9, np.array([6, 7, 8]))]))
    labels = np.fromfile(tmp_path / "out" / row["as_source"], "<u4")
    assert len(labels) == 30 and labels[7] == 0 and np.flatnonzero(labels >> 16).tolist() == [6, 8, 9]
    (mask,) = (tmp_path / "out" / "predicted_masks").iterdir()
    assert np.flatnonzero(np.loadtxt(mask, int)).tolist() == [6, 8, 9] and len(np.loadtxt(mask)) == 30


def test_instances_come_back_in_the_files_of_their_points(tmp_path):
    import laspy

    las(tmp_path / "in" / "a.las", points=80)
    write_points(tmp_path / "b.ply", make_points(80))
    semantic_kitti(tmp_path, sequences=("11",), labeled=False)
    words = [*INSTANCES, "-eval", "-pretrained=x", "-dataset=scenes", "POINTS.INSTANCES.STUFF_CLASSES", "[road]"]
    task = InstanceSegmentation(settings.load(words).values)
    task.load_meta(CheckpointMeta(19, KITTI_CLASSES, {"coordinates": CENTERED}))
    inputs = get_aspect(task, Predictable).open_inputs(
        [str(tmp_path / name) for name in ("in", "b.ply", "sequences")], tmp_path
    )
    classes = np.arange(80) % 19
    found = [
        InstancePrediction(3, 0.9, np.arange(10, 20)),
        InstancePrediction(0, 0.5, np.arange(15, 40)),
    ]  # the better one is shown
    instance = np.repeat([-1, 0, 1, -1], (10, 10, 20, 40))
    writer = get_aspect(task, Predictable).prediction_writer(tmp_path, inputs)
    rows = [writer.write(index, (classes, found)) for index in (0, 3)]
    assert (
        rows[0]["as_source"] == "a_classified.las" and rows[1]["as_source"] == "sequences/11/predictions/000001.label"
    )
    assert writer.write(1, (classes, found)) == {
        **{"ply": "b_prediction.ply", "picture": "b.png", "text": "b.txt"},
        "as_source": None,  # it has no field of classes
    }
    copy = laspy.read(str(tmp_path / "a_classified.las"))
    assert np.array_equal(np.array(copy["predicted_instance"]), instance)
    assert np.array_equal(np.array(copy.classification), classes)
    labels = np.fromfile(tmp_path / rows[1]["as_source"], "<u4")
    assert np.array_equal(labels >> 16, instance + 1)
    segments = np.repeat([0, 18, 10, 0], (10, 10, 20, 40))  # an instance has one class, other points that of stuff only
    assert np.array_equal(labels & 0xFFFF, np.where((classes == 8) & (instance < 0), 40, segments))
    drawn = read_vertices(tmp_path / "a_prediction.ply")
    assert np.array_equal(drawn["label"], np.where(instance < 0, -100, instance))
    assert np.array_equal(drawn["class"], classes)
    assert "NAME_classified.las" in writer.finish([])[1]


def test_files_of_other_programs_are_predicted_and_need_the_channels_of_the_training(tmp_path):
    pcd(tmp_path / "a.pcd", "binary")
    pointcept(tmp_path, splits=("train",))
    (tmp_path / "c.xyz").write_text("1 2 3\n2 3 4\n")
    found, unreadable, _ = find_scenes([str(tmp_path / name) for name in ("a.pcd", "train", "c.xyz")])
    assert [(scene.name, scene.kind) for scene in found] == [
        ("a", "pcd"),
        ("scene0000_00", "pointcept"),
        ("c", "text"),
    ]
    assert not unreadable
    (tmp_path / "d.xyz").write_text("1 2 3 4\n2 3 4 5\n")
    with pytest.raises(UserError, match="d.xyz has 4 columns without names: name them in its first line$"):
        make_inputs(tmp_path / "d.xyz")[0].read(0)
    task = recalled(SemanticSegmentation, [*SEMANTIC, "POINTS.FEATURES", "[ones, normal]"])
    inputs = get_aspect(task, Predictable).open_inputs(
        [str(tmp_path / name) for name in ("a.pcd", "train", "c.xyz")], tmp_path
    )
    assert len(inputs.sample(1, np.random.default_rng(0)).scene.channels["normal"]) == 70
    for index, has in ((0, "only intensity, label"), (2, "only points, colors and labels")):
        with pytest.raises(UserError, match=f"has no channel normal, {has}; add it to the file"):
            inputs.sample(index, np.random.default_rng(0))


def test_the_hidden_scenes_are_for_the_benchmark(tmp_path):
    write_scannet(tmp_path / "in", "scene0707_00", labeled=False)
    task = recalled(SemanticSegmentation, SEMANTIC)
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path / "in")], tmp_path)
    assert (
        "zip -r submission.zip scene*.txt predicted_masks"
        in get_aspect(task, Predictable).prediction_writer(tmp_path, inputs).finish([])[-1]
    )
    assert (
        get_aspect(task, Predictable)
        .prediction_writer(tmp_path, get_aspect(task, Predictable).open_inputs([], tmp_path))
        .finish([])
        == []
    )


def test_instances_are_rows_best_first(tmp_path):
    write_points(tmp_path / "a.ply", make_points(300))
    task = recalled(InstanceSegmentation, INSTANCES)
    inputs = get_aspect(task, Predictable).open_inputs([str(tmp_path)], tmp_path)
    ((classes, found),) = predicted(task, inputs)
    rows = get_aspect(task, Predictable).prediction_rows((classes, found))
    assert set(rows[0]) == {"instance", "class", "confidence", "points"}
    assert [row["points"] for row in rows] == ([len(one.points) for one in found] or [None])
    output = tmp_path / "output"
    output.mkdir()
    assert (
        get_aspect(task, Predictable).prediction_writer(output, inputs).write(0, (classes, found))["ply"]
        == "a_prediction.ply"
    )
    assert len((output / "a.txt").read_text().splitlines()) == len(found)


def test_a_fingerprint_changes_with_the_files(tmp_path):
    write_points(tmp_path / "a.ply", make_points(30))
    task = recalled(SemanticSegmentation, SEMANTIC)
    before = get_aspect(task, Predictable).open_inputs([str(tmp_path)], tmp_path).fingerprint()
    assert get_aspect(task, Predictable).open_inputs([str(tmp_path)], tmp_path).fingerprint() == before
    write_points(tmp_path / "a.ply", make_points(31))
    assert get_aspect(task, Predictable).open_inputs([str(tmp_path)], tmp_path).fingerprint() != before


def test_classes_are_those_of_the_weights_or_of_the_kind_of_data():
    published = SemanticSegmentation(settings.load([*SEMANTIC, "-eval", "-pretrained=x", "-dataset=scannet"]).values)
    published.load_meta(CheckpointMeta())
    assert tuple(published.class_names) == CLASS_NAMES and published.num_classes == 20
    published.load_meta(CheckpointMeta(2, ("ball", "floor")))
    assert published.class_names == ["ball", "floor"]
    published.load_meta(CheckpointMeta(22, CLASS_NAMES))
    assert published.class_names[19:] == ["otherfurniture", "20", "21"]
    own = SemanticSegmentation(settings.load([*SEMANTIC, "-eval", "-pretrained=x", "-dataset=scenes"]).values)
    with pytest.raises(UserError, match="contain no class names: give them with --class_names"):
        own.load_meta(CheckpointMeta())


def test_paths_that_hold_nothing_belong_to_a_prediction_as_those_that_do(tmp_path):
    write_points(tmp_path / "a.ply", make_points(30))
    (tmp_path / "a.txt").write_text("1")
    task = recalled(SemanticSegmentation, SEMANTIC)
    given = ([], ["missing"], ["other"], [str(tmp_path / "a.txt")])
    prints = [
        get_aspect(task, Predictable).open_inputs([str(tmp_path / "a.ply"), *more], tmp_path).fingerprint()
        for more in given
    ]
    assert len(set(prints)) == 4
    (tmp_path / "a.txt").write_text("12")
    again = get_aspect(task, Predictable).open_inputs([str(tmp_path / "a.ply"), *given[-1]], tmp_path).fingerprint()
    assert (
        again not in prints
        and prints[0] == get_aspect(task, Predictable).open_inputs([str(tmp_path / "a.ply")], tmp_path).fingerprint()
    )


def test_scenes_of_a_prepared_store_are_those_of_its_folder(tmp_path):
    for name in ("scenes/a.ply", "b.ply"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write_points(tmp_path / name, make_points(30))
    assert [scene.name for scene in find_scenes([str(tmp_path)])[0]] == ["b", "a"]
    (tmp_path / "classes.txt").write_text("wall\n")
    assert [scene.name for scene in find_scenes([str(tmp_path)])[0]] == ["a"]
    (tmp_path / "scenes").rename(tmp_path / "others")
    (tmp_path / "link").symlink_to(tmp_path / "others")
    assert [scene.name for scene in find_scenes([str(tmp_path)])[0]] == ["b", "a", "a"]


def test_remarks_are_of_each_file_and_then_of_all_files_of_a_kind(tmp_path):
    holes, large = (
        make_points(40),
        {name: values * 1000 for name, values in make_points(40, 1).items() if name in "xyz"},
    )
    holes["y"][7] = np.nan
    write_points(tmp_path / "a.ply", holes)
    write_points(tmp_path / "b.ply", {**make_points(40, 1), **large})
    (tmp_path / "c.ply").write_text("ply\n")  # is told where it is predicted
    write_points(tmp_path / "d.ply", {**make_points(40), "x": make_points(40)["x"] + np.float32(1e6)})
    for name, shift in (("e", 0), ("f", 3)):
        xyz = make_points(40)["x"][:, None] + np.float32([shift, 0, 0])
        zipped(tmp_path / f"{name}.pth", (xyz - xyz.mean(axis=0) * (shift == 0), np.zeros((40, 3))))
    lines = make_inputs(*(tmp_path / name for name in ("a.ply", "b.ply", "c.ply", "f.pth", "d.ply", "e.pth")))[
        0
    ].remarks()
    starts = (
        f"{tmp_path}/a.ply: 1 point without finite coordinates is skipped",
        f"{tmp_path}/d.ply stores x, y and z up to 1,000,00",
        f"1 of 3 scenes seem to be in millimeters or centimeters ({tmp_path}/b.ply spans ",
        f"1 of 2 scenes are not centered on the origin, where PointGroup's preparation puts them ({tmp_path}/f.pth has",
    )
    assert len(lines) == 4 and all(line.startswith(start) for line, start in zip(lines, starts)), lines


def test_an_object_of_a_room_alone_and_of_what_remarks_have_no_time_for(tmp_path, simulated_time, monkeypatch):
    file = tmp_path / "Area_1" / "office_1" / "Annotations" / "chair_1.txt"
    file.parent.mkdir(parents=True)
    file.write_text("".join(f"{n} {n % 3} 1 9 9 9\n" for n in range(9)))
    found = find_scenes([str(file)])[0]
    assert [tuple(scene) for scene in found] == [(str(file), "text", "chair_1")]
    read = []
    scenes, _ = make_inputs(file, file)
    assert len(scenes) == 2
    simulated_time.readings = iter([100.0, 100.0 + inputs._CHECK_SECONDS, 100.1 + inputs._CHECK_SECONDS])
    monkeypatch.setattr(scenes, "_read", lambda index: read.append(index) or (make_scene(9), []))
    scenes.remarks()
    assert read == [0]
