"""Every image recipe trains: two updates at reduced size, one recipe after another, some on two processes."""

import re
from pathlib import Path
from typing import Any

import paddle
import pytest
from support.processes import run_workers, succeeded
from support.trainings.recipe_steps import make_recipes, reduced, require_two_updates, run
from support.trainings.runs import write_images

from paddlevit_dist.core import settings
from paddlevit_dist.core.distributed import world_size
from paddlevit_dist.core.tasks.model_factory import create_model

MODULE = "nightly.images.test_recipes_train"

RECIPES = [
    path for path in make_recipes("classification") if path.stem not in ("vit_digits", "vit_mnist")
]  # train whole
# One of each kind of network, and what is frozen or has a teacher: what ranks exchange depends on no other key.
SHARED = set(
    "cait_xxs24_224 convnext_tiny deit_tiny_patch16_224 deit_tiny_distilled_patch16_224 finetune_folder "
    "mixer_b16_224 pvtv2_b0 pvtv2_b2_linear resnet18 swin_tiny_patch4_window7_224 vit_base_patch16_224_linear_probe "
    "vit_tiny_patch16_224".split()
)
# Recipes of the other sizes name another network and its rates, and else say what R18's, S's, Nano's and B0's do.
OF_OTHER_SIZES = (
    r"(deim_)?(rtdetr|rtdetrv2)_r(34|50|101)vd(_m)?_coco|(deim_)?dfine_[mlx]_coco|rfdetr_(?!nano)\w+_coco|"
    r"segformer_b[1-5]|eomt_\w+"  # each on its published layout
)
FINDING, LABELING = (
    [path for path in make_recipes(task) if not re.match(OF_OTHER_SIZES, path.stem)]
    for task in ("detection", "image_segmentation")
)


def pictures_and_teacher(folder: Path) -> tuple[str, list[str]]:
    """Class folders, and the words by which ``run_all`` gives a recipe that needs one its teacher."""
    teacher = create_model("vit", num_classes=3, image_size=64, embed_dim=192, depth=12, num_heads=3)
    paddle.save(teacher.state_dict(), str(folder / "teacher.pdparams"))
    words = ["TRAIN.TEACHER_MODEL", "vit_tiny_patch16_224", "TRAIN.TEACHER_WEIGHTS", f"{folder}/teacher.pdparams"]
    return str(write_images(folder / "pictures")), words


def run_all(recipes: list[str], images: str, output: str, teacher: list[str]) -> dict[str, Any]:
    """What became of each recipe: losses of its updates, the last evaluation, a sum over its weights."""
    results = {}
    for recipe in recipes:
        given = settings.load([f"-cfg={recipe}"]).values
        words = [
            "-dataset=folder",
            f"-data_path={images}",
            f"-batch_size={8 // world_size()}",
            *reduced(given.MODEL.NAME),
        ]
        words += teacher if given.TRAIN.DISTILLATION_TYPE != "none" else []
        results[Path(recipe).stem] = run(recipe, output, words)
    return results


def run_detectors(recipes: list[str], output: str) -> dict[str, Any]:
    """The same of recipes that find objects, on drawn shapes."""
    data = (
        "-dataset=synthetic_shapes DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 2 DATA.SHAPES.SIDES [48,64] -batch_size=1 "
        "DATA.SHORTEST_SIDES [64] DATA.CROP_SHORTEST_SIDES [64] DATA.CROP_SIDES [48,64] DATA.EVAL_SHORTEST_SIDE 64 "
        "MODEL.BACKBONE_PRETRAINED None"
    ).split()
    few = ["MODEL.NUM_QUERIES", "10"]
    smaller = {
        "detr": ["MODEL.OPTIONS.encoder_layers", "1", "MODEL.OPTIONS.decoder_layers", "2", *few],
        **dict.fromkeys(("rtdetr", "dfine", "deim", "rfdetr"), few),
    }
    results = {}
    for recipe in recipes:
        given = settings.load([f"-cfg={recipe}"]).values
        words = [*smaller.get(given.MODEL.TYPE, [])]
        if given.DATA.BATCH_SIDES:
            words += ["DATA.BATCH_SIDES", "[96]", "DATA.NO_AUGMENT_EPOCHS", "0"]
        results[Path(recipe).stem] = run(recipe, output, [*data, *words])
    return results


def run_segmenters(recipes: list[str], output: str) -> dict[str, Any]:
    """The same of recipes that label pixels, on drawn shapes."""
    data = (
        "-dataset=segmentation_shapes DATA.SHAPES.TRAIN 4 DATA.SHAPES.VAL 2 DATA.SHAPES.SIDES [48,64] -batch_size=1 "
        "DATA.CROP_SIZE [48,64] DATA.BASE_SHORTEST_SIDE 64 DATA.EVAL_SHORTEST_SIDE 64 SEGMENTATION.CROP [64,48] "
        "SEGMENTATION.STRIDE [32,24] MODEL.BACKBONE_PRETRAINED None"
    ).split()
    return {Path(recipe).stem: run(recipe, output, data) for recipe in recipes}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    images, of_teacher = pictures_and_teacher(folder)
    found = {}
    for processes in (1, 2):
        recipes = [str(path) for path in RECIPES if (path.stem in SHARED) == (processes == 2)]
        arguments = recipes, images, str(folder), of_teacher
        ended = succeeded(run_workers(f"{MODULE}:run_all", *arguments, processes=processes, timeout=1800))
        found.update({name: [of_rank[name] for of_rank in ended.results] for name in ended.results[0]})
    return found


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_two_updates(recipe, results):
    require_two_updates(results[recipe])
    assert len(results[recipe]) == (2 if recipe in SHARED else 1)


def by_two(target, recipes, folder):
    arguments = [str(path) for path in recipes], str(folder)
    return succeeded(run_workers(f"{MODULE}:{target}", *arguments, timeout=1800)).results


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    return by_two("run_detectors", FINDING, tmp_path_factory.mktemp("detectors"))


@pytest.mark.parametrize("recipe", [path.stem for path in FINDING])
def test_two_updates_of_what_finds_objects(recipe, detectors):
    require_two_updates([result[recipe] for result in detectors])


@pytest.fixture(scope="module")
def segmenters(tmp_path_factory):
    return by_two("run_segmenters", LABELING, tmp_path_factory.mktemp("segmenters"))


@pytest.mark.parametrize("recipe", [path.stem for path in LABELING])
def test_two_updates_of_what_labels_pixels(recipe, segmenters):
    require_two_updates([result[recipe] for result in segmenters])
    assert 0 <= segmenters[0][recipe]["evaluation"]["mIoU"] <= 1
