"""A fused step is taken only where it gives the results of Paddle's optimizer."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.engine.fused_optimizers import UpdateRule, agrees, is_same

RATE, DECAY = 0.7, 0.05
RULE = UpdateRule(paddle.optimizer.Momentum, ("velocity",), (("momentum", 0.9),))


def make_step(wrong=None):
    """Momentum in plain operations, which is not fused; ``wrong`` changes one value in one step."""

    def make(parameters, accumulators, factors, decays):
        (velocities,) = accumulators
        made = []

        def step(rate, gradients):
            made.append(rate)
            for parameter, velocity, gradient, factor, decay in zip(parameters, velocities, gradients, factors, decays):
                gradient = gradient + decay * parameter
                velocity.set_value(0.9 * velocity + gradient)
                parameter.set_value(parameter - rate * factor * velocity)
            if wrong is not None and len(made) == 2:
                wrong(parameters, velocities)
            return True

        return step

    return make


def change_last(tensors, by):
    value = tensors[-1].numpy()
    value[-1, -1] += by * np.abs(value).max()
    tensors[-1].set_value(value)


@pytest.fixture
def like_a_gpu(monkeypatch):
    """Compare as on a GPU, which may fuse products and sums."""
    monkeypatch.setattr(
        "paddlevit_dist.core.engine.fused_optimizers.is_same",
        lambda expected, actual, _: is_same(expected, actual, False),
    )


def test_a_right_step_is_taken(like_a_gpu):
    assert agrees(RULE, make_step())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda parameters, velocities: change_last(parameters, 1e-4),
        lambda parameters, velocities: change_last(velocities, 1e-4),
        lambda parameters, velocities: change_last(parameters, float("nan")),
    ],
    ids=["one parameter", "one accumulator", "not a number"],
)
def test_a_step_with_one_wrong_value_is_not_taken(like_a_gpu, wrong):
    assert not agrees(RULE, make_step(wrong))


@pytest.mark.parametrize("bitwise", [True, False])
def test_results_are_the_same_up_to_rounding_of_the_largest_or_bit_by_bit(bitwise):
    expected = np.linspace(-5.0, 4.0, 30, dtype=np.float32).reshape(5, 6)
    for by, is_equal in ((0.0, True), (4.5e-6, not bitwise), (7e-6, False), (np.nan, False), (np.inf, False)):
        for place in (0, 13, 29):
            actual = expected.copy()
            actual.flat[place] += np.float32(by)
            assert is_same(expected, actual, bitwise) == is_equal, (by, place)
