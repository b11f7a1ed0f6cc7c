"""Runs of keypoints by heatmaps: killed and resumed, on two processes, averaged, with factors, with a detector."""

import json
import sys

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import ROOT, run_command, run_main
from support.trainings.killed_runs import kill_in_evaluation
from support.trainings.runs import read_events, refused, well
from support.trainings.small_keypoints import HEATMAPS
from support.trainings.small_runs import make_trainer

VIT = ["MODEL.NAME", "vitpose_tiny", "MODEL.DIMS", "None", "MODEL.EMBED_DIM", "16", "MODEL.DEPTH", "2"]
VIT += ["MODEL.NUM_HEADS", "2", "MODEL.OPTIONS.decoder", "simple", "HEATMAPS.CROP_SIZE", "[32, 24]"]
SHAPES = [f"-cfg={ROOT / 'configs' / 'detr_shapes.yaml'}", "DATA.SHAPES.TRAIN", "4", "DATA.SHAPES.VAL", "2"]
SHAPES += ["DATA.SHAPES.CATEGORIES", "[circle]", "MODEL.NUM_QUERIES", "5", "-epochs=1", "-batch_size=2"]
SHAPES += ["TRAIN.WARMUP_STEPS", "0", "REPORT", "False", "-ngpus=1", "DATA.NUM_WORKERS", "0"]


def read_weights(folder):
    return paddle.load(str(folder / "checkpoints" / "last" / "model.pdparams"), return_numpy=True)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    make_trainer(folder, [*HEATMAPS, "-epochs=3"]).train()
    return folder


def test_a_killed_run_continues_to_the_bit(straight, tmp_path, monkeypatch):
    kill_in_evaluation(make_trainer(tmp_path, [*HEATMAPS, "-epochs=3"]), monkeypatch, number=2)
    make_trainer(tmp_path, [*HEATMAPS, "-epochs=3", "-resume=auto"]).train()
    expected, found = read_weights(straight), read_weights(tmp_path)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_two_processes_learn_and_score_what_one_does(tmp_path):
    words = [*HEATMAPS, *VIT, "-epochs=2", "TRAIN.MODEL_EMA", "True"]
    for name, processes, batch, accumulated in (("one", 1, 4, 1), ("two", 2, 2, 1), ("parted", 1, 2, 2)):
        more = [f"-ngpus={processes}", f"-batch_size={batch}", f"-accum_iter={accumulated}"]
        well(run_main(*words, *more, f"-output={tmp_path / name}"))
    one = read_weights(tmp_path / "one")
    for name in ("two", "parted"):
        other = read_weights(tmp_path / name)
        for key, value in one.items():
            np.testing.assert_allclose(other[key], value, atol=2e-4, err_msg=f"{name} {key}")
    scores = [
        [event["AP"] for event in read_events(tmp_path / name) if event["kind"] == "evaluation"]
        for name in ("one", "two")
    ]
    assert len(scores[0]) == 2 and scores[0] == pytest.approx(scores[1], abs=1e-2)


def test_sharded_states_and_low_rank_factors_train(straight, tmp_path):
    words = [*HEATMAPS, *VIT, "-epochs=1", "-ngpus=2", "-batch_size=2"]
    well(run_main(*words, "TRAIN.SHARDING", "optimizer", f"-output={tmp_path / 'sharded'}"))
    more = [f"-pretrained={tmp_path / 'sharded'}", "TRAIN.LORA.RANK", "2", f"-output={tmp_path / 'factors'}"]
    assert "LoRA" in well(run_main(*words, *more)).out


def test_a_run_is_evaluated_and_predicts_with_the_boxes_of_a_detector(straight, tmp_path):
    well(run_main(*SHAPES, f"-output={tmp_path / 'detector'}"))
    figures = ["KEYPOINTS.FIGURES", "[person]", "MODEL.NAME", "simple_baseline_tiny"]
    well(run_main(*HEATMAPS, *figures, "-epochs=1", f"-output={tmp_path / 'run'}", "REPORT", "True"))
    assert "hidden points hollow" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    boxes = [f"-detector={tmp_path / 'detector'}", "HEATMAPS.BOX_SCORE", "0"]
    words = [*HEATMAPS, *figures, "-eval", f"-pretrained={tmp_path / 'run'}", f"-output={tmp_path / 'eval'}"]
    out = well(run_main(*words, *boxes, "SAVE_PREDICTIONS", "True")).out
    assert "finds circle" in out and "AP " in out.splitlines()[-1]
    results = json.loads(next((tmp_path / "eval").rglob("results.json")).read_text())
    assert {len(result["keypoints"]) for result in results} == {21}
    several = [*HEATMAPS, "-eval", f"-pretrained={straight}", f"-detector={tmp_path / 'detector'}"]
    assert "finds circle, and none of the categories" in refused(*several, f"-output={tmp_path / 'refused'}")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.new("RGB", (60, 50), (90, 120, 40)).save(pictures / "a.png")
    command = [sys.executable, "-m", "paddlevit_dist", "predict", str(tmp_path / "run"), str(pictures)]
    ended = run_command([*command, f"-output={tmp_path / 'predicted'}", "-ngpus=1", *boxes])
    assert ended.code == 0, ended.err
    assert (tmp_path / "predicted" / "results.json").exists()


def test_an_exported_network_scores_what_its_weights_do(straight, tmp_path):
    run = [sys.executable, "-m", "paddlevit_dist"]
    layouts = {"paddle": ""} if paddle.__version__.startswith("2.") else {"paddle": "", "onnx": ".onnx"}
    for layout, ending in layouts.items():  # paddle2onnx needs Paddle 3
        out = str(tmp_path / layout)
        ended = run_command([*run, "export", str(straight), out, f"-format={layout}"])
        assert ended.code == 0, ended.err
        about = (tmp_path / f"{layout}.about.yaml").read_text()
        assert "a heatmap for each point" in about and "left_hand" in about
        evaluated = run_command([*run, "evaluate", out + ending, *HEATMAPS, f"-output={tmp_path / f'eval_{layout}'}"])
        assert evaluated.code == 0 and "after the export: AP +0;" in evaluated.out, evaluated.err
