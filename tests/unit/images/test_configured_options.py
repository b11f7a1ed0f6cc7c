"""MODEL keys and the options they set in each family."""

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.images.configured_options import configured_options

# What PaddleViT's files say for these models.
PUBLISHED = {
    "deit_tiny_patch16_224": "PATCH_SIZE 16 MLP_RATIO 4.0 QKV_BIAS True EMBED_DIM 192 DEPTH 12 NUM_HEADS 3",
    "swin_tiny_patch4_window7_224": "EMBED_DIM 96 DEPTHS [2,2,6,2] NUM_HEADS [3,6,12,24] WINDOW_SIZE 7 PATCH_SIZE 4",
    "cait_xxs24_224": "PATCH_SIZE 16 EMBED_DIM 192 DEPTH 24 NUM_HEADS 4 INIT_VALUES 1e-5 DEPTH_TOKEN_ONLY 2",
    "pvtv2_b2_linear": "PATCH_SIZE 4 EMBED_DIM [64,128,320,512] DEPTHS [3,4,6,3] NUM_HEADS [1,2,5,8] "
    "MLP_RATIO [8,8,4,4] SR_RATIO [8,4,2,1] QKV_BIAS True LINEAR True",
    "mixer_base_patch16_224": "PATCH_SIZE 16 EMBED_DIM 768 DEPTH 12",
    "convnext_small": "DEPTHS [3,3,27,3] DIMS [96,192,384,768]",
    "resnet101": "DEPTHS [3,4,23,3] DIMS [64,128,256,512]",
}


def make_options(name: str, keys: str = ""):
    words = keys.split()
    overrides = [word for key, value in zip(words[::2], words[1::2]) for word in (f"MODEL.{key}", value)]
    return configured_options(Task(settings.load(["MODEL.NAME", name, *overrides]).values))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_dimensions_are_those_of_the_variant(name):
    options, notices = make_options(name, PUBLISHED[name])
    assert options and notices == []


def test_other_dimensions_win_and_are_told():
    options, notices = make_options("swin_tiny_patch4_window7_224", "NUM_HEADS [2,4,8,16] DROPPATH 0.3")
    assert options == {"num_heads": (2, 4, 8, 16), "drop_path": 0.3}
    assert notices == [
        "note: swin_tiny_patch4_window7_224 with MODEL.NUM_HEADS (2, 4, 8, 16) instead of (3, 6, 12, 24) "
        "(explicit keys win over the variant's)"
    ]


@pytest.mark.parametrize(
    "name, key",
    [("convnext_tiny", "WINDOW_SIZE 7"), ("pvt_v2_b0", "PATCH_SIZE 8"), ("convnext_tiny", "ATTENTION_DROPOUT 0.1")],
)
def test_an_option_that_a_model_does_not_have_is_told_once(name, key):
    assert make_options(name, key) == ({}, [f"MODEL.{key}: no effect: {name} has no such option"])


@pytest.mark.parametrize(
    "name, keys, message",
    [
        (
            "swin_tiny_patch4_window7_224",
            "NUM_HEADS 3",
            "MODEL.NUM_HEADS 3: swin_tiny_patch4_window7_224 takes a number for each stage, such as [3, 6, 12, 24]",
        ),
        (
            "deit_tiny_patch16_224",
            "EMBED_DIM [96,192]",
            "MODEL.EMBED_DIM [96, 192]: deit_tiny_patch16_224 takes one number",
        ),
        (
            "convnext_tiny",
            "DEPTHS [1,2]",
            "convnext_tiny takes a number for each of its stages: give lists of one length in MODEL.DEPTHS [1, 2], "
            "MODEL.DIMS [96, 192, 384, 768]",
        ),
    ],
)
def test_dimensions_that_do_not_fit_the_stages_are_refused(name, keys, message):
    assert refusal_of(make_options, name, keys) == message


def test_stages_of_another_number_are_taken_if_all_have_it():
    options, notices = make_options("convnext_tiny", "DEPTHS [1,2] DIMS [8,16] DROPPATH 0.25")
    assert options == {"depths": (1, 2), "dims": (8, 16), "drop_path": 0.25}
    assert notices == [
        "note: convnext_tiny with MODEL.DEPTHS (1, 2) instead of (3, 3, 9, 3), MODEL.DIMS (8, 16) instead of (96, 192, "
        "384, 768) (explicit keys win over the variant's)"
    ]


def test_options_without_a_key_have_a_way_and_a_key_that_sets_one_too_is_named():
    options, notices = make_options("vit_base_patch16_224", "OPTIONS.pool average OPTIONS.pool_norm true DEPTH 2")
    assert options == {"pool": "average", "pool_norm": True, "depth": 2} and "DEPTH 2 instead of 12" in notices[0]
    with pytest.raises(UserError, match=r"MODEL.OPTIONS.embed_dims: MODEL.EMBED_DIM \(8, 8\) sets it, too: keep one"):
        make_options("pvt_v2_b0", "EMBED_DIM [8,8] OPTIONS.embed_dims [8,8]")
    with pytest.raises(UserError, match="MODEL.OPTIONS.drop_path: MODEL.DROPPATH 0.1 sets it, too"):
        make_options("vit", "DROPPATH 0.1 OPTIONS.drop_path 0.2")
