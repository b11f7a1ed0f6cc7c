"""A weight decay that moves in training: its course, and the steps that each optimizer makes with it."""

import math

import numpy as np
import paddle
import pytest
from support.trainings.updates import update_one_by_one
from yacs.config import CfgNode

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.schedule import RateSchedule, ScaledRates

BETAS, DECAY, RATE = (0.9, 0.99), 0.5, 0.1
WEIGHT = np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)
GRADIENT, OTHER = np.random.default_rng(1).standard_normal((2, 3, 2)).astype(np.float32)


def make_steps(
    name: str, decay: float, factors: list[float], is_one_by_one: bool = False, second=OTHER, **options
) -> np.ndarray:
    """Make a step for each factor of the decay, with the gradient ``second`` after the first; return the weights."""
    model = paddle.nn.Linear(3, 2)
    model.weight.set_value(WEIGHT)
    chosen = CfgNode({"NAME": name, "EPS": 1e-8, "BETAS": BETAS, "MOMENTUM": 0.8, **options})
    now = {"factor": 1.0}
    optimizer = build_optimizer(chosen, model, None, decay, decay_factor=lambda: now["factor"])
    if is_one_by_one:
        update_one_by_one(optimizer)
    for number, now["factor"] in enumerate(factors):
        model.weight.grad = paddle.to_tensor(second if number else GRADIENT)
        optimizer.set_lr(RATE)
        optimizer.step()
    return model.weight.numpy()


@pytest.mark.parametrize(
    "name, options",
    [
        *(("AdamW", {}), ("AdamW", {"is_one_by_one": True}), ("Adam", {}), ("Lion", {}), ("LAMB", {})),
        *(("SGD", {}), ("SGD", {"is_one_by_one": True}), ("SGD", {"DAMPENING": 0.5})),
    ],
)
def test_a_factor_acts_like_a_product_with_the_decay(name, options):
    expected = make_steps(name, DECAY * 0.25, [1.0, 1.0], **options)
    np.testing.assert_allclose(make_steps(name, DECAY, [0.25, 0.25], **options), expected, rtol=1e-6)
    assert not np.allclose(make_steps(name, DECAY, [1.0, 1.0], **options), expected, rtol=1e-3)


@pytest.mark.parametrize("is_one_by_one", [False, True])
def test_steps_of_adamw_shrink_the_weights_by_the_decay_of_each(is_one_by_one):
    factors, expected = [1.0, 3.0, 0.5], WEIGHT.astype(np.float64)
    for factor in factors:  # with equal gradients, both corrected moments are those of the first step
        expected = expected * (1 - RATE * DECAY * factor) - RATE * GRADIENT / (np.abs(GRADIENT) + 1e-8)
    np.testing.assert_allclose(make_steps("AdamW", DECAY, factors, is_one_by_one, GRADIENT), expected, atol=1e-5)


def test_the_decay_moves_by_half_a_cosine_from_the_first_update_to_the_last():
    schedule = RateSchedule("constant", ScaledRates(1.0, 0.0, 0.0), total_updates=6, warmup_updates=2)
    found = []
    for _ in range(8):
        found.append(schedule.weight_decay(0.04, 0.4))
        schedule.count_update()
    expected = [0.22 - 0.18 * math.cos(math.pi * min(update, 6) / 6) for update in range(8)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_decay_cannot_begin_at_zero():
    with pytest.raises(UserError, match=r"WEIGHT_DECAY_END.*WEIGHT_DECAY"):
        settings.load(["-cfg=vit_digits", "TRAIN.WEIGHT_DECAY", "0", "TRAIN.WEIGHT_DECAY_END", "0.1"])
