"""A run that was stopped and resumed is the run that was never stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.processes import Finished, run_main, succeeded

TINY = (
    "MODEL.EMBED_DIM 32 MODEL.DEPTH 2 MODEL.NUM_HEADS 2 MODEL.DROPOUT 0.1 MODEL.DROPPATH 0.1 "
    "DATA.IMAGE_SIZE 16 DATA.IMAGE_CHANNELS 1 MODEL.PATCH_SIZE 4 DATA.NUM_WORKERS 0 SAVE_FREQ 1 "
    "TRAIN.WARMUP_EPOCHS 1 TRAIN.GRAD_CLIP 1.0 TRAIN.MODEL_EMA True TRAIN.MODEL_EMA_DECAY 0.9"
).split()


def run(output: Path, *arguments: str) -> Finished:
    return succeeded(run_main(f"-output={output}", "-epochs=4", "-batch_size=32", *arguments, *TINY))


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


@pytest.fixture(scope="module", params=[1, 2], ids=["1 process", "2 processes"])
def straight_and_resumed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(f"resume{request.param}")
    processes = f"-ngpus={request.param}"
    run(folder / "straight", processes)
    run(folder / "stopped", processes, "-stop_after_epoch=2")
    shutil.copytree(folder / "stopped", folder / "half", symlinks=True)
    run(folder / "stopped", processes, "-resume=auto")
    return folder


def processes_of(folder: Path) -> str:
    return f"-ngpus={json.loads((folder / 'straight' / 'run.json').read_text())['processes']}"


def test_four_epochs_equal_two_and_two_bit_for_bit(straight_and_resumed):
    straight, resumed = straight_and_resumed / "straight", straight_and_resumed / "stopped"
    assert_bit_equal(weights(straight), weights(resumed))
    assert_bit_equal(accumulators(straight), accumulators(resumed))
    averages = weights(straight, file="model_ema.pdparams")
    assert_bit_equal(averages, weights(resumed, file="model_ema.pdparams"))
    assert not np.array_equal(averages["head.weight"], weights(straight)["head.weight"])
    assert not np.array_equal(weights(straight)["head.weight"], weights(straight_and_resumed / "half")["head.weight"])


def test_the_metrics_of_resumed_epochs_are_those_of_the_straight_run(straight_and_resumed):
    def last_epochs(folder: Path) -> list:
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        keep = ("kind", "epoch", "update", "learning_rate", "loss", "top-1")
        return [{k: line[k] for k in keep if k in line} for line in lines if line["epoch"] > 2]

    assert last_epochs(straight_and_resumed / "straight") == last_epochs(straight_and_resumed / "stopped")


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
    assert "damaged checkpoint passed over" in ended.out and "epoch_0002" in ended.out
    assert "after epoch 1" in ended.out
    assert_bit_equal(weights(damaged), weights(straight_and_resumed / "straight"))


def test_resuming_by_path_goes_on_in_a_new_output_folder(straight_and_resumed, tmp_path):
    source = straight_and_resumed / "half" / "checkpoints" / "last"
    ended = run(tmp_path / "new", f"-resume={source}", "-ngpus=1", "-allow_changes")
    assert "after epoch 2" in ended.out
    assert (tmp_path / "new" / "checkpoints" / "epoch_0004").is_dir()


def test_a_run_resumes_with_another_number_of_processes(straight_and_resumed, tmp_path):
    source = straight_and_resumed / "half"
    ended = run(tmp_path / "other", f"-resume={source}", "-ngpus=2", "-batch_size=16", "-allow_changes")
    lines = [json.loads(line) for line in (tmp_path / "other" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["kind"] == "epoch"] == [3, 4]
    assert ended.out.strip().splitlines()[-1].startswith("top-1")
