"""What a group of seeds starts, records and prints; its training runs are stand-ins that end when they are told to."""

import contextlib
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.compare import groups, seeds
from paddlevit_dist.compare.groups import FAILED, FINISHED, UNFINISHED, SeedGroup
from paddlevit_dist.logging.record import SEEDS

ABOUT = {"task": "t", "dataset": "d", "score": "top-1", "more_is_better": True, "settings": {}}


def write_seed(
    folder: Path, *epochs: int, value: float | None = None, planned: int = 3, superseded: bool = False
) -> Path:
    """A run that has evaluated these epochs, the last with its best score."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"TRAIN: {{NUM_EPOCHS: {planned}}}\n")
    events = [{"kind": "training", "epoch": planned, "update": 1}]
    events += [
        {"kind": "evaluation", "epoch": epoch} | ({"superseded": True} if superseded else {}) for epoch in epochs
    ]
    if value is not None:
        events[-1] |= {"best": "top-1", "top-1": value, "interval": {"percent": 95, "top-1": [value - 1, value + 1]}}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_a_seed_is_finished_once_its_last_epoch_was_evaluated(tmp_path):
    assert seeds.is_finished(write_seed(tmp_path / "a", 1, 3, 2))
    assert not seeds.is_finished(write_seed(tmp_path / "b", 1, 2))
    assert not seeds.is_finished(write_seed(tmp_path / "c", 3, superseded=True))
    assert not seeds.is_finished(write_seed(tmp_path / "d"))
    (tmp_path / "a" / "config.yaml").write_text("TRAIN: 3\n")
    assert not seeds.is_finished(tmp_path / "a") and not seeds.is_finished(tmp_path / "none")
    write_seed(tmp_path / "group" / "seed_7", 1, 3, value=50.0)
    assert seeds.read_row(str(tmp_path / "group"), 7, "top-1") == {
        **{"seed": 7, "folder": "seed_7", "state": FINISHED, "value": 50.0, "epoch": 3, "low": 49.0, "high": 51.0},
    }
    assert seeds.read_row(str(tmp_path / "group"), 8, "top-1") == {
        **{"seed": 8, "folder": "seed_8", "state": UNFINISHED},
    }


def row(seed: int, state: str = UNFINISHED, **values) -> dict:
    return {"seed": seed, "folder": f"seed_{seed}", "state": state, **values}


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(seeds, "write_line", said.append)
    return said


@pytest.mark.parametrize(
    ("code", "is_stopped", "state"),
    [(0, False, FINISHED), (0, True, FINISHED), (3, True, UNFINISHED), (3, False, FAILED)],
)
def test_the_end_of_a_seed_is_recorded_with_its_score(tmp_path, lines, code, is_stopped, state):
    write_seed(tmp_path / "seed_2", 1, value=50.0)
    group = SeedGroup(str(tmp_path), dict(ABOUT), [row(1), row(2)])
    seeds.record_end(group, group.seeds[1], code, is_stopped, False)
    written = json.loads((tmp_path / SEEDS).read_text())["seeds"]
    assert written[0] == row(1) and written[1]["state"] == state and written[1]["value"] == 50.0
    assert written[1].get("code") == (code if state == FAILED else None)
    assert lines == [f"seed 2: {state}, top-1 50.00 [49.00, 51.00]"]


def test_a_first_seed_that_does_not_start_ends_the_command(tmp_path, lines):
    group = SeedGroup(str(tmp_path), dict(ABOUT), [row(1), row(2)])
    with pytest.raises(UserError, match=r"^seed 1 did not start \(see the error above\); no other seed was started$"):
        seeds.record_end(group, group.seeds[0], 1, False, False)
    assert not (tmp_path / SEEDS).exists()
    seeds.record_end(group, group.seeds[0], 1, False, True)  # others run
    (tmp_path / "seed_2").mkdir()
    seeds.record_end(group, group.seeds[0], 1, False, False)  # others have run
    assert lines == ["seed 1: failed"] * 2


@pytest.mark.parametrize(
    ("gpu", "low", "high", "cores"), [("3", 0.0, 0.5, {0, 2}), ("g", 0.5, 1.0, {4, 6}), ("x", 0.1, 0.2, {0, 2, 4, 6})]
)
def test_a_seed_on_a_gpu_has_its_share_of_the_cores_and_a_log_of_its_own(
    tmp_path, monkeypatch, lines, gpu, low, high, cores
):
    calls, shares = [], []
    monkeypatch.setattr(seeds.training_commands, "start", lambda *given: calls.append(given) or SimpleNamespace(pid=77))
    monkeypatch.setattr(os, "sched_getaffinity", {0: {6, 0, 4, 2}}.__getitem__)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, share: shares.append((pid, set(share))))
    group = SeedGroup("out", ABOUT, [])
    assert seeds.start_seed(group, row(5), ["-cfg=a", "-amp"], gpu, low, high).pid == 77
    words = ["-cfg=a", "-amp", "-output=out/seed_5", "-seed=5", "-resume=auto", "SEEDS=None"]
    assert calls == [(words, {"CUDA_VISIBLE_DEVICES": gpu, "TERM": "dumb"}, subprocess.DEVNULL)]
    assert shares == [(77, cores)] and lines == [f"seed 5: out/seed_5, GPU {gpu}: see log.txt there"]
    seeds.start_seed(group, row(6), [], None, low, high)
    assert calls[1][1:] == ({}, None) and len(shares) == 1 and lines[1] == "seed 6: out/seed_6"


class Child:
    """A training run that ends with a code when it was asked for it so many times."""

    def __init__(self, code: int, polls: int) -> None:
        self.code, self.left, self.terminated = code, polls, 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.left -= 1
        if self.left <= 0:
            self.returncode = self.code
        return self.returncode

    def terminate(self) -> None:
        self.terminated, self.left = self.terminated + 1, min(self.left, 1)


@pytest.fixture
def train(tmp_path, monkeypatch, lines):
    """Train seeds 1 to n, whose runs end so: (exit code, polls); return the group, their places and killed ones."""
    monkeypatch.setattr(seeds.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(seeds.signals, "record_only_as_parent", lambda: None)
    monkeypatch.setattr(seeds.training_commands, "forward_requests", lambda children: list(children))

    killed: list[Child] = []

    def train(ends, gpus, reasons=()):
        group = SeedGroup(str(tmp_path), dict(ABOUT), [row(number + 1) for number in range(len(ends))])
        children = [Child(*end) for end in ends]
        started, asked = [], iter(reasons)

        def start(its_group, entry, words, gpu, low, high):
            assert its_group is group and words == ["words"]
            (tmp_path / entry["folder"]).mkdir(exist_ok=True)
            started.append((entry["seed"], gpu, low, high))
            return children[entry["seed"] - 1]

        monkeypatch.setattr(seeds, "start_seed", start)
        monkeypatch.setattr(seeds.signals, "stop_reason", lambda: next(asked, None))
        monkeypatch.setattr(seeds.training_commands, "kill", lambda left: killed.extend(left))
        try:
            seeds.train_seeds(group, group.seeds, ["words"], gpus)
        except Stopped as stopped:
            return group, started, children, killed, str(stopped)
        return group, started, children, killed, ""

    train.killed = killed
    return train


def test_each_gpu_trains_the_next_seed_when_it_is_free(train):
    group, started, _, killed, told = train([(0, 3), (0, 1), (5, 1), (0, 1)], ["a", "b"])
    assert started == [(1, "a", 0.0, 0.5), (2, "b", 0.5, 1.0), (3, "b", 0.5, 1.0), (4, "b", 0.5, 1.0)]
    assert [entry["state"] for entry in group.seeds] == [FINISHED, FINISHED, FAILED, FINISHED]
    assert group.seeds[2]["code"] == 5 and killed == [] and told == ""


def test_without_gpus_one_seed_follows_another(train):
    _, started, *_ = train([(0, 2), (0, 2), (0, 1)], [None])
    assert started == [(1, None, 0.0, 1.0), (2, None, 0.0, 1.0), (3, None, 0.0, 1.0)]
    _, started, *_ = train([(0, 1)], ["a", "b", "c"])
    assert started == [(1, "a", 0.0, 1.0)]  # it has all cores


def test_a_stop_ends_running_seeds_and_starts_no_others(train, tmp_path):
    group, started, children, _, told = train([(0, 9), (0, 9), (0, 9)], ["a", "b"], [None, "asked to stop"])
    assert len(started) == 2 and [child.terminated for child in children] == [1, 1, 0]
    assert [entry["state"] for entry in group.seeds] == [FINISHED, FINISHED, UNFINISHED]
    assert (
        "asked to stop" in told
        and f"1 of 3 seeds of {tmp_path} are unfinished, and their checkpoints are saved" in told
    )


def test_a_seed_that_was_stopped_stops_the_others(train):
    code = seeds.signals.STOPPED
    group, started, children, _, told = train([(code, 1), (7, 9), (0, 9)], ["a", "b"])
    assert len(started) == 2 and children[1].terminated == 1 and "seed 1 was" in told and "3 of 3 seeds" in told
    assert [entry["state"] for entry in group.seeds] == [UNFINISHED] * 3


def test_running_seeds_are_killed_after_an_error(train, monkeypatch):
    def fail(*_):
        raise KeyError

    monkeypatch.setattr(seeds, "record_end", fail)
    with pytest.raises(KeyError):
        train([(0, 1), (0, 9)], ["a", "b"])
    assert [child.left for child in train.killed] == [8]


def test_scores_are_a_table_with_states_summary_and_noise(tmp_path):
    rows = [
        row(3, FINISHED, value=50.0, epoch=2, low=49.0, high=51.0),
        row(4, FAILED, code=1),
        row(5, FINISHED, value=54.0, epoch=1),
        row(6, UNFINISHED, value=60.0, epoch=1),
    ]
    blank, header, *table, summary, noise, written = seeds.format_group(SeedGroup("out", ABOUT, rows))
    assert blank == "" and header.split() == ["seed", "best", "top-1", "epoch"]
    assert [line.split() for line in table] == [
        ["3", "50.00", "[49.00,", "51.00]", "2"],
        ["4", "failed"],
        ["5", "54.00", "1"],
        ["6", "60.00", "1", "unfinished"],
    ]
    assert summary.startswith("best top-1 of 2 seed(s): ") and "52.00" in summary
    expected = groups.clip_to_range("top-1", 0.0, groups.compute_noise([50.0, 54.0]))[1]
    assert noise == (
        f"by chance alone the means of two such groups differ by up to {expected:.2f} ({groups.PERCENT} % of pairs)"
    )
    assert written == "written to out/seeds.json; 'compare' sets two groups side by side, 'report' draws one"
    assert len(seeds.format_group(SeedGroup("out", ABOUT, rows[:2]))) == 6  # one finished seed has no noise
    assert len(seeds.format_group(SeedGroup("out", ABOUT, rows[1:2]))) == 3


def make_configuration(**changes):
    values = {"TASK": "t", "SAVE": "out", "SEEDS": 3, "SEED": 5, "NGPUS": 2, "DEVICE": "cpu", "ALLOW_CHANGES": False}
    config = SimpleNamespace(**{**values, **changes}, DATA=SimpleNamespace(DATASET="digits"))
    argv = ["-cfg=a.yaml", "-seeds=3", "-seed=5", "-amp"]
    return SimpleNamespace(values=config, sources={"SAVE": "command line"}, recipe="mine", argv=argv)


def test_the_seeds_that_are_not_finished_are_trained_and_those_that_failed_are_named(tmp_path, monkeypatch, lines):
    trained, planned, locked = [], [], []

    def train(group, waiting, words, gpus):
        trained.append(([entry["seed"] for entry in waiting], words, gpus))
        for entry, state in zip(waiting, states):
            entry.update(state=state, **({"code": 3} if state == FAILED else {}))

    def lock(folder, log, **options):
        locked.append((Path(folder), options))
        return contextlib.nullcontext()

    monkeypatch.setattr(seeds.devices, "is_launched", lambda: False)
    monkeypatch.setattr(seeds, "plan_processes", lambda number, device: planned.append((number, device)))
    monkeypatch.setattr(seeds, "assign_gpus", lambda plan: ["a", "b", "c"])
    monkeypatch.setattr(seeds, "lock_output_dir", lock)
    monkeypatch.setattr(seeds, "train_seeds", train)
    monkeypatch.setattr(
        seeds,
        "begin_group",
        lambda config, folder: SeedGroup(folder, dict(ABOUT), [row(5, FINISHED, value=1.0, epoch=1), row(6), row(7)]),
    )
    states, out = (FINISHED, FINISHED), tmp_path / "out"
    seeds.run(make_configuration(SAVE=str(out)))
    assert trained == [([6, 7], ["-cfg=a.yaml", "-amp"], ["a", "b", "c"])] and planned == [(2, "cpu")]
    assert lines[0] == f"1 of 3 seeds are finished in {out}: training 2, 2 at a time" and locked == [
        (out, {"is_evaluation": False})
    ]
    assert lines[1:] == seeds.format_group(groups.read_group(str(out))) and len(lines) == 8
    states = (FAILED, FAILED)
    told = rf"^failed: seed 6 \(exit code 3\), 7 \(exit code 3\): see log.txt in the folder of each; {seeds.REPEAT}$"
    with pytest.raises(UserError, match=told):
        seeds.run(make_configuration(SAVE=str(out)))
    monkeypatch.chdir(tmp_path)
    states, configuration = (FINISHED, FINISHED), make_configuration(SAVE="runs")
    configuration.sources["SAVE"] = "default"
    seeds.run(configuration)
    assert (tmp_path / "runs" / "mine_seeds" / SEEDS).exists()

    def refuse(group, *given):
        group.write()
        raise UserError("no seed started")

    monkeypatch.setattr(seeds, "train_seeds", refuse)
    with pytest.raises(UserError, match="^no seed started$"):
        seeds.run(make_configuration(SAVE=str(tmp_path / "new")))
    assert (tmp_path / "new" / SEEDS).exists()  # a new folder is kept once it has a record
    monkeypatch.setattr(seeds.devices, "is_launched", lambda: True)
    with pytest.raises(UserError, match="^-seeds=3 starts its own processes: run the command without the launcher$"):
        seeds.run(configuration)


def test_a_group_begins_with_its_seeds_and_their_states(tmp_path, monkeypatch):
    task = SimpleNamespace(best_metric=("top-1", True))
    monkeypatch.setattr("paddlevit_dist.tasks.task_factory.make_task", lambda config: task)
    monkeypatch.setattr("paddlevit_dist.engine.compatibility.to_plain_settings", lambda config: {"TASK": config.TASK})
    write_seed(tmp_path / "seed_6", 1, 3, value=50.0)
    group = seeds.begin_group(make_configuration().values, str(tmp_path))
    assert group.about == {**ABOUT, "dataset": "digits", "settings": {"TASK": "t"}} and group.run == str(tmp_path)
    assert [(entry["seed"], entry["state"]) for entry in group.seeds] == [
        (5, UNFINISHED),
        (6, FINISHED),
        (7, UNFINISHED),
    ]
    assert not (tmp_path / SEEDS).exists()
    group.write()
    changed = r"contains seeds of another configuration: TASK t -> u: choose another -output, or restore these"
    with pytest.raises(UserError, match=changed):
        seeds.begin_group(make_configuration(TASK="u").values, str(tmp_path))
    again = seeds.begin_group(make_configuration(TASK="u", ALLOW_CHANGES=True).values, str(tmp_path))
    assert again.about["task"] == "u" and again.seeds == group.seeds
    (tmp_path / SEEDS).unlink()
    assert seeds.begin_group(make_configuration(SEEDS=None).values, str(tmp_path)).seeds == []
    (tmp_path / "run.json").touch()
    with pytest.raises(UserError, match="already holds a run's checkpoints"):
        seeds.begin_group(make_configuration().values, str(tmp_path))
