"""What a search starts, records and prints; its training runs are stand-ins that end when they are told to."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.compare import search
from paddlevit_dist.compare.search_space import parse_range

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState
REPEAT = "repeat the command to continue"


@pytest.fixture
def plan(tmp_path) -> search.SearchPlan:
    ranges = [parse_range("TRAIN.BASE_LR=1e-4..1e-2:log")]
    return search.SearchPlan(str(tmp_path), ranges, ["-cfg=a", "-amp"], 0, "top-1", True)


def make_study(plan, *ended):
    """A study whose first trials have ended with a score or a state, and one that runs; returns that, too."""
    study = optuna.create_study(direction="maximize")
    for end in (*ended, State.RUNNING):
        distributions = {found.name: found.get_distribution(optuna.distributions) for found in plan.ranges}
        facts = {"params": {"TRAIN.BASE_LR": 0.005}, "distributions": distributions, "user_attrs": {}}
        state, value = (State.COMPLETE, end) if isinstance(end, float) else (end, None)
        study.add_trial(optuna.trial.create_trial(state=state, value=value, **facts))
    return study, study.get_trials()[-1]


def make_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


class Child:
    """A training run that ends with a code when it is looked at for the third time, or once it was terminated."""

    def __init__(self, code: int) -> None:
        self.code, self.left, self.terminated = code, 3, 0
        self.returncode: int | None = None

    def poll(self) -> int | None:
        self.left -= 1
        self.returncode = self.code if self.left <= 0 else None
        return self.returncode

    def terminate(self) -> None:
        self.terminated, self.left = self.terminated + 1, 0


@pytest.fixture
def calls(monkeypatch) -> SimpleNamespace:
    """Notes what a trial calls; its run ends with ``code``, and has evaluated ``epochs`` when it is looked at."""
    noted = SimpleNamespace(
        lines=[], started=[], forwarded=[], killed=[], explained=[], slept=[], tables=[], reason=None
    )
    noted.epochs, noted.why, noted.child, noted.running, noted.value = [], {}, Child(0), [], 91.25

    def start(words):
        noted.started.append(words)
        return noted.child

    def keep_table(folder):
        noted.tables.append(Path(folder).name)
        return noted.epochs.pop(0) if noted.epochs else None

    def explain_stop(plan, ranked, folder, epoch):
        noted.explained.append((ranked, Path(folder).name, epoch))
        return noted.why.get(epoch, "")

    monkeypatch.setattr(search, "write_line", noted.lines.append)
    monkeypatch.setattr(search.training_commands, "start", start)
    monkeypatch.setattr(search.training_commands, "forward_requests", lambda runs: noted.forwarded.append(list(runs)))
    monkeypatch.setattr(search.training_commands, "kill", lambda runs: noted.killed.append(list(runs)))
    monkeypatch.setattr(search.time, "sleep", noted.slept.append)
    monkeypatch.setattr(search.signals, "stop_reason", lambda: noted.reason)
    monkeypatch.setattr(
        search, "is_running", lambda folder: bool(noted.running) and noted.running.pop(0) == folder.name
    )
    monkeypatch.setattr(search, "keep_table", keep_table)
    monkeypatch.setattr(search, "explain_stop", explain_stop)
    monkeypatch.setattr(search, "read_score", lambda folder, score: (noted.tables.append(score), (noted.value, 4))[1])
    monkeypatch.setattr(search, "require_table", lambda folder: noted.tables.append("required"))
    return noted


def run_trial(plan, *ended):
    study, trial = make_study(plan, *ended)
    search.run_trial(optuna, study, plan, trial)
    return study.get_trials()[-1]


def test_a_trial_is_trained_in_its_folder_and_its_score_recorded(plan, calls):
    calls.epochs = [4, None, 5]
    trial = run_trial(plan, 50.0, 70.0)
    folder = f"{plan.folder}/trial_0002"
    assert calls.started == [["-cfg=a", "-amp", "TRAIN.BASE_LR=0.005", f"-output={folder}", "-resume=auto"]]
    assert calls.forwarded == [[calls.child]] * 2 and calls.slept == [0.2, 0.2] and calls.killed == [[calls.child]]
    assert calls.explained == [([1, 0], "trial_0002", 4)]  # the best first
    assert calls.tables == ["trial_0002"] * 3 + ["top-1", "required"]
    assert (trial.state, trial.value, calls.child.terminated) == (State.COMPLETE, 91.25, 0)
    assert calls.lines == [f"trial 2: TRAIN.BASE_LR=0.005: {folder}", "trial 2: top-1 91.25 (best, epoch 4)"]
    calls.child, calls.value, calls.lines[:] = Child(0), 0.5, []
    run_trial(plan)
    assert calls.lines[1:] == ["trial 0: top-1 0.5000 (best, epoch 4)"]


def test_a_trial_that_is_worse_is_asked_to_end_once(plan, calls):
    calls.child.terminate = lambda: setattr(calls.child, "terminated", calls.child.terminated + 1)
    calls.child.left, calls.epochs, calls.why = 5, [5, 6, 7, 8], {6: "epoch 6: -1\n", 7: "epoch 7"}
    trial = run_trial(plan)
    assert [epoch for *_, epoch in calls.explained] == [5, 6] and calls.child.terminated == 1
    assert trial.state == State.PRUNED and calls.lines[1:] == [r"trial 0: stopped as worse, epoch 6: -1\n"]


@pytest.mark.parametrize(
    ("code", "reason", "told"), [(search.signals.STOPPED, None, "trial 1 was"), (3, "SIGTERM", "SIGTERM")]
)
def test_a_trial_that_was_stopped_continues_later(plan, calls, monkeypatch, code, reason, told):
    calls.child.code = code
    study, trial = make_study(plan, 50.0)
    reasons = iter([None, *[reason] * 9])
    monkeypatch.setattr(search.signals, "stop_reason", lambda: next(reasons))
    with pytest.raises(Stopped) as stopped:
        search.run_trial(optuna, study, plan, trial)
    saved = f"trial 1 of {plan.folder} is unfinished, and its checkpoint is saved; {REPEAT}"
    assert (stopped.value.reason, stopped.value.saved) == (told, saved)
    assert study.get_trials()[-1].state == State.RUNNING and calls.killed == [[calls.child]]


def test_a_run_that_has_ended_well_counts_although_a_stop_was_requested(plan, calls, monkeypatch):
    reasons = iter([None, *["SIGTERM"] * 9])
    monkeypatch.setattr(search.signals, "stop_reason", lambda: next(reasons))
    assert run_trial(plan).state == State.COMPLETE


@pytest.mark.parametrize("ended, code", [((50.0,), 1), ((50.0,), -9), ((), -9)])
def test_a_trial_that_fails_or_is_killed_is_left_to_the_next_command(plan, calls, monkeypatch, ended, code):
    monkeypatch.setattr(search, "add_trial", lambda *given: None)
    calls.child.code = code
    study, trial = make_study(plan, *ended)
    assert search.run_trials(optuna, study, plan, len(ended) + 1) == [trial.number]
    assert study.get_trials()[-1].state == State.RUNNING
    assert calls.lines[1:] == [f"trial {trial.number}: failed (exit code {code})"]
    calls.child = Child(0)  # the same command again
    assert search.run_trials(optuna, study, plan, len(ended) + 1) == []
    assert calls.started[0] == calls.started[1] and study.get_trials()[-1].state == State.COMPLETE


def test_a_first_trial_that_fails_without_a_checkpoint_ends_the_search(tmp_path, plan, calls):
    calls.child = Child(1)
    study, trial = make_study(plan)
    said = f"trial 0 has failed .see the error above.: remove {plan.folder}, and start again"
    with pytest.raises(UserError, match=f"^{said}$"):
        search.run_trial(optuna, study, plan, trial)
    make_folder(tmp_path / "trial_0000" / "checkpoints")  # which continues once the disk has room again
    assert not search.run_trial(optuna, study, plan, trial)


def test_no_trial_starts_after_a_stop_was_requested_or_in_the_folder_of_a_running_one(plan, calls):
    calls.reason = "SIGINT"
    with pytest.raises(Stopped) as stopped:
        run_trial(plan)
    assert stopped.value.saved == f"trial 0 of {plan.folder} has not started; {REPEAT}"
    calls.running = ["trial_0000"]
    with pytest.raises(Stopped) as stopped:
        run_trial(plan)
    assert (stopped.value.reason, stopped.value.saved) == ("SIGINT", f"nothing was trained; {REPEAT}")
    assert calls.started == [] and calls.slept == [0.2]
    calls.reason, calls.running, calls.lines[:] = None, ["trial_0000"] * 3, []
    assert run_trial(plan).state == State.COMPLETE and calls.slept == [0.2] * 6
    waited = f"waiting for the end of another training run in {plan.folder}/trial_0000"
    assert calls.lines.count(waited) == 1 and len(calls.lines) == 3


def test_an_interrupted_trial_continues_before_others_are_added(plan, monkeypatch):
    seven, three, four = (SimpleNamespace(number=number) for number in (7, 3, 4))
    trials, ran, interrupted = iter([three, four, None]), [], [seven, None, None, None]
    monkeypatch.setattr(search.signals, "record_only_as_parent", lambda: ran.append("signals"))
    monkeypatch.setattr(search, "find_interrupted", lambda *given: (ran.append(given), interrupted.pop(0))[1])
    monkeypatch.setattr(search, "add_trial", lambda *given: (ran.append(given), next(trials))[1])
    monkeypatch.setattr(search, "run_trial", lambda *given: (ran.append(given), given[-1] is not three)[1])
    assert search.run_trials("optuna", "study", plan, 5) == [3]
    looked, added = ("optuna", "study", [3]), ("optuna", "study", plan, 5)  # the same list all the time
    expected = ["signals", looked, (*added[:3], seven), looked, added, (*added[:3], three), looked, added]
    expected += [(*added[:3], four)]
    assert ran == [*expected, looked, added]


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


def test_the_command_runs_its_plan_and_names_the_trials_that_failed(tmp_path, monkeypatch, capsys):
    ran, study, out = [], optuna.create_study(), tmp_path / "out"
    monkeypatch.setattr(search, "import_optuna", lambda: optuna)
    monkeypatch.setattr(search, "make_plan", lambda *given: (ran.append(given), SimpleNamespace(folder=given[2]))[1])
    monkeypatch.setattr(search, "open_study", lambda module, plan: study if plan.folder == str(out) else module)
    failed = []
    monkeypatch.setattr(search, "run_trials", lambda *given: (ran.append(given), failed)[1])
    monkeypatch.setattr(search, "format_search", lambda *given: ["", "told"])
    search.run(["-cfg=a", "TRAIN.BASE_LR=1..2", "-trials=7", f"-output={out}"])
    assert capsys.readouterr().out == "\ntold\n" and out.is_dir()
    (words, ranges, folder), (*_, trials) = ran
    assert (words, [found.word for found in ranges], folder, trials) == (
        ["-cfg=a"],
        ["TRAIN.BASE_LR=1..2"],
        str(out),
        7,
    )
    failed += [0, 2]
    with pytest.raises(UserError, match=f"^failed: trial 0, 2: see log.txt in the folder of each; {REPEAT}$"):
        search.run(["-cfg=a", "TRAIN.BASE_LR=1..2", f"-output={out}"])
    assert ran[-1][-1] == 20


def test_a_score_is_that_of_the_best_checkpoint_and_a_study_has_the_best_first(tmp_path, plan):
    scores = [50.0, 60, 55.0]
    events = [{"kind": "evaluation", "epoch": epoch, "top-1": score} for epoch, score in enumerate(scores, 1)]
    for event in events[:2]:
        event["best"] = "top-1"
    events += [{"kind": "evaluation", "x": 1}, {"kind": "training", "top-1": 70.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert repr(search.read_score(str(tmp_path), "top-1")) == "(60.0, 2)"
    said = f"{tmp_path} has no evaluation with AP: set VALIDATE_FREQ so that the last epoch is evaluated"
    with pytest.raises(UserError, match=f"^{said}$"):
        search.read_score(str(tmp_path), "AP")
    study, _ = make_study(plan, 3.0, 9.0, State.FAIL, 3.0, 5.0)
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
