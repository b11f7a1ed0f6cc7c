"""Every image recipe trains: two updates at reduced size, one recipe after another, some on two processes."""

import re

import pytest
from support.processes import run_workers, succeeded
from support.trainings.recipe_steps import make_recipes, pictures_and_teacher, require_two_updates

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
    r"segformer_b[1-5]"
)
FINDING, LABELING = (
    [path for path in make_recipes(task) if not re.match(OF_OTHER_SIZES, path.stem)]
    for task in ("detection", "image_segmentation")
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    images, of_teacher = pictures_and_teacher(folder)
    found = {}
    for processes in (1, 2):
        recipes = [str(path) for path in RECIPES if (path.stem in SHARED) == (processes == 2)]
        arguments = recipes, images, str(folder), of_teacher
        ended = succeeded(
            run_workers("support.trainings.recipe_steps:run_all", *arguments, processes=processes, timeout=1800)
        )
        found.update({name: [of_rank[name] for of_rank in ended.results] for name in ended.results[0]})
    return found


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_two_updates(recipe, results):
    require_two_updates(results[recipe])
    assert len(results[recipe]) == (2 if recipe in SHARED else 1)


def by_two(target, recipes, folder):
    arguments = [str(path) for path in recipes], str(folder)
    return succeeded(run_workers(f"support.trainings.recipe_steps:{target}", *arguments, timeout=1800)).results


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
