"""A run that was stopped or killed and then resumed equals a run that was never stopped."""

import json
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.poisoned_runs import require_unchanged
from support.processes import ROOT, Finished, run_main, run_workers, start_command, succeeded

TINY = (
    "MODEL.EMBED_DIM 32 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.DROPOUT 0.1 MODEL.DROPPATH 0.1 "
    "DATA.IMAGE_SIZE 16 DATA.IMAGE_CHANNELS 1 MODEL.PATCH_SIZE 4 DATA.NUM_WORKERS 1 SAVE_FREQ 1 "
    "TRAIN.WARMUP_EPOCHS 1 TRAIN.GRAD_CLIP 1.0 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9 "
    "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0 TRAIN.REPEATED_AUGMENT 3 REPORT False"
).split()
BATCH = ["-epochs=4", "-batch_size=32", "-accum_iter=2"]


def run(output: Path, *arguments: str) -> Finished:
    return succeeded(run_main(f"-output={output}", *BATCH, *arguments, *TINY))


def run_until_killed(output: Path, *arguments: str) -> None:
    """Go on with a run, and kill all of its processes once it has saved in the middle of an epoch."""
    last = output / "checkpoints" / "last"
    command = [sys.executable, str(ROOT / "main_multi_gpu.py"), f"-output={output}", *BATCH, *arguments, *TINY]
    process = start_command([*command, "-resume=auto", "SAVE_EVERY_UPDATES", "5"], is_copy=True)
    deadline = time.monotonic() + 60.0
    while not os.readlink(last).startswith("update_"):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate(timeout=5)
        time.sleep(0.005)
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


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.long)], ids=["1 process", "2 processes"])
def straight_and_resumed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"resume{request.param}")
    processes = f"-ngpus={request.param}"
    run(folder / "straight", processes)
    run(folder / "stopped", processes, "-stop_after_epoch=2")
    shutil.copytree(folder / "stopped", folder / "half", symlinks=True)
    run_until_killed(folder / "stopped", processes)
    said = run(folder / "stopped", processes, "-resume=auto").out
    assert "samples into epoch 3: " in said and "/update_000000" in said
    return folder


def processes_of(folder: Path) -> str:
    return f"-ngpus={json.loads((folder / 'straight' / 'run.json').read_text())['processes']}"


def test_four_epochs_equal_two_then_part_of_one_and_the_rest_bit_for_bit(straight_and_resumed):
    straight, resumed = straight_and_resumed / "straight", straight_and_resumed / "stopped"
    assert_bit_equal(weights(straight), weights(resumed))
    assert_bit_equal(accumulators(straight), accumulators(resumed))
    averages = weights(straight, file="model_ema.pdparams")
    assert_bit_equal(averages, weights(resumed, file="model_ema.pdparams"))
    assert not np.array_equal(averages["head.weight"], weights(straight)["head.weight"])
    assert not np.array_equal(weights(straight)["head.weight"], weights(straight_and_resumed / "half")["head.weight"])


def test_metrics_and_log_of_a_resumed_run_are_those_of_the_straight_run(straight_and_resumed):
    """All reports and means of the broken epoch too, in whose middle a report's updates were cut apart."""
    timed = {"seconds", "samples_per_second", "data_wait_fraction", "memory_mib", "time", "best"}

    def told(folder: Path) -> list:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        counted = [  # it has stopped for a while after its second epoch, which it evaluated therefore
            line
            for line in lines
            if line["kind"] in ("training", "epoch") or (line["kind"] == "evaluation" and line["epoch"] > 2)
        ]
        return [{k: v for k, v in line.items() if k not in timed} for line in counted if "superseded" not in line]

    def means(folder: Path) -> dict:
        found = re.findall(r"epoch (\d)/4 training: (loss \S+ top-1 \S+)", (folder / "log.txt").read_text())
        return dict(found)  # of an epoch that was trained twice the last

    straight, resumed = straight_and_resumed / "straight", straight_and_resumed / "stopped"
    assert told(straight) == told(resumed)
    assert means(straight) == means(resumed) and len(means(straight)) == 4
    assert {line["epoch"] for line in told(straight) if line["kind"] == "training"} == {1, 2, 3, 4}
    assert told(straight)[0]["gradient_norm"] > 0


def test_averaged_weights_are_what_counts(straight_and_resumed):
    """The last line is that of the averaged weights; evaluating the checkpoint repeats it, and its file its own."""
    straight = straight_and_resumed / "straight"
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    averaged, own = (
        [line for line in lines if line["kind"] == kind][-1] for kind in ("evaluation", "evaluation_without_average")
    )
    assert averaged["loss"] != own["loss"]
    for source, expected in (("last", averaged), ("last/model.pdparams", own)):
        checkpoint = straight / "checkpoints" / source
        arguments = (f"-output={straight_and_resumed / 'evaluated'}", "-eval", f"-pretrained={checkpoint}", *TINY)
        ended = succeeded(run_main(*arguments, processes_of(straight_and_resumed)))
        assert ended.out.strip().splitlines()[-1].endswith(f"loss {expected['loss']:.4f}")


def test_a_damaged_newest_checkpoint_is_passed_over_for_the_one_before(straight_and_resumed, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(straight_and_resumed / "half", damaged, symlinks=True)
    target = damaged / "checkpoints" / "epoch_0002" / "model.pdparams"
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 1
    target.write_bytes(content)
    ended = run(damaged, "-resume=auto", processes_of(straight_and_resumed))
    assert "damaged checkpoint skipped" in ended.out and "epoch_0002" in ended.out
    assert "after epoch 1" in ended.out
    assert_bit_equal(weights(damaged), weights(straight_and_resumed / "straight"))


def test_resuming_by_path_goes_on_in_a_new_output_folder(straight_and_resumed, tmp_path):
    source = straight_and_resumed / "half" / "checkpoints" / "last"
    ended = run(tmp_path / "new", f"-resume={source}", "-ngpus=1", "-allow_changes")
    assert "after epoch 2" in ended.out
    assert (tmp_path / "new" / "checkpoints" / "epoch_0004").is_dir()


def test_a_run_resumes_with_another_number_of_processes(straight_and_resumed, tmp_path):
    source = straight_and_resumed / "half"
    ended = run(tmp_path / "other", f"-resume={source}", "-ngpus=2", "-accum_iter=1", "-allow_changes")
    lines = [json.loads(line) for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [3, 4]
    assert ended.out.strip().splitlines()[-1].startswith("top-1")


def test_a_loss_that_is_infinite_on_one_rank_changes_nothing_on_any(tmp_path):
    ended = succeeded(run_workers("support.poisoned_runs:poisoned_on_the_second_of_two", str(tmp_path), 5))
    for result in ended.results:
        require_unchanged(*result, at=5)
