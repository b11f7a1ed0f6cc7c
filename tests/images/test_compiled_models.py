"""TO_STATIC: the traced program computes what the model computes, and the same again."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from distributed.small_runs import build as small_trainer

from .test_recomputation import FAMILIES, IMAGES, build, gradients

WITH_DROPOUT = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")


def compiled(name, tmp_path):
    """A model of the family, compiled as the trainer does it."""
    trainer = small_trainer(str(tmp_path), "TO_STATIC", "True")
    trainer.model = build(name)
    trainer._compile()
    return trainer.model


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_and_gradients_are_those_of_the_model(name, tmp_path):
    plain, traced = build(name), compiled(name, tmp_path)
    for batch in (4, 3):  # the last batch is smaller
        for model in (plain, traced):
            model.eval()
        with paddle.no_grad():
            expected = plain(paddle.to_tensor(IMAGES[:batch])).numpy()
            np.testing.assert_array_equal(traced(paddle.to_tensor(IMAGES[:batch])).numpy(), expected)
    for model in (plain, traced):
        model.train()
    expected, result = gradients(plain), gradients(traced)
    assert result.keys() == expected.keys()
    if name not in WITH_DROPOUT:  # which draws its numbers in another order
        for parameter, value in expected.items():
            np.testing.assert_array_equal(result[parameter], value, err_msg=parameter)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_and_stochastic_depth_draw_the_same_numbers_again(name, tmp_path):
    model = compiled(name, tmp_path)

    def loss():
        paddle.seed(2)
        return (model(paddle.to_tensor(IMAGES)) ** 2).sum()

    first = loss()
    first.backward()
    assert {loss().item() for _ in range(10)} == {first.item()}
    weight = model.blocks[0].mlp.fc1.weight
    direction = np.random.default_rng(0).standard_normal(weight.shape).astype("float32")
    slope = float((weight.grad.numpy() * direction).sum())
    start, step, ends = weight.numpy().copy(), 1e-3, []
    for sign in (1, -1):
        weight.set_value(start + sign * step * direction)
        ends.append(loss().item())
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=0.02)
