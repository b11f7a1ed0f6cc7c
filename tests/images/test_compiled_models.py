"""TO_STATIC: the traced program computes what the model computes, repeatably.

Everything compiled runs in a separate process: the threads of Paddle's executor live as long as the process.
"""

from typing import Any

import numpy as np
import paddle
import pytest
from support.plain_layers import plain_layers
from support.processes import run_workers, succeeded

from paddlevit_dist.engine.precision import compile_passes

from .test_recomputation import FAMILIES, IMAGES, build, gradients

WITH_DROPOUT = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")


def compiled(name: str) -> paddle.nn.Layer:
    model = build(name)
    compile_passes(model)
    return model


def outputs(model: paddle.nn.Layer) -> dict[str, Any]:
    """Logits of two sizes of batch in evaluation, then gradients in training."""
    model.eval()
    with paddle.no_grad():
        logits = [model(paddle.to_tensor(IMAGES[:batch])).numpy() for batch in (4, 3)]
    model.train()
    return {"logits": logits, "gradients": gradients(model)}


def of_families() -> dict[str, Any]:
    with plain_layers():  # a program is traced from Paddle's layers
        return {name: (outputs(build(name)), outputs(compiled(name))) for name in FAMILIES}


@pytest.fixture(scope="module")
def results():
    (found,) = succeeded(run_workers("images.test_compiled_models:of_families", processes=1)).results
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_and_gradients_are_those_of_the_model(results, name):
    plain, traced = results[name]
    for expected, result in zip(plain["logits"], traced["logits"]):
        np.testing.assert_array_equal(result, expected)
    assert traced["gradients"].keys() == plain["gradients"].keys()
    if name not in WITH_DROPOUT:  # which draws its numbers in another order
        for parameter, value in plain["gradients"].items():
            np.testing.assert_array_equal(traced["gradients"][parameter], value, err_msg=parameter)


def repeated(name: str) -> dict[str, Any]:
    """Losses of ten steps with one seed, and the slope along a direction by the gradient and by two more losses."""
    model = compiled(name)

    def loss() -> paddle.Tensor:
        paddle.seed(2)
        return (model(paddle.to_tensor(IMAGES)) ** 2).sum()

    loss().backward()
    losses = [loss().item() for _ in range(10)]
    weight = model.blocks[0].mlp.fc1.weight
    direction = np.random.default_rng(0).standard_normal(weight.shape).astype("float32")
    start, step, ends = weight.numpy().copy(), 1e-3, []
    for sign in (1, -1):
        weight.set_value(start + sign * step * direction)
        ends.append(loss().item())
    slope = float((weight.grad.numpy() * direction).sum())
    return {"losses": losses, "slope": slope, "measured": (ends[0] - ends[1]) / (2 * step)}


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_and_stochastic_depth_draw_the_same_numbers_again(name):
    target = "images.test_compiled_models:repeated"
    (found,) = succeeded(run_workers(target, name, processes=1)).results
    assert len(set(found["losses"])) == 1
    assert found["measured"] == pytest.approx(found["slope"], rel=0.02)
