"""Optimizers whose steps are operations on lists: their trainings resume bit-equal, and matrices become orthogonal."""

import numpy as np
import paddle
import pytest
from support.trainings import small_runs

from paddlevit_dist.engine.list_optimizers import orthogonalize

RUN = "-batch_size=16 -accum_iter=2 -epochs=1 TRAIN.WARMUP_STEPS 4 SAVE_EVERY_UPDATES 3 KEEP_UPDATES 9".split()
RUN += ["TRAIN.MODEL_EMA", "True"]
NESTEROV = ["TRAIN.OPTIMIZER.NESTEROV", "True", "TRAIN.OPTIMIZER.WARMUP_MOMENTUM", "0.5"]
CHOICES = {"Lion": ["TRAIN.BASE_LR", "1e-4"], "LAMB": [], "Muon": ["TRAIN.LAYER_DECAY", "0.7"], "SGD": NESTEROV}


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


@pytest.mark.parametrize("shape", [(2, 4, 9), (3, 9, 4), (1, 6, 40)])
def test_singular_vectors_stay_and_singular_values_come_near_one(shape):
    draws = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    found = orthogonalize(paddle.to_tensor(draws)).numpy().astype(np.float64)
    for matrix, result in zip(draws, found):
        left, _, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
        inner = left.T @ result @ right.T  # the singular values, if the vectors are the same
        np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-4)
        assert 0.6 < np.diag(inner).min() and np.diag(inner).max() < 1.3


def test_a_matrix_of_zeros_stays_one():
    assert not orthogonalize(paddle.zeros([2, 3, 4])).any()
