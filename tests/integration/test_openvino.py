"""``-runtime=openvino``: OpenVINO computes an exported file as onnxruntime does, in float32, also in a fork."""

import importlib.util
import sys

import numpy as np
import paddle
import pytest
from support.forks import in_child
from support.processes import ROOT, run_command
from support.trainings.runs import last_line, read_events, well
from support.trainings.trained import write_weights
from support.trainings.untrained import write_untrained_run

from paddlevit_dist import Predictor
from paddlevit_dist.extensions.export.command import run
from paddlevit_dist.extensions.export.openvino_model import OpenVinoModel

MISSING = [name for name in ("paddle2onnx", "onnx", "openvino") if importlib.util.find_spec(name) is None]
MISSING += ["Paddle 3"] if paddle.__version__.startswith("2.") else []
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx,openvino]': no {', '.join(MISSING)}")


def assert_equal_rows(found, expected):
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert list(row) == list(other)
        for name, value in other.items():
            assert row[name] == (pytest.approx(value, abs=2e-5) if isinstance(value, float) else value), name


def test_a_classifier_answers_as_its_weights_and_in_forks(tmp_path):
    weights = str(write_weights(tmp_path / "run", ["cat", "ant", "no"]))
    images = list(np.random.default_rng(0).integers(0, 256, (5, 40, 30, 3), np.uint8))
    expected = Predictor(weights)(images)
    for name, words in {"plain": [], "fused": ["-format=onnxruntime", "-input=uint8"]}.items():
        run([weights, str(tmp_path / name), *(words or ["-format=onnx"])])
        predict = Predictor(tmp_path / f"{name}.onnx", runtime="openvino")
        assert_equal_rows(predict(images), expected)
    rows = predict(images)
    waits = [in_child(lambda: predict(images)) for _ in range(3)]
    assert [wait() for wait in waits] == [rows] * 3
    model = OpenVinoModel(tmp_path / "plain.onnx", 1)
    assert model._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"


def test_the_command_scores_a_detector_as_its_weights_and_contacts_nobody(tmp_path):
    words = "DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 8 DETECTION.EVAL_BATCHING one_size".split()
    recipe = f"-cfg={ROOT / 'configs' / 'rtdetr_shapes.yaml'}"
    weights = write_untrained_run(tmp_path / "run", [recipe, *words])
    run([str(weights), str(tmp_path / "net"), "-format=onnx"])
    command = [sys.executable, "-m", "paddlevit_dist", "evaluate", str(tmp_path / "net.onnx"), "-runtime=openvino"]
    command += [recipe, f"-output={tmp_path / 'scored'}", *words]
    ended = well(run_command(command, timeout=600, HOME=str(tmp_path)))
    assert "(OpenVINO " in last_line(ended)
    (event,) = (each for each in read_events(tmp_path / "scored") if each["kind"] == "difference_of_export")
    assert event["largest_difference"] < 1e-4 and event["trained"] == str(weights)
    assert not (tmp_path / "intel").exists()  # where OpenVINO's statistics store the number of who is counted
