"""On a device that is none of CUDA's a user gets what a CPU gives: the same numbers, and one line where it fails."""

import json

import numpy as np
import pytest
from integration.device.made_up import NAME, assert_equal, numbers, run
from PIL import Image
from support.runs import DIGITS, refusal, well

SHORT = ["train", *DIGITS, "-batch_size=240", "-epochs=2", "REPORT", "False", "REPORT_FREQ", "1", "VALIDATE_FREQ", "1"]
ROUNDING = 1e-4  # of 10 updates: on a CPU our compiled layers add in another order than Paddle's, and so do 2 processes


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu") / "run"
    well(run(*SHORT, "-device=cpu", f"-output={folder}"))
    assert json.loads((folder / "run.json").read_text())["device"] == "cpu"
    return folder


def test_digits_are_trained_stopped_resumed_evaluated_and_predicted_as_on_a_cpu(on_cpu, tmp_path):
    folder = tmp_path / "run"
    first = well(run(*SHORT, f"-output={folder}", "-stop_after_epoch=1")).out
    assert f"devices: 1 {NAME};" in first and f"{NAME}: no SyncBatchNorm (ours" in first
    assert json.loads((folder / "run.json").read_text())["device"] == NAME
    well(run(*SHORT, f"-output={folder}", "-resume=auto"))
    assert_equal(numbers(folder), numbers(on_cpu), ROUNDING)
    well(run(*SHORT, f"-output={tmp_path / 'eval'}", "-eval", f"-pretrained={folder}"))
    assert_equal(numbers(tmp_path / "eval")[-1]["loss"], numbers(on_cpu)[-1]["loss"], ROUNDING)
    image = tmp_path / "digit.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16), dtype=np.uint8)).save(image)
    for device in (NAME, "cpu"):
        well(run("predict", str(on_cpu), str(image), f"-output={tmp_path / device}", f"-device={device}"))
    rows = [(tmp_path / device / "predictions.jsonl").read_text() for device in (NAME, "cpu")]
    assert_equal(*map(json.loads, rows), ROUNDING)


def test_two_devices_train_as_one(on_cpu, tmp_path):
    folder = tmp_path / "run"
    words = [*SHORT, f"-output={folder}", "-batch_size=120", "-ngpus=2"]
    assert f"devices: 2 {NAME}s;" in well(run(*words, HOST_DEVICE_COUNT="2")).out
    assert_equal([row["loss"] for row in numbers(folder)], [row["loss"] for row in numbers(on_cpu)], ROUNDING)


@pytest.mark.parametrize(
    "variable, code, said",
    [
        ({"HOST_DEVICE_MEMORY": "20000"}, 2, "out of memory on host_device:0 (rank 0), by what its plug-in reports"),
        ({"HOST_DEVICE_COPIES": "200"}, 1, "device host_device:0 (rank 0) has failed"),
        ({"HOST_DEVICE_WAITS": "60"}, 1, "device host_device:0 (rank 0) has failed"),
    ],
    ids=["out of memory", "gone", "kernel"],
)
def test_a_device_that_fails_ends_in_a_line(variable, code, said, tmp_path):
    ended = run(*SHORT, f"-output={tmp_path}", **variable)
    assert ended.code == code and ended.err.startswith(f"error: {said}") and ended.err.count("\n") == 1, ended.err
    assert ("use -amp" not in ended.err) and ("DATA.BATCH_SIZE (240)" in ended.err) == (code == 2)


def test_other_devices_than_there_are_are_refused_with_what_there_is(tmp_path):
    message = refusal(run(*SHORT, f"-output={tmp_path}", "-device=npu"))
    assert "DEVICE npu (-device)" in message and f"1 {NAME} and the CPU; give auto, {NAME} or cpu" in message
    message = refusal(run(*SHORT, f"-output={tmp_path}", "-ngpus=2"))
    assert f"more than the 1 visible {NAME}(s)" in message and "HOST_DEVICE_VISIBLE_DEVICES" in message
