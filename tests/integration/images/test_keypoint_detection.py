"""Runs of DETRPose: killed and resumed, on two processes, averaged, sharded, exported and predicting."""

import json
import sys

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import ROOT, run_command, run_main
from support.trainings.killed_runs import kill_in_evaluation
from support.trainings.runs import read_events, well
from support.trainings.small_runs import make_trainer

POSES = [f"-cfg={ROOT / 'configs' / 'detrpose_figures.yaml'}", "DATA.NUM_WORKERS", "0", "REPORT", "False"]
POSES += ["DATA.SHAPES.TRAIN", "8", "DATA.SHAPES.VAL", "5", "DATA.SHORTEST_SIDES", "[48]", "-batch_size=4"]
POSES += ["MODEL.NUM_QUERIES", "10", "DATA.EVAL_SHORTEST_SIDE", "48"]
POSES += ["TRAIN.WARMUP_STEPS", "0", "VALIDATE_FREQ", "1", "SAVE_FREQ", "1"]


def build(output, *words):
    """A trainer in the test's own process."""
    return make_trainer(output, [*POSES, *words])


def read_weights(folder):
    return paddle.load(str(folder / "checkpoints" / "last" / "model.pdparams"), return_numpy=True)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    build(folder, "-epochs=3").train()
    return folder


def test_a_killed_run_continues_to_the_bit(straight, tmp_path, monkeypatch):
    kill_in_evaluation(build(tmp_path, "-epochs=3"), monkeypatch, number=2)
    build(tmp_path, "-epochs=3", "-resume=auto").train()
    expected, found = read_weights(straight), read_weights(tmp_path)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_two_processes_average_shard_and_score_what_one_does(tmp_path):
    words = [*POSES, "-epochs=1", "TRAIN.MODEL_EMA", "True", "TRAIN.BATCH_NORM", "sync", "TRAIN.OPTIMIZER.EPS", "1e-3"]
    for name, processes, batch, more in (
        ("one", 1, 4, []),
        ("two", 2, 2, []),
        ("sharded", 2, 2, ["TRAIN.SHARDING", "optimizer", "TRAIN.RECOMPUTE", "True"]),
    ):
        well(run_main(*words, f"-ngpus={processes}", f"-batch_size={batch}", *more, f"-output={tmp_path / name}"))
    one, scores = read_weights(tmp_path / "one"), []
    for name in ("one", "two", "sharded"):
        for key, value in read_weights(tmp_path / name).items():
            np.testing.assert_allclose(value, one[key], atol=2e-4, err_msg=f"{name} {key}")
        scores += [event["AP"] for event in read_events(tmp_path / name) if event["kind"] == "evaluation"]
    assert len(scores) == 3 and scores == pytest.approx([scores[0]] * 3, abs=1e-2)


def test_a_run_is_exported_scored_and_predicts(straight, tmp_path):
    run = [sys.executable, "-m", "paddlevit_dist"]
    ended = run_command([*run, "export", str(straight), str(tmp_path / "net")])
    assert ended.code == 0, ended.err
    assert "differ by at most" in ended.out
    words = [f"-cfg={straight / 'config.yaml'}", "-eval", "EXPORTED", str(tmp_path / "net.json"), "-ngpus=1"]
    weights = f"-pretrained={straight / 'checkpoints' / 'best'}"
    out = well(run_main(*words, weights, f"-output={tmp_path / 'eval'}")).out
    assert "after the export: AP" in out
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.new("RGB", (60, 50), (90, 120, 40)).save(pictures / "a.png")
    known = {"images": [{"id": 77, "file_name": "a.png"}]}
    known["categories"] = [{"id": 5, "name": "hand"}, {"id": 9, "name": "person"}]
    (tmp_path / "known.json").write_text(json.dumps(known), encoding="utf-8")
    more = [f"-output={tmp_path / 'found'}", "-ngpus=1", f"-annotations={tmp_path / 'known.json'}", "-save_as=yolo"]
    ended = run_command([*run, "predict", str(straight), str(pictures), *more])
    assert ended.code == 0, ended.err
    results = json.loads((tmp_path / "found" / "results.json").read_text(encoding="utf-8"))
    assert len(results) == 10 and {len(result["keypoints"]) for result in results} <= {21, 18}
    ids = {"hand": 5, "person": 9}
    assert all((result["image_id"], result["category_id"]) == (77, ids[result["category_name"]]) for result in results)
    dataset = tmp_path / "found" / "dataset"
    assert ended.out.count(f"are in {dataset}: -dataset=yolo_pose -data_path={dataset}\n") == 1
    files = {str(path.relative_to(dataset)) for path in dataset.rglob("*") if path.is_file()}
    assert files == {"data.yaml", "images/train/a.png", "labels/train/a.txt"}
    about = json.loads((tmp_path / "found" / "about.json").read_text(encoding="utf-8"))
    assert about["settings_sha256"].endswith(", saved as yolo")  # another layout is not continued
