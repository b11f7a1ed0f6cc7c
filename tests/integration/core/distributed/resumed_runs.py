"""Runs that are stopped, killed and resumed, and what they have to equal."""

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import paddle
from support.processes import ROOT, Finished, run_main, start_command, succeeded, wait_until
from support.trainings.runs import read_events

TINY = (
    "MODEL.EMBED_DIM 32 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.DROPOUT 0.1 MODEL.DROPPATH 0.1 "
    "DATA.IMAGE_SIZE 16 DATA.IMAGE_CHANNELS 1 MODEL.PATCH_SIZE 4 DATA.NUM_WORKERS 1 SAVE_FREQ 1 "
    "TRAIN.WARMUP_EPOCHS 1 TRAIN.GRAD_CLIP 1.0 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9 "
    "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.REPEATED_AUGMENT 3 REPORT False"
).split()
BATCH = ["-epochs=4", "-batch_size=32", "-accum_iter=2"]
# Each scene is of another size, and a lost branch of a point and the turns of the curves are random.
SORTED = (
    "-cfg=ptv3_synthetic_rooms -epochs=4 -batch_size=1 -accum_iter=2 POINTS.ROOMS.TRAIN 40 POINTS.ROOMS.VAL 2 "
    "POINTS.ROOMS.SPACING_M 0.2 DATA.VOXEL_SIZE_M 0.4 DATA.NUM_WORKERS 1 SAVE_FREQ 1 TRAIN.WARMUP_STEPS 5 "
    "TRAIN.GRAD_CLIP 1.0 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9 POINTS.MIX_PROB 0.5 POINTS.MAX_POINTS 2000 "
    "POINTS.BLOCK_LR_FACTOR 0.5 REPORT False REPORT_FREQ 1"
).split()
_OPTIONS = "encoder_depths: [2, 1], encoder_channels: [8, 16], encoder_heads: [1, 2], strides: [2], patch_size: 32"
_OPTIONS += ", decoder_depths: [1], decoder_channels: [8], decoder_heads: [1], drop_path: 0.3"
RUNS = {"images": [*BATCH, *TINY], "sorted points": [*SORTED, "MODEL.OPTIONS", f"{{{_OPTIONS}}}"]}


def run(output: Path, *arguments: str, kind: str = "images") -> Finished:
    return succeeded(run_main(f"-output={output}", *RUNS[kind], *arguments))


def run_until_killed(output: Path, *arguments: str) -> None:
    """Go on with a run, and kill all of its processes once it has saved in the middle of an epoch."""
    last = output / "checkpoints" / "last"
    command = [sys.executable, str(ROOT / "main_multi_gpu.py"), f"-output={output}", *arguments]
    process = start_command([*command, "-resume=auto", "SAVE_EVERY_UPDATES", "5"], is_copy=True)

    def has_saved() -> bool:
        assert process.poll() is None, process.communicate(timeout=600)
        return os.readlink(last).startswith("update_")

    wait_until(has_saved, "it saves nothing in the middle of an epoch")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)


def weights(output: Path, name: str = "last", file: str = "model.pdparams") -> dict:
    state = paddle.load(str(output / "checkpoints" / name / file))
    return {key: value.numpy() for key, value in state.items()}


def accumulators(output: Path) -> dict:
    with np.load(output / "checkpoints" / "last" / "optimizer.npz") as arrays:
        return {key: arrays[key] for key in arrays.files}


def assert_bit_equal(left: dict, right: dict) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def stop_kill_and_resume(folder: Path, processes: int, kind: str = "images") -> Path:
    """In ``folder`` a straight run, and one that was stopped (``half``), killed and resumed (``stopped``)."""
    words = f"-ngpus={processes}"
    run(folder / "straight", words, kind=kind)
    run(folder / "stopped", words, "-stop_after_epoch=2", kind=kind)
    shutil.copytree(folder / "stopped", folder / "half", symlinks=True)
    run_until_killed(folder / "stopped", *RUNS[kind], words)
    said = run(folder / "stopped", words, "-resume=auto", kind=kind).out
    assert "samples into epoch 3: " in said and "/update_000000" in said
    return folder


def require_equal_state(folder: Path) -> None:
    straight, resumed = folder / "straight", folder / "stopped"
    assert_bit_equal(weights(straight), weights(resumed))
    assert_bit_equal(accumulators(straight), accumulators(resumed))
    averages = weights(straight, file="model_ema.pdparams")
    assert_bit_equal(averages, weights(resumed, file="model_ema.pdparams"))
    (head,) = (name for name in averages if name.endswith("head.weight"))
    assert not np.array_equal(averages[head], weights(straight)[head])
    assert not np.array_equal(weights(straight)[head], weights(folder / "half")[head])


def require_equal_records(folder: Path) -> None:
    """All reports and means of the broken epoch too, in whose middle a report's updates were cut apart."""
    timed = {"seconds", "samples_per_second", "data_wait_fraction", "memory_mib", "time", "best"}

    def told(output: Path) -> list:
        lines = read_events(output)
        counted = [  # it has stopped for a while after its second epoch, which it evaluated therefore
            line
            for line in lines
            if line["kind"] in ("training", "epoch") or (line["kind"] == "evaluation" and line["epoch"] > 2)
        ]
        return [{k: v for k, v in line.items() if k not in timed} for line in counted if "superseded" not in line]

    def means(output: Path) -> dict:
        found = re.findall(r"epoch (\d)/4 training: (loss \S+ \S+ \S+)", (output / "log.txt").read_text())
        return dict(found)  # of an epoch that was trained twice the last

    straight, resumed = folder / "straight", folder / "stopped"
    assert told(straight) == told(resumed)
    assert means(straight) == means(resumed) and len(means(straight)) == 4
    assert {line["epoch"] for line in told(straight) if line["kind"] == "training"} == {1, 2, 3, 4}
    assert told(straight)[0]["gradient_norm"] > 0
