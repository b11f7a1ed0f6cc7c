"""A search: which trials are stopped, what is printed of a study, and what is refused."""

import json
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from support.refusals import refusal_of
from support.trainings.runs import PLAIN
from support.trainings.trial_runs import write_trial

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.intervals import ConfidenceInterval
from paddlevit_dist.core.runtime.environment import program
from paddlevit_dist.core.settings.table import public_leaves
from paddlevit_dist.extensions.compare import search, search_storage, trial_tables
from paddlevit_dist.extensions.compare.search_space import parse_range

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)


def make_plan(folder, recipe=PLAIN):
    return search.SearchPlan(
        str(folder),
        [parse_range("TRAIN.BASE_LR=1e-4..1e-2:log")],
        [recipe, "REPORT=False"],
        0,
        "top-1",
        True,
    )


def test_a_trial_is_stopped_if_its_interval_is_on_the_worse_side_of_the_best(tmp_path):
    best, folder = tmp_path / "best", tmp_path / "other"
    for epoch, wrong, others in ((1, 300, 380), (5, 100, 110), (6, 40, 120)):
        write_trial(best, epoch, wrong, 0.0)
        write_trial(folder, epoch, others, 0.0)
        assert trial_tables.keep_table(str(best)) == trial_tables.keep_table(str(folder)) == epoch
        assert trial_tables.keep_table(str(folder)) is None  # seen before
        difference = trial_tables.compare_at(str(best), str(folder), epoch, "top-1")
        assert difference.value == pytest.approx(-100 * (others - wrong) / 400)
        assert search.is_worse(difference, more_is_better=True)
    assert trial_tables.compare_at(str(best), str(folder), 7, "top-1") is None
    for low, high, worse in ((-3, -1, True), (-3, 1, False), (1, 3, False)):
        interval = ConfidenceInterval(value=(low + high) / 2, low=low, high=high)
        assert search.is_worse(interval, more_is_better=True) is worse
        assert search.is_worse(interval._replace(low=-high, high=-low), more_is_better=False) is worse


def test_the_best_is_told_with_its_difference_from_the_second(tmp_path):
    plan, study = make_plan(tmp_path), optuna.create_study(direction="maximize")
    for number, (wrong, score) in enumerate(((80, 80.0), (40, 90.0), (44, 89.0), (200, 50.0))):
        study.ask({found.name: found.get_distribution(optuna.distributions) for found in plan.ranges})
        write_trial(tmp_path / f"trial_{number:04d}", 10, wrong, score)
        study.tell(number, trial_tables.read_score(search.get_folder(plan, number), "top-1")[0])
    study.tell(study.ask(), state=optuna.trial.TrialState.PRUNED)
    lines = search.format_search(optuna, study, plan)
    assert [line.split()[0] for line in lines[2:7]] == ["1", "2", "0", "3", "4"] and lines[6].endswith("pruned")
    assert lines[7].startswith("best: trial 1, epoch 10; against the second, trial 2, epoch 10: top-1 +1.00 [")
    assert lines[7].endswith("p 0.062, may be chance")  # 4 of 4 changes are for the better: 1 / 2^4
    samples = "on these samples: expect less on others; evaluate it on a test split"
    assert lines[0] == "" and lines[8:] == [f"it is the best of 4 {samples}"]
    rates = [study.trials[number].params["TRAIN.BASE_LR"] for number in (1, 2, 0, 3)]
    assert lines[1].split() == ["trial", "TRAIN.BASE_LR", "top-1", "best", "epoch"]
    assert [line.split()[1:] for line in lines[2:6]] == [
        [f"{rate:.4g}", f"{score:.2f}", "10"] for rate, score in zip(rates, (90, 89, 80, 50), strict=True)
    ]
    alone = optuna.create_study(direction="maximize")
    alone.add_trial(study.trials[1])
    assert [line.split()[:1] for line in search.format_search(optuna, alone, plan)] == [[], ["trial"], ["0"]]


@pytest.mark.parametrize("removed", [(0,), (1,), (0, 1)])
def test_trials_whose_folders_were_removed_are_ranked_but_not_compared(tmp_path, removed):
    plan, study = make_plan(tmp_path), optuna.create_study(direction="maximize")
    for number, (wrong, score) in enumerate(((40, 90.0), (44, 89.0), (200, 50.0))):
        study.ask({found.name: found.get_distribution(optuna.distributions) for found in plan.ranges})
        write_trial(tmp_path / f"trial_{number:04d}", 10, wrong, score)
        study.tell(number, score)
    for number in removed:
        shutil.rmtree(search.get_folder(plan, number))
    lines = search.format_search(optuna, study, plan)
    assert [line.split()[0] for line in lines[2:5]] == ["0", "1", "2"]
    assert [line.split()[2:] for line in lines[2:5]] == [
        [f"{score:.2f}", *([] if number in removed else ["10"])] for number, score in enumerate((90, 89, 50))
    ]
    folders = " and no ".join(search.get_folder(plan, number) for number in removed)
    assert lines[5:] == [f"best: trial 0; not compared with the second, trial 1: there is no {folders}"]


def test_the_best_epochs_of_two_trials_are_compared(tmp_path):
    plan, study = make_plan(tmp_path), optuna.create_study(direction="maximize")
    for number, runs in enumerate((((3, 40, 90.0), (4, 80, 80.0)), ((3, 60, 85.0), (4, 44, 89.0)))):
        study.ask({found.name: found.get_distribution(optuna.distributions) for found in plan.ranges})
        folder = tmp_path / f"trial_{number:04d}"
        for epoch, wrong, score in runs:
            write_trial(folder, epoch, wrong, score)
            trial_tables.keep_table(str(folder))
        if number == 0:
            last = (folder / "metrics.jsonl").read_text().splitlines()
            rows = [json.loads(line) for line in last]
            del rows[1]["best"]  # it is not the best one
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        study.tell(number, trial_tables.read_score(str(folder), "top-1")[0])
    lines = search.format_search(optuna, study, plan)
    assert [line.split()[0::3] for line in lines[2:4]] == [["0", "3"], ["1", "4"]]
    assert lines[4].startswith("best: trial 0, epoch 3; against the second, trial 1, epoch 4: top-1 +1.00 [")


def test_a_trial_is_stopped_only_by_trials_of_its_own_length(tmp_path):
    plan, trials = make_plan(tmp_path), [tmp_path / f"trial_{number:04d}" for number in range(3)]
    for folder, wrong, epochs in zip(trials, (0, 40, 200), (6, 10, 10), strict=True):
        for epoch in (4, 5, 6, 7):
            write_trial(folder, epoch, wrong, 100 - wrong / 4, epochs)
            trial_tables.keep_table(str(folder))
    told = search.explain_stop(plan, [0, 1], str(trials[2]), 7)
    assert told.startswith("epoch 7: -40.00 [-") and told.endswith("] from trial 1")
    told = search.explain_stop(plan._replace(more_is_better=False), [2], str(trials[1]), 7)
    assert told.startswith("epoch 7: +40.00 [+") and told.endswith("] from trial 2")
    assert search.explain_stop(plan, [0, 1], str(trials[2]), 5) == ""  # not yet 60 % of the epochs
    record = (trials[2] / "metrics.jsonl").read_text()
    events = [{"kind": "evaluation", "epoch": 7, "top-1": 70.0}, {"kind": "evaluation", "epoch": 1, "top-1": 95.0}]
    for event, best in zip(events, ({}, {"best": "top-1"})):
        (trials[2] / "metrics.jsonl").write_text(record + json.dumps({**event, **best}) + "\n")
        assert search.explain_stop(plan, [0, 1], str(trials[2]), 7) == ""  # it catches up; its first epoch is the best
    (trials[2] / "metrics.jsonl").write_text(record)
    for folder, wrong in zip(trials[1:], (40, 200), strict=True):
        write_trial(folder, 10, wrong, 0.0)
        trial_tables.keep_table(str(folder))
    assert search.explain_stop(plan, [1], str(trials[2]), 10) == ""  # its last epoch: it has a score
    assert search.explain_stop(plan, [0], str(trials[2]), 7) == ""  # a schedule of six epochs has ended by then
    assert search.explain_stop(plan, [2], str(trials[1]), 7) == ""  # better than the best


def explain_last(tmp_path, decays, last=9):
    """Why the worse of two trials of ten epochs with these schedules is stopped after ``last``."""
    trials = [tmp_path / f"trial_{number:04d}" for number in range(2)]
    for folder, wrong, decay in zip(trials, (40, 200), decays, strict=True):
        for epoch in range(4, last + 1):
            write_trial(folder, epoch, wrong, 100 - wrong / 4, decay=decay)
            trial_tables.keep_table(str(folder))
    return search.explain_stop(make_plan(tmp_path), [0], str(trials[1]), last)


@pytest.mark.parametrize(
    ("decay", "stops"),
    [
        ("NAME: cosine, MILESTONES: [8]", True),  # only a step schedule has milestones
        ("NAME: step, MILESTONES: [2, 6]", True),  # three evaluations since
        ("NAME: step, MILESTONES: [2, 7]", False),
        ("NAME: step, MILESTONES: [9]", False),
        ("NAME: step, MILESTONES: [3, 400]", True),  # the last is never reached
    ],
)
def test_no_trial_is_stopped_until_three_epochs_after_the_last_drop_of_the_rate(tmp_path, decay, stops):
    assert explain_last(tmp_path, [decay, decay]).startswith("epoch 9: -40.00") == stops


@pytest.mark.parametrize("other", ["NAME: step, MILESTONES: [5]", "NAME: cosine", "NAME: constant"])
def test_trials_at_other_places_of_their_schedule_are_not_compared(tmp_path, other):
    assert explain_last(tmp_path, ["NAME: step, MILESTONES: [4]", other]) == ""


def add_trials(plan, trials):
    """Store trials without training them; return the words of each."""
    study, added = search.open_study(optuna, plan), []
    while trial := search.add_trial(optuna, study, plan, trials):
        added.append(" ".join(search.format_words(plan, trial.params)))
        study.tell(trial.number, float(trial.number))
    return added


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["DATA.BATCH_SIZE=4..6"], {f"DATA.BATCH_SIZE={size}" for size in (4, 5, 6)}),
        (
            ["TRAIN.ACCUM_ITER=1..3:log", "TRAIN.GRAD_CLIP=None|1"],
            {f"TRAIN.ACCUM_ITER={n} TRAIN.GRAD_CLIP={clip}" for n in (1, 2, 3) for clip in ("None", "1")},
        ),
    ],
)
def test_a_finite_space_is_a_grid(words, expected, tmp_path, capsys):
    plan = make_plan(tmp_path)._replace(ranges=list(map(parse_range, words)))
    added = add_trials(plan, 9)
    assert len(added) == len(expected) and set(added) == expected
    assert f"no other settings are left to train: {len(expected)} trials of 9" in capsys.readouterr().out
    assert add_trials(plan, 9) == []


def test_two_spellings_of_the_same_settings_are_one_configuration(tmp_path):
    plan = make_plan(tmp_path)._replace(ranges=[parse_range("TRAIN.OPTIMIZER.NAME=SGD|sgd|AdamW")])
    assert len(add_trials(plan, 3)) == 2
    rates = [parse_range("TRAIN.BASE_LR=0.001..0.00100001")]
    narrow = make_plan(tmp_path / "narrow")._replace(ranges=rates)
    (tmp_path / "narrow").mkdir()
    assert sorted(add_trials(narrow, 3)) == ["TRAIN.BASE_LR=0.001", "TRAIN.BASE_LR=0.00100001"]


def test_settings_that_do_not_fit_together_are_told_and_not_trained(tmp_path, capsys):
    plan = make_plan(tmp_path)._replace(ranges=[parse_range("TRAIN.WARMUP_EPOCHS=0|9")], words=["-epochs=4"])
    assert add_trials(plan, 5) == ["TRAIN.WARMUP_EPOCHS=0"]
    reason = "TRAIN.WARMUP_EPOCHS 9 (command line): expected fewer than TRAIN.NUM_EPOCHS 4 (-epochs)"
    said = capsys.readouterr().out
    assert f"not trained: TRAIN.WARMUP_EPOCHS=9: {reason}" in said and "left to train: 1 trials of 5" in said


def test_drawn_values_repeat_and_stay_in_the_range(tmp_path):
    (tmp_path / "again").mkdir()
    first, again = (add_trials(make_plan(folder), 12) for folder in (tmp_path, tmp_path / "again"))
    assert first == again and len(set(first)) == 12
    assert all(1e-4 <= float(word.partition("=")[2]) <= 1e-2 for word in first)
    decay = parse_range("TRAIN.MODEL_EMA_DECAY=0.9..0.99999999")
    assert decay.format(0.99999998) == "TRAIN.MODEL_EMA_DECAY=0.99999998"  # six digits would be 1


def test_an_interrupted_trial_continues_with_its_number_and_values(tmp_path):
    plan = make_plan(tmp_path)
    trial = search.add_trial(optuna, search.open_study(optuna, plan), plan, 1)
    study = search.open_study(optuna, plan)  # of the next command
    interrupted = search.find_interrupted(optuna, study)
    assert (interrupted.number, interrupted.params) == (0, trial.params)
    study.tell(interrupted.number, 1.0)
    assert search.find_interrupted(optuna, study) is None


def test_a_folder_of_another_search_is_refused(tmp_path):
    plan = make_plan(tmp_path, "-cfg=vit_digits")
    add_trials(plan, 1)
    add_trials(plan._replace(words=["-cfg=vit_digits", "REPORT", "False"]), 1)  # other words for the same settings
    with pytest.raises(UserError, match="contains a search with TRAIN.NUM_EPOCHS 40, now 9: choose another -output"):
        search.open_study(optuna, plan._replace(words=[*plan.words, "-epochs=9"]))
    many = ["-epochs=9", "-batch_size=7", "TRAIN.SMOOTHING=0.25", "TRAIN.WEIGHT_DECAY=0.125"]
    with pytest.raises(UserError, match=r"with [^;]*, now 7; [^;]*; [^;]*: choose another -output for these settings"):
        search.open_study(optuna, plan._replace(words=[*plan.words, *many]))
    with pytest.raises(UserError, match="contains a search of TRAIN.BASE_LR=1e-4..1e-2:log: choose another -output"):
        search.open_study(optuna, plan._replace(ranges=[parse_range("TRAIN.BASE_LR=1e-4..1e-3")]))


def test_settings_of_a_trial_are_all_but_its_folder(tmp_path):
    plan = make_plan(tmp_path, "-cfg=vit_digits")
    found = search.resolve(plan, {"TRAIN.BASE_LR": 0.005})
    public = public_leaves(settings.load([*plan.words, "TRAIN.BASE_LR=0.005"], settings.DEFAULT_RECIPE).values)
    assert public.pop("SAVE") == "./output" and found == public


def test_an_edited_recipe_is_another_search(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("TRAIN: {NUM_EPOCHS: 1, WARMUP_EPOCHS: 0}\n", encoding="utf-8")
    plan = make_plan(tmp_path)._replace(words=[f"-cfg={recipe}"])
    add_trials(plan, 1)
    recipe.write_text("TRAIN: {NUM_EPOCHS: 4, WARMUP_EPOCHS: 0}\n", encoding="utf-8")
    with pytest.raises(UserError, match="contains a search with TRAIN.NUM_EPOCHS 1, now 4"):
        add_trials(plan, 2)
    recipe.write_text("TRAIN: {NUM_EPOCHS: 4, WARMUP_EPOCHS: 9}\n", encoding="utf-8")
    with pytest.raises(UserError, match="with settings that do not fit together any more"):
        search.open_study(optuna, plan)


def test_files_of_others_are_not_taken_for_a_search(tmp_path):
    plan = make_plan(tmp_path)
    (tmp_path / "trial_0000").mkdir()
    with pytest.raises(UserError, match="trial_0000 is not of this search: remove it"):
        add_trials(plan, 1)


def open_stored(plan, trials):
    with search_storage.storage_errors_as_user_errors(optuna, Path(plan.folder, search.DATABASE), "repeat"):
        add_trials(plan, trials)


def test_only_a_damaged_file_of_a_search_is_to_be_removed(tmp_path):
    plan, file = make_plan(tmp_path), tmp_path / search.DATABASE
    for content in (b"trials of another program" * 99, b"SQLite format 3\0" + b"\x10\0\x01\x01\0\x40\x20\x20" * 99):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"search.sqlite3 cannot be read as a search \([^()]*\): remove it$"):
            open_stored(plan, 1)
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match="cannot write .*search.sqlite3: Is a directory; .*; repeat$"):
        open_stored(plan, 1)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_the_trials_of_a_search(tmp_path, monkeypatch, is_new):
    plan, connect = make_plan(tmp_path), sqlite3.connect
    if not is_new:
        add_trials(plan, 1)

    def connect_without_space(*arguments, **named):
        connection = connect(*arguments, **named)
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the pages that there are
        return connection

    with (
        monkeypatch.context() as full,
        pytest.raises(UserError, match="cannot write .*search.sqlite3: No space left on device; free space; repeat$"),
        search_storage.storage_errors_as_user_errors(optuna, tmp_path / search.DATABASE, "repeat"),
    ):
        full.setattr(sqlite3, "connect", connect_without_space)
        search.open_study(optuna, plan).set_user_attr("more than there is space for", "x" * 100_000)
    assert len(search.open_study(optuna, plan).trials) == (0 if is_new else 1)


@pytest.mark.parametrize(
    "reason, told",
    [
        ("disk I/O error", "disk I/O error; free space, raise the limit of file sizes"),
        ("attempt to write a readonly database", "Permission denied; make it writable"),
        ("database is locked", "database is locked; repeat$"),
    ],
)
def test_errors_of_the_file_of_a_search_are_told_without_advice_to_remove_it(tmp_path, reason, told):
    file = tmp_path / search.DATABASE
    with (
        pytest.raises(UserError, match=f"cannot write .*: {told}"),
        search_storage.storage_errors_as_user_errors(optuna, file, "repeat"),
    ):
        raise optuna.exceptions.StorageInternalError("hidden") from sqlite3.OperationalError(reason)


def test_fewer_can_be_better_and_optuna_says_only_warnings(tmp_path, monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.INFO)
    assert search.import_optuna() is optuna and optuna.logging.get_verbosity() == optuna.logging.WARNING
    study = search.open_study(optuna, make_plan(tmp_path)._replace(more_is_better=False))
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"^search needs Optuna, which is not installed: pip install '.\[search\]' in"):
        search.import_optuna()


def test_words_of_the_command_are_kept_from_its_training_runs():
    own, others = search.split_words(["-cfg=a", "-trials", "30", "-output=b", "TRAIN.BASE_LR=1..2", "-epochs", "4"])
    assert own == ["-trials", "30", "-output=b"] and others == ["-cfg=a", "TRAIN.BASE_LR=1..2", "-epochs", "4"]


ONE_SEED = " trains, all trials with one seed: drop -eval, -seeds and the range of SEED"
OWN_FOLDER = ": each trial has its own folder and resumes in it: use -output=FOLDER"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", f": name a key with its range, such as TRAIN.BASE_LR=1e-4..1e-2:log; see {program('search -h')}"),
        ("TRAIN.BASE_LR=1e-4..1e-2 -seeds=3", ONE_SEED),
        ("TRAIN.BASE_LR=1e-4..1e-2 -eval -pretrained=x", ONE_SEED),
        ("SEED 1|2", ONE_SEED),
        ("SEED=1|2", ONE_SEED),
        ("TRAIN.BASE_LR=1..2 TRAIN.BASE_LR=1|2", ": TRAIN.BASE_LR=1|2: TRAIN.BASE_LR has another range, too: keep one"),
        ("TRAIN.BASE_LR 1|2 SAVE x", f": SAVE{OWN_FOLDER}"),
        ("TRAIN.BASE_LR=1|2 MODEL.RESUME=x", f": MODEL.RESUME{OWN_FOLDER}"),
        ("TRAIN.BASE_LR=1|2 -resume=x", f": MODEL.RESUME{OWN_FOLDER}"),
        ("TRAIN.BASE_LR=1|2 EVALUATION.INTERVAL=off", " compares runs by their samples: drop EVALUATION.INTERVAL off"),
        ("TRAIN.BASE_LR=1|2 TRAIN.BASE=3", None),
    ],
)
def test_wrong_commands_are_refused_before_anything_is_written(words, message, tmp_path):
    line = refusal_of(search.run, ["-cfg=vit_digits", *words.split(), f"-output={tmp_path / 'out'}"])
    unknown = "command line: TRAIN.BASE (3) is not a known key: the closest is TRAIN.BASE_LR"
    assert line == (unknown if message is None else f"search{message}")
    assert not (tmp_path / "out").exists()


def test_a_task_whose_last_weights_count_shows_no_better_run(tmp_path):
    message = refusal_of(search.make_plan, ["-cfg=dino_digits", "-dataset=images", f"-data_path={tmp_path}"], [], None)
    reason = "name images with classes with PRETRAINING.LABELED_PATH"
    assert message == f"search compares scores, but none shows which run is better: {reason}"


def test_a_run_without_a_table_of_samples_is_refused_in_a_line(tmp_path):
    with pytest.raises(UserError, match="has no scored_samples.npz, .* return TableMetrics"):
        trial_tables.require_table(str(tmp_path))
    (tmp_path / "scored_samples.npz").touch()
    trial_tables.require_table(str(tmp_path))
