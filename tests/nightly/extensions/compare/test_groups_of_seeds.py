"""-seeds: trainings in one folder, one after another or side by side, stopped and resumed."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.processes import HANG_SECONDS, ended_by_itself, run_command, run_main, start_command, wait_until
from support.trainings.runs import DIGITS, read_events, well

HERE = Path(__file__).parent
SHORT = [*DIGITS, "-ngpus=1", "REPORT", "False", "EVALUATION.RESAMPLES", "100", "-batch_size=400"]


def make_group(folder: Path) -> dict:
    return json.loads((folder / "seeds.json").read_text(encoding="utf-8"))


def test_a_group_leaves_out_what_is_finished_and_reaches_what_a_run_alone_does(tmp_path):
    words = [*SHORT, "-resume=auto"]
    for seed, folder in ((0, "group/seed_0"), (1, "alone")):
        well(run_main(*words, f"-seed={seed}", f"-output={tmp_path / folder}"))
    before = (tmp_path / "group" / "seed_0" / "log.txt").read_bytes()
    program = [sys.executable, "-m", "paddlevit_dist", "train", *words, "-seeds=2", "-output=group"]
    ended = run_command(program, folder=tmp_path, is_copy=False)
    assert ended.code == 0, ended.out + ended.err
    assert "1 of 2 seeds are finished in group: training 1, 1 at a time" in ended.out
    assert (tmp_path / "group" / "seed_0" / "log.txt").read_bytes() == before
    scores = [read_events(tmp_path / folder)[-1]["top-1"] for folder in ("group/seed_0", "alone")]
    found = make_group(tmp_path / "group")
    assert [(row["state"], row["value"]) for row in found["seeds"]] == [("finished", score) for score in scores]
    assert found["mean"] == pytest.approx(sum(scores) / 2) and found["minimum"] == min(scores)
    assert f"best top-1 of 2 seed(s): mean {sum(scores) / 2:.2f}, " in ended.out


def test_a_group_side_by_side_as_on_gpus_is_stopped_and_goes_on_and_a_failed_seed_loses_no_other(tmp_path):
    """The parent counts four GPUs; each training gets its own."""
    shutil.copy(HERE / "noting.py", tmp_path / "own_code.py")  # noting is found beside the script
    seldom = ["-epochs=400", "VALIDATE_FREQ", "400", "SAVE_FREQ", "400", "-import=own_code.py"]
    program = [sys.executable, str(HERE / "as_on_gpus.py"), "train", *SHORT, *seldom, "-seeds=2", "-output=group"]
    group = start_command(program, tmp_path, CUDA_VISIBLE_DEVICES="7,5,3,1")
    logs = [tmp_path / "group" / f"seed_{seed}" / "metrics.jsonl" for seed in (0, 1)]
    wait_until(
        lambda: all(log.is_file() and log.stat().st_size > 200 for log in logs), "no training has begun", process=group
    )
    cores = len(os.sched_getaffinity(0))
    given = {seed: (tmp_path / "noted" / seed).read_text() for seed in "01"}
    assert given == {"0": f"7 {cores // 2}", "1": f"5 {cores - cores // 2}"}
    os.killpg(group.pid, signal.SIGINT)  # as a terminal does
    ended = ended_by_itself(group, HANG_SECONDS)
    assert ended.code == 75, ended.out[-2000:] + ended.err
    assert "2 of 2 seeds of group are unfinished, and their checkpoints are saved; repeat the command" in ended.err
    assert "seed 1: group/seed_1, GPU 5: see log.txt there" in ended.out and "epoch 1/400" not in ended.out
    assert [row["state"] for row in make_group(tmp_path / "group")["seeds"]] == ["unfinished"] * 2
    for seed in (0, 1):
        assert list((tmp_path / "group" / f"seed_{seed}" / "checkpoints").glob("update_*"))
    # Of the same command, ended soon, one seed goes on from its checkpoint; those of the other are damaged.
    for state in (tmp_path / "group" / "seed_0" / "checkpoints").glob("update_*/*"):
        state.write_bytes(b"damaged")
    ended = run_command([*program, "TRAIN.STOP_AFTER_EPOCH", "1"], folder=tmp_path, is_copy=False)
    assert ended.code == 2 and "error: failed: seed 0 (exit code 2): see log.txt" in ended.err
    said = (tmp_path / "group" / "seed_1" / "log.txt").read_text()
    assert "resumed from group/seed_1/checkpoints/update_" in said
    assert [row["state"] for row in make_group(tmp_path / "group")["seeds"]] == ["failed", "finished"]
    assert re.search(r"^0 +failed$", ended.out, re.MULTILINE)
