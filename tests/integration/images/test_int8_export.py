"""``export -precision=int8`` of a trained run: the file's score is the one that was told."""

import importlib.util
import sys

import numpy as np
import paddle
import pytest
import yaml
from support.processes import run_command, run_main
from support.trainings.runs import DIGITS, read_events, refusal, well

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.listed_samples import open_samples
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.extensions.export import int8
from paddlevit_dist.extensions.export.command import export
from paddlevit_dist.extensions.export.trained_models import load_trained_model

onnxruntime = pytest.importorskip("onnxruntime")
NEEDED = ("paddle2onnx", "onnx", "onnxruntime", "ml_dtypes")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the digits."""
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*DIGITS, f"-output={folder / 'run'}", "-epochs=8", "TRAIN.WARMUP_EPOCHS", "0"))
    return folder / "run"


def run(*words):
    return run_command([sys.executable, "-m", "paddlevit_dist", *map(str, words)], timeout=300)


def test_an_export_in_int8_is_told_with_its_cost_and_evaluates_to_it(trained, tmp_path):
    words = ("-format=onnx", "-precision=int8", "-calibration=100")
    ended = well(run("export", trained, tmp_path / "digits", *words))
    about = yaml.safe_load((tmp_path / "digits.about.yaml").read_text(encoding="utf-8"))
    found = about["quantization"]
    assert about["precision"] == "int8" and found["calibrated_on"] == "100 of 1,437 images of train"
    assert found["layers_in_int8"] > 0 and "on 360 images of val" in ended.out and "times as fast" in ended.out
    evaluated = well(run("evaluate", tmp_path / "digits.onnx", f"-output={tmp_path / 'scored'}"))
    events = {event["kind"]: event for event in read_events(tmp_path / "scored")}
    assert events["evaluation"]["top-1"] == pytest.approx(found["score"]["int8"])
    assert events["difference_of_export"]["trained_values"]["top-1"] == pytest.approx(found["score"]["float32"])
    ends = events["difference_of_export"]["difference"]["top-1"]
    assert ends == pytest.approx(found["score"]["interval_95"], abs=1e-4)
    assert "does not explain" not in evaluated.out

    well(run("export", trained, tmp_path / "single", "-format=onnx"))
    before, after = (compute_logits(trained, tmp_path / f"{name}.onnx") for name in ("single", "digits"))
    largest, changed = np.abs(before - after).max(), int((before.argmax(1) != after.argmax(1)).sum())
    assert about["largest_difference"] == pytest.approx(
        {"absolute": largest, "of_outputs_up_to": np.abs(before).max()}, rel=1e-3
    )
    assert events["difference_of_export"]["largest_difference"] == pytest.approx(largest, rel=1e-3) and largest > 1e-4
    assert found["changed"] == events["difference_of_export"]["changed"] == changed
    assert f"{changed} of 360 images of val have another answer" in ended.out


def compute_logits(trained, file):
    """Logits of the images of val, from onnxruntime alone; only the images come from this package."""
    task = make_task(load([f"-cfg={trained / 'config.yaml'}"]).values)
    samples = open_samples(task, "val", None)
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(len(samples))])
    images = task.normalizer(paddle.to_tensor(batch["images"])).numpy()
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"images": part})[0] for part in np.array_split(images, 9)])


@pytest.mark.parametrize("collapses", [False, True])
def test_only_a_loss_beyond_chance_leaves_layers_in_float32(trained, tmp_path, monkeypatch, collapses):
    """Channels of the first block's norms are enlarged, and the layers that read them compute as before."""
    monkeypatch.setattr(int8, "CLOSE", -1.0)  # each loss is too large, if it is beyond chance
    loaded, lines = load_trained_model(str(trained), reads_data=True), []
    block = loaded.model.blocks[0]
    for norm, layer in ((block.norm1, block.attn.qkv), (block.norm2, block.mlp.fc1)) if collapses else ():
        scale = np.ones(norm.weight.shape, np.float32)
        scale[:3] = 1e4
        for parameter, factor in ((norm.weight, scale), (norm.bias, scale), (layer.weight, 1 / scale[:, None])):
            parameter.set_value(parameter.numpy() * factor)
    quantizer = int8.Quantizer(loaded.source, 100, lines.append)
    export(loaded, str(tmp_path / "digits"), "onnx", "int8", quantize=quantizer)
    tried = [line for line in lines if line.startswith("int8, ")]
    assert [line.split()[1] for line in tried] == (["0", "2"] if collapses else ["0"]), lines
    assert len(quantizer.cost.kept) == (2 if collapses else 0)
    before, after = quantizer.cost.scores
    assert abs(before - after) < 3


def test_calibration_without_int8_is_refused(trained, tmp_path):
    assert "-calibration is for -precision=int8" in refusal(run("export", trained, tmp_path / "x", "-calibration=9"))
