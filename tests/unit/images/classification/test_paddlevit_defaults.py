"""Files of PaddleViT's form are recognized however they are reached."""

import pytest

from paddlevit_dist.core.settings import load, recipes

SWIN = """
DATA: {{IMAGE_SIZE: 224, CROP_PCT: 0.9{}}}
MODEL: {{TYPE: swin, NAME: swin_tiny_patch4_window7_224, EMBED_DIM: 96, WINDOW_SIZE: 7, PATCH_SIZE: 4}}
"""
RECIPE = (5e-4, 20, 0.8, 5.0, 512)


def make_recipe(file, *words: str) -> tuple:
    train = load([f"-cfg={file}", *words]).values.TRAIN
    return train.BASE_LR, train.WARMUP_EPOCHS, train.MIXUP_ALPHA, train.GRAD_CLIP, train.LINEAR_SCALED_LR


@pytest.fixture
def swin(tmp_path):
    (tmp_path / "swin.yaml").write_text(SWIN.format(""))
    return tmp_path / "swin.yaml"


def test_a_file_that_names_its_dataset_keeps_its_recipe(swin):
    for dataset in ("imagenet2012", "folder"):
        swin.write_text(SWIN.format(f", DATASET: {dataset}"))
        assert make_recipe(swin) == RECIPE


def test_a_file_that_another_takes_over_keeps_its_recipe(swin):
    mine = swin.with_name("mine.yaml")
    mine.write_text("BASE: [./swin.yaml]\nTASK: classification\nTRAIN: {NUM_EPOCHS: 100}\n")
    assert make_recipe(mine) == RECIPE
    mine.write_text("BASE: swin.yaml\nTRAIN: {BASE_LR: 1e-3}\n")
    assert make_recipe(mine) == (1e-3, *RECIPE[1:])
    mine.write_text("BASE: finetune_folder\n" + SWIN.format(""))  # which sets the others
    assert make_recipe(mine) == (*make_recipe("finetune_folder")[:2], 0.8, 1.0, 512)
    (line,) = load([f"-cfg={mine}"]).notices
    assert line.startswith(f"{mine}: from PaddleViT's SwinTransformer/config.py: TRAIN.LINEAR_SCALED_LR 512, ")
    assert load([f"-cfg={mine}", "-eval", "-pretrained=x"]).notices == []  # all of them are for training


def test_a_form_that_two_files_have_together_is_recognized(swin):
    model = SWIN.partition("MODEL")[2]
    swin.write_text("DATA: {IMAGE_SIZE: 224, CROP_PCT: 0.9}\n")
    mine = swin.with_name("mine.yaml")
    mine.write_text("BASE: swin.yaml\nMODEL" + model.format())
    assert make_recipe(mine) == RECIPE


def test_recipes_of_the_package_and_files_on_them_are_their_own(swin):
    assert load(["-cfg=vit_digits"]).sources["TRAIN.LINEAR_SCALED_LR"] == "default"
    for name in ("vit_digits", "vit_mnist"):
        copy = swin.with_name(f"{name}.yaml")
        copy.write_text((recipes.recipe_folder() / copy.name).read_text())
        assert load([f"-cfg={copy}"]).values == load([f"-cfg={name}"]).values
    mine = swin.with_name("mine.yaml")
    mine.write_text("BASE: swin_base_patch4_window12_384\nMODEL: {TYPE: swin, EMBED_DIM: 48}\n")
    assert not any("config.py" in line for line in load([f"-cfg={mine}"]).notices)


DEIT = """
DATA: {{IMAGE_SIZE: 224, CROP_PCT: 0.875}}
MODEL: {{TYPE: deit, NAME: {}, EMBED_DIM: 192}}
TRAIN: {{DISTILLATION_TYPE: {}}}
"""


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_file_for_a_distilled_deit_builds_the_distilled_network(tmp_path, kind):
    (tmp_path / "x.yaml").write_text(DEIT.format("deit_tiny_patch16_224", kind))
    found = load([f"-cfg={tmp_path}/x.yaml"])
    assert found.values.MODEL.NAME == "deit_tiny_distilled_patch16_224"
    (tmp_path / "base.yaml").write_text(DEIT.format("deit_tiny_patch16_224", "none"))
    (tmp_path / "y.yaml").write_text(f"BASE: base.yaml\nTRAIN: {{DISTILLATION_TYPE: {kind}}}\n")  # the later one wins
    assert load([f"-cfg={tmp_path}/y.yaml"]).values.MODEL.NAME == "deit_tiny_distilled_patch16_224"
    said = "MODEL.NAME 'deit_tiny_patch16_224' in such a file means 'deit_tiny_distilled_patch16_224' here"
    replaced, others = found.notices
    assert replaced.endswith(said) and "TRAIN.BASE_LR 0.0005" in others and "MODEL.NAME" not in others
    named = load([f"-cfg={tmp_path}/x.yaml", "MODEL.NAME", "deit_tiny_patch16_224"])
    assert named.values.MODEL.NAME == "deit_tiny_patch16_224"


def test_other_files_keep_the_network_that_they_name(tmp_path):
    (tmp_path / "x.yaml").write_text(DEIT.format("deit_tiny_patch16_224", "none"))
    assert load([f"-cfg={tmp_path}/x.yaml"]).values.MODEL.NAME == "deit_tiny_patch16_224"
    (tmp_path / "x.yaml").write_text(DEIT.format("deit_tiny_distilled_patch16_224", "hard"))
    assert load([f"-cfg={tmp_path}/x.yaml"]).values.MODEL.NAME == "deit_tiny_distilled_patch16_224"
    (tmp_path / "x.yaml").write_text("MODEL: {NAME: deit_tiny_patch16_224}\nTRAIN: {DISTILLATION_TYPE: hard}\n")
    assert load([f"-cfg={tmp_path}/x.yaml"]).values.MODEL.NAME == "deit_tiny_patch16_224"
