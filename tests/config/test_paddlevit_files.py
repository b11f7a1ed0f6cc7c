"""Keys of PaddleViT's files that are spelled otherwise here, mean nothing here, or are not built yet."""

from __future__ import annotations

import pytest

from paddlevit_dist.config import load
from paddlevit_dist.config.defaults import KEYS
from paddlevit_dist.config.paddlevit import NAMES, NOT_BUILT, OPTIONS

EVALUATE = ("-eval", "-pretrained=x")

NEUTRAL = """\
TRAIN:
  DISTILLATION_TYPE: 'none'
  TEACHER_MODEL: None
"""


def test_no_key_is_both_ours_and_foreign():
    assert not NAMES & set(KEYS)
    assert set(OPTIONS.values()) <= set(NOT_BUILT)


def test_what_is_off_is_silent(load_text):
    assert load_text(NEUTRAL).notices == []
    assert load_text(NEUTRAL, *EVALUATE).notices == []


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("DISTILLATION_TYPE", "'hard'", "is 'hard', but distillation is not supported yet: {} none"),
        ("TEACHER_MODEL", "'./t'", "is './t', but distillation is not supported yet: {} None"),
    ],
)
def test_what_would_change_a_training_stops_it_but_not_an_evaluation(refuse, load_text, name, value, message):
    yaml = f"TRAIN:\n  NUM_EPOCHS: 5\n  {name}: {value}"

    assert refuse(load_text, yaml) == f"x.yaml:3: TRAIN.{name} {message.format('remove the key or set it to')}"
    assert load_text(yaml, *EVALUATE).notices == [f"x.yaml: not supported yet, no effect: TRAIN.{name}"]


def test_distillation_without_a_kind_is_off(load_text):
    assert load_text("TRAIN: {DISTILLATION_TYPE: none, TEACHER_MODEL: ./t, DISTILLATION_ALPHA: 0.5}").notices == []


def test_options_of_what_is_not_there_are_told_once(load_text):
    notices = load_text("TRAIN: {DISTILLATION_ALPHA: 0.5, DISTILLATION_TAU: 1.0}").notices

    assert notices == ["x.yaml: not supported yet, no effect: TRAIN.DISTILLATION_ALPHA, TRAIN.DISTILLATION_TAU"]


def test_a_later_neutral_value_wins(write, refuse):
    write("theirs.yaml", "TRAIN: {DISTILLATION_TYPE: soft}")
    write("x.yaml", "BASE: theirs.yaml\nTRAIN: {DISTILLATION_TYPE: none}")

    assert load(["-cfg=x.yaml"]).notices == []
    assert load(["-cfg=theirs.yaml", "TRAIN.DISTILLATION_TYPE", "none"]).notices == []
    refusal = refuse(load, ["-cfg=x.yaml", "TRAIN.DISTILLATION_TYPE=soft"])
    assert refusal.startswith("command line: TRAIN.DISTILLATION_TYPE is 'soft', ")


def test_averaging_and_rates_by_layer_are_spelled_as_theirs(load_text):
    train = load_text("TRAIN: {MODEL_EMA: True, MODEL_EMA_DECAY: 0.99, LAYER_DECAY: 0.65}").values.TRAIN

    assert (train.MODEL_EMA, train.MODEL_EMA_DECAY, train.LAYER_DECAY) == (True, 0.99, 0.65)


def test_what_never_mattered_is_a_notice(load_text):
    notices = load_text("TRAIN: {MODEL_EMA_FORCE_CPU: True, RANDOM_ERASE_SPLIT: False}\nTAG: default").notices

    why = "does not exist here and is not needed"
    assert notices == [
        f"x.yaml:1: TRAIN.MODEL_EMA_FORCE_CPU {why}: averaged weights live on the device",
        f"x.yaml:1: TRAIN.RANDOM_ERASE_SPLIT {why}: images are erased one by one, as PaddleViT does it, and a batch "
        "has no clean part",
        f"x.yaml:2: TAG {why}: runs are told apart by their output folder",
    ]


def test_their_name_of_the_cosine_schedule(load_text):
    configuration = load_text("TRAIN:\n  LR_SCHEDULER:\n    NAME: 'warmupcosine'")

    assert configuration.values.TRAIN.LR_SCHEDULER.NAME == "cosine"
    assert configuration.notices == ["x.yaml:3: TRAIN.LR_SCHEDULER.NAME 'warmupcosine' is called 'cosine' here"]


def test_keys_of_another_family_name_the_model_too(refuse, load_text):
    swin = "MODEL:\n  NAME: swin_base_patch4_window7_224\n"
    hint = "; MODEL.NAME 'swin_base_patch4_window7_224' is not a known model: did you mean 'vit_base_patch"

    message = refuse(load_text, swin + "  WINDOW_SIZE: 7")
    assert (
        message.startswith("x.yaml:3: MODEL.WINDOW_SIZE (7) is not a known key: the closest is MODEL.")
        and hint in message
    )
    message = refuse(load_text, swin + "  NUM_HEADS: [4, 8, 16, 32]")
    assert message.startswith(
        "x.yaml:3: MODEL.NUM_HEADS is [4, 8, 16, 32]: expected a whole number >= 1, or None; MODEL.NAME"
    )
    assert refuse(load_text, "MODEL:\n  EMBED_DIMM: 7") == (
        "x.yaml:2: MODEL.EMBED_DIMM (7) is not a known key: the closest is MODEL.EMBED_DIM"
    )
