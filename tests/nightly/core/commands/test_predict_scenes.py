"""``predict`` for scenes and volumes, as a user runs it: the same for any number of processes, bad inputs listed."""

import json
import sys

import numpy as np
from support.files.raw_scenes import make_points, write_scannet
from support.files.volume_files import write_volume
from support.processes import ROOT, run_command
from support.trainings.runs import contents, well
from support.trainings.untrained import write_untrained_run

from paddlevit_dist.points.data.ply import write_points

SEMANTIC = [f"-cfg={ROOT}/configs/minkunet14_synthetic_rooms.yaml", "MODEL.NAME", "minkunet_tutorial"]
LANDMARKS = [f"-cfg={ROOT}/configs/landmark_unet3d.yaml", "VOLUMES.UNET_WIDTH", "2", "VOLUMES.UNET_DEPTH", "1"]


def predict(*words, code=0):
    ended = run_command([sys.executable, "-m", "paddlevit_dist", "predict", *map(str, words)])
    return ended if code and ended.code == code else well(ended)


def test_scenes_of_all_kinds_become_a_submission(tmp_path):
    weights = write_untrained_run(tmp_path / "weights", SEMANTIC)
    for number, name in enumerate(("scene0707_00", "scene0708_00")):
        write_scannet(tmp_path / "scans_test" / name, name, points=200, seed=number, labeled=False)
    write_points(tmp_path / "mine.ply", make_points(300))
    (tmp_path / "damaged.ply").write_bytes(b"ply\n")
    inputs = [tmp_path / name for name in ("mine.ply", "damaged.ply", "scans_test")]
    ended = predict(weights, *inputs, f"--output={tmp_path / 'one'}", code=2)  # a named scene is damaged
    assert "3 predicted" in ended.out and "1 could not be read" in ended.out
    predict(weights, *inputs, f"--output={tmp_path / 'two'}", "--ngpus=2", code=2)
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert {name for name in one if name.startswith(("mine", "scene"))} == {
        f"{name}{end}" for name in ("mine", "scene0707_00", "scene0708_00") for end in (".ply", ".png", ".txt")
    }
    assert {name: one[name] for name in one if name != "about.json"} == {
        name: two[name] for name in two if name != "about.json"
    }
    rows = [json.loads(line) for line in (tmp_path / "one" / "predictions.jsonl").read_text().splitlines()]
    assert [row["points"] for row in rows] == [300, 200, 200] and rows[0]["input"].endswith("mine.ply")
    assert "zip -r submission.zip scene*.txt predicted_masks" in ended.out


def test_volumes_are_found_below_a_folder(tmp_path):
    weights = write_untrained_run(tmp_path / "weights", LANDMARKS)
    generator = np.random.default_rng(0)
    for name in ("a.nii.gz", "sub/b.mha", "sub/series"):
        write_volume(tmp_path / "in" / name, generator.integers(-900, 900, (8, 9, 10)).astype(np.int16))
    ended = predict(weights, tmp_path / "in", f"--output={tmp_path / 'out'}")
    assert "3 predicted" in ended.out
    rows = [json.loads(line) for line in (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 24 and [row["world"] for row in rows[::8]] == ["RAS", "LPS", "LPS"]
    assert all((tmp_path / "out" / row[kind]).is_file() for row in rows for kind in ("fcsv", "mrk_json", "picture"))
