"""Checkpoints and updates of a training: when it saves, what it does first when resumed, and what a non-finite update
leaves behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.trainings import small_runs
from support.trainings.killed_runs import kill_in_evaluation
from support.trainings.poisoned_runs import left_and_saved, require_unchanged
from support.trainings.runs import read_events

from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.checkpoint.integrity import fingerprint
from paddlevit_dist.core.engine.hooks import Hook
from paddlevit_dist.extensions.compare.groups import find_best
from paddlevit_dist.points.instances.task import InstanceSegmentation

RUN = ["-batch_size=32", "TRAIN.WARMUP_STEPS", "2", "VALIDATE_FREQ", "1"]  # 10 updates per epoch


def build(output: Path, *arguments: str) -> Any:
    return small_runs.build(str(output), *RUN, *arguments)


def events(output: Path, kind: str) -> list[dict[str, Any]]:
    lines = read_events(output)
    return [line for line in lines if line["kind"] == kind]


def names(output: Path) -> set:
    return {path.name for path in (output / "checkpoints").iterdir() if not path.is_symlink()}


def link(output: Path, name: str) -> str:
    return (output / "checkpoints" / name).resolve().name


def weights(output: Path, checkpoint: str) -> dict[str, np.ndarray]:
    state = paddle.load(str(output / "checkpoints" / checkpoint / "model.pdparams"))
    return {name: tensor.numpy() for name, tensor in state.items()}


@pytest.mark.parametrize("epoch", [1, 2], ids=["first epoch", "last epoch"])
def test_a_run_that_ends_in_an_evaluation_does_that_first_when_it_is_resumed(tmp_path, monkeypatch, capsys, epoch):
    arguments = ["-epochs=2", "SAVE_FREQ", "2"]
    kill_in_evaluation(build(tmp_path, *arguments), monkeypatch, number=epoch)
    assert link(tmp_path, "last") == f"epoch_000{epoch}"
    assert epoch == 1 or len(events(tmp_path, "evaluation")) == 1
    values = build(tmp_path, *arguments, "-resume=auto").train()
    said = capsys.readouterr().out.splitlines()
    resumed = next(number for number, line in enumerate(said) if line.startswith("resumed from"))
    told = [line for line in said[resumed:] if line.startswith("epoch ")]
    assert told[0].startswith(f"epoch {epoch} evaluation")
    assert [event["epoch"] for event in events(tmp_path, "evaluation")] == [1, 2]
    assert events(tmp_path, "interruption")[0]["reason"] == "found when resuming"
    tops = [event["top-1"] for event in events(tmp_path, "evaluation")]
    best = len(tops) - int(np.argmax(tops[::-1]))  # of equal ones the later
    assert link(tmp_path, "best") == f"epoch_000{best}" and values["top-1"] == tops[-1]
    state = checkpoint_store.read(tmp_path / "checkpoints" / "epoch_0002")
    assert state.extra["best"].pop("line").startswith(f"top-1 {tops[best - 1]:.2f} ")
    assert state.extra["best"] == {"name": "top-1", "value": tops[best - 1], "epoch": best}
    assert not state.extra["evaluation_due"]


def test_an_evaluation_that_the_checkpoint_of_an_update_owes_is_done_under_its_epoch(tmp_path, monkeypatch):
    """The epoch's own checkpoint is damaged; the one of its last update stands at the same place."""
    arguments = ["-epochs=1", "SAVE_EVERY_UPDATES", "10"]
    kill_in_evaluation(build(tmp_path, *arguments), monkeypatch, number=1)
    (tmp_path / "checkpoints" / "epoch_0001" / "model.pdparams").unlink()
    build(tmp_path, *arguments, "-resume=auto").train()
    assert names(tmp_path) == {"epoch_0001", "update_00000010"}
    assert link(tmp_path, "last") == link(tmp_path, "best") == "epoch_0001"
    checkpoint_store.verify(tmp_path / "checkpoints" / "epoch_0001")
    assert len(events(tmp_path, "evaluation")) == 1


def test_the_newest_updates_stay_beside_the_epochs(tmp_path):
    build(tmp_path, "-epochs=2", "SAVE_FREQ", "1", "SAVE_EVERY_UPDATES", "3", "KEEP_UPDATES", "3").train()
    updates = {f"update_{update:08d}" for update in (12, 15, 18)}
    assert names(tmp_path) == {"epoch_0001", "epoch_0002", *updates}
    directory = tmp_path / "checkpoints" / "update_00000012"
    checkpoint_store.verify(directory)
    assert checkpoint_store.read(directory).position == {"epoch": 1, "consumed": 64, "update": 12}
    assert (directory / "about.yaml").is_file() and link(tmp_path, "last") == "epoch_0002"


def kill(*args: Any, **kwargs: Any) -> None:
    raise KeyboardInterrupt


def test_a_restart_killed_while_it_saves_leaves_the_score_of_the_weights(tmp_path, monkeypatch):
    require_score_after_killed_restarts(tmp_path, monkeypatch, "update_00000020")  # whose evaluation is due


def require_score_after_killed_restarts(tmp_path, monkeypatch, start):
    words = ["-epochs=4", "SAVE_FREQ", "1", "SAVE_EVERY_UPDATES", "10", "KEEP_UPDATES", "9", "TRAIN.WARMUP_STEPS", "0"]
    words += ["SAVE_IN_BACKGROUND", "False"]
    build(tmp_path, *words, "TRAIN.BASE_LR", "1e-12").train()  # all scores are equal: the last is the best
    assert link(tmp_path, "best") == "epoch_0004"
    again = [*words, "TRAIN.BASE_LR", "0.003", "-allow_changes"]
    files = {name: (tmp_path / name).read_bytes() for name in ("metrics.jsonl", "config.yaml", "run.json")}
    for owner, name in ((np, "savez"), (checkpoint_store, "_put")):  # while it writes, and when all is written
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(owner, name, kill)
            build(tmp_path, *again, f"-resume={tmp_path}/checkpoints/{start}").train()
        assert find_best(tmp_path, "top-1")["epoch"] == int(link(tmp_path, "best")[-4:])
        as_before = {name: (tmp_path / name).read_bytes() for name in files} == files
        assert (link(tmp_path, "last") == "epoch_0004") == as_before == (name == "savez")
    build(tmp_path, *again, "-resume=auto").train()
    assert find_best(tmp_path, "top-1")["epoch"] == int(link(tmp_path, "best")[-4:])
    counted = [event for event in events(tmp_path, "training") if "superseded" not in event and event["epoch"] > 2]
    assert {event["epoch"] for event in counted} == {3, 4} and min(event["learning_rate"] for event in counted) > 1e-12


def test_after_some_minutes_a_checkpoint_is_saved_at_the_next_update(tmp_path):
    build(tmp_path, "-epochs=1", "SAVE_EVERY_MINUTES", "1e-9", "KEEP_UPDATES", "9").train()
    assert names(tmp_path) == {"epoch_0001", *(f"update_{update:08d}" for update in (2, 4, 6, 8, 10))}


def test_the_norm_of_the_gradients_is_the_length_of_a_step(tmp_path):
    """SGD without momentum and decay goes ``rate * gradient``, so its steps tell the gradients' norm."""
    sgd = "TRAIN.OPTIMIZER.NAME SGD TRAIN.OPTIMIZER.MOMENTUM 0.0 TRAIN.WEIGHT_DECAY 0.0 TRAIN.BASE_LR 0.5".split()
    build(tmp_path, "-epochs=1", "SAVE_EVERY_UPDATES", "1", "KEEP_UPDATES", "20", *sgd).train()
    states = [weights(tmp_path, f"update_{update:08d}") for update in range(1, 11)]
    for before, after, event in zip(states, states[1:], events(tmp_path, "training")[1:]):
        squares = [((after[name] - before[name]).astype(np.float64) ** 2).sum() for name in before]
        assert event["gradient_norm"] == pytest.approx(np.sqrt(sum(squares)) / event["learning_rate"], rel=1e-3)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Lion", "LAMB"])
@pytest.mark.parametrize("on_host", [True, False], ids=["as on a CPU", "as on a GPU"])
@pytest.mark.parametrize("at", [4, 10], ids=["amid", "at the end of the epoch"])
def test_an_update_that_is_not_finite_changes_nothing_and_ends_the_run(tmp_path, optimizer, on_host, at):
    choice = ["TRAIN.OPTIMIZER.NAME", optimizer]
    require_unchanged(*left_and_saved(str(tmp_path), *choice, at=at, on_host=on_host), at)


def test_updates_that_the_device_judges_are_those_that_the_host_judges(tmp_path):
    results = []
    for on_host in (True, False):
        trainer = build(tmp_path / str(on_host), "-epochs=1", "TRAIN.MODEL_EMA", "True")
        trainer.prepare_training()
        trainer.step.on_host = on_host
        trainer.train()
        averages = trainer.ema.state_dict()
        results.append([tensor.numpy() for tensor in (*trainer.model.state_dict().values(), *averages.values())])
    for left, right in zip(*results):
        np.testing.assert_array_equal(left, right)


def make_best(tmp_path, monkeypatch, metric, evaluations):
    """The epoch of the best of several evaluations, and those that were the best when they were noted."""
    run = build(tmp_path, "-epochs=1")
    run.prepare_training()
    checkpointer = run.checkpointer
    monkeypatch.setattr(checkpointer, "_on_main", lambda act: None)
    name, more_is_better = metric
    noted = [
        checkpointer.note_evaluation(epoch, name, values[name], more_is_better, f"line {epoch}")
        for epoch, values in enumerate(evaluations, start=1)
    ]
    return checkpointer, noted


def test_of_equal_evaluations_the_later_is_the_best_and_instances_are_chosen_by_ap(tmp_path, monkeypatch):
    of_epochs = [(0.0, 0.0), (0.30, 0.50), (0.30, 0.40), (0.20, 0.60)]
    evaluations = [{"AP": ap, "AP50": ap50} for ap, ap50 in of_epochs]
    checkpointer, noted = make_best(tmp_path, monkeypatch, InstanceSegmentation.best_metric, evaluations)
    assert noted == [True, True, True, False]
    assert checkpointer.best == {"name": "AP", "value": 0.30, "epoch": 3, "line": "line 3"}
    assert not checkpointer.note_evaluation(5, "AP", 0.9, True, "line 5", counts=False)
    assert checkpointer.best["epoch"] == 3 and [epoch for epoch, _ in checkpointer.evaluations] == [1, 2, 3, 4]
    assert checkpointer.note_evaluation(5, "mIoU", 0.1, True, "line 5")  # another number starts again


def test_where_no_number_tells_the_last_evaluation_is_the_best(tmp_path, monkeypatch):
    checkpointer, _ = make_best(tmp_path, monkeypatch, ("loss", False), [{"loss": 0.1}])
    assert checkpointer.note_evaluation(2, "loss", 0.2, None, "line 2")
    assert not checkpointer.note_evaluation(3, "loss", 0.1, None, "line 3", counts=False)
    assert checkpointer.best == {"name": "loss", "value": 0.2, "epoch": 2, "line": "line 2"}


def test_a_run_killed_before_its_first_link_has_one_after_a_resume_with_nothing_left(tmp_path):
    build(tmp_path, "-epochs=1").train()
    last = tmp_path / "checkpoints" / "last"
    target = last.resolve()
    last.unlink()
    build(tmp_path, "-epochs=1", "-resume=auto").train()
    assert last.is_symlink() and last.resolve() == target


class Forgetting(Hook):
    """Sets the classifier to zero after epoch 3 and all later ones, so that they score worse than epoch 2."""

    def __init__(self, model):
        self.model = model

    def after_epoch(self, epoch, is_complete):
        if epoch >= 3:
            self.model.head.weight.set_value(np.zeros_like(self.model.head.weight.numpy()))


def test_a_run_that_is_stopped_and_resumed_has_the_best_of_one_that_is_not(tmp_path):
    """An uninterrupted run evaluates after epochs 3 and 4 only, and the stop causes an evaluation that is better."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    for folder, *words in ((straight,), (stopped, "-stop_after_epoch=2"), (stopped, "-resume=auto")):
        run = build(folder, "-epochs=4", "VALIDATE_FREQ=3", *words)
        run.hooks.append(Forgetting(run.model))
        run.train()
        record = json.loads((folder / "checkpoints" / "best" / "evaluation.json").read_text())
        if words == ["-stop_after_epoch=2"]:
            early = record["best"]
            assert early["epoch"] == 2 and record["evaluations"] == []  # the only one so far
        elif folder == straight:
            expected = record
    assert record == expected and [epoch for epoch, _ in record["evaluations"]] == [3, 4]
    assert early["value"] > record["best"]["value"]


def test_the_last_lines_name_the_epochs_of_the_last_and_of_the_best(tmp_path):
    run = build(tmp_path, "-epochs=2")
    run.prepare_training()
    made = run.checkpointer
    made.best = {"name": "top-1", "value": 50.0, "epoch": 2, "line": "top-1 50.00"}
    assert made.format_results("top-1 50.00", 2) == ["top-1 50.00 (last and best, epoch 2)"]
    made.best = {"name": "top-1", "value": 51.0, "epoch": 1, "line": "top-1 51.00 loss 1.2"}
    told = ["top-1 50.00 (last, epoch 2)", "top-1 51.00 loss 1.2 (best, epoch 1"]
    elsewhere = ", in the folder of the run that this one continues)"
    assert made.format_results("top-1 50.00", 2) == [told[0], told[1] + elsewhere]
    (made.folder / "epoch_0001").mkdir(parents=True)
    assert made.format_results("top-1 50.00", 2) == [told[0], told[1] + ")"]


def test_a_training_goes_on_in_mid_epoch_with_a_word_on_means_and_decay_that_it_lacks(tmp_path, capsys):
    build(tmp_path, "-epochs=1", "SAVE_EVERY_UPDATES", "4", "KEEP_UPDATES", "9").train()
    checkpoint = tmp_path / "checkpoints" / "update_00000004"
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["extra"]["training_means"]["pace"]["updates"] == 4
    assert state["extra"]["undecayed"] == ["cls_token", "pos_embed"]
    state["extra"].update(training_means=None, undecayed=[])
    (checkpoint / "state.json").write_text(json.dumps(state))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["state.json"] = fingerprint(checkpoint / "state.json")
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    build(tmp_path / "on", "-epochs=1", f"-resume={checkpoint}").train()
    said = capsys.readouterr().out
    assert f"note: {checkpoint} has no training means: the means of epoch 1 cover the rest of it only" in said
    assert f"note: {checkpoint} applied weight decay differently to cls_token, pos_embed; " in said
    build(tmp_path / "now", "-epochs=1", f"-resume={checkpoint.with_name('update_00000008')}").train()
    said = capsys.readouterr().out
    assert "note: " not in said and "LAST_EPOCH" not in said
    (whole,), (rest,) = events(tmp_path, "epoch"), events(tmp_path / "now", "epoch")
    assert (whole["loss"], whole["top-1"]) == (rest["loss"], rest["top-1"])


def test_keys_that_only_the_run_knows_to_have_no_effect_are_told(tmp_path, capsys):
    words = ("-epochs=3", "-stop_after_epoch=1", "TRAIN.BATCH_NORM=sync")
    build(tmp_path, *words).train()
    assert "TRAIN.BATCH_NORM sync: no effect: vit has no batch norm" in capsys.readouterr().out
    build(tmp_path, *words, "-resume=auto", "-last_epoch=2").train()
    assert f"TRAIN.LAST_EPOCH 2: no effect: {tmp_path / 'checkpoints'}/" in capsys.readouterr().out
