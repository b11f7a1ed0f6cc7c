"""Whole runs: what is saved is what was scored, averages that barely move are told, and frozen statistics stay."""

from typing import Any

import numpy as np
import paddle
import pytest
from support.trainings import small_runs

from paddlevit_dist.core.registry.lookup import resolve

WORDS = "-cfg=vit_digits -epochs=4 -batch_size=8 TRAIN.MODEL_EMA True TRAIN.WARMUP_EPOCHS 0 TRAIN.BASE_LR 1e-2".split()
WORDS += ["VALIDATE_FREQ", "4"]


class Changing(resolve("task", "classification")):
    """Changes the model while it is evaluated."""

    def eval_step(self, model: Any, batch: Any, step: Any) -> Any:
        model.head.bias.set_value(model.head.bias + 1)
        return super().eval_step(model, batch, step)


def test_a_run_that_saved_other_weights_than_it_scored_ends_with_an_error_before_its_scores(tmp_path, capsys):
    trainer = small_runs.build(
        str(tmp_path), "-epochs=2", "-batch_size=16", task_class=Changing, train_size=32, val_size=16
    )
    with pytest.raises(RuntimeError, match="1 tensors of .*epoch_0002 .* such as 'head.bias'"):
        trainer.train()
    assert "(last and best" not in capsys.readouterr().out


def test_an_average_that_barely_moves_is_told_before_and_after_and_the_model_keeps_its_own_weights(tmp_path, capsys):
    trainer = small_runs.build(str(tmp_path), *WORDS, train_size=480, val_size=360)
    trainer.train()
    lines = capsys.readouterr().out.splitlines()
    told = [number for number, line in enumerate(lines) if line.startswith("note: ")]
    assert "TRAIN.MODEL_EMA_DECAY 0.99996 is too slow for 240 update(s): 99% of the averaged weights" in lines[told[0]]
    assert "averaged weights score worse than the model's own: top-1 " in lines[told[1]]
    assert (
        told[0] < lines.index(next(line for line in lines if line.startswith("epoch 1/4"))) < told[1] < len(lines) - 1
    )
    saved = paddle.load(str(tmp_path / "checkpoints/last/model.pdparams"))
    for name, value in small_runs.make_weights(trainer).items():
        np.testing.assert_array_equal(value, saved[name].numpy(), err_msg=name)


def test_frozen_batch_norms_keep_their_statistics_and_the_lines_say_so(tmp_path, capsys):
    words = "-epochs=1 -batch_size=16 -accum_iter=2 MODEL.NAME resnet18 DATA.IMAGE_SIZE 32 TRAIN.WARMUP_EPOCHS 0"
    patterns = ["TRAIN.FREEZE", "[conv1*, bn1*, layer1*, layer2*, layer3*, layer4.0*]"]
    sizes = {"train": 32, "val": 32}
    trainer = small_runs.make_trainer(tmp_path, [*small_runs.DIGITS, *words.split(), *patterns], sizes)
    before = small_runs.make_weights(trainer)
    trainer.train()
    after = small_runs.make_weights(trainer)
    moved = {name for name in after if name.endswith(("_mean", "_variance")) and (after[name] != before[name]).any()}
    assert moved == {f"layer4.1.bn{number}.{name}" for number in (1, 2) for name in ("_mean", "_variance")}
    text = capsys.readouterr().out
    assert "parameters are frozen (TRAIN.FREEZE conv1*, bn1*" in text
    assert "; 18 batch norms without trained parameters keep their running statistics" in text
    assert "batch norm: statistics of 16 samples at a time, each of the 2 accumulated micro-batches separately" in text
