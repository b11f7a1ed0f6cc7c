"""Stores of prepared scenes: what is written, kept, made anew and told, where scenes lie and what their unit is."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from support.files.georeferenced_scenes import UTM, room, stray, write_ply
from support.files.odd_names import ODD_NAMES
from support.files.raw_scenes import zipped
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.points.data.rooms import SyntheticRooms
from paddlevit_dist.points.data.scene import AS_GIVEN, CENTERED, IGNORED, Scene
from paddlevit_dist.points.data.scene_store import VERSION, read_scene
from paddlevit_dist.points.data.scenes import PreparedScenes
from paddlevit_dist.points.prepare.listing import RawScene, SceneChoices, SceneReader
from paddlevit_dist.points.prepare.pointgroup import PthReader
from paddlevit_dist.points.prepare.store import prepare_store
from paddlevit_dist.points.prepare.tables import PlyReader

pytestmark = pytest.mark.usefixtures("pools_in_this_process")
FAR = (room(50)[0] + np.float32(UTM)).astype(np.float32)  # in steps of 0.5 m, which is told


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
    (line,) = [line for line in lines if "unit" in line or "UNIT" in line]
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
    for name in ("a.las", "b.las", "c.obj", "d.txt", "classes.txt"):
        (tmp_path / "in" / name).write_bytes(b"1")
    reader = PlyReader()
    with pytest.raises(UserError, match=r"contains no file that ends in .ply, but 2 .las, 1 .obj, 1 .txt; give"):
        reader.sources(str(tmp_path / "in"), {})
    prepare(tmp_path / "in", tmp_path / "out", {"a": room(50)[0], "b": room(50)[0]})
    reader.sources(str(tmp_path / "in"), {})
    assert reader.remarks == [f"{tmp_path}/in also contains 2 .las, 1 .obj, 1 .txt, not read as scenes: only .ply"]


def test_a_store_has_lists_classes_and_a_record_of_what_is_told(tmp_path):
    near = room(40)[0]
    summary = prepare(tmp_path / "in", tmp_path / "out", {"e": near, "a": FAR, "c": near, "d": FAR, "b": FAR[:30]})
    assert {path.name: path.read_text() for path in (tmp_path / "out").glob("*.txt")} == {
        "classes.txt": "0\n",
        "train.txt": "a\nb\nc\nd\n",
        "val.txt": "e\n",
    }
    record = json.loads((tmp_path / "out" / "prepared.json").read_text())
    remarks = record.pop("remarks")
    expected = {"version": VERSION, "kind": "ply", "source": str(tmp_path / "in"), "coordinates": CENTERED}
    assert record == {**expected, "centered": True}
    assert sorted(remarks) == ["a", "b", "d"] and all(f"/{name}.ply stores" in remarks[name][0] for name in remarks)
    size = sum(path.stat().st_size for path in (tmp_path / "out" / "scenes").iterdir())
    told = [*remarks["a"], *remarks["b"], *remarks["d"]]
    assert summary == ({"train": 4, "val": 1}, 210, size, 0, told)


def test_scenes_with_any_sign_in_their_names_are_read_again(tmp_path):
    names = [*ODD_NAMES, os.fsdecode(b"latin\xe9")]
    prepare(tmp_path / "in", tmp_path / "out", {name: room(40 + number)[0] for number, name in enumerate(names)})
    found = {}
    for split in ("train", "val"):
        scenes = PreparedScenes(str(tmp_path / "out"), split, tmp_path)
        found |= {Path(scenes.describe(index)).stem: len(scenes.read(index).xyz) for index in range(len(scenes))}
    assert found == {name: 40 + number for number, name in enumerate(names)}


def test_remarks_are_of_the_scenes_that_are_there_as_they_are_now(tmp_path):
    prepare(tmp_path / "in", tmp_path / "out", {"a": FAR, "b": FAR, "c": room(50)[0], "d": FAR})
    (tmp_path / "in" / "d.ply").unlink()
    os.utime(tmp_path / "in" / "c.ply", (1, 1))
    summary = prepare(tmp_path / "in", tmp_path / "out", {"b": room(60)[0], "e": FAR})
    assert summary.kept == 1 and summary.points == 210
    told = json.loads((tmp_path / "out" / "prepared.json").read_text())["remarks"]
    assert list(told) == ["a", "e"] and summary.remarks == [*told["a"], *told["e"]]


class OwnReader(SceneReader):
    """Scenes whose files say which class all points have; with an error, others raise it."""

    kind = "own"

    def __init__(self, class_names=None, error=UserError):
        super().__init__(SceneChoices(class_names))
        self.error = error

    def read(self, source):
        with open(source.files[0]) as file:
            text = file.read()
        if not text.lstrip("-").isdigit():
            raise self.error(f"{source.name} is {text}")
        xyz, rgb = room(8)
        return Scene(xyz, rgb, np.full(8, int(text), np.int16), np.full(8, IGNORED, np.int16), source.name)


def prepare_own(tmp_path, texts, is_labeled=True, **options):
    sources = []
    for name, text in texts.items():
        (tmp_path / f"{name}.own").write_text(text)
        sources.append(RawScene(name, (str(tmp_path / f"{name}.own"),), is_labeled))
    return prepare_store(OwnReader(**options), {"train": sources}, "of nowhere", tmp_path / "out", 3)


def test_classes_are_those_of_the_reader_or_as_many_as_occur(tmp_path):
    for class_names, expected in ((None, ["0", "1", "2", "3"]), (("wall", "floor", "a", "b", "c"), None)):
        prepare_own(tmp_path, {"a": "1", "b": "3", "c": "-100"}, class_names=class_names)
        names = (tmp_path / "out" / "classes.txt").read_text().splitlines()
        assert names == (expected or list(class_names))


def test_scenes_with_other_labels_or_changed_files_are_made_anew(tmp_path):
    texts = {"a": "1", "b": "0"}
    assert [prepare_own(tmp_path, texts).kept, prepare_own(tmp_path, texts).kept] == [0, 0]  # the files are new
    for name in texts:
        os.utime(tmp_path / f"{name}.own", (5, 5))
    sources = [RawScene(name, (str(tmp_path / f"{name}.own"),), True) for name in texts]
    without = [sources[0], sources[1]._replace(labeled=False)]
    kept = []
    for given, names in (
        (sources, None),
        (sources, None),
        (without, None),
        (sources, None),
        (sources, "xy"),
        (sources, "zw"),
    ):
        kept.append(prepare_store(OwnReader(names), {"train": given}, "of nowhere", tmp_path / "out", 3).kept)
    assert kept == [0, 2, 1, 1, 0, 2]


def test_twenty_reasons_are_told_in_the_order_of_the_scenes_names(tmp_path):
    bad = {f"s{number:02}": "odd" for number in range(22, 0, -1)}
    first = [f"s{number:02} is odd" for number in range(1, 21)]
    for texts, told in (
        ({"a": "1", "b": "odd"}, "b is odd"),
        ({**bad, "good": "2"}, f"22 of 23 scenes cannot be prepared: {'; '.join(first)}; and 2 more"),
        ({name: bad[name] for name in list(bad)[2:]}, f"20 of 20 scenes cannot be prepared: {'; '.join(first)}"),
    ):
        assert refusal_of(prepare_own, tmp_path, texts) == told and not (tmp_path / "out" / "classes.txt").exists()


def test_an_exception_of_a_users_reader_names_the_file_and_one_of_the_machine_does_not(tmp_path):
    for error, told, message in (
        (KeyError, RuntimeError, f"^{tmp_path}/a.own cannot be read: KeyError: 'a is odd'$"),
        (OSError, OSError, "^a is odd$"),
        (MemoryError, MemoryError, "^a is odd$"),
    ):
        with pytest.raises(told, match=message):
            prepare_own(tmp_path, {"a": "odd"}, error=error)


def test_a_folder_of_something_else_is_not_touched(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes").write_text("mine")
    for change, told in (
        (lambda: None, f"{out} is not empty and has no prepared.json; choose a new folder"),
        (lambda: (out / "prepared.json").write_text("{"), f"{out}/prepared.json is damaged (.*); choose a new folder"),
        (
            lambda: (out / "prepared.json").write_text('{"kind": "ply", "source": "of nowhere"}'),
            f"{out} was prepared from other data or by another version: version unknown there and {VERSION} here, "
            "kind ply there and own here; choose a new folder",
        ),
        (
            lambda: ((out / "scenes").rmdir(), (out / "scenes").touch()),
            f"{out} cannot be created or read: File exists; choose another folder",
        ),
    ):
        change()
        with pytest.raises(UserError, match=f"^{told}$".replace("(.*)", r"\(.*\)")):
            prepare_own(tmp_path, {"a": "1"})
    assert (out / "notes").read_text() == "mine" and not list(out.glob("*.txt"))
