"""Runs that learn from images alone: killed and resumed, started from by other tasks, and with damaged images."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.processes import run_main
from support.trainings import small_runs
from support.trainings.killed_runs import kill_in_evaluation
from support.trainings.runs import PLAIN, TINY, read_events, refused, well

RUN = ["TASK", "masked_autoencoder", "-batch_size=64", "VALIDATE_FREQ", "1", "TRAIN.WARMUP_EPOCHS", "0", "-epochs=3"]
DECODER = ["MASKED_AUTOENCODER.DECODER_WIDTH", "16", "MASKED_AUTOENCODER.DECODER_DEPTH", "1"]
DECODER += ["MASKED_AUTOENCODER.DECODER_HEADS", "2"]


def read_weights(folder):
    return paddle.load(str(folder / "checkpoints" / "last" / "model.pdparams"), return_numpy=True)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight")
    small_runs.build(str(folder), *RUN, *DECODER, "DATA.DATASET", "digits").train()
    return folder


def test_a_killed_run_goes_on_to_the_bit(straight, tmp_path, monkeypatch):
    words = [*RUN, *DECODER, "DATA.DATASET", "digits"]
    kill_in_evaluation(small_runs.build(str(tmp_path), *words), monkeypatch, number=2)
    small_runs.build(str(tmp_path), *words, "-resume=auto").train()
    expected, found = read_weights(straight), read_weights(tmp_path)
    assert expected.keys() == found.keys() and any(name.startswith("pretraining_decoder.") for name in found)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
    scores = [
        [event["top-1"] for event in read_events(each) if event["kind"] == "evaluation"]
        for each in (straight, tmp_path)
    ]
    assert scores[0] == scores[1] and len(scores[0]) == 3


def test_a_classifier_loads_all_but_its_head_and_a_probe_its_features(straight, tmp_path, capsys):
    words = ["-batch_size=64", "-epochs=1", "DATA.DATASET", "digits", f"-pretrained={straight}"]
    small_runs.build(str(tmp_path), *words).train()
    report = json.loads((tmp_path / "load_report.json").read_text())
    assert [entry["name"] for entry in report["reinitialized"]] == ["head.weight", "head.bias"]
    assert report["missing"] == report["unexpected"] == []
    said = capsys.readouterr().out
    assert "pretraining_decoder, which only pretraining needs, dropped" in said and "another network" not in said
    probe = [
        "-cfg=probe_knn",
        "-dataset=digits",
        f"-pretrained={straight}",
        f"-output={tmp_path / 'probe'}",
        "-ngpus=1",
    ]
    probed = well(run_main(*probe, "DATA.CACHE_FOLDER", str(tmp_path)))
    assert "network and input of the run" in probed.out and "(neighbors 20; 10" in probed.out


def test_images_of_any_folder_train_and_damaged_ones_are_listed(tmp_path):
    generator, pool = np.random.default_rng(0), tmp_path / "pool"
    for number in range(12):
        file = pool / f"camera {number % 3}" / "day" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(file)
    (pool / "camera 0" / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    words = [PLAIN, *TINY, *DECODER, "TASK", "masked_autoencoder", "-dataset=unlabeled", f"-data_path={pool}"]
    words += ["-batch_size=4", "-num_workers=0", "-epochs=1", "-ngpus=1", f"-output={tmp_path / 'run'}"]
    words += ["DATA.ON_INVALID_SAMPLE", "skip"]
    message = refused(*words)
    assert f"{pool} has no val images" in message and "DATA.VAL_FRACTION" in message
    words += ["DATA.VAL_FRACTION", "0.25", "DATA.VAL_SEED", "1"]
    out = well(run_main(*words, "REPORT", "True")).out
    assert "which have no classes: the loss chooses the best one" in out and "(best loss)" in out
    assert "broken.jpg" in (tmp_path / "run" / "quarantine.tsv").read_text()
    assert "Reconstructions" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("temperature", "number"), [(1.0, 1), (0.04, 0)])
def test_a_real_collapse_is_told_once_and_a_run_that_learns_has_no_warning(temperature, number, tmp_path, capsys):
    words = (
        "TASK self_distillation DATA.DATASET digits -batch_size=16 -epochs=4 TRAIN.WARMUP_EPOCHS 0 TRAIN.BASE_LR 1e-4"
    )
    keys = "OUTPUTS 32 HEAD_WIDTH 32 BOTTLENECK 16 SMALL_VIEWS 1 SMALL_SIZE 8 FROZEN_EPOCHS 0"
    words = [*words.split(), "SELF_DISTILLATION.TEACHER_TEMPERATURES", f"[{temperature},{temperature}]"]
    words += [f"SELF_DISTILLATION.{word}" if word[0].isalpha() else word for word in keys.split()]
    small_runs.build(str(tmp_path), *words).train()
    assert capsys.readouterr().out.count("warning: self-distillation has collapsed") == number
