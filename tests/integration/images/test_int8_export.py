"""``export -precision=int8`` of a trained run: the file's score is the one that was told."""

import importlib.util
import sys

import pytest
import yaml
from support.processes import run_command, run_main
from support.trainings.runs import DIGITS, read_events, refusal, well

NEEDED = ("paddle2onnx", "onnx", "onnxruntime", "ml_dtypes")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[onnx]': no {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on the digits."""
    folder = tmp_path_factory.mktemp("run")
    well(run_main(*DIGITS, f"-output={folder / 'run'}", "TRAIN.WARMUP_EPOCHS", "0"))
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
    assert events["difference_of_export"]["largest_difference"] > 1e-4  # it is no float32
    assert "does not explain" not in evaluated.out


def test_calibration_without_int8_is_refused(trained, tmp_path):
    assert "-calibration is for -precision=int8" in refusal(run("export", trained, tmp_path / "x", "-calibration=9"))
