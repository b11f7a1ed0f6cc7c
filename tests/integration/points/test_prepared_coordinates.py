"""Prepared scenes: where they lie, their units and labels, from the raw files to predictions."""

import dataclasses
import json
import os
import time

import numpy as np
import paddle
import pytest
from support.files.georeferenced_scenes import UTM, room, stray, write_ply
from support.files.raw_scenes import zipped

from paddlevit_dist import UserError, settings
from paddlevit_dist.inference.evaluation import SavedPredictions
from paddlevit_dist.points.data.ply import read_vertices
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.scene import AS_GIVEN, CENTERED
from paddlevit_dist.points.data.scene_store import read_scene
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.listing import SceneChoices
from paddlevit_dist.points.prepare.pointgroup import PthReader
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import PlyReader
from paddlevit_dist.registry.lookup import resolve
from paddlevit_dist.tasks.aspects import get_aspect
from paddlevit_dist.tasks.protocols import Predictable
from paddlevit_dist.tasks.step_types import EvaluationStep

WRITING = ("-eval", "-pretrained=x", "SAVE_PREDICTIONS", "true")


@pytest.mark.parametrize("name, written", (("semantic_segmentation", ""), ("pointgroup", "_truth _prediction")))
def test_predictions_have_the_coordinates_of_the_source(tmp_path, name, written):
    """From PLY files over the store, the batch and an untrained network to PLY files."""
    xyz = {letter: room(600, seed)[0].astype(np.float64) + UTM for seed, letter in enumerate("abc")}
    prepare(tmp_path / "in", tmp_path / "out", xyz)
    words = ["TASK", name, "-dataset=scenes", f"-data_path={tmp_path / 'out'}", "DATA.VOXEL_SIZE_M", "0.2"]
    instances = "pointgroup POINTS.INSTANCES.WIDTH 4 POINTS.INSTANCES.STUFF_CLASSES []"
    network = instances if name == "pointgroup" else "minkunet_tutorial"
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
    writer = SavedPredictions(get_aspect(task, Predictable).prediction_writer(written_to, plain), written_to, range(2))
    with paddle.no_grad():
        task.eval_step(model, tensors, EvaluationStep(task.build_metrics(), writer))
    for letter in "ab":
        for ending in written.split() or [""]:
            columns = read_vertices(written_to / f"{letter}{ending}.ply")
            found = np.stack([columns[axis] for axis in "xyz"], axis=1)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, xyz[letter], rtol=0, atol=1e-6)


def prepare(folder, output, scenes, reader=PlyReader):
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


def test_millimeters_are_noticed_when_scenes_are_prepared_and_when_they_are_opened(tmp_path):
    meters = {name: room(2000, seed)[0] for seed, name in enumerate("ab")}
    assert prepare(tmp_path / "m", tmp_path / "m_out", meters).remarks == []
    assert PreparedScenes(str(tmp_path / "m_out"), "train", tmp_path).unit_notice(0.02) is None
    millimeters = {name: xyz * 1000 for name, xyz in meters.items()}
    (remark,) = prepare(tmp_path / "mm", tmp_path / "mm_out", millimeters).remarks
    assert "2 of 2 scenes seem to be in millimeters or centimeters (a spans 5," in remark
    notice = PreparedScenes(str(tmp_path / "mm_out"), "train", tmp_path).unit_notice(0.05)
    assert "scene a spans 100," in notice and "of DATA.VOXEL_SIZE_M" in notice
    assert PreparedScenes(str(tmp_path / "mm_out"), "train", tmp_path).unit_notice(50.0) is None


def test_a_scene_that_is_cut_off_is_prepared_again(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(50, seed)[0] for seed, name in enumerate("ab")})
    path = tmp_path / "out" / "scenes" / "a.scene"
    whole = path.read_bytes()
    path.write_bytes(whole[:50])
    assert prepare(tmp_path / "in", tmp_path / "out", {}).kept == 1 and path.read_bytes() == whole


def test_a_scene_of_skipped_points_is_kept_as_prepared(tmp_path):
    points = room(50)[0]
    points[[3, 7]] = np.nan
    assert prepare(tmp_path / "in", tmp_path / "out", {"a": points, "b": room(50, 1)[0]}).kept == 0
    scene = read_scene(tmp_path / "out" / "scenes" / "a.scene", "a")
    assert scene.skipped_rows.tolist() == [3, 7] and len(scene.xyz) == 48
    assert prepare(tmp_path / "in", tmp_path / "out", {}).kept == 2


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
        assert task.signature()["coordinates"] == CENTERED
    assert SyntheticRooms(None, "train", None).coordinates == AS_GIVEN


def test_scenes_without_any_class_are_told_and_not_left_as_a_store_without_classes(tmp_path):
    xyz, rgb = room(6)
    for name in "ab":
        write_ply(tmp_path / f"{name}.ply", xyz, rgb, label=np.full(6, np.nan, np.float32))
    for reader in (PlyReader(), PlyReader(SceneChoices(label="none"))):
        splits = reader.sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))
        with pytest.raises(UserError, match="no point of any scene has a class: choose the property .* --label"):
            prepare_store(reader, splits, str(tmp_path), tmp_path / "out", workers=1)


def test_torch_files_that_are_not_centered_are_told_and_kept(tmp_path):
    for name, shift in (("a", 3.0), ("b", 0.0)):
        xyz = room(200)[0]
        xyz = xyz - xyz.mean(axis=0) + np.float32(shift)
        zipped(tmp_path / f"{name}.pth", (xyz, xyz * 0, np.zeros(200), np.zeros(200)))
    splits = PthReader().sources(str(tmp_path), dict.fromkeys(("train", "val", "test")))
    (remark,) = prepare_store(PthReader(), splits, str(tmp_path), tmp_path / "out", workers=1).remarks
    assert "1 of 2 scenes are not centered on the origin" in remark and "(a has x from " in remark


@pytest.mark.parametrize("name", ("semantic_segmentation", "pointgroup"))
@pytest.mark.parametrize("shifts, expected", (((3.0, 0.0), AS_GIVEN), ((0.0, 3.0), AS_GIVEN), ((0.0, 0.0), CENTERED)))
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
    assert record.pop("centered") == (expected == CENTERED)
    for _ in range(2):
        for opened in (("train", "val"), ("val",), ("train",)):
            task = resolve("task", name)(settings.load(words).values)
            for split in opened:
                task.build_dataset(split, tmp_path)
            assert task.signature()["coordinates"] == expected
        (tmp_path / "out" / "prepared.json").write_text(json.dumps(record))  # as versions before wrote it


def test_a_run_asks_about_the_unit_once_for_all_splits_of_a_store(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {name: room(300, seed)[0] * 1000 for seed, name in enumerate("ab")})
    task = scenes_task(tmp_path / "out")
    lines = [line for split in ("train", "val") for line in task.build_dataset(split, tmp_path).notices]
    (line,) = lines
    assert line.startswith("note: scene a spans ") and "in millimeters, set DATA.UNIT_M 0.001" in line


def test_what_there_is_to_say_of_a_scene_outlives_a_preparation_that_another_ended(tmp_path):
    far = (room(50)[0] + np.float32(UTM)).astype(np.float32)
    with pytest.raises(UserError, match="point 17 is"):
        prepare(tmp_path / "in", tmp_path / "out", {"a": far, "b": stray(1e9)})
    summary = prepare(tmp_path / "in", tmp_path / "out", {"b": room(50)[0]})
    assert summary.kept == 1 and len(summary.remarks) == 1 and "a.ply stores x, y and z" in summary.remarks[0]


def test_all_scenes_that_cannot_be_prepared_are_told_at_once_and_the_others_are_there(tmp_path):
    scenes = {"good": room(50)[0], "far": stray(1e9), "farther": stray(1e12)}
    with pytest.raises(UserError, match=r"^2 of 3 scenes cannot be prepared: .*/far.ply: .*/farther.ply"):
        prepare(tmp_path / "in", tmp_path / "out", scenes)
    assert [file.stem for file in (tmp_path / "out" / "scenes").iterdir()] == ["good"]


def test_scenes_in_other_formats_are_counted(tmp_path):
    (tmp_path / "in").mkdir()
    for name in ("a.las", "b.las", "c.obj", "notes.txt"):
        (tmp_path / "in" / name).write_bytes(b"1")
    reader = PlyReader()
    with pytest.raises(UserError, match=r"contains no file that ends in .ply, but 2 .las, 1 .obj; give"):
        reader.sources(str(tmp_path / "in"), {})
    prepare(tmp_path / "in", tmp_path / "out", {"a": room(50)[0], "b": room(50)[0]})
    reader.sources(str(tmp_path / "in"), {})
    assert reader.remarks == [f"{tmp_path}/in also contains 2 .las, 1 .obj, which are not read: only .ply"]
