"""A search: which trials are stopped, what is printed of a study, and what is refused."""

import json

import numpy as np
import pytest

from paddlevit_dist.compare import search, tables
from paddlevit_dist.compare.search_space import parse_range
from paddlevit_dist.intervals import ConfidenceInterval
from paddlevit_dist.runtime.errors import UserError

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)


def write_trial(folder, epoch, wrong, score):
    """A run whose last evaluation of 400 samples is wrong for the first ``wrong``."""
    folder.mkdir(exist_ok=True, parents=True)
    places = (np.arange(400) < wrong).astype(np.int32)
    about = {"task": "classification", "kind": "classes", "score": "top-1", "more_is_better": True, "split": "val"}
    about |= {"classes": ["a", "b"], "dataset": "drawn", "of": f"epoch {epoch}", "protocol": {}, "input": {}}
    arrays = {"labels": np.arange(400, dtype=np.int32) % 2, "places": places, "losses": np.ones(400, np.float32)}
    arrays |= {"top": np.array([1]), tables._INDICES: np.arange(400, dtype=np.int32)}
    tables._write(folder / "scored_samples.npz", about, list(map(str, range(400))), arrays, None)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "evaluation", "epoch": epoch, "top-1": score, "best": "top-1"}) + "\n")


def make_plan(folder):
    return search.SearchPlan(str(folder), [parse_range("TRAIN.BASE_LR=1e-4..1e-2:log")], [], 0, 10, "top-1", True)


def test_a_trial_is_stopped_if_its_interval_is_on_the_worse_side_of_the_best(tmp_path):
    best, folder = tmp_path / "best", tmp_path / "other"
    for epoch, wrong, others in ((1, 300, 380), (5, 100, 110), (6, 40, 120)):
        write_trial(best, epoch, wrong, 0.0)
        write_trial(folder, epoch, others, 0.0)
        assert search.keep_table(str(best)) == search.keep_table(str(folder)) == epoch
        assert search.keep_table(str(folder)) is None  # seen before
        difference = search.compare_at(str(best), str(folder), epoch)
        assert difference.value == pytest.approx(-100 * (others - wrong) / 400)
        assert search.is_worse(difference, more_is_better=True)
    assert search.compare_at(str(best), str(folder), 7) is None
    assert [search.is_due(epoch, 10) for epoch in (1, 4, 5, 10)] == [False, False, True, True]
    for low, high, worse in ((-3, -1, True), (-3, 1, False), (1, 3, False)):
        interval = ConfidenceInterval(value=(low + high) / 2, low=low, high=high)
        assert search.is_worse(interval, more_is_better=True) is worse
        assert search.is_worse(interval._replace(low=-high, high=-low), more_is_better=False) is worse


def test_the_best_is_told_with_its_difference_from_the_second(tmp_path):
    plan, study = make_plan(tmp_path), optuna.create_study(direction="maximize")
    for number, (wrong, score) in enumerate(((80, 80.0), (40, 90.0), (44, 89.0), (200, 50.0))):
        trial = study.ask()
        plan.ranges[0].suggest(trial)
        write_trial(tmp_path / f"trial_{number:04d}", 10, wrong, score)
        study.tell(trial, search.read_score(search.get_folder(plan, number), "top-1"))
    study.tell(study.ask(), state=optuna.trial.TrialState.PRUNED)
    lines = search.format_search(optuna, study, plan)
    assert [line.split()[0] for line in lines[2:7]] == ["1", "2", "0", "3", "4"] and lines[6].endswith("pruned")
    assert lines[7].startswith("best: trial 1; against the second, trial 2: top-1 +1.00 [")
    assert lines[7].endswith("p 0.12, may be chance")  # 4 of 4 changes are for the better: 2 / 2^4


def test_a_folder_of_another_search_is_refused(tmp_path):
    plan = make_plan(tmp_path)
    search._open_study(optuna, plan)
    search._open_study(optuna, plan)
    with pytest.raises(UserError, match="contains the search 'TRAIN.BASE_LR=1e-4..1e-2:log': choose another -output"):
        search._open_study(optuna, plan._replace(words=["-epochs=9"]))


def test_words_of_the_command_are_kept_from_its_training_runs():
    own, others = search.split_words(["-cfg=a", "-trials", "3", "-output=b", "TRAIN.BASE_LR=1..2", "-epochs", "4"])
    assert own == ["-trials", "3", "-output=b"] and others == ["-cfg=a", "TRAIN.BASE_LR=1..2", "-epochs", "4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-cfg=vit_digits"], "name a key with its range"),
        (["-cfg=vit_digits", "TRAIN.BASE_LR=1e-4..1e-2", "-seeds=3"], "search trains, one seed"),
        (["-cfg=vit_digits", "TRAIN.BASE_LR=1e-4..1e-2", "EVALUATION.INTERVAL=off"], "compares runs by their samples"),
        (["-cfg=vit_digits", "TRAIN.BASE_LR=1e-4..1e-2", "TRAIN.BASE=3"], "TRAIN.BASE"),
    ],
)
def test_wrong_commands_are_refused_before_anything_is_written(words, message, tmp_path):
    with pytest.raises(Exception, match=message):
        search.run([*words, f"-output={tmp_path / 'out'}"])
    assert not (tmp_path / "out").exists()
