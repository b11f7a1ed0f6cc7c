"""Learning rates against hand-computed values; epochs and batch that follow from the number of training samples."""

import math

import pytest
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.engine.schedule import RateSchedule, ScaledRates, build_schedule, describe_rates, scale_rates
from paddlevit_dist.core.engine.settings import compute_epochs, resolve_epochs, resolve_process_batch
from paddlevit_dist.core.settings import default_config, load

RATES = ScaledRates(base=1.0, warmup_start=0.1, end=0.2)


def test_warm_up_is_linear_and_meets_the_decay():
    schedule = RateSchedule("cosine", RATES, total_updates=110, warmup_updates=10)
    assert [schedule(u) for u in (0, 5, 10)] == pytest.approx([0.1, 0.55, 1.0])


def test_cosine_passes_the_middle_and_stays_at_the_end():
    schedule = RateSchedule("cosine", RATES, total_updates=110, warmup_updates=10)
    assert schedule(60) == pytest.approx(0.6)
    assert schedule(35) == pytest.approx(0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2)
    assert schedule(110) == pytest.approx(0.2)
    assert schedule(500) == pytest.approx(0.2)


def test_polynomial_constant_and_step():
    assert RateSchedule("poly", RATES, 100, power=2.0)(50) == pytest.approx(0.2 + 0.8 * 0.25)
    poly = RateSchedule("poly", RATES, 120, warmup_updates=20)
    assert [poly(u) for u in (20, 45, 120, 200)] == pytest.approx([1.0, 0.2 + 0.8 * 0.75**0.9, 0.2, 0.2])
    assert RateSchedule("constant", RATES, 100)(99) == 1.0
    step = RateSchedule("step", RATES, 100, milestones=[30, 60])
    assert [step(u) for u in (29, 30, 59, 60, 99)] == pytest.approx([1.0, 0.1, 0.1, 0.01, 0.01])


def test_a_warm_up_of_all_updates_and_unknown_schedules():
    assert RateSchedule("cosine", RATES, 10, warmup_updates=10)(10) == 1.0
    with pytest.raises(ValueError, match="^unknown schedule 'linear'$"):
        RateSchedule("linear", RATES, 10)(0)


def test_the_momentum_rises_over_the_warm_up_from_the_position_of_the_run():
    schedule = RateSchedule("cosine", RATES, 100, warmup_updates=10)
    assert schedule.state_dict() == {"update": 0} and schedule.momentum(0.5, 0.9) == 0.5
    schedule.count_update()
    schedule.count_update()
    assert schedule.momentum(0.5, 0.9) == pytest.approx(0.58) and schedule.learning_rate == schedule(2)
    for update, momentum in ((5, 0.7), (10, 0.9), (50, 0.9)):
        schedule.load_state_dict({"update": update})
        assert schedule.momentum(0.5, 0.9) == pytest.approx(momentum)
    plain = RateSchedule("cosine", RATES, 100)
    assert plain.momentum(0.5, 0.9) == 0.5
    plain.count_update()
    assert plain.momentum(0.5, 0.9) == 0.9


def test_one_cycle_rises_and_falls_as_pytorchs():
    """``OneCycleLR(max_lr=1, total_steps=20)``: its phases end at the updates 5 and 19."""
    cycle = RateSchedule("onecycle", RATES, 20)
    assert [cycle(u) for u in (0, 2, 5)] == pytest.approx([0.04, 0.371672, 1.0], rel=1e-5)
    assert cycle(12) == pytest.approx(4e-6 + 0.5 * (1 - 4e-6))
    assert [cycle(u) for u in (19, 500)] == pytest.approx([4e-6, 4e-6], rel=1e-6)
    steep = RateSchedule("onecycle", RATES, 100, rise=0.05, divisors=(10.0, 1000.0))
    assert [steep(u) for u in (0, 2, 4, 99)] == pytest.approx([0.1, 0.55, 1.0, 1e-4], rel=1e-6)
    short = RateSchedule("onecycle", RATES, 2)  # nothing is left of the rise
    assert short(0) < 1.0 and short(1) == pytest.approx(4e-6)


def test_linear_scaling_scales_all_three_rates():
    assert scale_rates(1.0, 0.1, 0.2, effective_batch=1024, reference_batch=512) == pytest.approx((2.0, 0.2, 0.4))
    assert scale_rates(1.0, 0.1, 0.2, effective_batch=1024) == (1.0, 0.1, 0.2)


def test_epochs_of_the_configuration_become_updates():
    train = default_config().TRAIN
    train.NUM_EPOCHS, train.WARMUP_EPOCHS, train.LR_SCHEDULER.MILESTONES = 10, 2, [5]
    schedule = build_schedule(train, updates_per_epoch=7, effective_batch=64)
    assert (schedule.total_updates, schedule.warmup_updates, schedule.milestones) == (70, 14, (35,))
    assert schedule.rates == (train.BASE_LR, train.WARMUP_START_LR, train.END_LR)
    train.WARMUP_EPOCHS, train.WARMUP_STEPS = 0, 3
    train.LR_SCHEDULER.NAME, train.LR_SCHEDULER.GAMMA, train.LR_SCHEDULER.POWER = "poly", 0.3, 0.7
    train.LINEAR_SCALED_LR, train.END_LR = 256, 1e-6
    schedule = build_schedule(train, 7, 64)
    assert (schedule.name, schedule.warmup_updates, schedule.gamma, schedule.power) == ("poly", 3, 0.3, 0.7)
    assert schedule.rates == pytest.approx((train.BASE_LR / 4, train.WARMUP_START_LR / 4, 2.5e-7))
    train.LR_SCHEDULER.NAME = "onecycle"
    assert build_schedule(train, 7, 64).warmup_updates == 0


def test_the_description_states_batch_and_scaling():
    config = default_config()
    config.DATA.BATCH_SIZE, config.TRAIN.ACCUM_ITER = 16, 2
    config.TRAIN.BASE_LR, config.TRAIN.LINEAR_SCALED_LR = 5e-4, 512
    assert describe_rates(config, processes=4) == (
        "effective batch 128 = 16 per process x 4 process(es) x 2 accumulated; learning rate 0.000125 (end 0), "
        "TRAIN's rates x 0.25 = 128 / LINEAR_SCALED_LR 512"
    )


@pytest.mark.parametrize(
    "words, course",
    [
        ("TRAIN.WARMUP_EPOCHS 2", "(warm-up from 1e-06, end 0)"),
        ("", "(end 0)"),
        ("TRAIN.LR_SCHEDULER.NAME constant", "(constant)"),
        ("TRAIN.WARMUP_STEPS 5 TRAIN.LR_SCHEDULER.NAME constant", "(warm-up from 1e-06, constant)"),
        ("TRAIN.LR_SCHEDULER.NAME onecycle", "(one cycle from 4e-05, end 4e-09)"),
        ("TRAIN.LR_SCHEDULER.NAME onecycle TRAIN.LR_SCHEDULER.DIVISORS [10,100]", "(one cycle from 0.0001, end 1e-06)"),
        ("TRAIN.LR_SCHEDULER.NAME step TRAIN.LR_SCHEDULER.MILESTONES [3]", "(times 0.1 at each milestone)"),
    ],
)
def test_the_line_of_rates_tells_what_the_run_does(words, course):
    assert f"learning rate 0.001 {course}" in describe_rates(load(words.split()).values, 1)


RECIPE = f"-cfg={ROOT / 'configs' / 'finetune_folder.yaml'}"


def fitted(samples, processes=1, words=(), earlier=None):
    run = resolve_process_batch(load([RECIPE, *words]), processes, samples)
    return resolve_epochs(run, processes, samples, "images", earlier)


@pytest.mark.parametrize(
    ("samples", "epochs"), [(1, 100), (30, 100), (300, 100), (301, 100), (720, 42), (3000, 10), (10**6, 10)]
)
def test_the_fewest_epochs_that_read_that_many_samples_within_the_limits(samples, epochs):
    assert compute_epochs(samples, 30_000, (10, 100)) == epochs
    if 10 < epochs < 100:
        assert epochs * samples >= 30_000 > (epochs - 1) * samples


def test_one_line_says_what_was_chosen():
    (line,) = fitted(720).notices
    assert line.startswith("720 training images: 42 epochs, 924 updates (TRAIN.NUM_SAMPLES 30,000,")


@pytest.mark.parametrize("samples", [100, 720, 5_000])
def test_devices_and_accumulation_change_neither_epochs_nor_the_batch(samples):
    ways = [fitted(samples, processes, ["-accum_iter", str(a)]).values for processes, a in ((1, 1), (2, 1), (4, 2))]
    products = [w.DATA.BATCH_SIZE * p * w.TRAIN.ACCUM_ITER for w, p in zip(ways, (1, 2, 4))]
    assert len({way.TRAIN.NUM_EPOCHS for way in ways}) == 1
    assert products == ([32, 32, 32] if samples > 100 else [25, 24, 24])


@pytest.mark.parametrize(("samples", "batch"), [(1, 1), (3, 3), (10, 4), (30, 7), (127, 31), (128, 32)])
def test_a_batch_is_a_quarter_of_few_samples_or_four(samples, batch):
    run = fitted(samples)
    assert run.values.DATA.BATCH_SIZE == batch
    assert any(f"only {samples} training samples" in notice for notice in run.notices) == (batch < 32)


def test_numbers_on_the_command_line_win_and_say_so():
    run = fitted(30, 2, ["-epochs=3", "-batch_size=5"])
    assert (run.values.TRAIN.NUM_EPOCHS, run.values.DATA.BATCH_SIZE) == (3, 5)
    said = "\n".join(run.notices)
    assert "TRAIN.NUM_EPOCHS 3 (-epochs) replaces TRAIN.NUM_SAMPLES 30000" in said
    assert "DATA.BATCH_SIZE 5 (-batch_size) replaces DATA.GLOBAL_BATCH_SIZE 32" in said


def test_a_file_that_has_the_recipe_as_its_base_wins_too(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"BASE: {ROOT / 'configs' / 'finetune_folder.yaml'}\nTRAIN:\n  NUM_EPOCHS: 12\n")
    assert load([f"-cfg={file}"]).values.TRAIN.NUM_EPOCHS == 12
    file.write_text(f"BASE: {ROOT / 'configs' / 'finetune_folder.yaml'}\nTRAIN:\n  NUM_SAMPLES: 7200\n")
    run = resolve_epochs(load([f"-cfg={file}"]), 1, 720, "images")
    assert run.values.TRAIN.NUM_EPOCHS == 10


def test_a_resumed_training_keeps_its_epochs():
    assert fitted(760, earlier=42).values.TRAIN.NUM_EPOCHS == 42 != fitted(760).values.TRAIN.NUM_EPOCHS


def test_limits_and_warm_up_are_checked():
    with pytest.raises(UserError, match=r"TRAIN.EPOCH_LIMITS \(20, 5\).*the smaller number first"):
        load([RECIPE, "TRAIN.EPOCH_LIMITS", "[20, 5]"])
    with pytest.raises(UserError, match="TRAIN.WARMUP_EPOCHS 10 .*expected fewer than TRAIN.EPOCH_LIMITS"):
        load([RECIPE, "TRAIN.WARMUP_EPOCHS", "10"])


def test_model_and_weights_follow_one_another():
    tiny = load([RECIPE, "MODEL.NAME", "vit_tiny_patch16_224"], None)
    assert tiny.values.MODEL.PRETRAINED == "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    swin = load([RECIPE, "-pretrained=swin_tiny_patch4_window7_224.ms_in1k"], None)
    assert swin.values.MODEL.NAME == "swin_tiny_patch4_window7_224"
    assert list(swin.values.DATA.IMAGENET_MEAN) == [0.485, 0.456, 0.406] and swin.values.DATA.CROP_PCT == 0.9
    assert list(load([RECIPE]).values.DATA.IMAGENET_MEAN) == [0.5, 0.5, 0.5]
    both = load([RECIPE, "MODEL.NAME", "resnet50", "-pretrained=resnet18.a1_in1k"], None).values.MODEL
    assert (both.NAME, both.PRETRAINED) == ("resnet50", "resnet18.a1_in1k")
    random = load([RECIPE, "MODEL.NAME", "mixer_b16_224", "MODEL.PRETRAINED_REQUIRED", "false"], None)
    assert random.values.MODEL.PRETRAINED is None
    with pytest.raises(UserError, match="MODEL.NAME mixer_b16_224: vit_small.* are weights of another model; add"):
        load([RECIPE, "MODEL.NAME", "mixer_b16_224"])
    assert load([RECIPE, "-eval", "-resume=auto"]).values.MODEL.PRETRAINED is None
