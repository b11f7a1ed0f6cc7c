"""Checkpoints that are written while the training goes on."""

import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import paddle
import pytest
from support.trainings import small_runs
from support.trainings.full_disks import fill_disk_after

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.engine.background_worker import BackgroundWorker
from paddlevit_dist.core.registry.lookup import resolve

RUN = [
    "-batch_size=32",
    "TRAIN.MODEL_EMA",
    "True",
    "SAVE_EVERY_UPDATES",
    "3",
    "KEEP_UPDATES",
    "9",
]  # 10 updates an epoch
SECONDS = 120.0  # after which a test that waits has failed


def build(output: Path, before_update: Callable[[int], None], *arguments: str, train_size: int = 320) -> Any:
    """A training that calls ``before_update`` with the number of updates made."""

    class Watched(resolve("task", "classification")):
        def train_step(self, model: Any, batch: Any, step: Any) -> Any:
            before_update(step.update)
            return super().train_step(model, batch, step)

    return small_runs.build(str(output), *RUN, *arguments, train_size=train_size, task_class=Watched)


def content(directory: Path) -> dict[str, Any]:
    """Everything in a checkpoint that counts, with arrays as their bytes."""
    state = checkpoint_store.read(directory)
    arrays = {f"optimizer {name}": array for name, array in state.optimizer.items()}
    for file in ("model", "model_ema"):
        loaded = paddle.load(str(directory / f"{file}.pdparams"))
        arrays.update({f"{file} {name}": tensor.numpy() for name, tensor in loaded.items()})
    state.extra["training_means"].pop("pace")  # seconds, which differ from run to run
    return {"position": state.position, "extra": state.extra, **{name: a.tobytes() for name, a in arrays.items()}}


class Disk(NamedTuple):
    """Events of a disk that nothing reaches before it is open."""

    is_open: threading.Event
    is_written_to: threading.Event


@pytest.fixture
def disk(monkeypatch) -> Disk:
    """Nothing that is saved reaches this disk before it is open."""
    disk, flush = Disk(threading.Event(), threading.Event()), os.fsync

    def wait(descriptor: int) -> None:
        if threading.current_thread().name == "saving":
            disk.is_written_to.set()
            assert disk.is_open.wait(SECONDS)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    return disk


def test_the_training_goes_on_while_its_state_of_before_is_written(tmp_path, disk):
    seen = []

    def before_update(made: int) -> None:
        if made == 5:  # saved after update 3, and the next is due after update 6
            if disk.is_written_to.wait(SECONDS):  # on a busy machine, the thread waits for a processor
                seen.extend(path.name for path in (tmp_path / "background" / "checkpoints").iterdir())
            disk.is_open.set()

    build(tmp_path / "background", before_update, "-epochs=1").train()
    assert len(seen) == 1 and seen[0].startswith(".update_00000003.")
    build(tmp_path / "waiting", lambda made: None, "-epochs=1", "SAVE_IN_BACKGROUND", "False").train()
    names = sorted(path.name for path in (tmp_path / "waiting" / "checkpoints").iterdir())
    assert names == ["best", "epoch_0001", "last", *(f"update_{update:08d}" for update in (3, 6, 9))]
    for name in names:
        background, waiting = (tmp_path / way / "checkpoints" / name for way in ("background", "waiting"))
        checkpoint_store.verify(background)
        assert content(background) == content(waiting), name


def test_what_a_training_is_writing_is_on_disk_when_an_error_has_ended_it(tmp_path, disk):
    def before_update(made: int) -> None:
        if made == 4:
            disk.is_open.set()
            raise ArithmeticError("an error of the model")

    with pytest.raises(ArithmeticError):
        build(tmp_path, before_update, "-epochs=1").train()
    assert os.readlink(tmp_path / "checkpoints" / "last") == "update_00000003"
    checkpoint_store.verify(tmp_path / "checkpoints" / "last")


@pytest.mark.parametrize("way", ["True", "False"], ids=["in the background", "waiting"])
@pytest.mark.parametrize("first, kept", [(2, "update_00000003"), (4, "update_00000009")], ids=["update", "epoch"])
def test_a_write_that_fails_ends_the_training_with_the_reason(tmp_path, monkeypatch, way, first, kept):
    monkeypatch.setattr(os, "fsync", fill_disk_after(saves=first - 1))
    updates: list[int] = []
    with pytest.raises(UserError, match=f"{'epoch_0001' if first == 4 else 'update_00000006'}: No space left.*free sp"):
        build(tmp_path, updates.append, "-epochs=1", "SAVE_IN_BACKGROUND", way).train()
    if way == "False":
        assert updates[-1] == {2: 5, 4: 9}[first]  # no update follows
    assert os.readlink(tmp_path / "checkpoints" / "last") == kept
    checkpoint_store.verify(tmp_path / "checkpoints" / "last")
    assert not list((tmp_path / "checkpoints").glob(".*"))
    assert not (tmp_path / "checkpoints" / "best").is_symlink()


def test_as_many_epochs_are_kept_as_wanted(tmp_path):
    arguments = ["-epochs=5", "SAVE_EVERY_UPDATES", "0", "KEEP_EPOCHS", "3"]
    build(tmp_path, lambda made: None, *arguments, train_size=32).train()
    names = {path.name for path in (tmp_path / "checkpoints").iterdir() if not path.is_symlink()}
    best = (tmp_path / "checkpoints" / "best").resolve().name
    assert names == {"epoch_0003", "epoch_0004", "epoch_0005", best}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_the_writing_thread_gives_way_to_the_training_until_somebody_waits_for_it():
    def nice() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def lower_and_raise() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), own + 1)
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), own)
        may_raise.append(nice() == own)

    def work() -> None:
        handed_over.wait(SECONDS)
        seen.append(nice())
        may_be_waited_for.set()
        until = time.monotonic() + SECONDS
        while may_raise[0] and nice() != own and time.monotonic() < until:
            pass
        seen.append(nice())

    own, seen, may_raise = nice(), [], []
    trial = threading.Thread(target=lower_and_raise)
    trial.start()
    trial.join()
    handed_over, may_be_waited_for = threading.Event(), threading.Event()
    background = BackgroundWorker(in_thread=True)
    background.do(work)
    handed_over.set()
    assert may_be_waited_for.wait(SECONDS)
    background.wait()
    assert seen == [own + 10, own if may_raise[0] else own + 10]
    assert nice() == own and background.take_failure() is None


@pytest.mark.parametrize("way", ["True", "False"])
def test_the_line_of_a_checkpoint_stands_behind_both_lines_of_an_epoch_of_seconds(tmp_path, way):
    small_runs.build(str(tmp_path), "-epochs=2", "-batch_size=64", "SAVE_IN_BACKGROUND", way, val_size=20).train()
    log = [line[20:] for line in (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()]
    kinds = ["epoch 1/2 training", "epoch 1 evaluation", "saved", "epoch 2/2 training", "epoch 2 evaluation", "saved"]
    found = [kind for line in log for kind in dict.fromkeys(kinds) if line.startswith(kind)]
    if way == "True" and found[2:4] == ["epoch 2/2 training", "saved"]:  # written while the next epoch was trained
        found[2:4] = reversed(found[2:4])
    assert found == kinds


def test_what_is_kept_is_what_the_settings_say_up_to_this_epoch_and_update(tmp_path, monkeypatch):
    told, plain = [], checkpoint_store.prune

    def watched(*arguments, **options):
        told.append(inspect.signature(plain).bind(*arguments, **options).arguments)
        plain(*arguments, **options)

    monkeypatch.setattr(checkpoint_store, "prune", watched)
    arguments = ["-epochs=1", "KEEP_UPDATES", "4", "KEEP_EPOCHS", "2", "SAVE_FREQ", "7"]
    build(tmp_path, lambda made: None, *arguments, train_size=128).train()  # 4 updates
    assert {(one["good"].name, one["update"], one["epoch"]) for one in told} == {
        ("update_00000003", 3, 0),
        ("epoch_0001", 4, 1),
    }
    assert {(one["folder"], one["keep_updates"], one["keep_epochs"]) for one in told} == {
        (tmp_path / "checkpoints", 4, 2)
    }
    assert [epoch for epoch in range(1, 15) if told[0]["keep"](epoch)] == [1, 7, 14]
