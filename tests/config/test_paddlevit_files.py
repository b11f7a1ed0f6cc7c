"""Keys of PaddleViT's files that are spelled otherwise here or mean nothing here."""

from __future__ import annotations

from paddlevit_dist.config.table import keys
from paddlevit_dist.registry import key_tables

EVALUATE = ("-eval", "-pretrained=x")


def test_no_key_is_both_ours_and_foreign():
    theirs = {name for table in key_tables() for name in (*table.renamed, *table.dropped)}
    assert "TAG" in theirs and not theirs & set(keys())


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
    cswin = "MODEL:\n  NAME: cswin_tiny_224\n"
    hint = "; MODEL.NAME 'cswin_tiny_224' is not a known model: did you mean "

    message = refuse(load_text, cswin + "  SPLIT_SIZES: [1, 2, 7, 7]")
    assert message.startswith("x.yaml:3: MODEL.SPLIT_SIZES ([1, 2, 7, 7]) is not a known key: the closest is MODEL.")
    assert hint in message
    message = refuse(load_text, cswin + "  NUM_HEADS: [4, 8, many]")
    expected = "x.yaml:3: MODEL.NUM_HEADS is [4, 8, 'many']: expected a whole number >= 1 or a list of them, or None"
    assert message.startswith(expected) and hint in message
    assert refuse(load_text, "MODEL:\n  EMBED_DIMM: 7") == (
        "x.yaml:2: MODEL.EMBED_DIMM (7) is not a known key: the closest is MODEL.EMBED_DIM"
    )


def test_stages_and_their_old_names(load_text):
    swin = "MODEL: {STAGE_DEPTHS: [2, 2, 6, 2], NUM_HEADS: [3, 6, 12, 24], WINDOW_SIZE: 7, EMBED_DIM: 96}"
    configuration = load_text(swin)

    assert configuration.values.MODEL.DEPTHS == [2, 2, 6, 2]
    assert configuration.values.MODEL.NUM_HEADS == [3, 6, 12, 24]
    assert configuration.notices == ["x.yaml:1: MODEL.STAGE_DEPTHS is called MODEL.DEPTHS here"]
    assert load_text("MODEL: {MIXER: {DEPTH: 12}}").values.MODEL.DEPTH == 12
    assert load_text("SEED: 1", "MODEL.NUM_HEADS", "[1, 2]").values.MODEL.NUM_HEADS == [1, 2]
