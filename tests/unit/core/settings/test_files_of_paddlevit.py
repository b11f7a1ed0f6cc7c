"""Keys in PaddleViT's files that are spelled differently here or have no meaning here."""

import pytest

from paddlevit_dist.core.registry.model_sources import explain_unsupported
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.key_tables import key_tables
from paddlevit_dist.core.settings.table import find_keys

EVALUATE = ("-eval", "-pretrained=x")

# Family -> MODEL.NAME of its files in github.com/BR-IDL/PaddleViT, image_classification/*/configs.
THEIRS = {
    "BEiT": (
        "beit_base_patch16_224_finetune beit_base_patch16_224 beit_base_patch16_384 beit_large_patch16_224 "
        "beit_large_patch16_384 beit_large_patch16_512"
    ),
    "BoTNet": "botnet50_224",
    "CSwin": (
        "cswin_base_224 cswin_base_384 cswin_large_224 cswin_large_22k_224 cswin_large_384 cswin_small_224 "
        "cswin_tiny_224"
    ),
    "CoaT": "coat_lite_medium coat_lite_mini coat_lite_small coat_lite_tiny coat_mini coat_small coat_tiny",
    "ConvMLP": "convmlp_l convmlp_m convmlp_s",
    "ConvMixer": "convmixer_1024_20 convmixer_1536_20 convmixer_768_32",
    "CrossViT": (
        "crossvit_vit_15_224 crossvit_vit_15_dagger_224 crossvit_vit_15_dagger_384 crossvit_vit_18_224 "
        "crossvit_vit_18_dagger_224 crossvit_vit_9_224 crossvit_vit_9_dagger_224 crossvit_vit_base_224 "
        "crossvit_vit_small_224 crossvit_vit_tiny_224"
    ),
    "CvT": "CvT-13-224 CvT-13-384 CvT-21-224 CvT-21-384 CvT-w24-384",
    "CycleMLP": "cyclemlp_b1 cyclemlp_b2 cyclemlp_b3 cyclemlp_b4 cyclemlp_b5",
    "FF_Only": "ff_base ff_tiny",
    "Focal Transformer": "focal_base_patch4_window7_224 focal_small_patch4_window7_224 focal_tiny_patch4_window7_224",
    "HVT": "hvt_base_patch16_224",
    "HaloNet": "halonet_26t halonet_50ts",
    "LeViT": "levie_128 levie_128s levie_192 levie_256 levie_384",
    "MAE": "vit_base_patch16_224_dec1",
    "MobileFormer": (
        "MobileFormer_151M MobileFormer_214M MobileFormer_26M MobileFormer_294M MobileFormer_508M "
        "MobileFormer_52M MobileFormer_96M"
    ),
    "MobileOne": "mobileone_s0 mobileone_s1 mobileone_s2 mobileone_s3",
    "MobileViT": "mobilevit_s mobilevit_xs mobilevit_xxs",
    "PiT": "pit_b pit_b_distilled pit_s pit_s_distilled pit_ti pit_ti_distilled pit_xs pit_xs_distilled",
    "PoolFormer": "poolformer_m36 poolformer_m48 poolformer_s12 poolformer_s24 poolformer_s36",
    "RepLKNet": "replknet_31b replknet_31b_384 replknet_31l replknet_31l_384 replknet_xl",
    "RepMLP": "repmlp_b_224 repmlp_b_256",
    "ResMLP": "resmlp_12_224 resmlp_24_224 resmlp_36_224 resmlp_big_24_224",
    "ResT": "rest_base rest_large rest_lite rest_small restv2_tiny restv2_small",
    "Shuffle Transformer": "shuffle_vit_tiny_patch4_window7_224 shuffle_vit_small_patch4_window7_224",
    "T2T-ViT": (
        "t2t-vit-10 t2t-vit-12 t2t-vit-14 t2t-vit-14-384 t2t-vit-19 t2t-vit-24 t2t-vit-7 t2t-vit-t-14 "
        "t2t-vit-t-19 t2t-vit-t-24"
    ),
    "TopFormer": "topformer_base topformer_small topformer_tiny",
    "VOLO": (
        "volo_d1_224 volo_d1_384 volo_d2_224 volo_d2_384 volo_d3_224 volo_d3_448 volo_d4_224 volo_d4_448 "
        "volo_d5_224 volo_d5_448"
    ),
    "ViP": "vip_l7 vip_m7 vip_s7",
    "XCiT": (
        "xcit_large_24_p16_224 xcit_large_24_p16_384 xcit_large_24_p8_224 xcit_large_24_p8_384 "
        "xcit_medium_24_p16_224 xcit_medium_24_p16_384 xcit_medium_24_p8_224 xcit_medium_24_p8_384 "
        "xcit_nano_12_p16_224 xcit_nano_12_p16_384 xcit_nano_12_p8_224 xcit_nano_12_p8_384 xcit_small_12_p16_224 "
        "xcit_small_12_p16_384 xcit_small_12_p8_224 xcit_small_12_p8_384 xcit_small_24_p16_224 "
        "xcit_small_24_p16_384 xcit_small_24_p8_224 xcit_small_24_p8_384 xcit_tiny_12_p16_224 "
        "xcit_tiny_12_p16_384 xcit_tiny_12_p8_224 xcit_tiny_12_p8_384 xcit_tiny_24_p16_224 xcit_tiny_24_p16_384 "
        "xcit_tiny_24_p8_224 xcit_tiny_24_p8_384"
    ),
    "gMLP": "gmlp_b16_224 gmlp_s16_224",
}


def test_no_key_is_both_ours_and_foreign():
    theirs = {name for table in key_tables() for name in (*table.renamed, *table.ignored_keys)}
    assert "TAG" in theirs and not theirs & set(find_keys())


def test_averaging_and_rates_by_layer_are_spelled_as_theirs(load_text):
    train = load_text("TRAIN: {MODEL_EMA: True, MODEL_EMA_DECAY: 0.99, LAYER_DECAY: 0.65}").values.TRAIN

    assert (train.MODEL_EMA, train.MODEL_EMA_DECAY, train.LAYER_DECAY) == (True, 0.99, 0.65)


def test_what_never_mattered_is_a_notice(load_text):
    assert load_text("TAG:").notices == []
    notices = load_text("TRAIN: {MODEL_EMA_FORCE_CPU: True, RANDOM_ERASE_SPLIT: False}\nTAG: default").notices

    why = "does not exist here and is not needed"
    assert notices == [
        f"x.yaml:1: TRAIN.MODEL_EMA_FORCE_CPU {why}: averaged weights are on the device",
        f"x.yaml:1: TRAIN.RANDOM_ERASE_SPLIT {why}: images are erased one by one, as in PaddleViT, and a batch "
        "has no clean part",
        f"x.yaml:2: TAG {why}: runs are distinguished by their output folder",
    ]


def test_a_temperature_of_a_teacher_other_than_theirs_is_refused(load_text, refuse):
    (notice,) = load_text("TRAIN: {DISTILLATION_TAU: 1.0}").notices
    assert notice.startswith("x.yaml:1: TRAIN.DISTILLATION_TAU does not exist here and is not needed: it is 1, as in ")
    message = refuse(load_text, "TRAIN: {DISTILLATION_TAU: 3.0}")
    assert message == "x.yaml:1: TRAIN.DISTILLATION_TAU is 3.0, but only 1 is supported; remove it"


def test_their_name_of_the_cosine_schedule(load_text):
    configuration = load_text("TRAIN:\n  LR_SCHEDULER:\n    NAME: 'warmupcosine'")

    assert configuration.values.TRAIN.LR_SCHEDULER.NAME == "cosine"
    assert configuration.notices == ["x.yaml:3: TRAIN.LR_SCHEDULER.NAME 'warmupcosine' is called 'cosine' here"]


def test_keys_of_another_family_name_the_model_too(refuse, load_text, write):
    misspelled = "MODEL:\n  NAME: swin_tinny_patch4_window7_224\n"
    hint = (
        "; MODEL.NAME 'swin_tinny_patch4_window7_224' is not a known model: did you mean 'swin_tiny_patch4_window7_224'"
    )

    message = refuse(load_text, misspelled + "  SPLIT_SIZES: [1, 2, 7, 7]")
    assert message.startswith("x.yaml:3: MODEL.SPLIT_SIZES ([1, 2, 7, 7]) is not a known key: ")
    assert hint in message
    message = refuse(load_text, misspelled + "  NUM_HEADS: [4, 8, many]")
    assert message.startswith("x.yaml:3: MODEL.NUM_HEADS is [4, 8, 'many']: expected a whole number >= 1")
    assert " or a list of them, or None" in message and hint in message
    assert refuse(load_text, "MODEL:\n  EMBED_DIMM: 7") == (
        "x.yaml:2: MODEL.EMBED_DIMM (7) is not a known key: the closest is MODEL.EMBED_DIM"
    )
    assert refuse(load_text, misspelled + "TRAIN: {BASE_RL: 1}") == (
        "x.yaml:3: TRAIN.BASE_RL (1) is not a known key: the closest is TRAIN.BASE_LR"
    )
    write("base.yaml", misspelled)  # does not count
    assert refuse(load_text, "BASE: base.yaml\nMODEL: {NAME: vit_base_patch16_224, EMBED_DIMM: 7}") == (
        "x.yaml:2: MODEL.EMBED_DIMM (7) is not a known key: the closest is MODEL.EMBED_DIM"
    )


NOT_HERE = "not here: give the file of your clone of PaddleViT: -cfg=PaddleViT/image_classification/*/configs/*.yaml"


@pytest.mark.parametrize("family", THEIRS)
def test_their_models_that_are_not_here_say_so_before_their_keys_do(family, refuse, load_text):
    for name in THEIRS[family].split():
        message = refuse(load_text, f"MODEL:\n  NAME: {name}\n  ONLY_OF_THIS_MODEL: 1")
        assert message == f"x.yaml:2: MODEL.NAME: model '{name}': {NOT_HERE}"


@pytest.mark.parametrize("name", ["DPT", "segmenter_vit_base", "SETR_MLA", "trans2seg_medium", "upernet_cswin_tiny"])
def test_their_models_of_other_tasks_are_not_offered_through_a_clone(name, refuse, load_text):
    message = refuse(load_text, f"MODEL: {{NAME: {name}}}")
    assert message.endswith(": not here: of a clone of PaddleViT only image_classification is taken")


def test_their_masked_autoencoder_is_known_by_its_type(refuse, load_text, monkeypatch):
    monkeypatch.setitem(REGISTRY.models, "own_mae", lambda *_, **__: None)
    assert load_text("MODEL: {TYPE: MAE, NAME: own_mae}").values.MODEL.TYPE == "MAE"
    message = refuse(load_text, "MODEL: {TYPE: MAE, NAME: vit_base_patch16_224}")
    assert message == f"x.yaml:1: MODEL.TYPE: model 'MAE': {NOT_HERE}"
    message = refuse(load_text, "MODEL: {TYPE: MAE, NAME: vit_base_patch16_224, MAE_PRETRAIN: True}")
    assert message == "x.yaml:1: MODEL.MAE_PRETRAIN: pre-training is not taken: only classifiers are"


def test_no_model_of_ours_and_no_word_alike_is_taken_for_one_of_theirs(monkeypatch, load_text):
    assert (
        not [name for name in REGISTRY.models if explain_unsupported(name)]
        and explain_unsupported("resnet") == explain_unsupported("restful") == ""
    )
    monkeypatch.setitem(REGISTRY.models, "pit_b", lambda *_, **__: None)  # a user's own of this name
    assert load_text("MODEL: {NAME: pit_b}").values.MODEL.NAME == "pit_b"


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


@pytest.mark.parametrize(
    ("dimensions", "expected"),
    [
        (
            "NAME: vit, DROP_PATH: 0.1, TRANS: {PATCH_SIZE: 16, HIDDEN_SIZE: 64, NUM_LAYERS: 2, NUM_HEADS: 4}",
            "DROPPATH 0.1 PATCH_SIZE 16 EMBED_DIM 64 DEPTH 2 NUM_HEADS 4",
        ),
        (
            "NAME: pvt_v2_b1, TRANS: {EMBED_DIMS: [8, 16], STAGE_DEPTHS: [1, 2], SR_RATIO: [2, 1], LINEAR: true}",
            "EMBED_DIM [8,16] DEPTHS [1,2] SR_RATIO [2,1] LINEAR true",
        ),
        (
            "NAME: cait_xxs24_224, TRANS: {EMBED_DIM: 64, DEPTH_TOKEN_ONLY: 1, INIT_VALUES: 1e-6, MLP_RATIO: 2.0}",
            "EMBED_DIM 64 DEPTH_TOKEN_ONLY 1 INIT_VALUES 1e-6 MLP_RATIO 2",
        ),
    ],
)
def test_names_of_2021_mean_the_same(load_text, dimensions, expected):
    names, values = expected.split()[::2], expected.split()[1::2]
    model = load_text(f"MODEL: {{{dimensions}}}").values.MODEL
    ours = load([f"MODEL.{name}={value}" for name, value in zip(names, values)]).values.MODEL
    assert {name: model[name] for name in names} == {name: ours[name] for name in names}
