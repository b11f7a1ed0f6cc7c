"""Scene coordinates: one convention for all kinds of raw data, offsets restored in exports, units and labels."""

import dataclasses
import json
import os
import struct
import time

import numpy as np
import paddle
import pytest

from paddlevit_dist import settings
from paddlevit_dist.inference.evaluation import SavedPredictions
from paddlevit_dist.points.data.ply import read_vertices, write_coloured_ply, write_points
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.scene import AS_GIVEN, CENTRED
from paddlevit_dist.points.data.scene_store import SceneHeader, read_header, read_scene, write_scene
from paddlevit_dist.points.data.scenes import Scenes
from paddlevit_dist.points.data.voxels import sparse_quantize
from paddlevit_dist.points.prepare import coordinates
from paddlevit_dist.points.prepare.formats import PthReader
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import TableReader
from paddlevit_dist.registry import resolve
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.tasks.task import EvaluationStep

from .raw_scenes import write_scannet, zipped
from .test_scene_store import scene_of

UTM = (500000.123, 5400000.456, 312.5)


def room(points=4000, seed=0):
    """float32 (points, 3) on the floor and two walls of a room with a corner at the origin, and colours."""
    generator = np.random.default_rng(seed)
    xyz = generator.uniform(0, (5.0, 4.0, 2.5), (points, 3))
    xyz[np.arange(points), np.arange(points) % 3] = 0.0
    xyz += generator.normal(0, 0.005, xyz.shape)
    return xyz.astype(np.float32), generator.integers(0, 256, (points, 3), dtype=np.uint8)


def write_ply(path, xyz, rgb, **more):
    columns = {**dict(zip("xyz", xyz.T)), **dict(zip(("red", "green", "blue"), rgb.T))}
    write_points(path, {**columns, "label": np.zeros(len(xyz), np.uint8), **more})
    return RawScene(path.stem, (str(path),), True)


def read_ply(path, xyz, rgb, **more):
    return TableReader().read(write_ply(path, xyz, rgb, **more))


def number_of_voxels(scene, size=0.05):
    return len(sparse_quantize(scene.xyz, quantization_size=size))


def original(points):
    """What PointGroup's prepare_data_inst.py does with the rows of a file: minus their mean, in their precision."""
    total = np.zeros(3, points.dtype)
    for row in points:
        total += row
    return points - total / points.dtype.type(len(points))


def test_scannet_and_pointgroups_own_files_give_the_same_positions(tmp_path):
    write_scannet(tmp_path / "train", "scene0000_00", points=3000)
    source = ScanNetReader().sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))["train"][0]
    columns = read_vertices(source.files[0])
    points = np.stack([columns[name] for name in "xyz"], axis=1) + np.float32([3, -2, 1])
    write_points(tmp_path / "train" / "scene0000_00_vh_clean_2.ply", {**columns, **dict(zip("xyz", points.T))})
    scene = ScanNetReader().read(source)
    colours = np.stack([columns[name] for name in ("red", "green", "blue")], axis=1) / 127.5 - 1
    labels = np.zeros(len(points))
    zipped(tmp_path / "a.pth", (original(points), colours, labels, labels))
    theirs = PthReader().read(RawScene("a", (str(tmp_path / "a.pth"),), True))
    assert np.array_equal(scene.xyz, theirs.xyz) and np.array_equal(scene.rgb, theirs.rgb)
    assert theirs.offset == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(scene.xyz + np.array(scene.offset), points, atol=1e-6)
    plain = read_ply(tmp_path / "a.ply", points, np.zeros_like(points, np.uint8))
    np.testing.assert_allclose(plain.xyz, scene.xyz, atol=1e-5)  # the mean of float32 sums is a little off


@pytest.mark.parametrize("binary", (True, False))
def test_georeferenced_scenes_keep_their_voxels_and_their_coordinates(tmp_path, binary):
    xyz, rgb = room()
    there = xyz.astype(np.float64) + UTM
    near = read_ply(tmp_path / "near.ply", xyz, rgb)
    if binary:
        far = read_ply(tmp_path / "far.ply", there, rgb)
    else:  # text whose header says float, as some programs write it
        names = [f"property float {name}" for name in "xyz"] + [f"property uchar {c}" for c in ("red", "green", "blue")]
        header = ["ply", "format ascii 1.0", f"element vertex {len(xyz)}", *names, "property uchar label", "end_header"]
        rows = [" ".join(map(repr, (*p, *c, 0))) for p, c in zip(there.tolist(), rgb.tolist())]
        (tmp_path / "far.ply").write_text("\n".join([*header, *rows]) + "\n")
        far = TableReader().read(RawScene("far", (str(tmp_path / "far.ply"),), True))
    assert far.xyz.dtype == np.float32 and number_of_voxels(far) == number_of_voxels(near) > 3000
    np.testing.assert_allclose(far.xyz, near.xyz, atol=1e-6)
    np.testing.assert_allclose(far.xyz + np.array(far.offset), there, rtol=0, atol=1e-6)
    np.testing.assert_allclose(far.offset, there.mean(axis=0), rtol=0, atol=1e-6)
    rounded = there.astype(np.float32)  # what a store held before: steps of 0.5 m
    assert len(sparse_quantize(rounded, quantization_size=0.05)) < 0.75 * number_of_voxels(near)


def test_a_store_keeps_the_offset_and_says_where_scenes_lie(tmp_path):
    scene = read_ply(tmp_path / "far.ply", *[room()[0].astype(np.float64) + UTM, room()[1]])
    header = write_scene(tmp_path / "far.scene", scene)
    again = read_scene(tmp_path / "far.scene", "far")
    assert again.offset == scene.offset == header.offset == read_header(tmp_path / "far.scene").offset
    assert header.is_centred and not write_scene(tmp_path / "b.scene", scene._replace(xyz=room()[0])).is_centred
    content = (tmp_path / "far.scene").read_bytes()
    assert struct.unpack_from("<3d", content, 64) == scene.offset and struct.unpack_from("<I", content, 36) == (1,)


def test_georeferenced_torch_files_are_centred_and_others_stay(tmp_path):
    xyz, rgb = room(500)
    labels = np.zeros(500)
    for name, shift in (("near", 0.0), ("far", np.array(UTM))):
        zipped(tmp_path / f"{name}.pth", (xyz + shift, rgb / 127.5 - 1, labels, labels))
    near, far = (PthReader().read(RawScene(n, (str(tmp_path / f"{n}.pth"),), True)) for n in ("near", "far"))
    assert np.array_equal(near.xyz, xyz) and near.offset == (0.0, 0.0, 0.0)
    np.testing.assert_allclose(far.xyz, xyz - xyz.mean(axis=0, dtype=np.float64), atol=1e-6)


WRITING = ("-eval", "-pretrained=x", "SAVE_PREDICTIONS", "true")


@pytest.mark.parametrize("name, written", (("semantic_segmentation", ""), ("pointgroup", "_truth _prediction")))
def test_predictions_have_the_coordinates_of_the_source(tmp_path, name, written):
    """From PLY files over the store, the batch and an untrained network to PLY files."""
    xyz = {letter: room(600, seed)[0].astype(np.float64) + UTM for seed, letter in enumerate("abc")}
    prepare(tmp_path / "in", tmp_path / "out", xyz)
    words = ["TASK", name, "-dataset=scenes", f"-data_path={tmp_path / 'out'}", "DATA.VOXEL_SIZE_M", "0.2"]
    network = "pointgroup POINTS.INSTANCES.WIDTH 4" if name == "pointgroup" else "minkunet_tutorial"
    task = resolve("task", name)(settings.load([*words, "MODEL.NAME", *network.split(), *WRITING]).values)
    samples = task.build_dataset("train", tmp_path)
    evaluated = task.build_dataset("val", tmp_path)
    written_to = tmp_path / "predictions"
    written_to.mkdir()
    model = task.build_model()
    model.eval()
    plain = dataclasses.replace(samples, steps=evaluated.steps)
    batch = task.collate([plain.sample(index, np.random.default_rng(0)) for index in range(2)])
    tensors = {key: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for key, value in batch.items()}
    writer = SavedPredictions(task.prediction_writer(written_to, plain), written_to, range(2))
    with paddle.no_grad():
        task.eval_step(model, tensors, EvaluationStep(task.build_metrics(), writer))
    for letter in "ab":
        for ending in written.split() or [""]:
            columns = read_vertices(written_to / f"{letter}{ending}.ply")
            found = np.stack([columns[axis] for axis in "xyz"], axis=1)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, xyz[letter], rtol=0, atol=1e-6)


def test_a_scene_that_was_not_moved_is_written_as_before(tmp_path):
    scene = scene_of(20)
    write_coloured_ply(tmp_path / "a.ply", scene.xyz, scene.rgb, scene.semantic)
    columns = read_vertices(tmp_path / "a.ply")
    assert all(columns[name].dtype == np.float32 for name in "xyz") and np.array_equal(columns["x"], scene.xyz[:, 0])


def test_nan_labels_are_points_without_one(tmp_path):
    xyz, rgb = room(6)
    label = np.array([0, np.nan, 2, np.nan, -1, 1], np.float32)
    scene = read_ply(tmp_path / "a.ply", xyz, rgb, label=label, instance=label)
    assert scene.semantic.tolist() == [0, -100, 2, -100, -100, 1]
    assert scene.instance.tolist() == [0, -100, 2, -100, -100, 1]


def test_a_text_file_with_a_label_that_its_type_cannot_hold_is_told(tmp_path):
    for value in ("nan", "300", "-1", "1.5"):
        header = [
            "ply",
            "format ascii 1.0",
            "element vertex 2",
            "property float x",
            "property uchar label",
            "end_header",
        ]
        rows = "\n".join([*header, "1 7", f"2 {value}", ""])
        (tmp_path / "a.ply").write_text(rows)
        with pytest.raises(UserError, match=rf"vertex 1 has label {value}, but its header declares it as uchar"):
            read_vertices(tmp_path / "a.ply")


def prepare(folder, output, scenes, reader=TableReader):
    """A store of these scenes: arrays (P, 3) by name."""
    folder.mkdir(exist_ok=True)
    for name, xyz in scenes.items():
        write_ply(folder / f"{name}.ply", xyz, np.zeros(xyz.shape, np.uint8))
    splits = reader().sources(str(folder), dict.fromkeys(("train", "val", "test")))
    return prepare_store(reader(), splits, str(folder), output, workers=1)


def test_a_preparation_leaves_the_half_written_files_of_another_one(tmp_path):
    scenes = {name: room(2000, seed)[0] for seed, name in enumerate("ab")}
    (tmp_path / "out" / "scenes").mkdir(parents=True)
    killed, running = (tmp_path / "out" / "scenes" / f"a.scene.{process}.0123abcd.tmp" for process in (4711, 4712))
    killed.touch()
    running.touch()
    os.utime(killed, ns=(1, 1))
    os.utime(running, (later := time.time() + 60, later))
    prepare(tmp_path / "raw", tmp_path / "out", scenes)
    assert running.exists() and not killed.exists()


def test_millimetres_are_noticed_when_scenes_are_prepared_and_when_they_are_opened(tmp_path):
    metres = {name: room(2000, seed)[0] for seed, name in enumerate("ab")}
    assert prepare(tmp_path / "m", tmp_path / "m_out", metres).remarks == []
    assert Scenes(str(tmp_path / "m_out"), "train", tmp_path).unit_notice(0.02) is None
    millimetres = {name: xyz * 1000 for name, xyz in metres.items()}
    (remark,) = prepare(tmp_path / "mm", tmp_path / "mm_out", millimetres).remarks
    assert "2 of 2 scenes look as if they were in millimetres or centimetres (a spans 5," in remark
    notice = Scenes(str(tmp_path / "mm_out"), "train", tmp_path).unit_notice(0.05)
    assert "scene a spans 100," in notice and "of DATA.VOXEL_SIZE_M" in notice
    assert Scenes(str(tmp_path / "mm_out"), "train", tmp_path).unit_notice(50.0) is None


def test_coordinates_that_the_source_holds_in_coarse_steps_are_told():
    xyz = room(10)[0].astype(np.float64) + UTM
    assert coordinates.coarse_steps("a.ply", xyz) == []
    assert coordinates.coarse_steps("a.ply", room(10)[0]) == []
    (line,) = coordinates.coarse_steps("a.ply", xyz.astype(np.float32))
    assert "a.ply stores x, y and z up to 5,400,00" in line and "in steps of 0.5 m" in line


def test_a_scene_that_is_cut_off_is_prepared_again(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(50, seed)[0] for seed, name in enumerate("ab")})
    path = tmp_path / "out" / "scenes" / "a.scene"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert prepare(tmp_path / "in", tmp_path / "out", {}).kept == 1 and path.read_bytes() == whole


def test_a_store_of_another_version_is_not_touched(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(50)[0] for name in "ab"})
    record = json.loads((tmp_path / "out" / "prepared.json").read_text())
    for strange in ({**record, "version": 3}, {**record, "version": 1}, [1, 2]):
        (tmp_path / "out" / "prepared.json").write_text(json.dumps(strange))
        with pytest.raises(UserError, match="was prepared from other data or by another version"):
            prepare(tmp_path / "in", tmp_path / "out", {})


def scenes_task(folder):
    words = ["TASK", "semantic_segmentation", "-dataset=scenes", f"-data_path={folder}", "DATA.VOXEL_SIZE_M", "0.05"]
    return resolve("task", "semantic_segmentation")(settings.load(words).values)


def test_a_run_knows_where_its_scenes_lie(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(50)[0] for name in "ab"})
    task = scenes_task(tmp_path / "out")
    for split in ("train", "val"):
        task.build_dataset(split, tmp_path)
        assert task.about_input()["coordinates"] == CENTRED
    assert SyntheticRooms(None, "train", None).coordinates == AS_GIVEN


def test_scenes_without_any_class_are_told_and_not_left_as_a_store_without_classes(tmp_path):
    xyz, rgb = room(6)
    for name in "ab":
        write_ply(tmp_path / f"{name}.ply", xyz, rgb, label=np.full(6, np.nan, np.float32))
    for reader in (TableReader(), TableReader(SceneChoices(label="none"))):
        splits = reader.sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))
        with pytest.raises(UserError, match="no point of any scene has a class: choose the property .* --label"):
            prepare_store(reader, splits, str(tmp_path), tmp_path / "out", workers=1)


def test_torch_files_that_are_not_centred_are_told_and_kept(tmp_path):
    for name, shift in (("a", 3.0), ("b", 0.0)):
        xyz = room(200)[0]
        xyz = xyz - xyz.mean(axis=0) + np.float32(shift)
        zipped(tmp_path / f"{name}.pth", (xyz, xyz * 0, np.zeros(200), np.zeros(200)))
    splits = PthReader().sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))
    (remark,) = prepare_store(PthReader(), splits, str(tmp_path), tmp_path / "out", workers=1).remarks
    assert "1 of 2 scenes do not lie around the origin" in remark and "(a has x from " in remark


@pytest.mark.parametrize("name", ("semantic_segmentation", "pointgroup"))
@pytest.mark.parametrize("shifts, expected", (((3.0, 0.0), AS_GIVEN), ((0.0, 3.0), AS_GIVEN), ((0.0, 0.0), CENTRED)))
def test_an_evaluation_agrees_with_the_training_on_the_same_store(tmp_path, name, shifts, expected):
    """Whichever splits are opened, with the note of the preparation and without it."""
    for split, shift in zip(("train", "val"), shifts):
        xyz = room(200)[0]
        xyz = xyz - xyz.mean(axis=0) + np.float32(shift)
        (tmp_path / split).mkdir()
        zipped(tmp_path / split / f"{split}_room.pth", (xyz, xyz * 0, np.zeros(200), np.zeros(200)))
    splits = PthReader().sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))
    prepare_store(PthReader(), splits, str(tmp_path), tmp_path / "out", workers=1)
    words = ["TASK", name, "-dataset=scenes", f"-data_path={tmp_path / 'out'}"]
    words += ["MODEL.NAME", "pointgroup" if name == "pointgroup" else "minkunet_tutorial"]
    record = json.loads((tmp_path / "out" / "prepared.json").read_text())
    assert record.pop("centred") == (expected == CENTRED)
    for _ in range(2):
        for opened in (("train", "val"), ("val",), ("train",)):
            task = resolve("task", name)(settings.load(words).values)
            for split in opened:
                task.build_dataset(split, tmp_path)
            assert task.about_input()["coordinates"] == expected
        (tmp_path / "out" / "prepared.json").write_text(json.dumps(record))  # as versions before wrote it


def stray(value, number=1, scale=1.0, points=1000, height=1.0):
    xyz = room(points)[0].astype(np.float64) * scale * [1, 1, height]
    xyz[17 : 17 + number, 0] = value
    return xyz


@pytest.mark.parametrize("place", (coordinates.centre, coordinates.as_given, coordinates.centre_as_the_original))
@pytest.mark.parametrize(
    "xyz, message",
    (
        (stray(20_000.0), r"^a\.ply: point 17 lies 19,99\d m from the others, .* 8,192 m .*: remove stray points$"),
        (stray(1e9), r"point 17 lies 1e\+09 m from the others|point 17 lies 999,999,99\d m from the others"),
        (stray(1e11, 9), r"point 17 lies 1e\+11 m from the others"),
        (stray(1e11)[17:], r"point 0 lies 1e\+11 m from the others"),
        (stray(1e300), r"point 17 lies 1e\+300 m from the others"),
        (
            stray(20_000.0, scale=2000.0, height=0.1),
            r"reaches .* if it is in millimetres, export it in metres",
        ),  # 10 m wide
        (
            stray(0.0, scale=4000.0, height=0.1),
            r"^a\.ply reaches 1.,... m from its middle, .* if it is in millimetres, export it",
        ),
    ),
)
def test_points_too_far_for_floats_are_refused_as_stray_ones_or_by_their_unit(place, xyz, message):
    with pytest.raises(UserError, match=message) as error:
        place("a.ply", xyz)
    assert "\n" not in str(error.value)
    assert ("millimetres" in str(error.value)) == ("millimetres" in message)


@pytest.mark.parametrize("place", (coordinates.centre, coordinates.as_given, coordinates.centre_as_the_original))
def test_rooms_in_millimetres_may_be_large(place):
    xyz = room(1000)[0].astype(np.float64) * 4000  # 20 m wide
    placed = place("a.ply", xyz)
    assert np.abs(placed.xyz).max() > 8192
    np.testing.assert_allclose(placed.xyz + np.array(placed.offset), xyz, rtol=0, atol=1e-3)  # a micrometre
    with pytest.raises(UserError, match="remove stray points"):
        place("a.ply", np.concatenate([xyz, [[1e8, 0, 0]]]))


def box(width, height, points):
    """What the header says of a scene that is centred, metres."""
    low, high = (-width / 2, -width / 2, -height / 2), (width / 2, width / 2, height / 2)
    return SceneHeader(1, points, points, 0, 0, True, low, high, (0.0, 0.0, 0.0), bytes(32), 0)


@pytest.mark.parametrize(
    "width, height, points, expected",
    (
        *[(width, 3.0, points, False) for width in (4.0, 50.0) for points in (2_000, 1_500_000)],
        *[(500.0, 60.0, points, False) for points in (250_000, 25_000_000)],  # outdoors, 1 m to 0.1 m between points
        (2000.0, 300.0, 4_000_000, False),  # hills
        *[(4000.0, 2500.0, points, True) for points in (2_000, 1_500_000, 100_000_000)],  # rooms in millimetres
        *[(400.0, 250.0, points, True) for points in (2_000, 1_500_000)],  # and in centimetres
        (4000.0, 50.0, 10_000, True),
    ),
)
def test_other_units_are_noticed_however_dense_scenes_are(width, height, points, expected):
    header = box(width, height, points)
    assert header.looks_too_large == expected
    remarks = coordinates.remarks_on("ply", ["a", "b"], [header, box(4.0, 3.0, 1000)])
    assert len(remarks) == expected and all("1 of 2 scenes look as if they were in millimetres" in r for r in remarks)


def test_a_run_asks_about_the_unit_once_for_all_splits_of_a_store(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(300, seed)[0] * 1000 for seed, name in enumerate("ab")})
    task = scenes_task(tmp_path / "out")
    lines = [line for split in ("train", "val") for line in task.build_dataset(split, tmp_path).notices]
    (line,) = lines
    assert line.startswith("note: scene a spans ") and "in millimetres, set DATA.UNIT_M 0.001" in line


def test_what_there_is_to_say_of_a_scene_outlives_a_preparation_that_another_ended(tmp_path):
    far = (room(50)[0] + np.float32(UTM)).astype(np.float32)
    with pytest.raises(UserError, match="point 17 lies"):
        prepare(tmp_path / "in", tmp_path / "out", {"a": far, "b": stray(1e9)})
    summary = prepare(tmp_path / "in", tmp_path / "out", {"b": room(50)[0]})
    assert summary.kept == 1 and len(summary.remarks) == 1 and "a.ply stores x, y and z" in summary.remarks[0]


def test_all_scenes_that_cannot_be_prepared_are_told_at_once_and_the_others_are_there(tmp_path):
    scenes = {"good": room(50)[0], "far": stray(1e9), "farther": stray(1e12)}
    with pytest.raises(
        UserError, match=r"^2 of 3 scenes cannot be prepared, the others are: .*/far.ply: .*/farther.ply"
    ):
        prepare(tmp_path / "in", tmp_path / "out", scenes)
    assert [file.stem for file in (tmp_path / "out" / "scenes").iterdir()] == ["good"]


def test_scenes_in_other_formats_are_counted(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.las", "b.las", "c.obj", "notes.txt"):
        (tmp_path / "in" / name).write_bytes(b"1")
    reader = TableReader()
    with pytest.raises(UserError, match=r"holds no file that ends in .ply, but 2 .las, 1 .obj; give"):
        reader.sources(str(tmp_path / "in"), {})
    prepare(tmp_path / "in", tmp_path / "out", {"a": room(50)[0], "b": room(50)[0]})
    reader.sources(str(tmp_path / "in"), {})
    assert reader.remarks == [f"{tmp_path}/in also holds 2 .las, 1 .obj, which are not read: only .ply is"]
