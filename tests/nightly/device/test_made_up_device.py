"""Each task on a device that is none of CUDA's gives what a CPU gives."""

import json

import numpy as np
import pytest
from integration.device.made_up import NAME, SHORT, assert_equal, numbers, require_failure, run
from PIL import Image
from support.files.raw_scenes import make_points
from support.files.volume_files import write_volume
from support.trainings.runs import well

from paddlevit_dist.points.data.ply import write_points

ROUNDING = 1e-4  # of 10 updates: on a CPU our compiled layers add in another order than Paddle's, and so do 2 processes
_POINTS = ["POINTS.ROOMS.TRAIN", "4", "POINTS.ROOMS.VAL", "2", "POINTS.ROOMS.SPACING_M", "0.15"]
_SHAPES = ["DATA.SHAPES.TRAIN", "8", "DATA.SHAPES.VAL", "4", "-batch_size=4", "TRAIN.WARMUP_STEPS", "0"]
_CROPS = ["-batch_size=8", "VOLUMES.OVERLAP", "0", "VOLUMES.UNET_WIDTH", "4", "VOLUMES.UNET_DEPTH", "1"]
_CROPS += [
    "VOLUMES.CROP_SIZE",
    "[16, 24, 24]",
    "TRAIN.BASE_LR",
    "0.05",
    "TRAIN.WARMUP_STEPS",
    "0",
]  # enough for a Dice that is not 0
TASKS = {
    "boxes": ["-cfg=detr_shapes", *_SHAPES],
    "masks": ["-cfg=mask_rcnn_shapes", *_SHAPES],
    "areas": ["-cfg=segformer_b0_shapes", *_SHAPES],
    "rooms": ["-cfg=minkunet14_synthetic_rooms", *_POINTS, "DATA.VOXEL_SIZE_M", "0.2"],
    "organs": ["-cfg=volume_unet3d_phantoms", *_CROPS],
}


def test_rows_of_two_devices_are_normalized_together_without_a_float64_in_their_collectives(tmp_path):
    words = ["train", *TASKS["rooms"], "TRAIN.BATCH_NORM", "sync", "-epochs=1", "-num_workers=0", "REPORT_FREQ", "1"]
    for devices in (1, 2):
        share = [f"-ngpus={devices}", f"-batch_size={2 // devices}", f"-output={tmp_path / str(devices)}"]
        well(run(*words, *share, "REPORT", "False", HOST_DEVICE_COUNT="2"))
    one, two = (numbers(tmp_path / str(devices))[0] for devices in (1, 2))
    assert_equal(two["loss"], one["loss"], 1e-6)  # with statistics of its own rows each device would have another
    assert_equal(two["gradient_norm"], one["gradient_norm"], 1e-3)


def test_doctor_names_the_device():
    out = well(run("doctor", HOST_DEVICE_COUNT="2")).out
    assert f"no CUDA GPU; 2 {NAME}(s) usable" in out and f"2 process(es) ({NAME}) compute correctly and agree" in out


@pytest.mark.parametrize("task", TASKS)
def test_each_task_is_trained_resumed_evaluated_and_predicted_as_on_a_cpu(task, tmp_path):
    words = ["train", *TASKS[task], "-epochs=2", "REPORT", "False", "REPORT_FREQ", "1", "VALIDATE_FREQ", "2"]
    words += ["-num_workers=0", "SAVE_FREQ", "1"]
    well(run(*words, "-device=cpu", f"-output={tmp_path / 'cpu'}"))
    well(run(*words, f"-output={tmp_path / 'run'}", "-stop_after_epoch=1"))
    well(run(*words, f"-output={tmp_path / 'run'}", "-resume=auto"))
    found, expected = numbers(tmp_path / "run"), numbers(tmp_path / "cpu")
    # Sparse convolutions multiply groups of offsets at once, but one by one on a CPU.
    assert_equal(found[0], expected[0], 5e-4 if task == "rooms" else ROUNDING)
    updates, of_cpu = ([row for row in rows if row["kind"] == "training"] for rows in (found, expected))
    assert_equal(updates, of_cpu, 1e-2)
    assert len(updates) >= 4 and found[-1]["kind"] == expected[-1]["kind"] == "evaluation"
    well(run(*words, f"-output={tmp_path / 'eval'}", "-eval", f"-pretrained={tmp_path / 'cpu'}"))
    (found,), expected = numbers(tmp_path / "eval"), expected[-1]
    scores = [name for name in expected if name not in ("epoch", "best")]
    assert_equal({name: found[name] for name in scores}, {name: expected[name] for name in scores}, 1e-3)
    source = _input(task, tmp_path)
    rows = []
    for device in (NAME, "cpu"):
        well(run("predict", str(tmp_path / "cpu"), str(source), f"-output={tmp_path / device}", f"-device={device}"))
        rows.append(json.loads((tmp_path / device / "predictions.jsonl").read_text()))
    assert_equal(rows[0], rows[1], 1e-3)


def _input(task, folder):
    """A file that this task predicts."""
    if task == "rooms":
        write_points(folder / "scene.ply", make_points(300))
        return folder / "scene.ply"
    if task == "organs":
        return write_volume(folder / "volume.nii.gz")
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / "one.png")
    return folder / "one.png"


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


@pytest.mark.parametrize("variable, value", [("HOST_DEVICE_COPIES", 200), ("HOST_DEVICE_WAITS", 60)])
def test_a_device_that_is_gone_ends_in_a_line(variable, value, tmp_path):
    require_failure(tmp_path, variable, value, 1, "device host_device:0 (rank 0) has failed")
