"""What a group of seeds starts, records and prints; its training runs are stand-ins that end when they are told to."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from support.children import ends, waits

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.engine.compatibility import to_plain_settings
from paddlevit_dist.core.launch.lock import is_running
from paddlevit_dist.core.logging.record import SEEDS
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.settings import load
from paddlevit_dist.extensions.compare import groups, seeds
from paddlevit_dist.extensions.compare.groups import FAILED, FINISHED, UNFINISHED, SeedGroup

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
def said(capsys):
    """Return the lines that were printed since the last call."""
    return lambda: capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("code", "is_stopped", "state"),
    [(0, False, FINISHED), (0, True, FINISHED), (3, True, UNFINISHED), (3, False, FAILED)],
)
def test_the_end_of_a_seed_is_recorded_with_its_score(tmp_path, said, code, is_stopped, state):
    write_seed(tmp_path / "seed_2", 1, value=50.0)
    group = SeedGroup(str(tmp_path), dict(ABOUT), [row(1), row(2)])
    seeds.record_end(group, group.seeds[1], code, is_stopped, False)
    written = json.loads((tmp_path / SEEDS).read_text())["seeds"]
    assert written[0] == row(1) and written[1]["state"] == state and written[1]["value"] == 50.0
    assert written[1].get("code") == (code if state == FAILED else None)
    assert said() == [f"seed 2: {state}, top-1 50.00 [49.00, 51.00]"]
    seeds.record_end(group, group.seeds[0], code, is_stopped, False)  # without a defined score
    assert said() == [f"seed 1: {state}{', top-1 not defined' if state == FINISHED else ''}"]


def test_a_first_seed_that_does_not_start_ends_the_command(tmp_path, said):
    group = SeedGroup(str(tmp_path), dict(ABOUT), [row(1), row(2)])
    with pytest.raises(UserError, match=r"^seed 1 did not start \(see the error above\); no other seed was started$"):
        seeds.record_end(group, group.seeds[0], 1, False, False)
    assert not (tmp_path / SEEDS).exists()
    seeds.record_end(group, group.seeds[0], 1, False, True)  # others run
    (tmp_path / "seed_2").mkdir()
    seeds.record_end(group, group.seeds[0], 1, False, False)  # others have run
    assert said() == ["seed 1: failed"] * 2


@pytest.mark.parametrize(
    ("gpu", "low", "high", "cores"), [("3", 0.0, 0.5, {0, 1}), ("g", 0.5, 1.0, {2, 3}), ("x", 0.1, 0.2, {0, 1, 2, 3})]
)
def test_a_seed_on_a_gpu_has_its_share_of_the_cores_and_a_log_of_its_own(
    commands, machine, said, gpu, low, high, cores
):
    commands.courses, machine.cores, group = [[]], 4, SeedGroup("out", ABOUT, [])
    command = seeds.start_seed(group, row(5), ["-cfg=a", "-amp"], gpu, low, high)
    assert command.words == ["-cfg=a", "-amp", "-output=out/seed_5", "-seed=5", "-resume=auto", "SEEDS=None"]
    assert (command.environment["CUDA_VISIBLE_DEVICES"], command.environment["TERM"]) == (gpu, "dumb")
    assert command.output == subprocess.DEVNULL and machine.pinned == [(command.pid, cores)]
    assert said() == [f"seed 5: out/seed_5, GPU {gpu}: see log.txt there"]
    command = seeds.start_seed(group, row(6), [], None, low, high)
    assert "CUDA_VISIBLE_DEVICES" not in command.environment and command.output is None
    assert len(machine.pinned) == 1 and said() == ["seed 6: out/seed_6"]


@pytest.fixture
def train(tmp_path, commands, machine, simulated_time, own_handlers):
    """Train seeds 1 to n, whose runs have these courses; return the group, and the places of those that started."""
    machine.cores = 4

    def train(courses, gpus, number_of_seeds=None):
        rows = [row(number + 1) for number in range(number_of_seeds or len(courses))]
        group = SeedGroup(str(tmp_path), dict(ABOUT), rows)
        commands.courses, commands.started, machine.pinned = [*courses, []], [], []
        told = ""
        try:
            seeds.train_seeds(group, group.seeds, ["words"], gpus)
        except Stopped as stopped:
            told = str(stopped)
        cores = [sorted(share) for _, share in machine.pinned] or [None] * len(commands.started)
        gpus = [command.environment.get("CUDA_VISIBLE_DEVICES") for command in commands.started]
        numbers = [int(command.folder.name.removeprefix("seed_")) for command in commands.started]
        return group, [*zip(numbers, gpus, cores, strict=True)], told

    return train


def begins(folder):
    folder.mkdir(exist_ok=True)


def stops(folder):
    signal.raise_signal(signal.SIGTERM)


def test_each_gpu_trains_the_next_seed_when_it_is_free(train, commands):
    courses = [[begins, waits, ends(0)], [ends(0)], [ends(5)], [ends(0)]]
    group, started, told = train(courses, ["a", "b"])
    assert started == [(1, "a", [0, 1]), (2, "b", [2, 3]), (3, "b", [2, 3]), (4, "b", [2, 3])]
    assert [entry["state"] for entry in group.seeds] == [FINISHED, FINISHED, FAILED, FINISHED]
    assert group.seeds[2]["code"] == 5 and told == ""
    assert not any(command.killed or command.terminated for command in commands.started)


def test_a_seed_whose_process_is_killed_is_started_again_before_others(train):
    group, started, _ = train([[begins, ends(-9)], [ends(0)], [ends(0)]], [None], 2)
    assert [seed for seed, _, _ in started] == [1, 1, 2]
    group, started, _ = train([[begins, ends(-9)]] * 4, [None], 1)
    assert [seed for seed, _, _ in started] == [1] * 4 and group.seeds[0]["state"] == FAILED


def test_without_gpus_one_seed_follows_another(train):
    _, started, _ = train([[waits, ends(0)], [waits, ends(0)], [ends(0)]], [None])
    assert started == [(1, None, None), (2, None, None), (3, None, None)]
    _, started, _ = train([[ends(0)]], ["a", "b", "c"])
    assert started == [(1, "a", [0, 1, 2, 3])]  # it has all cores


@pytest.mark.parametrize(("gpus", "cores"), [(2, 5), (3, 7), (4, 4), (5, 16)])
def test_gpus_share_all_cores_without_overlap(train, machine, gpus, cores):
    machine.cores = cores
    _, started, _ = train([[waits, ends(0)]] * gpus, [f"{number}" for number in range(gpus)])
    assert sorted(core for _, _, share in started for core in share) == [*range(cores)]
    assert {len(share) for _, _, share in started} <= {cores // gpus, -(-cores // gpus)}


def test_a_stop_ends_running_seeds_and_starts_no_others(train, tmp_path, commands):
    group, started, told = train([[waits, stops, ends(0)], [waits, waits, ends(0)], []], ["a", "b"])
    assert len(started) == 2 and all(command.terminated for command in commands.started)
    assert [entry["state"] for entry in group.seeds] == [FINISHED, FINISHED, UNFINISHED]
    assert (
        told.startswith("asked to stop (SIGTERM): ")
        and f"1 of 3 seeds of {tmp_path} are unfinished, and their checkpoints are saved" in told
    )


def test_a_seed_that_was_stopped_stops_the_others(train, commands):
    group, started, told = train([[ends(signals.STOPPED)], [waits, waits, ends(7)], []], ["a", "b"])
    assert len(started) == 2 and commands.started[1].terminated == 1
    assert told.startswith("asked to stop (seed 1 was): 3 of 3 seeds")
    assert [entry["state"] for entry in group.seeds] == [UNFINISHED] * 3


def test_running_seeds_are_killed_after_an_error(train, tmp_path, commands):
    (tmp_path / SEEDS).mkdir()
    with pytest.raises(UserError, match=SEEDS):
        train([[begins, ends(0)], [waits] * 9], ["a", "b"])
    assert [command.killed for command in commands.started] == [False, True]


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
    expected = min(100.0, groups.compute_noise([50.0, 54.0]))
    assert noise == (
        f"by chance alone the means of two such groups differ by up to {expected:.2f} ({groups.PERCENT} % of pairs) on "
        "these samples; other samples are not in it"
    )
    assert written == "written to out/seeds.json; 'compare' sets two groups side by side, 'report' draws one"
    assert len(seeds.format_group(SeedGroup("out", ABOUT, rows[:2]))) == 6  # one finished seed has no noise
    assert len(seeds.format_group(SeedGroup("out", ABOUT, rows[1:2]))) == 3
    rows.append(row(7, FINISHED))
    *_, undefined, summary, _, _ = seeds.format_group(SeedGroup("out", ABOUT, rows))
    assert undefined.split() == ["7", "not", "defined"]
    assert summary.startswith("best top-1 of 2 seed(s), without 1 where it is not defined: ")
    *_, told = seeds.format_group(SeedGroup("out", ABOUT, rows[-1:]))
    assert told == "best top-1: not defined in any of 1 seed(s)"


def configure(folder: Path, *words: str):
    return load(["-cfg=vit_digits", "-seeds=3", "-seed=5", f"-output={folder}", *words])


@pytest.fixture
def one_process(monkeypatch):
    monkeypatch.delenv("PADDLE_TRAINER_ID", raising=False)


@pytest.mark.usefixtures("simulated_time", "own_handlers", "one_process")
def test_the_seeds_that_are_not_finished_are_trained_and_those_that_failed_are_named(
    tmp_path, monkeypatch, commands, machine, said
):
    monkeypatch.chdir(tmp_path)
    out, machine.gpus, machine.cores = tmp_path / "out", 3, 4
    write_seed(out / "seed_5", 1, 3, value=50.0)
    commands.courses = [[begins, ends(3)]]
    told = rf"^failed: seed 6 \(exit code 3\), 7 \(exit code 3\): see log.txt in the folder of each; {seeds.REPEAT}$"
    with pytest.raises(UserError, match=told):
        seeds.run(configure(out, "-ngpus=1", "-resume=auto", "-amp"))
    assert said()[0] == f"1 of 3 seeds are finished in {out}: training 2, 2 at a time"
    assert [[command.words[0], *command.words[2:5]] for command in commands.started] == [
        ["-cfg=vit_digits", "-amp", f"-output={out}/seed_{seed}", f"-seed={seed}"] for seed in (6, 7)
    ]
    assert [command.environment["CUDA_VISIBLE_DEVICES"] for command in commands.started] == ["0", "1"]
    commands.courses = [[begins, require_locked, ends(0)]]
    seeds.run(configure(out, "-ngpus=1", "-amp"))
    assert [line.split(":")[0] for line in said()[1:5]] == ["seed 6", "seed 7"] * 2
    assert [entry["state"] for entry in groups.read_group(str(out)).seeds] == [FINISHED] * 3
    seeds.run(load(["-cfg=vit_digits", "-seeds=2", "SAVE", "runs"]))
    seeds.run(load(["-cfg=vit_digits", "-seeds=2"]))
    assert (tmp_path / "runs" / SEEDS).exists() and (tmp_path / "output" / "vit_digits_seeds" / SEEDS).exists()


def require_locked(folder: Path) -> None:
    assert is_running(folder.parent)


@pytest.mark.usefixtures("simulated_time", "own_handlers", "one_process")
def test_scores_are_printed_and_a_group_that_does_not_start_leaves_no_folder(tmp_path, commands, said):
    def evaluates(folder):
        write_seed(folder, 1, 3, value=50.0)
        return 0

    commands.courses = [[evaluates]]
    seeds.run(configure(tmp_path / "out", "-device=cpu"))
    lines = said()
    assert lines[0] == f"seeds in {tmp_path / 'out'}: training 3, 1 at a time"
    assert lines[-8:] == seeds.format_group(groups.read_group(str(tmp_path / "out"))) and len(lines) == 15
    commands.courses = [[ends(1)]]
    with pytest.raises(UserError, match="^seed 5 did not start"):
        seeds.run(configure(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_a_launcher_starts_no_groups(tmp_path, monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "0")
    with pytest.raises(UserError, match="^-seeds=3 starts its own processes: run the command without the launcher$"):
        seeds.run(configure(tmp_path / "out"))


def test_a_group_begins_with_its_seeds_and_their_states(tmp_path):
    write_seed(tmp_path / "seed_6", 1, 3, value=50.0)
    values = configure(tmp_path).values
    group = seeds.begin_group(values, str(tmp_path))
    about = {"task": "classification", "dataset": "digits", "settings": to_plain_settings(values)}
    assert group.about == {**ABOUT, **about} and group.run == str(tmp_path)
    assert [(entry["seed"], entry["state"]) for entry in group.seeds] == [
        (5, UNFINISHED),
        (6, FINISHED),
        (7, UNFINISHED),
    ]
    assert not (tmp_path / SEEDS).exists()
    group.write()
    changed = r"contains seeds of another configuration: TRAIN.NUM_EPOCHS 40 -> 9: choose another -output, or restore"
    with pytest.raises(UserError, match=changed):
        seeds.begin_group(configure(tmp_path, "-epochs=9").values, str(tmp_path))
    again = seeds.begin_group(configure(tmp_path, "-epochs=9", "-allow_changes").values, str(tmp_path))
    assert again.about["settings"]["TRAIN"]["NUM_EPOCHS"] == 9 and again.seeds == group.seeds
    (tmp_path / SEEDS).unlink()
    assert seeds.begin_group(load(["-cfg=vit_digits"]).values, str(tmp_path)).seeds == []
    (tmp_path / "run.json").touch()
    with pytest.raises(UserError, match="already holds a run's checkpoints"):
        seeds.begin_group(values, str(tmp_path))
