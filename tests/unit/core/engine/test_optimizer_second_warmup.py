"""Parameters that wait for the warm-up of others: their course, and the steps that each optimizer makes with it."""

import numpy as np
import paddle
import pytest
from support.networks.golden_eomt import GOLDEN
from support.trainings.updates import update_one_by_one
from yacs.config import CfgNode

from paddlevit_dist.core.engine.freezing import GroupRate
from paddlevit_dist.core.engine.optimizer import build_optimizer
from paddlevit_dist.core.engine.schedule import RateSchedule, ScaledRates
from paddlevit_dist.core.tasks.step_types import StepPosition

TRAINING = GOLDEN["training"]["schedule"]
GRADIENT = np.random.default_rng(1).standard_normal((3, 2)).astype(np.float32)


def test_golden_eomt_rates_of_both_courses():
    first, second = TRAINING["warmup_steps"]
    rates = ScaledRates(1.0, 0.0, 0.0)
    schedule = RateSchedule("poly", rates, TRAINING["total_steps"], first, power=TRAINING["poly_power"])
    course = schedule.second_course(second)
    for update, rest, backbone in zip(TRAINING["steps"], TRAINING["rest"], TRAINING["backbone"]):
        np.testing.assert_allclose(schedule(update), rest, rtol=1e-12, atol=1e-15)
        found = course(StepPosition(1, update, TRAINING["total_steps"]))
        np.testing.assert_allclose(found, backbone, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "is_one_by_one"), [("AdamW", False), ("AdamW", True), ("Adam", False), ("SGD", False), ("Lion", False)]
)
def test_a_group_has_its_own_rate_in_each_step_and_one_of_0_moves_its_moments(name, is_one_by_one):
    """As a group of another factor in each step would have."""
    results = []
    for has_own, rates in ((True, [0.0, 0.05, 0.02]), (False, [0.1, 0.1, 0.1])):
        model = paddle.nn.Sequential(paddle.nn.Linear(3, 2, bias_attr=False), paddle.nn.Linear(3, 2, bias_attr=False))
        for layer in model:
            layer.weight.set_value(np.ones((3, 2), np.float32))
        groups = [
            {"names": ["0.weight"], "weight_decay": 0.1, "learning_rate": 0.8},
            {"names": ["1.weight"], "weight_decay": 0.1, "learning_rate": 1.0},
        ]
        chosen = CfgNode({"NAME": name, "EPS": 1e-8, "BETAS": (0.9, 0.99), "MOMENTUM": 0.8})
        own = GroupRate(lambda step, rates=rates: rates[step.update], ["0.weight"], [model[0].weight])
        groups[0]["rate"] = own if has_own else None
        optimizer = build_optimizer(chosen, model, groups, 0.1)
        if is_one_by_one:
            update_one_by_one(optimizer)
        steps = []
        for update, rate in enumerate((0.1, 0.1, 0.1)):
            own.begin(StepPosition(1, update, 3))
            for layer in model:
                layer.weight.grad = paddle.to_tensor(GRADIENT)
            optimizer.set_lr(rate)
            before = model[0].weight.numpy().copy()
            optimizer.step()
            steps.append(model[0].weight.numpy() - before)
        results.append((steps, model[1].weight.numpy()))
    (waiting, rest), (plain, other_rest) = results
    np.testing.assert_array_equal(rest, other_rest)
    assert not waiting[0].any() and np.abs(plain[0]).min() > 1e-4  # it waits, and its moments do not
    if name in ("Lion", "Adam"):  # whose steps do not depend on the weights but for the decay
        np.testing.assert_allclose(waiting[1], 0.5 * plain[1], rtol=0.2)
    assert 0.1 < np.abs(waiting[1]).mean() / np.abs(plain[1]).mean() < 0.9
