"""What a checkpointer tells and raises on each rank, and its copies of tensors, without a training."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint.store import HostCopies, write_tensors


def prepare(output: Path) -> Any:
    """A training before its first update."""
    trainer = small_runs.build(str(output), "-batch_size=32", "TRAIN.MODEL_EMA", "True")
    trainer.prepare_training()
    return trainer


def test_a_write_that_fails_on_the_main_process_ends_all_others_too(tmp_path):
    savers = [prepare(tmp_path / name).checkpointer for name in ("main", "other")]
    ThreadRanks(2).run(lambda rank: savers[rank].finish())
    shutil.rmtree(savers[0].folder, ignore_errors=True)
    savers[0].folder.touch()  # where a folder is expected
    savers[0].save_epoch(1, True, Means())

    def fail(rank: int) -> str:
        with pytest.raises(UserError, match=f"{savers[0].folder}") as told:
            savers[rank].finish()
        return str(told.value)

    first, second = ThreadRanks(2).run(fail)
    assert first == second


def test_copies_stay_as_they_were_until_the_next(tmp_path):
    layer, copies = paddle.nn.Linear(3, 4), HostCopies()
    layer.register_buffer("steps", paddle.to_tensor(7))
    layer.register_buffer("brief", paddle.ones([3], "bfloat16"))
    layer.register_buffer("turned", paddle.arange(6.0).reshape([2, 3]).t())
    layer.register_buffer("flag", paddle.to_tensor(True))
    layer.register_buffer("none", paddle.zeros([0, 2]))
    paddle.save(layer.state_dict(), str(tmp_path / "paddle"))
    copied = copies.copy("weights", layer.state_dict())
    layer.weight.set_value(paddle.zeros([3, 4]))
    layer.steps.add_(paddle.to_tensor(1))
    with open(tmp_path / "ours", "wb") as file:
        write_tensors(file, copied)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "paddle").read_bytes()
    again = copies.copy("weights", layer.state_dict())
    assert again["weight"].array is copied["weight"].array and not again["weight"].array.any()


def test_what_a_stop_leaves_is_told_and_a_discarded_epoch_is_gone(tmp_path):
    trainer = prepare(tmp_path)
    saver, schedule = trainer.checkpointer, trainer.state.schedule
    assert saver.describe_last(0) == "nothing was saved yet; the same command starts again"
    for _ in range(3):
        schedule.count_update()
    saver.save_update(False, Means())
    saver.save_epoch(1, True, Means())
    saver.finish()
    ending = f"{tmp_path / 'checkpoints'}/epoch_0001; the same command with -resume=auto continues from there"
    assert saver.describe_last(2) == f"saved {ending}" and saver.describe_last(3) == f"nothing new since {ending}"
    saver.discard_epoch(1)
    assert sorted(path.name for path in saver.folder.iterdir()) == ["last", "update_00000003"]
    assert os.readlink(saver.folder / "last") == "update_00000003"


class Means:
    """The means of an epoch that has none."""

    def window(self):
        return []

    def state_dict(self, windows):
        assert windows == [[]]
        return {"names": [], "sums": {}, "counts": {}, "windows": windows, "pace": {}}


def test_weights_that_were_scored_and_not_saved_end_a_run(tmp_path):
    """Of the epoch that was scored; what another one has does not matter."""
    trainer = prepare(tmp_path)
    saver, head = trainer.checkpointer, trainer.model.head
    saver.require_scored(1)  # nothing was scored
    saver.save_epoch(1, True, Means())
    saver.finish()
    saver.note_scored(1)
    saver.require_scored(1)
    head.bias.set_value(head.bias + 1.0)
    saver.note_scored(1)
    saver.require_scored(2)
    with pytest.raises(
        RuntimeError, match=r"^1 tensors of .*epoch_0001 are not the ones .* such as 'head.bias': an ev"
    ):
        saver.require_scored(1)


def test_the_best_evaluation_is_of_one_metric_and_the_later_of_equal_ones(tmp_path):
    saver = prepare(tmp_path).checkpointer
    assert saver.format_results("loss 3.0", 0) == ["loss 3.0 (last and best, epoch 0)"]
    for epoch, name, value, more_is_better, counts, is_best in (
        *((1, "loss", 3.0, False, False, True), (2, "loss", 4.0, False, True, False)),
        *((3, "loss", 3.0, False, True, True), (4, "loss", 2.5, False, False, False)),
        *((5, "top-1", 60.0, True, True, True), (6, "top-1", 60.0, True, True, True)),
        *((7, "top-1", 61.0, True, False, False), (8, "top-1", 59.5, True, True, False)),
    ):
        arguments = (epoch, name, value, more_is_better, f"{name} {value}", counts)
        assert saver.note_evaluation(*arguments) is is_best, epoch
    chosen = "; chosen on these samples: expect worse on others"
    last, best = "top-1 59.5 (last, epoch 8)", f"top-1 60.0 (best, epoch 6{{}}{chosen})"
    elsewhere = best.format(", in the folder of the run that this one continues")
    assert saver.format_results("top-1 59.5", 8) == [last, elsewhere]
    (saver.folder / "epoch_0006").mkdir(parents=True)
    assert saver.format_results("top-1 59.5", 8) == [last, best.format("")]
    assert saver.format_results("top-1 60.0", 6) == [f"top-1 60.0 (last and best, epoch 6{chosen})"]
    assert saver.note_evaluation(9, "top-1", 7.0, None, "top-1 7.0")
    assert saver.best == {"name": "top-1", "value": 7.0, "epoch": 9, "line": "top-1 7.0"}
    assert saver.evaluations == [(5, 60.0), (6, 60.0), (8, 59.5), (9, 7.0)]


@pytest.mark.parametrize("more_is_better", [True, False])
def test_an_evaluation_that_does_not_define_the_score_is_the_best_as_long_as_none_does(tmp_path, more_is_better):
    saver = prepare(tmp_path).checkpointer
    values, best = [None, None, 0.0, None, -1.0, 1.0, None], []
    for epoch, value in enumerate(values, 1):
        saver.note_evaluation(epoch, "AP", value, more_is_better, f"AP {value}")
        best.append(saver.best["epoch"])
        if epoch == 2:
            told = "AP None (last and best, epoch 2, as AP is not defined in any evaluation)"
            assert saver.format_results("AP None", 2) == [told]
            assert saver.describe_undefined(2).endswith("epoch 2: the best checkpoint is the last one, until it is")
    assert best == ([1, 2, 3, 3, 3, 6, 6] if more_is_better else [1, 2, 3, 3, 5, 5, 5])
    assert saver.evaluations == list(enumerate(values, 1))
    told = f"note: AP is not defined in epoch 7: the best checkpoint is that of epoch {best[-1]}, as before"
    assert saver.describe_undefined(7) == told and len(saver.format_results("AP None", 7)) == 2


def test_weights_that_diverge_in_numbers_or_between_ranks_are_not_saved(tmp_path):
    trainer = prepare(tmp_path / "main")
    saver, head = trainer.checkpointer, trainer.model.head
    head.bias.set_value(head.bias * np.float32("nan"))
    saver.save_epoch(1, True, Means())
    with pytest.raises(UserError, match="^weight 'head.bias' is not finite after epoch 1: training has diverged"):
        saver.finish()
    savers = [saver, prepare(tmp_path / "other").checkpointer]
    with pytest.raises(RuntimeError, match="^weights differ between ranks after update 0: .*; nothing"):
        ThreadRanks(2).run(lambda rank: savers[rank].save_update(False, Means()))
    assert not [path for path in tmp_path.rglob("*") if "epoch" in path.name or "update" in path.name]
