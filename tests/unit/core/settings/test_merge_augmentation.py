"""Augmentation and mixing keys: PaddleViT's names and values, and what is said about those without effect."""

import pytest

PADDLEVIT = """\
TRAIN:
  SMOOTHING: 0.1
  COLOR_JITTER: 0.4
  AUTO_AUGMENT: False
  RAND_AUGMENT: False
  RAND_AUGMENT_LAYERS: 2
  RAND_AUGMENT_MAGNITUDE: 9
  MIXUP_ALPHA: 0.8
  MIXUP_PROB: 1.0
  MIXUP_SWITCH_PROB: 0.5
  MIXUP_MODE: 'batch'
  CUTMIX_ALPHA: 1.0
  CUTMIX_MINMAX: None
  RANDOM_ERASE_PROB: 0.25
  RANDOM_ERASE_MODE: 'pixel'
  RANDOM_ERASE_COUNT: 1
"""


def test_paddlevits_settings_load_and_mean_themselves(load_text):
    configuration = load_text(PADDLEVIT)
    train = configuration.values.TRAIN

    assert configuration.notices == []
    assert (train.COLOR_JITTER, train.AUTO_AUGMENT, train.RAND_AUGMENT) == (0.4, False, False)
    assert (train.MIXUP_ALPHA, train.CUTMIX_ALPHA, train.CUTMIX_MINMAX, train.MIXUP_MODE) == (0.8, 1.0, None, "batch")
    assert (train.RANDOM_ERASE_PROB, train.RANDOM_ERASE_MODE, train.RANDOM_ERASE_COUNT) == (0.25, "pixel", 1)


@pytest.mark.parametrize(
    "written, value",
    [
        ("True", True),
        ("false", False),
        ("None", False),
        ("'rand-m9-mstd0.5-inc1'", "rand-m9-mstd0.5-inc1"),
        ("3a", "3a"),
    ],
)
def test_a_policy_is_switched_or_named(load_text, written, value):
    assert load_text(f"TRAIN: {{RAND_AUGMENT: {written}}}").values.TRAIN.RAND_AUGMENT == value
    assert load_text("{}", "TRAIN.AUTO_AUGMENT", written).values.TRAIN.AUTO_AUGMENT == value


@pytest.mark.parametrize(
    "text, message",
    [
        ("RAND_AUGMENT: 9", "TRAIN.RAND_AUGMENT is 9: expected true, false or text"),
        ("RAND_AUGMENT_MAGNITUDE: 11", "TRAIN.RAND_AUGMENT_MAGNITUDE is 11: expected a whole number >= 0 and <= 10"),
        ("RANDOM_ERASE_MODE: noise", "TRAIN.RANDOM_ERASE_MODE is 'noise': expected one of const, rand, pixel"),
        ("MIXUP_MODE: half", "TRAIN.MIXUP_MODE is 'half': expected one of batch, pair, elem"),
        (
            "CUTMIX_MINMAX: [0.2]",
            "TRAIN.CUTMIX_MINMAX is [0.2]: expected a list of 2 numbers, each > 0 and <= 1, or None",
        ),
        ("REPEATED_AUGMENT: 0", "TRAIN.REPEATED_AUGMENT is 0: expected a whole number >= 1"),
        ("COLOR_JITTER: -0.1", "TRAIN.COLOR_JITTER is -0.1: expected a number >= 0"),
    ],
)
def test_values_out_of_range_are_refused(refuse, load_text, text, message):
    assert refuse(load_text, f"TRAIN:\n  {text}") == f"x.yaml:2: {message}"


def test_a_pair_of_sides_may_be_given_on_the_command_line(load_text):
    assert load_text("{}", "TRAIN.CUTMIX_MINMAX", "(0.2, 0.8)").values.TRAIN.CUTMIX_MINMAX == [0.2, 0.8]


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "TRAIN: {CUTMIX_MINMAX: [0.8, 0.2]}",
            "TRAIN.CUTMIX_MINMAX [0.8, 0.2] (x.yaml:1): expected the smaller number first",
        ),
        (
            "TRAIN: {MIXUP_ALPHA: 0.8}\nDATA: {BATCH_SIZE: 1}",
            "TRAIN.MIXUP_ALPHA 0.8 (x.yaml:1): images are mixed with others of their batch, "
            "but DATA.BATCH_SIZE 1 (x.yaml:2)",
        ),
        (
            "TRAIN: {MIXUP_ALPHA: 0.8}\nDATA: {BATCH_SIZE: 64, GLOBAL_BATCH_SIZE: 1}",
            "TRAIN.MIXUP_ALPHA 0.8 (x.yaml:1): images are mixed with others of their batch, "
            "but DATA.BATCH_SIZE 1 (follows from other keys)",
        ),
    ],
)
def test_contradictions_are_refused_in_training_alone(refuse, load_text, text, message):
    assert refuse(load_text, text) == message
    assert load_text(text, "-eval", "-pretrained=x").notices == []


@pytest.mark.parametrize(
    "text, key, why",
    [
        ("RAND_AUGMENT: True, COLOR_JITTER: 0.4", "COLOR_JITTER 0.4", "TRAIN.RAND_AUGMENT True {} replaces it"),
        ("AUTO_AUGMENT: v0, COLOR_JITTER: 0.4", "COLOR_JITTER 0.4", "TRAIN.AUTO_AUGMENT v0 {} replaces it"),
        ("RAND_AUGMENT: True, AUTO_AUGMENT: v0", "AUTO_AUGMENT v0", "TRAIN.RAND_AUGMENT True {} replaces it"),
        (
            "RAND_AUGMENT: rand, RAND_AUGMENT_LAYERS: 3",
            "RAND_AUGMENT_LAYERS 3",
            "TRAIN.RAND_AUGMENT rand {} contains it",
        ),
        (
            "MIXUP_PROB: 1.0",
            "MIXUP_PROB 1.0",
            "none of TRAIN.MIXUP_ALPHA, TRAIN.CUTMIX_ALPHA, TRAIN.CUTMIX_MINMAX is set",
        ),
    ],
)
def test_settings_without_effect_are_told(load_text, text, key, why):
    place = "(x.yaml:1)"
    notices = load_text(f"TRAIN: {{{text}}}").notices
    assert notices == [f"TRAIN.{key} {place}: no effect: {why.replace('{}', place)}"]
    assert load_text(f"TRAIN: {{{text}}}", "-eval", "-pretrained=x").notices == []


def test_of_two_policies_the_one_that_counts_replaces_the_colors(load_text):
    notices = load_text("TRAIN: {RAND_AUGMENT: True, AUTO_AUGMENT: v0, COLOR_JITTER: 0.4}").notices
    by = "(x.yaml:1): no effect: TRAIN.RAND_AUGMENT True (x.yaml:1) replaces it"
    assert notices == [f"TRAIN.AUTO_AUGMENT v0 {by}", f"TRAIN.COLOR_JITTER 0.4 {by}"]


@pytest.mark.parametrize(
    "text",
    [
        "AUTO_AUGMENT: 3a, COLOR_JITTER: 0.3",
        "COLOR_JITTER: 0.3",
        "RAND_AUGMENT: True, RAND_AUGMENT_LAYERS: 3",
        "MIXUP_PROB: 1.0, MIXUP_ALPHA: 0.8",
        "MIXUP_PROB: 1.0, MIXUP_ALPHA: 0.0",
        "MIXUP_PROB: 0.0, MIXUP_ALPHA: 0.8, CUTMIX_ALPHA: 1.0, MIXUP_MODE: batch",
    ],
)
def test_what_has_an_effect_or_is_off_is_silent(load_text, text):
    assert load_text(f"TRAIN: {{{text}}}").notices == []


@pytest.mark.parametrize("alphas", [(0.8, 0.0), (0.0, 1.0), (0.0, 0.0)])
def test_an_image_alone_is_refused_by_the_key_that_mixes_it(refuse, load_text, alphas):
    text = f"DATA: {{BATCH_SIZE: 1}}\nTRAIN: {{MIXUP_PROB: 1.0, MIXUP_ALPHA: {alphas[0]}, CUTMIX_ALPHA: {alphas[1]}}}"
    if not any(alphas):
        assert load_text(text).values.DATA.BATCH_SIZE == 1
        return
    name = "MIXUP_ALPHA 0.8" if alphas[0] else "CUTMIX_ALPHA 1.0"
    told = refuse(load_text, text)
    assert told.startswith(
        f"TRAIN.{name} (x.yaml:2): images are mixed with others of their batch, but DATA.BATCH_SIZE 1"
    )
