"""Learning rates against hand-computed values."""

from __future__ import annotations

import math

import pytest

from paddlevit_dist.config import default_config, load
from paddlevit_dist.engine.schedule import Rates, Schedule, describe_rates, scaled_rates, schedule_of

RATES = Rates(base=1.0, warmup_start=0.1, end=0.2)


def test_warm_up_is_linear_and_meets_the_decay():
    schedule = Schedule("cosine", RATES, total_updates=110, warmup_updates=10)
    assert [schedule(u) for u in (0, 5, 10)] == pytest.approx([0.1, 0.55, 1.0])


def test_cosine_passes_the_middle_and_stays_at_the_end():
    schedule = Schedule("cosine", RATES, total_updates=110, warmup_updates=10)
    assert schedule(60) == pytest.approx(0.6)
    assert schedule(35) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert schedule(110) == pytest.approx(0.2)
    assert schedule(500) == pytest.approx(0.2)


def test_polynomial_constant_and_step():
    assert Schedule("poly", RATES, 100, power=2.0)(50) == pytest.approx(0.2 + 0.8 * 0.25)
    assert Schedule("constant", RATES, 100)(99) == 1.0
    step = Schedule("step", RATES, 100, milestones=[30, 60], gamma=0.1)
    assert [step(u) for u in (29, 30, 59, 60, 99)] == pytest.approx([1.0, 0.1, 0.1, 0.01, 0.01])


def test_linear_scaling_scales_all_three_rates():
    assert scaled_rates(1.0, 0.1, 0.2, effective_batch=1024, reference_batch=512) == pytest.approx((2.0, 0.2, 0.4))
    assert scaled_rates(1.0, 0.1, 0.2, effective_batch=1024) == (1.0, 0.1, 0.2)


def test_epochs_of_the_configuration_become_updates():
    train = default_config().TRAIN
    train.NUM_EPOCHS, train.WARMUP_EPOCHS, train.LR_SCHEDULER.MILESTONES = 10, 2, [5]
    schedule = schedule_of(train, updates_per_epoch=7, effective_batch=64)
    assert (schedule.total_updates, schedule.warmup_updates, schedule.milestones) == (70, 14, (35,))
    train.WARMUP_EPOCHS, train.WARMUP_STEPS = 0, 3
    assert schedule_of(train, 7, 64).warmup_updates == 3


def test_the_description_states_batch_and_scaling():
    config = default_config()
    config.DATA.BATCH_SIZE, config.TRAIN.ACCUM_ITER = 16, 2
    config.TRAIN.BASE_LR, config.TRAIN.LINEAR_SCALED_LR = 5e-4, 512
    text = describe_rates(config, processes=4)
    assert "effective batch 128" in text and "0.000125" in text and "x 0.25" in text


@pytest.mark.parametrize(
    "words, course",
    [
        ("TRAIN.WARMUP_EPOCHS 2", "(warm-up from 1e-06, end 0)"),
        ("", "(end 0)"),
        ("TRAIN.LR_SCHEDULER.NAME constant", "(constant)"),
        ("TRAIN.WARMUP_STEPS 5 TRAIN.LR_SCHEDULER.NAME constant", "(warm-up from 1e-06, constant)"),
        ("TRAIN.LR_SCHEDULER.NAME step TRAIN.LR_SCHEDULER.MILESTONES [3]", "(times 0.1 at each milestone)"),
    ],
)
def test_the_line_of_rates_tells_what_the_run_does(words, course):
    assert f"learning rate 0.001 {course}" in describe_rates(load(words.split()).values, 1)
