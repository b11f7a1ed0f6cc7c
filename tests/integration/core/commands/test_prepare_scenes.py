"""``prepare scannet``, ``prepare ply`` and ``prepare pth`` as a user runs them."""

import hashlib
import os
import signal
import sys

import numpy as np
import pytest
from support.files.raw_scenes import legacy, make_points, pointgroup_arrays, write_scannet, zipped
from support.processes import left_behind, run_command, start_command, wait_until
from support.trainings.runs import contents, refusal, well

from paddlevit_dist.points.data.ply import write_points
from paddlevit_dist.points.data.scannet_classes import CLASS_NAMES
from paddlevit_dist.points.data.scene_store import VERSION, read_scene, write_scene
from paddlevit_dist.points.data.scenes import PreparedScenes, ScanNet
from paddlevit_dist.points.prepare.scannet import ScanNetReader
from paddlevit_dist.points.prepare.tables import PlyReader


def command(kind, *arguments):
    return [sys.executable, "-m", "paddlevit_dist", "prepare", kind, *map(str, arguments)]


def prepare(kind, *arguments):
    return run_command(command(kind, *arguments))


@pytest.fixture
def raw(tmp_path):
    """Four labeled scenes and a test scene of ScanNet, with their lists."""
    root = tmp_path / "raw"
    names = [f"scene000{number}_00" for number in range(4)]
    for number, name in enumerate(names):
        write_scannet(root / "scans" / name, name, seed=number)
    write_scannet(root / "scans_test" / "scene0707_00", "scene0707_00", labeled=False)
    (root / "scannetv2_train.txt").write_text("".join(f"{name}\n" for name in names[:3]))
    (root / "scannetv2_val.txt").write_text(f"{names[3]}\n")
    (root / "scannetv2_test.txt").write_text("scene0707_00\n")
    return root


def test_scannet_becomes_a_store_that_the_data_set_reads(raw, tmp_path):
    output = tmp_path / "out"
    ended = well(prepare("scannet", raw, output, "--workers=2"))
    size = 4 * (136 + 18 * 400) + 136 + 15 * 400
    assert ended.out == (
        f"prepared 3 train, 1 val, 1 test scenes of 2,000 points ({size / 1e6:,.1f} MB) in {output}; "
        f"to train on them: -dataset=scannet -data_path={output}\n"
    )
    assert sorted(path.name for path in output.iterdir()) == [
        "classes.txt",
        "prepared.json",
        "scenes",
        "test.txt",
        "train.txt",
        "val.txt",
    ]
    assert sum(path.stat().st_size for path in (output / "scenes").iterdir()) == size
    sources = ScanNetReader().sources(str(raw), dict.fromkeys(("train", "val", "test")))
    for split in ("train", "val", "test"):
        dataset = ScanNet(str(output), split, tmp_path)
        assert len(dataset) == len(sources[split]) and dataset.class_names == list(CLASS_NAMES)
        for index, source in enumerate(sources[split]):
            expected, found = ScanNetReader().read(source), dataset.read(index)
            assert found.name == source.name
            assert all(np.array_equal(a, b) for a, b in zip(found[:4], expected[:4]))


def test_a_second_run_makes_what_is_missing_damaged_or_changed(raw, tmp_path):
    output = tmp_path / "out"
    well(prepare("scannet", raw, output, "--workers=1"))
    before = contents(output)
    files = sorted((output / "scenes").iterdir())
    times = {file: file.stat().st_mtime_ns for file in files}
    files[0].rename(output / "scenes" / f"{files[0].name}.4711.abcd.tmp")  # as a killed run leaves it
    files[1].write_bytes(files[1].read_bytes()[:-1])
    changed = raw / "scans" / "scene0002_00" / "scene0002_00_vh_clean_2.ply"
    os.utime(changed, ns=(1, 1))
    ended = well(prepare("scannet", raw, output, "--workers=2"))
    assert "scenes (2 were prepared before) of 2,000 points" in ended.out
    after = contents(output)
    key_moved = "scenes/scene0002_00.scene"
    assert {name for name in before if before[name] != after.get(name)} == {key_moved} and set(before) == set(after)
    assert [file for file in files if file.stat().st_mtime_ns == times[file]] == files[3:]


def test_scenes_of_a_version_that_read_files_otherwise_are_made_anew(tmp_path):
    root, output = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    for name in "ab":
        write_points(root / f"{name}.ply", {**make_points(9), "label": np.arange(9) % 2})
    well(prepare("ply", root, output, "--workers=1"))
    before = contents(output)
    reader = PlyReader()
    for (source,) in reader.sources(str(root), dict.fromkeys(("train", "val", "test"))).values():
        state, path = os.stat(source.files[0]), output / "scenes" / f"{source.name}.scene"
        files = [(source.files[0], state.st_size, state.st_mtime_ns)]
        key = hashlib.sha256(repr((VERSION, "ply", reader.settings, files, True)).encode()).digest()
        scene = read_scene(path, source.name)
        write_scene(path, scene._replace(rgb=scene.rgb // 255), True, key)  # as once of colors a hair above 1
    assert contents(output) != before
    assert "were prepared before" not in well(prepare("ply", root, output, "--workers=1")).out
    assert contents(output) == before


def test_a_bad_scene_ends_the_preparation_and_the_others_stay(raw, tmp_path):
    output = tmp_path / "out"
    bad = raw / "scans" / "scene0001_00" / "scene0001_00_vh_clean_2.ply"
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-1])
    message = refusal(prepare("scannet", raw, output, "--workers=1"))
    assert f"{bad} is not a complete PLY file" in message
    assert not (output / "train.txt").exists() and not list(output.rglob("*.tmp"))
    assert "preparation was not finished" in refused_dataset(output, tmp_path)
    bad.write_bytes(whole)
    assert "prepared 3 train" in well(prepare("scannet", raw, output, "--workers=1")).out


def refused_dataset(output, cache):
    with pytest.raises(Exception) as error:
        PreparedScenes(str(output), "train", cache)
    return str(error.value)


def test_ply_folders_become_scenes_with_class_names(tmp_path):
    root, output = tmp_path / "in", tmp_path / "out"
    for split, number in (("train", 3), ("val", 1), ("test", 1)):
        (root / split).mkdir(parents=True)
        for position in range(number):
            columns = make_points(50, seed=position)
            if split != "test":
                columns["label"] = (np.arange(50) % 3).astype(np.uint8)
            write_points(root / split / f"{split}{position}.ply", columns)
    (tmp_path / "names.txt").write_text("grass\nroad\nroof\n")
    ended = well(prepare("ply", root, output, f"--classes={tmp_path / 'names.txt'}", "--workers=2"))
    assert "prepared 3 train, 1 val, 1 test scenes of 250 points" in ended.out and "-dataset=scenes" in ended.out
    train = PreparedScenes(str(output), "train", tmp_path)
    assert train.class_names == ["grass", "road", "roof"] and train.read(2).name == "train2"
    assert train.read(0).semantic.tolist() == (np.arange(50) % 3).tolist()
    assert set(PreparedScenes(str(output), "test", tmp_path).read(0).semantic) == {-100}
    numbered = tmp_path / "numbered"
    well(prepare("ply", root, numbered, "--workers=1"))
    assert PreparedScenes(str(numbered), "val", tmp_path).class_names == ["0", "1", "2"]


def test_other_options_make_the_scenes_anew(tmp_path):
    root, output = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    for name in "ab":
        columns = make_points(9)
        columns["label"], columns["kind"] = np.zeros(9, np.uint8), np.ones(9, np.uint8)
        columns["part"] = np.full(9, 0.0 if name == "a" else 0.5, np.float32)
        write_points(root / f"{name}.ply", columns)
    well(prepare("ply", root, output, "--workers=1"))
    ended = well(prepare("ply", root, output, "--workers=1", "--label=kind"))
    assert "already" not in ended.out
    assert set(PreparedScenes(str(output), "val", tmp_path).read(0).semantic) == {1}
    refusal(prepare("ply", root, output, "--workers=1", "--label=part"))  # some of the scenes have other labels now
    assert "preparation was not finished" in refused_dataset(output, tmp_path)


def test_pointgroups_files_become_scenes(tmp_path):
    root, output = tmp_path / "in", tmp_path / "out"
    for split, write, number in (("train", zipped, 0), ("val", legacy, 1)):
        (root / split).mkdir(parents=True)
        write(root / split / f"scene000{number}_00_inst_nostuff.pth", pointgroup_arrays(seed=number)[0])
    assert "-dataset=scannet" in well(prepare("pth", root, output, "--workers=1")).out
    arrays, rgb = pointgroup_arrays(seed=1)
    scene = ScanNet(str(output), "val", tmp_path).read(0)
    assert scene.name == "scene0001_00" and np.array_equal(scene.xyz, arrays[0]) and np.array_equal(scene.rgb, rgb)
    assert np.array_equal(scene.semantic, arrays[2]) and np.array_equal(scene.instance, arrays[3])


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("scannet", ["{none}", "{out}"], "none is not a folder: give the folder of the raw scenes"),
        ("scannet", ["{raw}"], "the following arguments are required: OUT"),
        (
            "scannet",
            ["{raw}", "{out}", "--workers=0"],
            "prepare scannet: argument --workers/-workers: '0' is not a whole number from 1 up",
        ),
        ("scannet", ["{raw}", "{raw}"], "is not empty and has no prepared.json; choose a new folder"),
        (
            "scannet",
            ["{raw}", "{out}", "--val_list={none}"],
            "none does not exist; expected a file with one scene name",
        ),
        ("scannet", ["{raw}/scans/scene0000_00", "{out}"], "has no lists of splits"),
        ("ply", ["{raw}/scannetv2_val.txt", "{out}"], "is not a folder"),
        ("ply", ["{raw}", "{out}", "--classes={none}"], "expected a file with one class name per line"),
        ("ply", ["{raw}", "{out}", "--color=gray"], "--color is not a known option: "),
        ("pth", ["{raw}", "{out}"], "contains no file that ends in .pth"),
    ],
)
def test_mistakes_are_told_in_one_line(kind, arguments, message, raw, tmp_path):
    names = {"raw": raw, "out": tmp_path / "out", "none": tmp_path / "none"}
    assert message in refusal(prepare(kind, *(word.format(**names) for word in arguments)))


def test_a_store_of_other_data_is_not_overwritten(raw, tmp_path):
    output = tmp_path / "out"
    well(prepare("scannet", raw, output, "--workers=1"))
    before = contents(output)
    (raw / "scans").rename(tmp_path / "moved")
    message = refusal(prepare("scannet", tmp_path / "moved", output, f"--val_list={raw / 'scannetv2_val.txt'}"))
    assert f"other data or by another version: source {raw} there and {tmp_path / 'moved'} here; choose" in message
    assert "{" not in message and contents(output) == before


def test_help_names_the_options():
    for kind, option in (
        ("scannet", "-train_list=FILE"),
        ("ply", "-missing_colors=stop|gray"),
        ("pth", "-classes=FILE"),
    ):
        assert option in well(prepare(kind, "-h")).out


def test_ctrl_c_leaves_finished_scenes_only_and_the_same_command_goes_on(tmp_path):
    root, output = tmp_path / "in", tmp_path / "out"
    root.mkdir()
    columns = make_points(60_000)
    columns["label"] = np.zeros(60_000, np.uint8)
    write_points(root / "0000.ply", columns)
    for number in range(1, 150):
        os.link(root / "0000.ply", root / f"{number:04d}.ply")
    process = start_command(command("ply", root, output, "--workers=2"))
    wait_until(lambda: list(output.glob("scenes/*.scene")) or process.poll() is not None, "it makes no scene")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (130, "")
    assert err == "interrupted; finished scenes are kept: run the same command to continue\n"
    assert left_behind(process.pid) == []
    finished = {file: file.stat().st_mtime_ns for file in output.glob("scenes/*")}
    assert 1 <= len(finished) < 150 and {file.suffix for file in finished} == {".scene"}
    ended = well(prepare("ply", root, output, "--workers=2"))
    assert f"({len(finished)} were prepared before)" in ended.out
    assert all(file.stat().st_mtime_ns == before for file, before in finished.items())
