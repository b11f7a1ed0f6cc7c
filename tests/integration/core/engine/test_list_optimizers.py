"""Optimizers whose steps are operations on lists: their trainings resume bit-equal, and matrices become orthogonal."""

import numpy as np
import pytest
from support.trainings import small_runs

RUN = "-batch_size=16 -accum_iter=2 -epochs=1 TRAIN.WARMUP_STEPS 4 SAVE_EVERY_UPDATES 3 KEEP_UPDATES 9".split()
RUN += ["TRAIN.MODEL_EMA", "True"]
NESTEROV = ["TRAIN.OPTIMIZER.NESTEROV", "True", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM", "0.5"]
CHOICES = {"Lion": ["TRAIN.BASE_LR", "1e-4"], "LAMB": [], "Muon": ["TRAIN.LAYER_DECAY", "0.7"], "SGD": NESTEROV}
CHOICES["AdamW"] = ["TRAIN.WEIGHT_DECAY_END", "0.5", "TRAIN.GRAD_CLIP_MODE", "tensor"]


def state(trainer) -> dict[str, np.ndarray]:
    tensors = {**trainer.model.state_dict(), **trainer.state.optimizer_state.tensors()}
    averages = {f"average {name}": tensor for name, tensor in trainer.ema.state_dict().items()}
    return {name: tensor.numpy() for name, tensor in {**tensors, **averages}.items()}


@pytest.mark.parametrize("optimizer", CHOICES)
def test_a_stopped_and_resumed_run_ends_with_the_bits_of_a_straight_one(tmp_path, optimizer):
    choice = [*RUN, "TRAIN.GRAD_CLIP", "1.0", "TRAIN.OPTIMIZER.NAME", optimizer, *CHOICES[optimizer]]
    straight = small_runs.build(str(tmp_path / "straight"), *choice, train_size=192)
    before = {name: tensor.numpy() for name, tensor in straight.model.state_dict().items()}
    straight.train()
    middle = f"-resume={tmp_path / 'straight/checkpoints/update_00000003'}"
    resumed = small_runs.build(str(tmp_path / "on"), *choice, middle, train_size=192)
    resumed.train()
    expected, found = state(straight), state(resumed)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert np.array_equal(value, found[name]), name
    assert all(not np.array_equal(value, expected[name]) for name, value in before.items())
