"""Files of PaddleViT's form are recognized however they are reached."""

import json

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.settings import load, recipes
from paddlevit_dist.core.tasks import Task
from paddlevit_dist.images.configured_options import configured_options

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


VIT = {"PATCH_SIZE": 8, "EMBED_DIM": 48, "DEPTH": 2, "NUM_HEADS": 4}
OWN = {  # MODEL.TYPE -> sizes in the words of PaddleViT's files, sizes as the network takes them
    "vit": (VIT, VIT),
    "ViT": ({"TRANS": VIT}, VIT),
    "deit": (VIT, VIT),
    "cait": ({**VIT, "DEPTH_TOKEN_ONLY": 1}, {**VIT, "class_depth": 1}),
    "swin": (
        {"PATCH_SIZE": 4, "EMBED_DIM": 24, "STAGE_DEPTHS": [1, 2], "NUM_HEADS": [1, 3], "WINDOW_SIZE": 4},
        {"patch_size": 4, "embed_dim": 24, "depths": (1, 2), "num_heads": (1, 3), "window_size": 4},
    ),
    "PVTv2": (
        {"EMBED_DIM": [8, 16, 24, 32], "NUM_HEADS": [1, 1, 2, 2], "STAGE_DEPTH": [1, 1, 2, 1]},
        {"embed_dims": (8, 16, 24, 32), "num_heads": (1, 1, 2, 2), "depths": (1, 1, 2, 1)},
    ),
    "Mixer": (
        {"MIXER": {"PATCH_SIZE": 8, "EMBED_DIM": 16, "DEPTH": 1}},
        {"patch_size": 8, "embed_dim": 16, "depth": 1},
    ),
    "convnext": ({"DEPTHS": [1, 1, 1, 1], "DIMS": [8, 16, 24, 32]}, {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}),
}


def write_own(folder, kind, sizes, name="small_parts"):
    data = {"IMAGE_SIZE": 32, "CROP_PCT": 0.875}
    model = {"TYPE": kind, "NAME": name, "NUM_CLASSES": 3, **sizes}
    (folder / "mine.yaml").write_text(json.dumps({"DATA": data, "MODEL": model}))  # JSON is YAML
    return f"-cfg={folder}/mine.yaml"


@pytest.mark.parametrize("kind", OWN)
def test_of_a_users_own_name_type_and_sizes_are_the_network(tmp_path, kind):
    written, expected = OWN[kind]
    found = load([write_own(tmp_path, kind, written), "-dataset=digits"], default_recipe="vit_digits")
    family = {"PVTv2": "pvt_v2", "Mixer": "mlp_mixer"}.get(kind, kind.lower())
    assert REGISTRY.models[found.values.MODEL.NAME].startswith(f"paddlevit_dist.images.models.{family}:")
    options = configured_options(Task(found.values))[0]
    assert options.items() >= {name.lower(): value for name, value in expected.items()}.items()
    (line,) = [line for line in found.notices if "small_parts" in line]
    assert f"no model has this name: MODEL.TYPE {kind} and its sizes decide" in line


def test_without_all_sizes_and_for_other_types_the_name_decides(tmp_path):
    def say(*arguments, words=(), **more):
        file = write_own(tmp_path, *arguments, **more)
        return refusal_of(load, [file, "-dataset=digits", *words], default_recipe="vit_digits")

    assert "model 'small_parts' is not known" in say("vit", {"PATCH_SIZE": 8, "EMBED_DIM": 48, "DEPTH": 2})
    assert "model 'small_parts' is not known" in say("resnet", VIT)
    assert "model 'other' is not known" in say("vit", VIT, words=["MODEL.NAME", "other"])
    assert "not here: give the file of your clone" in say("vit", VIT, name="crossvit_15_224")
    known = load([write_own(tmp_path, "swin", VIT, name="deit_tiny_patch16_224"), "-dataset=digits"], "vit_digits")
    assert known.values.MODEL.NAME == "deit_tiny_patch16_224"
