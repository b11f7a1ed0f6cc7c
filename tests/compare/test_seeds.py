"""-seeds: several trainings in one folder, one after another or side by side, stopped, resumed and refused."""

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from support.processes import ended_by_itself, run_command, run_main, start_command, wait_until
from support.runs import DIGITS, events, refused, well

from paddlevit_dist.compare import seeds
from paddlevit_dist.launch import devices
from paddlevit_dist.settings import load
from paddlevit_dist.settings.command_line import without

HERE = Path(__file__).parent
SHORT = [*DIGITS, "-ngpus=1", "REPORT", "False", "EVALUATION.RESAMPLES", "100", "-batch_size=400"]


def group_of(folder: Path) -> dict:
    return json.loads((folder / "seeds.json").read_text(encoding="utf-8"))


def test_a_user_with_four_gpus_gets_four_trainings_of_one_at_once(monkeypatch):
    monkeypatch.setattr(devices, "count_gpus", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-a,1,0")
    assert seeds.gpus_of(devices.plan_processes(1)) == ["3", "GPU-a", "1", "0"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert seeds.gpus_of(devices.plan_processes(1)) == ["0", "1", "2", "3"]
    assert seeds.gpus_of(devices.plan_processes(2)) == seeds.gpus_of(devices.plan_processes(-1)) == [None]
    monkeypatch.setattr(devices, "count_gpus", lambda: 0)  # a CPU
    assert seeds.gpus_of(devices.plan_processes(1)) == [None]


def test_the_words_of_a_training_are_those_of_the_group_without_its_own():
    words = (
        "-cfg=a.yaml --seeds 3 TRAIN.BASE_LR -1 -output=x SEED=4 -amp SAVE here --log-to none -seed 5 MODEL.RESUME auto"
    )
    kept = without(words.split(), ("SEEDS", "SEED", "SAVE", "MODEL.RESUME"))
    assert kept == "-cfg=a.yaml TRAIN.BASE_LR -1 -amp --log-to none".split()


def test_an_evaluation_ignores_how_often_its_recipe_trains(tmp_path):
    recipe = tmp_path / "twice.yaml"
    recipe.write_text("SEEDS: 2\n")
    evaluation = load([f"-cfg={recipe}", "-eval", "-pretrained=x"])
    assert load([f"-cfg={recipe}"]).values.SEEDS == 2
    assert evaluation.values.SEEDS is None and evaluation.notices == []


@pytest.mark.long
def test_a_group_leaves_out_what_is_finished_and_reaches_what_a_run_alone_does(tmp_path):
    words = [*SHORT, "-resume=auto"]
    for seed, folder in ((0, "group/seed_0"), (1, "alone")):
        well(run_main(*words, f"-seed={seed}", f"-output={tmp_path / folder}"))
    before = (tmp_path / "group" / "seed_0" / "log.txt").read_bytes()
    program = [sys.executable, "-m", "paddlevit_dist", "train", *words, "-seeds=2", "-output=group"]
    ended = run_command(program, 120, tmp_path, is_copy=False)
    assert ended.code == 0, ended.out + ended.err
    assert "1 of 2 seeds are finished in group: training 1, 1 at a time" in ended.out
    assert (tmp_path / "group" / "seed_0" / "log.txt").read_bytes() == before
    scores = [events(tmp_path / folder)[-1]["top-1"] for folder in ("group/seed_0", "alone")]
    found = group_of(tmp_path / "group")
    assert [(row["state"], row["value"]) for row in found["seeds"]] == [("finished", score) for score in scores]
    assert found["mean"] == pytest.approx(sum(scores) / 2) and found["minimum"] == min(scores)
    assert f"best top-1 of 2 seed(s): mean {sum(scores) / 2:.2f}, " in ended.out


@pytest.mark.long
def test_a_group_side_by_side_as_on_gpus_is_stopped_and_goes_on_and_a_failed_seed_loses_no_other(tmp_path):
    """The parent counts four GPUs; each training gets its own."""
    shutil.copy(HERE / "noting.py", tmp_path / "own_code.py")  # noting is found beside the script
    seldom = ["-epochs=400", "VALIDATE_FREQ", "400", "SAVE_FREQ", "400", "-import=own_code.py"]
    program = [sys.executable, str(HERE / "as_on_gpus.py"), "train", *SHORT, *seldom, "-seeds=2", "-output=group"]
    group = start_command(program, tmp_path, CUDA_VISIBLE_DEVICES="7,5,3,1")
    logs = [tmp_path / "group" / f"seed_{seed}" / "metrics.jsonl" for seed in (0, 1)]
    wait_until(lambda: all(log.is_file() and log.stat().st_size > 200 for log in logs), "no training has begun")
    cores = len(os.sched_getaffinity(0))
    given = {seed: (tmp_path / "noted" / seed).read_text() for seed in "01"}
    assert given == {"0": f"7 {cores // 2}", "1": f"5 {cores - cores // 2}"}
    os.killpg(group.pid, signal.SIGINT)  # as a terminal does
    ended = ended_by_itself(group, 60)
    assert ended.code == 75, ended.out[-2000:] + ended.err
    assert "2 of 2 seeds of group are unfinished, what they have trained is saved; the same command" in ended.err
    assert "seed 1: group/seed_1, GPU 5: see log.txt there" in ended.out and "epoch 1/400" not in ended.out
    assert [row["state"] for row in group_of(tmp_path / "group")["seeds"]] == ["unfinished"] * 2
    for seed in (0, 1):
        assert list((tmp_path / "group" / f"seed_{seed}" / "checkpoints").glob("update_*"))
    # Of the same command, ended soon, one seed goes on from its checkpoint; those of the other are damaged.
    for state in (tmp_path / "group" / "seed_0" / "checkpoints").glob("update_*/*"):
        state.write_bytes(b"damaged")
    ended = run_command([*program, "TRAIN.STOP_AFTER_EPOCH", "1"], 120, tmp_path, is_copy=False)
    assert ended.code == 2 and "error: failed: seed 0 (exit code 2): see log.txt" in ended.err
    said = (tmp_path / "group" / "seed_1" / "log.txt").read_text()
    assert "resumed from group/seed_1/checkpoints/update_" in said
    assert [row["state"] for row in group_of(tmp_path / "group")["seeds"]] == ["failed", "finished"]
    assert re.search(r"^0 +failed$", ended.out, re.MULTILINE)


@pytest.mark.long
def test_what_a_group_is_not_for_is_refused_in_a_line(tmp_path):
    folder = f"-output={tmp_path / 'group'}"
    assert "expected a whole number >= 2" in refused(*SHORT, "-seeds=1")
    assert "-seeds trains; leave one of them out" in refused(*SHORT, "-seeds=2", "-eval", "-pretrained=nothing")
    assert "that is one run; a group of seeds continues by itself" in refused(*SHORT, "-seeds=2", "-resume=run")
    ended = run_main(*SHORT, "-seeds=2", folder, "-dataset=folder", "-data_path=/nowhere")
    assert ended.code == 2 and "error: data path /nowhere does not exist" in ended.err
    assert "seed 0 did not begin, as the line above says; no other was started" in ended.err
    assert not (tmp_path / "group").exists()
    (tmp_path / "group" / "checkpoints" / "epoch_0001").mkdir(parents=True)
    assert "already holds a run's checkpoints" in refused(*SHORT, "-seeds=2", folder)
    shutil.rmtree(tmp_path / "group")
    (tmp_path / "group").mkdir()
    settings = {"TRAIN": {"BASE_LR": 0.5}}
    described = {"task": "t", "dataset": "d", "score": "s", "more_is_better": True, "settings": settings}
    (tmp_path / "group" / "seeds.json").write_text(json.dumps({"format": 1, **described, "seeds": []}))
    assert "holds trainings with several seeds (seeds.json): add -seeds=N" in refused(*SHORT, folder)
    said = refused(*SHORT, "-seeds=2", folder)
    assert "holds seeds of another configuration: TRAIN.BASE_LR 0.5 -> 0.001" in said
