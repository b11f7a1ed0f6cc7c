"""On a device that is none of CUDA's a user gets what a CPU gives: the same numbers, and one line where it fails."""

from integration.device.made_up import NAME, SHORT, assert_equal, numbers, require_failure, run
from support.trainings.runs import refusal, well

ROUNDING = 1e-4  # of 10 updates: on a CPU our compiled layers add in another order than Paddle's, and so do 2 processes


def test_two_devices_train_as_one(on_cpu, tmp_path):
    folder = tmp_path / "run"
    words = [*SHORT, f"-output={folder}", "-batch_size=120", "-ngpus=2"]
    assert f"devices: 2 {NAME}s;" in well(run(*words, HOST_DEVICE_COUNT="2")).out
    assert_equal([row["loss"] for row in numbers(folder)], [row["loss"] for row in numbers(on_cpu)], ROUNDING)


def test_a_device_without_memory_ends_in_a_line(tmp_path):
    said = "out of memory on host_device:0 (rank 0), as its plug-in reports"
    require_failure(tmp_path, "HOST_DEVICE_MEMORY", 20000, 2, said)


def test_other_devices_than_there_are_are_refused_with_what_there_is(tmp_path):
    message = refusal(run(*SHORT, f"-output={tmp_path}", "-device=npu"))
    assert "DEVICE npu (-device)" in message and f"1 {NAME} and the CPU; use auto, {NAME} or cpu" in message
    message = refusal(run(*SHORT, f"-output={tmp_path}", "-ngpus=2"))
    assert f"more than the 1 visible {NAME}(s)" in message and "HOST_DEVICE_VISIBLE_DEVICES" in message
