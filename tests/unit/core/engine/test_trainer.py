"""In which order a trainer trains, evaluates and saves, and what a hook and its caller learn of it."""

from types import SimpleNamespace

import pytest
from support.trainings import small_segmenters
from support.trainings.runs import read_events
from support.trainings.small_runs import build

from paddlevit_dist.core.engine.hooks import Hook
from paddlevit_dist.core.engine.trainer import Trainer
from paddlevit_dist.core.engine.training_state import TrainingState
from paddlevit_dist.core.registry.names import REGISTRY

WORDS = ["-batch_size=4", "TRAIN.WARMUP_EPOCHS=0", "EVALUATION.INTERVAL=off"]


class Noting(Hook):
    """Notes its calls, and asks for the end after an evaluation of the epoch ``last``."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.seen, self.last = trainer, [], None

    def before_epoch(self, epoch, done):
        self.seen.append(f"epoch {epoch} from {done}")

    def after_step(self, update):
        self.seen.append(f"update {update.step.update} of {update.made}{' last' * update.is_last}")

    def after_epoch(self, epoch, is_complete):
        self.seen.append(f"epoch {epoch} {'complete' if is_complete else 'left'}")

    def after_evaluate(self, epoch, values, line, is_best):
        self.seen.append(f"evaluation {epoch}")
        if epoch == self.last:
            self.stop_reason = "enough"

    def after_train(self):
        self.seen.append("end")


@pytest.fixture
def noting(monkeypatch, own_handlers):
    """The hook of the next trainer; the options say when it ends the training."""
    made, save = SimpleNamespace(hook=None, last=None), Trainer.save

    def note(trainer, evaluation_due, epoch=None):
        made.hook.seen.append(f"save {epoch}{' to evaluate' * evaluation_due}")
        save(trainer, evaluation_due, epoch)

    def make(trainer):
        made.hook = Noting(trainer)
        made.hook.last = made.last
        return made.hook

    monkeypatch.delitem(REGISTRY.functions, "accelerate", raising=False)  # nothing is compiled
    monkeypatch.setattr(Trainer, "save", note)
    monkeypatch.setitem(REGISTRY.hooks, "SAVE", make)  # a key that every run has set
    return made


def train(folder, *words):
    trainer = build(str(folder), *WORDS, *words, train_size=8, val_size=4)
    return trainer, trainer.train()


def test_an_epoch_is_trained_saved_and_then_evaluated(noting, tmp_path):
    trainer, values = train(tmp_path, "-epochs=3", "VALIDATE_FREQ=2", "SAVE_FREQ=1")
    assert noting.hook.seen == [
        *("epoch 1 from 0", "update 0 of 1", "update 1 of 2 last", "epoch 1 complete", "save 1"),
        *("epoch 2 from 0", "update 2 of 1", "update 3 of 2 last", "epoch 2 complete"),
        *("save 2 to evaluate", "evaluation 2"),
        *("epoch 3 from 0", "update 4 of 1", "update 5 of 2 last", "epoch 3 complete"),
        *("save 3 to evaluate", "evaluation 3", "end"),
    ]
    evaluated = [event for event in read_events(tmp_path) if event["kind"] == "evaluation"]
    assert [event["epoch"] for event in evaluated] == [2, 3] and values["top-1"] == evaluated[-1]["top-1"]


def test_a_hook_ends_the_training_after_an_evaluation(noting, tmp_path):
    noting.last = 1
    trainer, values = train(tmp_path, "-epochs=3")
    assert noting.hook.seen[-4:] == ["epoch 1 complete", "save 1 to evaluate", "evaluation 1", "end"]
    assert trainer.last_epoch == 1 and values


def test_a_run_that_is_done_trains_nothing_and_says_so(noting, tmp_path, capsys):
    train(tmp_path, "-epochs=1")
    capsys.readouterr()
    _, values = train(tmp_path, "-epochs=1", "-resume=auto")
    assert values == {} and noting.hook.seen == []
    assert "nothing to do: epoch 1 of 1 is already done" in capsys.readouterr().out


@pytest.mark.parametrize(("stop_after", "last", "evaluated"), [(5, 5, [2, 4, 5]), (3, 3, [2, 3])])
def test_an_evaluation_follows_each_second_epoch_and_the_last(tmp_path, stop_after, last, evaluated):
    words = ["-epochs=5", "VALIDATE_FREQ=2", f"-stop_after_epoch={stop_after}"]
    trainer = build(str(tmp_path), *WORDS, *words, train_size=8, val_size=4)
    trainer.prepare_training()
    assert trainer.last_epoch == last and trainer.updates_per_epoch == 2
    assert [epoch for epoch in range(1, last + 1) if trainer.should_evaluate(epoch)] == evaluated


def test_an_evaluation_alone_reads_its_split_and_makes_no_hooks(noting, tmp_path):
    weights = tmp_path / "weights.pdparams"
    weights.touch()
    trainer = build(str(tmp_path), *WORDS, "-eval", f"-pretrained={weights}", "-split=train", train_size=8)
    assert trainer.eval_dataset is trainer.datasets["train"] and len(trainer.eval_dataset) == 8
    assert trainer.hooks == [] and noting.hook is None


def test_only_what_was_measured_on_a_card_is_captured_without_being_asked_for(tmp_path, monkeypatch):
    asked: dict[str, list] = {}

    def choose(state, setting, value):
        asked.setdefault(setting, []).append(value)
        return False

    monkeypatch.setattr(TrainingState, "choose", choose)
    small_segmenters.build(str(tmp_path / "maps")).prepare_training()
    small_segmenters.build(str(tmp_path / "asked"), "TRAIN.CAPTURE=True").prepare_training()
    build(str(tmp_path / "images"), *WORDS).prepare_training()
    assert asked["TRAIN.CAPTURE"] == [False, True, "auto"]
