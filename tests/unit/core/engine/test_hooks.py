"""The contract of hooks stays small, and the trainer calls hooks in the order of a training."""

import re

import numpy as np
import pytest
from support.forced_device import forced_device
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import Callback, UserError
from paddlevit_dist.core.engine import hooks
from paddlevit_dist.core.engine.evaluation import EvaluationObserver
from paddlevit_dist.core.engine.hooks import Hook, UpdateRecord
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images import Classification

RUN = ["-epochs=2", "-batch_size=16", "TRAIN.WARMUP_EPOCHS", "0", "VALIDATE_FREQ", "2"]
IMAGES = 48  # 2 x 3 steps


def members(kind: type) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


def test_contracts_stay_small():
    """Each member is one more thing that whoever writes a hook has to know."""
    assert len(members(Hook)) <= 10
    assert len(members(EvaluationObserver)) <= 3
    assert members(Callback) == ["requires", "start", "report", "evaluated", "saved", "end"]


class Diary(Hook):
    """Notes every call, and what it is given."""

    def __init__(self) -> None:
        self.calls = []
        self.batches = 0

    def before_epoch(self, epoch, done):
        self.calls.append(("before_epoch", epoch, done))

    def before_step(self, step):
        self.calls.append(("before_step", step.update))

    def after_step(self, update):
        self.calls.append(("after_step", update.step.update, update.made, update.is_last))

    def after_epoch(self, epoch, is_complete):
        self.calls.append(("after_epoch", epoch, is_complete))

    def before_evaluate(self, is_last):
        self.calls.append(("before_evaluate", is_last))
        diary = self

        class Batches(EvaluationObserver):
            def after_batch(self, batch, records):
                diary.batches += 1

        return Batches()

    def after_evaluate(self, epoch, values, line, is_best):
        self.calls.append(("after_evaluate", epoch, is_best))

    def after_train(self):
        self.calls.append(("after_train",))


def build(folder, *words):
    trainer, diary = small_runs.build(str(folder), *RUN, *words, train_size=IMAGES, val_size=32), Diary()
    trainer.hooks.append(diary)
    return trainer, diary


def test_a_training_calls_its_hooks_in_order(tmp_path, capsys):
    trainer, diary = build(tmp_path)
    trainer.train()
    expected = []
    for epoch in (1, 2):
        expected.append(("before_epoch", epoch, 0))
        for number in range(3):
            update = 3 * (epoch - 1) + number
            expected += [("before_step", update), ("after_step", update, number + 1, number == 2)]
        expected.append(("after_epoch", epoch, True))
    assert diary.calls == [*expected, ("before_evaluate", True), ("after_evaluate", 2, True), ("after_train",)]
    assert diary.batches == len(trainer.evaluator.loader)
    lines = (tmp_path / "log.txt").read_text().splitlines()
    events = read_events(tmp_path)
    for event in (event for event in events if event["kind"] == "epoch"):
        (line,) = [line for line in lines if f"epoch {event['epoch']}/2 training: " in line]
        rate, waited, seconds = re.search(r" (\d+) images/s data wait (\d+)% \(([\d.]+) s, ", line).groups()
        assert float(seconds) == pytest.approx(event["seconds"], abs=0.051) and int(waited) <= 100
        assert IMAGES / (event["seconds"] + 0.001) - 1 < int(rate) < IMAGES / (event["seconds"] - 0.001) + 1
    (told,) = [line for line in lines if "epoch 2 evaluation: top-1 " in line]
    assert told.endswith(" (best top-1)")
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert len(shown) >= 3 and max(map(len, shown)) <= 80  # of a terminal, or where nobody knows
    assert all("loss" in line and line.endswith((" left", " left)", "(best)", "(best top-1)")) for line in shown)


@pytest.mark.parametrize("mode", ["global", "tensor"])
def test_the_key_clips_all_gradients_or_each(tmp_path, mode):
    """A step of SGD with a gradient of at most 1e-4, of all weights together or of each."""
    sgd = "TRAIN.OPTIMIZER.NAME SGD TRAIN.OPTIMIZER.MOMENTUM 0 TRAIN.BASE_LR 2.0 TRAIN.WEIGHT_DECAY 0".split()
    words = [
        *RUN[1:],
        *sgd,
        "-epochs=1",
        "-batch_size=64",
        "TRAIN.GRAD_CLIP",
        "1e-4",
        "TRAIN.GRAD_CLIP_MODE",
        mode,
        "-seed=5",
    ]
    trainer = small_runs.build(str(tmp_path), *words, train_size=64, val_size=4)
    before = small_runs.make_weights(trainer)
    trainer.train()
    rate = read_events(tmp_path)[0]["learning_rate"]
    assert (trainer.step.seed, trainer.step.samples_per_update) == (5, 64)
    after = small_runs.make_weights(trainer)
    norms = np.array([np.linalg.norm((after[name] - before[name]).astype(np.float64)) for name in before])
    largest = np.linalg.norm(norms) if mode == "global" else norms.max()
    assert largest == pytest.approx(rate * 1e-4, rel=0.02)  # weights are float32
    assert ((norms > 0.9 * rate * 1e-4).sum() > 5) == (mode == "tensor")


def test_all_notices_of_a_network_are_logged(tmp_path):
    class Noted(Classification):
        def build_model(self, num_classes=None):
            self.notices += ["weights of a file", "one layer is new"]
            return super().build_model(num_classes)

    small_runs.build(str(tmp_path), *RUN, task_class=Noted)
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in lines if "weights of a file" in line or "one layer" in line] == [
        "file",
        "new",
    ]


@pytest.mark.parametrize("every, evaluations", [(1, 2), (2, 1), (5, 1)])
def test_the_time_left_is_that_of_all_updates_and_evaluations(tmp_path, monkeypatch, every, evaluations):
    counted, make = [], hooks.EtaEstimator
    monkeypatch.setattr(hooks, "EtaEstimator", lambda *counts: counted.append(counts) or make(*counts))
    trainer, _ = build(tmp_path, "VALIDATE_FREQ", str(every))
    trainer.train()
    assert counted == [(6, evaluations)]


def test_a_hook_ends_the_training_after_an_evaluation(tmp_path):
    trainer, diary = build(tmp_path, "VALIDATE_FREQ", "1")
    diary.after_evaluate = lambda *arguments: setattr(diary, "stop_reason", "seen enough")
    trainer.train()
    assert trainer.last_epoch == 1 and [call[0] for call in diary.calls].count("before_epoch") == 1


def test_an_exception_of_a_hook_ends_the_run_within_its_epoch(tmp_path):
    trainer, diary = build(tmp_path)

    def fail(update):
        raise UserError("no more")

    diary.after_step = fail
    with pytest.raises(UserError, match="no more"):
        trainer.train()
    assert diary.calls == [("before_epoch", 1, 0), ("before_step", 0), ("after_epoch", 1, False)]


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_cache_of_a_gpu_is_emptied_every_few_updates(other_paddle, on_gpu):
    emptied, made = [], []
    other_paddle({"device.cuda.empty_cache": lambda: emptied.append(len(made))})
    hook = hooks.EmptyingCache(3)
    with forced_device("gpu" if on_gpu else "cpu"):
        for update in range(7):
            made.append(update)
            hook.after_step(UpdateRecord(StepPosition(1, update, 7), [], True, 1.0, 0.1, update + 1, False))
    assert emptied == ([3, 6] if on_gpu else [])
