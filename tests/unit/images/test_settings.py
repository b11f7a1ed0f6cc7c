"""The keys for images are those of the pages."""

import re

import pytest
from support.key_pages import check_effects, check_rows
from support.processes import ROOT

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("images")


def test_what_another_value_changes_is_as_listed():
    check_effects("images")


OWN = "vit_small_patch16_224.augreg_in21k_ft_in1k"
RECIPE = r"/.*/finetune_folder\.yaml:\d+"


@pytest.mark.parametrize(
    ("words", "name", "weights", "notice"),
    [
        ("", "vit_small_patch16_224", OWN, None),
        (
            "MODEL.NAME resnet50",
            "resnet50",
            "resnet50.a1_in1k",
            rf"MODEL\.PRETRAINED resnet50\.a1_in1k: the weights of MODEL\.NAME resnet50, instead of {re.escape(OWN)}",
        ),
        (
            "-pretrained=resnet18.tv_in1k",
            "resnet18",
            "resnet18.tv_in1k",
            r"MODEL\.NAME resnet18: the model of -pretrained resnet18\.tv_in1k, instead of vit_small_patch16_224",
        ),
        ("MODEL.NAME resnet50 -pretrained=resnet18.tv_in1k", "resnet50", "resnet18.tv_in1k", None),
        (
            "MODEL.NAME resnet50 MODEL.PRETRAINED_REQUIRED false",
            "resnet50",
            None,
            rf"MODEL\.PRETRAINED null: {re.escape(OWN)} \({RECIPE}\) is for another model than resnet50",
        ),
    ],
)
def test_a_model_or_weights_of_the_command_line_bring_the_other(words, name, weights, notice):
    found = load(["-cfg=finetune_folder", *words.split()])
    assert (found.values.MODEL.NAME, found.values.MODEL.PRETRAINED) == (name, weights)
    notices = [line for line in found.notices if line.startswith(("MODEL.PRETRAINED ", "MODEL.NAME "))]
    assert len(notices) == (notice is not None) and all(re.fullmatch(notice, line) for line in notices)


@pytest.mark.parametrize("recipe", ["configs/finetune_folder.yaml", "./configs/finetune_folder.yaml"])
def test_a_recipe_named_from_the_folder_that_one_is_in_is_a_recipe(recipe, monkeypatch):
    monkeypatch.chdir(ROOT)
    notices = load([f"-cfg={recipe}", "-pretrained=resnet18.tv_in1k"]).notices
    assert [line.partition(", ")[0] for line in notices if line.startswith("MODEL.NAME ")] == [
        "MODEL.NAME resnet18: the model of -pretrained resnet18.tv_in1k"
    ]


def test_a_model_without_published_weights_needs_its_own():
    said = (
        rf"^command line: MODEL\.NAME mixer_s32_224: {re.escape(OWN)} \({RECIPE}\) are weights of another model; add "
        r"-pretrained=PATH with its weights, or MODEL\.PRETRAINED_REQUIRED false for random ones$"
    )
    with pytest.raises(UserError, match=said):
        load(["-cfg=finetune_folder", "MODEL.NAME", "mixer_s32_224"])


OF_WHOLE = "these weights are of the whole network: MODEL.PRETRAINED x (-pretrained)"
DRAWN = (
    "it is for synthetic_shapes, segmentation_shapes, panoptic_shapes, drawn_figures, and DATA.DATASET coco (-dataset)"
)


@pytest.mark.parametrize(
    ("words", "key", "reason"),
    [
        ("DATA.VAL_SEED 5", "DATA.VAL_SEED 5", "nothing is held out: DATA.VAL_FRACTION None (default)"),
        ("DATA.VAL_SEED 5 DATA.VAL_FRACTION 0.5", None, None),
        ("DATA.VAL_SEED 5 DATA.VAL_FRACTION_IF_MISSING 0.25", None, None),
        (
            "DATA.VAL_SEED 5 DATA.VAL_FRACTION 0.5 DATA.VAL_FRACTION_IF_MISSING 0.25",
            "DATA.VAL_FRACTION_IF_MISSING 0.25",
            "DATA.VAL_FRACTION 0.5 (command line) is for all data",
        ),
        ("-pretrained=x MODEL.BACKBONE_PRETRAINED y", "MODEL.BACKBONE_PRETRAINED y", OF_WHOLE),
        ("-pretrained=x MODEL.BACKBONE_PRETRAINED y -eval", None, None),
        ("MODEL.BACKBONE_PRETRAINED y", None, None),
        ("DATA.SHAPES.TRAIN 7", None, None),
        ("DATA.SHAPES.TRAIN 7 -dataset=coco -data_path=x", "DATA.SHAPES.TRAIN 7", DRAWN),
    ],
)
@pytest.mark.parametrize("recipe", ["detr_shapes", "segformer_b0_shapes"])
def test_keys_that_others_leave_without_effect_are_told(recipe, words, key, reason):
    if recipe.startswith("segformer"):
        words, reason = words.replace("coco", "ade20k"), reason and reason.replace("coco", "ade20k")
    notices = [line for line in load([f"-cfg={recipe}", *words.split()]).notices if "(command line): no effect" in line]
    assert notices == ([] if key is None else [f"{key} (command line): no effect: {reason}"])
