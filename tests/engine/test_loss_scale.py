"""The loss's scale, against Paddle's own class, which has to be told that a CPU is a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddle.amp import grad_scaler

from paddlevit_dist.engine.loss_scale import LossScale
from paddlevit_dist.engine.precision import Precision


@pytest.fixture
def of_paddle(monkeypatch):
    place = SimpleNamespace(is_gpu_place=lambda: True)
    monkeypatch.setattr(grad_scaler, "_dygraph_tracer", lambda: SimpleNamespace(_expected_place=place))
    # It prints the scale, a tensor of shape (1,), which a new NumPy makes no number.
    monkeypatch.setattr(grad_scaler, "float", lambda value: np.asarray(value).item(), raising=False)
    scaler = paddle.amp.GradScaler()
    assert scaler.is_enable()
    return scaler


def plain(state: dict) -> dict:
    return {name: np.asarray(value).tolist() for name, value in state.items()}


@pytest.mark.parametrize("before, bad, expected", [(0, {3, 4, 30}, 0.125), (1975, {30}, 1.0), (1975, {24, 38}, 0.25)])
def test_it_grows_and_shrinks_as_paddles_does_and_has_its_state(before, bad, expected, of_paddle):
    """In 40 updates, of which some are not finite, after some that were: it doubles after 2,000 of them in a row."""
    weight = paddle.create_parameter([2], "float32")
    optimizer = paddle.optimizer.SGD(learning_rate=0.0, parameters=[weight])
    scale = LossScale()
    start = {**scale.state_dict(), "incr_count": before}
    scale.load_state_dict(start)
    of_paddle.load_state_dict(start)
    for update in range(40):
        weight.grad = paddle.full([2], float("nan") if update in bad else 1.0)
        of_paddle.step(optimizer)
        of_paddle.update()
        scale.update(update not in bad)
        assert plain(scale.state_dict()) == plain(of_paddle.state_dict()), update
    assert scale.value == 65536.0 * expected


def test_states_go_both_ways(of_paddle):
    scale, restored = LossScale(), LossScale()
    for update in range(70):
        scale.update(update != 20)
    of_paddle.load_state_dict(scale.state_dict())
    restored.load_state_dict(plain(of_paddle.state_dict()))
    assert restored.state_dict() == scale.state_dict() == plain(of_paddle.state_dict())


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_backward_pass_is_of_the_loss_times_the_scale(shape, dtype):
    precision = Precision(True, "float16", "O1", on_gpu=True)
    weight = paddle.create_parameter([3], dtype)
    precision.backward((weight * paddle.to_tensor([1.0, 2.0, 3.0], dtype)).sum().reshape(shape))
    np.testing.assert_array_equal(weight.grad.numpy(), [65536.0, 131072.0, 196608.0])
    precision.update(False)
    assert precision.scale == 32768.0 and Precision(True, "bfloat16", on_gpu=True).scale == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_makes_all_gradients_nan(bad):
    weight = paddle.create_parameter([3], "float32")
    Precision(False).backward((weight * 0.0).sum() + float(bad))
    assert np.isnan(weight.grad.numpy()).all()
