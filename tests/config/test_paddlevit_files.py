"""Keys in PaddleViT's files that are spelled differently here or have no meaning here."""

import pytest

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
    assert message.startswith("x.yaml:3: MODEL.NUM_HEADS is [4, 8, 'many']: expected a whole number >= 1")
    assert " or a list of them, or None" in message and hint in message
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


SEVEN_FAMILIES = {  # the keys of a file of theirs
    "vit_base_patch16_224": (
        "PATCH_SIZE: 16, MLP_RATIO: 4.0, QKV_BIAS: true, EMBED_DIM: 768, DEPTH: 12, NUM_HEADS: 12, DROPOUT: 0.1, "
        "ATTENTION_DROPOUT: 0.1",
        0,
    ),
    "deit_tiny_distilled_patch16_224": (
        "PATCH_SIZE: 16, MLP_RATIO: 4.0, QKV_BIAS: true, EMBED_DIM: 192, DEPTH: 12, NUM_HEADS: 3, DROPOUT: 0.0",
        0,
    ),
    "swin_tiny_patch4_window7_224": (
        "DROPPATH: 0.2, EMBED_DIM: 96, STAGE_DEPTHS: [2, 2, 6, 2], NUM_HEADS: [3, 6, 12, 24], WINDOW_SIZE: 7, "
        "PATCH_SIZE: 4",
        1,
    ),
    "cait_xxs24_224": (
        "PATCH_SIZE: 16, EMBED_DIM: 192, DEPTH: 24, NUM_HEADS: 4, INIT_VALUES: 1e-5, DEPTH_TOKEN_ONLY: 2",
        0,
    ),
    "pvtv2_b2_linear": (
        "PATCH_SIZE: 4, EMBED_DIM: [64, 128, 320, 512], STAGE_DEPTH: [3, 4, 6, 3], NUM_HEADS: [1, 2, 5, 8], "
        "MLP_RATIO: [8, 8, 4, 4], SR_RATIO: [8, 4, 2, 1], QKV_BIAS: True, LINEAR: True",
        1,
    ),
    "mixer_base_patch16_224": ("MIXER: {PATCH_SIZE: 16, EMBED_DIM: 768, DEPTH: 12}", 3),
    "convnext_small": ("DEPTHS: [3, 3, 27, 3], DIMS: [96, 192, 384, 768], DROPPATH: 0.4", 0),
}


@pytest.mark.parametrize("name", SEVEN_FAMILIES)
def test_files_of_the_seven_families_load_and_each_renamed_key_is_told_once(load_text, name):
    model, renamed = SEVEN_FAMILIES[name]
    text = f"""\
        DATA: {{IMAGE_SIZE: 224, CROP_PCT: 0.875}}
        MODEL: {{TYPE: any, NAME: {name}, {model}}}
        TRAIN:
            NUM_EPOCHS: 300
            WARMUP_EPOCHS: 5
            WEIGHT_DECAY: 0.05
            BASE_LR: 5e-4
            WARMUP_START_LR: 1e-6
            END_LR: 0.0
            GRAD_CLIP: None
            ACCUM_ITER: 1
            LINEAR_SCALED_LR: 512
            OPTIMIZER:
                NAME: 'AdamW'
                BETAS: (0.9, 0.999)
            DISTILLATION_TYPE: 'hard'
        VALIDATE_FREQ: 1
        SAVE_FREQ: 1
        REPORT_FREQ: 20
        """

    notices = load_text(text).notices

    assert len(notices) == renamed and all(" is called " in notice for notice in notices)
    assert load_text(text, "-eval", "-pretrained=x").notices == notices
    assert load_text(f"        TAG: default\n{text}").notices[-1].startswith("x.yaml:1: TAG does not exist here")
