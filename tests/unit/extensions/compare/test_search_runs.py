"""What a search starts, records and prints; its training runs are stand-ins that end when they are told to."""

import contextlib
import json
import signal
from pathlib import Path

import pytest
from support.children import ends, waits
from support.refusals import refusal_of
from support.trainings.trial_runs import write_trial

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.launch.lock import lock_output_dir
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.extensions.compare import search, trial_tables
from paddlevit_dist.extensions.compare.search_space import parse_range

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState
REPEAT = "repeat the command to continue"
pytestmark = pytest.mark.usefixtures("simulated_time", "own_handlers")


@pytest.fixture
def plan(tmp_path) -> search.SearchPlan:
    ranges = [parse_range("TRAIN.BASE_LR=1e-4..1e-2:log")]
    return search.SearchPlan(str(tmp_path), ranges, ["-cfg=vit_digits", "-amp"], 0, "top-1", True)


def make_study(plan, *ended):
    """A study whose first trials have ended with a score, and one that runs."""
    study = optuna.create_study(direction="maximize")
    for end in (*ended, State.RUNNING):
        distributions = {found.name: found.get_distribution(optuna.distributions) for found in plan.ranges}
        facts = {"params": {"TRAIN.BASE_LR": 0.005}, "distributions": distributions}
        state, value = (State.COMPLETE, end) if isinstance(end, float) else (end, None)
        attributes = {"configuration": {}}
        study.add_trial(optuna.trial.create_trial(state=state, value=value, user_attrs=attributes, **facts))
    return study


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def evaluates(epoch: int, wrong: int, score: float, code: int | None = None):
    """The last evaluation of a run, which ends with ``code``, if any."""

    def evaluate(folder):
        write_trial(folder, epoch, wrong, score)
        return code

    return evaluate


def stops(folder):
    signal.raise_signal(signal.SIGTERM)


def run_last(plan, *ended):
    """Train the trial that is left; return it, and the numbers of those that have failed."""
    study = make_study(plan, *ended)
    failed = search.run_trials(optuna, study, plan, len(ended) + 1)
    return study.get_trials()[-1], failed


def test_a_trial_is_trained_in_its_folder_and_its_score_recorded(tmp_path, plan, commands, simulated_time, capsys):
    commands.courses = [[waits, evaluates(4, 100, 75.0), waits, evaluates(5, 35, 91.25, code=0)]]
    trial, failed = run_last(plan, 50.0, 70.0)
    folder = f"{plan.folder}/trial_0002"
    (command,) = commands.started
    assert command.words == ["-cfg=vit_digits", "-amp", "TRAIN.BASE_LR=0.005", f"-output={folder}", "-resume=auto"]
    assert simulated_time.waits == [0.2] * 3 and command.killed and command.terminated == 0
    assert sorted(file.name for file in (Path(folder) / "tables").iterdir()) == ["epoch_0004.npz", "epoch_0005.npz"]
    assert (trial.state, trial.value, failed) == (State.COMPLETE, 91.25, [])
    lines = [f"trial 2: TRAIN.BASE_LR=0.005: {folder}", "trial 2: top-1 91.25 (best, epoch 5)"]
    assert capsys.readouterr().out.splitlines() == lines
    commands.courses = [[evaluates(4, 100, 0.5, code=0)]]
    run_last(plan)
    assert capsys.readouterr().out.splitlines()[1:] == ["trial 0: top-1 0.5000 (best, epoch 4)"]

    def evaluates_nothing(folder):
        evaluates(4, 100, 0.5)(folder)
        (folder / "metrics.jsonl").unlink()
        return 0

    commands.courses = [[evaluates_nothing]]
    with pytest.raises(UserError, match="trial_0001 has no evaluation: set VALIDATE_FREQ"):
        run_last(plan, 50.0)


def test_a_trial_whose_score_is_not_defined_is_told_and_others_follow(plan, commands, capsys):
    def defines_nothing(folder):
        write_trial(folder, 5, 40, 90.0)
        event = {"kind": "evaluation", "epoch": 5, "loss": 0.5}
        (folder / "metrics.jsonl").write_text(json.dumps(event) + "\n")
        return 0

    commands.courses = [[defines_nothing], [defines_nothing]]
    study = make_study(plan)
    assert search.run_trials(optuna, study, plan, 2) == []
    assert [trial.state for trial in study.get_trials()] == [State.FAIL] * 2
    assert [line for line in capsys.readouterr().out.splitlines() if "not defined" in line] == [
        f"trial {number}: top-1 is not defined" for number in (0, 1)
    ]
    *_, header, first, second, told = search.format_search(optuna, study, plan)
    assert header.split()[-2:] == ["best", "epoch"] and first.endswith("not defined") and second.endswith("not defined")
    assert told == "top-1 is not defined in any trial: which is better is not known"


def test_a_trial_without_a_table_of_samples_has_no_score(plan, commands):
    def forgets(folder):
        write_trial(folder, 10, 40, 90.0)
        (folder / "scored_samples.npz").unlink()
        return 0

    commands.courses = [[forgets]]
    with pytest.raises(UserError, match=r"trial_0000 has no scored_samples.npz, from which search compares runs"):
        run_last(plan)


def test_a_trial_that_is_worse_than_the_best_is_asked_to_end_once(tmp_path, plan, commands, capsys):
    for number, wrong, score in ((0, 90, 75.0), (1, 40, 90.0)):
        for epoch in (5, 6, 7):
            write_trial(tmp_path / f"trial_{number:04d}", epoch, wrong, score)
            trial_tables.keep_table(str(tmp_path / f"trial_{number:04d}"))
    course = [evaluates(epoch, wrong, 20.0) for epoch, wrong in ((5, 80), (6, 80), (7, 80), (8, 380))]
    commands.courses = [[*course, waits, ends(0)]]  # three epochs say how much they vary
    trial, _ = run_last(plan, 75.0, 90.0)
    assert trial.state == State.PRUNED and commands.started[0].terminated == 1
    told = capsys.readouterr().out.splitlines()[1]
    assert told.startswith("trial 2: stopped as worse, epoch 7: -10.00 [-") and told.endswith("] from trial 1")


@pytest.mark.parametrize(
    ("event", "code", "told"), [(waits, signals.STOPPED, "trial 1 was"), (stops, 3, "SIGTERM"), (stops, -9, "SIGTERM")]
)
def test_a_trial_that_was_stopped_continues_later(plan, commands, event, code, told):
    commands.courses = [[event, ends(code)]]
    study = make_study(plan, 50.0)
    with pytest.raises(Stopped) as stopped:
        search.run_trials(optuna, study, plan, 2)
    saved = f"trial 1 of {plan.folder} is unfinished, and its checkpoint is saved; {REPEAT}"
    assert (stopped.value.reason, stopped.value.saved) == (told, saved)
    assert study.get_trials()[-1].state == State.RUNNING and commands.started[0].killed
    assert bool(commands.started[0].terminated) == (event is stops)


def test_a_run_that_has_ended_well_counts_although_a_stop_was_requested(plan, commands):
    commands.courses = [[stops, evaluates(10, 40, 90.0, code=0)]]
    assert run_last(plan)[0].state == State.COMPLETE


@pytest.mark.parametrize("ended, code", [((50.0,), 1), ((50.0,), -11)])
def test_a_trial_that_fails_is_left_to_the_next_command(plan, commands, capsys, ended, code):
    commands.courses, number = [[ends(code)], [evaluates(10, 40, 90.0, code=0)]], len(ended)
    study = make_study(plan, *ended)
    assert search.run_trials(optuna, study, plan, number + 1) == [number]
    assert study.get_trials()[-1].state == State.RUNNING
    assert capsys.readouterr().out.splitlines()[1:] == [f"trial {number}: failed (exit code {code})"]
    assert search.run_trials(optuna, study, plan, number + 1) == []  # the same command again
    first, again = commands.started
    assert first.words == again.words and study.get_trials()[-1].state == State.COMPLETE


def test_a_trial_whose_process_is_killed_is_started_again_three_times(plan, commands, capsys):
    commands.courses = [[ends(-9)], [evaluates(10, 40, 90.0, code=0)]]
    trial, failed = run_last(plan, 50.0)
    assert (trial.state, failed, len(commands.started)) == (State.COMPLETE, [], 2)
    assert capsys.readouterr().out.splitlines()[1] == (
        "trial 1: a process was lost (exit code -9): it is started again"
    )
    commands.started, commands.courses = [], [[ends(-9)]]
    assert run_last(plan, 50.0)[1] == [1] and len(commands.started) == 4
    told = "trial 1: 3 restarts have brought no new checkpoint: it is not started again"
    assert told in capsys.readouterr().out.splitlines()


def test_a_first_trial_that_fails_without_a_checkpoint_ends_the_search(tmp_path, plan, commands):
    commands.courses = [[ends(1)]]
    said = f"trial 0 has failed .see the error above.: remove {plan.folder}, and start again"
    with pytest.raises(UserError, match=f"^{said}$"):
        run_last(plan)
    make_folder(tmp_path / "trial_0000" / "checkpoints")  # which continues once the disk has room again
    assert run_last(plan)[1] == [0]


def test_no_trial_starts_in_the_folder_of_a_running_one_or_after_a_stop_was_requested(
    tmp_path, plan, commands, simulated_time, capsys
):
    commands.courses = [[evaluates(10, 40, 90.0, code=0)]]
    folder, other = make_folder(tmp_path / "trial_0000"), contextlib.ExitStack()
    simulated_time.meanwhile = lambda number: number == 3 and other.close()
    other.enter_context(lock_output_dir(folder, print, is_evaluation=False))
    assert run_last(plan)[0].state == State.COMPLETE and simulated_time.waits == [0.2] * 3
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(f"waiting for the end of another training run in {folder}") == 1 and len(lines) == 3
    simulated_time.meanwhile = lambda number: stops(folder)
    with lock_output_dir(folder, print, is_evaluation=False), pytest.raises(Stopped) as stopped:
        run_last(plan)
    assert (stopped.value.reason, stopped.value.saved) == ("SIGTERM", f"nothing was trained; {REPEAT}")
    with pytest.raises(Stopped) as stopped:
        run_last(plan)
    assert stopped.value.saved == f"trial 0 of {plan.folder} has not started; {REPEAT}"
    assert len(commands.started) == 1 and simulated_time.waits == [0.2] * 4


def test_an_interrupted_trial_continues_before_others_are_added(plan, commands):
    study, ends_well = optuna.create_study(direction="maximize"), evaluates(10, 40, 90.0, code=0)
    search.add_trial(optuna, study, plan, 1)
    commands.courses = [[ends_well], [ends(3)], [ends_well]]
    assert search.run_trials(optuna, study, plan, 3) == [1]
    assert [trial.state for trial in study.get_trials()] == [State.COMPLETE, State.RUNNING, State.COMPLETE]
    assert search.run_trials(optuna, study, plan, 4) == []
    assert [command.folder.name for command in commands.started] == [
        f"trial_{number:04d}" for number in (0, 1, 2, 1, 3)
    ]
    assert len({command.words[2] for command in commands.started}) == 4


def test_a_plan_has_the_words_the_seed_and_the_score_of_its_runs():
    words, ranges = ["-cfg=vit_digits", "-seed=5"], [parse_range("TRAIN.OPTIMIZER.NAME=SGD|AdamW")]
    found = search.make_plan(words, ranges, None)
    assert found == search.SearchPlan("output/vit_digits_search", ranges, words, 5, "top-1", True)
    assert search.make_plan(words, ranges, "there").folder == "there"
    for others in (["-eval", "-pretrained=x"], ["-seeds=2"]):
        with pytest.raises(
            UserError, match="^search trains, all trials with one seed: drop -eval, -seeds and the range"
        ):
            search.make_plan([*words[:1], *others], ranges, None)
    unlabeled = ["-cfg=dino_digits", "-dataset=unlabeled", "-data_path=x", "DATA.VAL_FRACTION", "0.5"]
    assert refusal_of(search.make_plan, unlabeled, ranges, None) == (
        "search compares scores, but none shows which run is better: name images with classes with "
        "PRETRAINING.LABELED_PATH"
    )


def test_the_command_runs_its_plan_and_names_the_trials_that_failed(tmp_path, commands, capsys):
    words, out = ["-cfg=vit_digits", "TRAIN.OPTIMIZER.NAME=SGD|AdamW", f"-output={tmp_path / 'out'}"], tmp_path / "out"
    commands.courses = [[evaluates(10, 40, 90.0, code=0)], [ends(3)]]
    with pytest.raises(UserError, match=f"^failed: trial 1: see log.txt in the folder of each; {REPEAT}$"):
        search.run([*words, "-trials=2"])
    assert [command.words[0] for command in commands.started] == ["-cfg=vit_digits"] * 2
    assert [command.folder for command in commands.started] == [out / "trial_0000", out / "trial_0001"]
    commands.courses = [[evaluates(10, 80, 80.0, code=0)]]
    capsys.readouterr()
    search.run(words)
    told = capsys.readouterr().out.split("\n\n")
    assert "no other settings are left to train: 2 trials of 20" in told[0]
    header, first, second, best, _ = told[1].splitlines()
    assert header.split()[:2] == ["trial", "TRAIN.OPTIMIZER.NAME"] and (first.split()[0], second.split()[0]) == (
        "0",
        "1",
    )
    assert best.startswith("best: trial 0, epoch 10; against the second, trial 1")


def test_a_score_is_that_of_the_best_checkpoint_and_a_study_has_the_best_first(tmp_path, plan):
    scores = [50.0, 60, 55.0]
    events = [{"kind": "evaluation", "epoch": epoch, "top-1": score} for epoch, score in enumerate(scores, 1)]
    for event in events[:2]:
        event["best"] = "top-1"
    events += [{"kind": "evaluation", "x": 1}, {"kind": "training", "top-1": 70.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert repr(trial_tables.read_score(str(tmp_path), "top-1")) == "(60.0, 2)"
    assert trial_tables.read_score(str(tmp_path), "AP") is None  # evaluated, but not defined
    said = f"{tmp_path / 'none'} has no evaluation: set VALIDATE_FREQ so that the last epoch is evaluated"
    with pytest.raises(UserError, match=f"^{said}$"):
        trial_tables.read_score(str(tmp_path / "none"), "AP")
    study = make_study(plan, 3.0, 9.0, State.FAIL, 3.0, 5.0)
    assert [trial.number for trial, _ in search.rank_trials(optuna, study, plan)] == [1, 4, 0, 3]
    assert [trial.number for trial, _ in search.rank_trials(optuna, study, plan._replace(more_is_better=False))] == [
        0,
        3,
        4,
        1,
    ]
    (tmp_path / "metrics.jsonl").rename(make_folder(tmp_path / "trial_0003") / "metrics.jsonl")
    found = [(trial.number, best["value"], best["epoch"]) for trial, best in search.rank_trials(optuna, study, plan)]
    assert found == [(3, 60.0, 2), (1, 9.0, ""), (4, 5.0, ""), (0, 3.0, "")]  # what its folder says, if there is one
