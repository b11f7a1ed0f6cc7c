"""Every image recipe trains: two updates at reduced size, one recipe after another, some on two processes."""

import re

import numpy as np
import paddle
import pytest
from support.processes import run_workers
from support.runs import write_images

from paddlevit_dist.models import create_model

from . import test_recipes_build
from .test_recipes_build import CONFIGS

# Those of the other sizes name another network and its rates, and else say what R18's and S's do.
OF_OTHER_SIZES = r"(rtdetr|rtdetrv2)_r(34|50|101)vd_coco|dfine_[mlx]_coco"
FINDING = [path for path in test_recipes_build.FINDING if not re.match(OF_OTHER_SIZES, path.stem)]
RECIPES = [path for path in CONFIGS if path.stem not in ("vit_digits", "vit_mnist")]  # those train whole in other tests
# One of each kind of network, and what is frozen or has a teacher: what ranks exchange depends on no other key.
SHARED = set(
    "cait_xxs24_224 convnext_tiny deit_tiny_patch16_224 deit_tiny_distilled_patch16_224 finetune_pictures "
    "mixer_b16_224 pvtv2_b0 pvtv2_b2_linear resnet18 swin_tiny_patch4_window7_224 vit_base_patch16_224_linear_probe "
    "vit_tiny_patch16_224".split()
)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    images = write_images(folder / "pictures")
    teacher = create_model("vit", num_classes=2, image_size=64, embed_dim=192, depth=12, num_heads=3)
    paddle.save(teacher.state_dict(), str(folder / "teacher.pdparams"))
    of_teacher = ["TRAIN.TEACHER_MODEL", "vit_tiny_patch16_224", "TRAIN.TEACHER_WEIGHTS", f"{folder}/teacher.pdparams"]
    found = {}
    for processes in (1, 2):
        recipes = [str(path) for path in RECIPES if (path.stem in SHARED) == (processes == 2)]
        arguments = recipes, str(images), str(folder), of_teacher
        ended = run_workers("support.recipe_steps:run_all", *arguments, processes=processes, timeout=400)
        assert ended.code == 0, ended.err[-3000:]
        found.update({name: [of_rank[name] for of_rank in ended.results] for name in ended.results[0]})
    return found


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_two_updates(recipe, results):
    check(results[recipe])
    assert len(results[recipe]) == (2 if recipe in SHARED else 1)


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("detectors"))
    ended = run_workers("support.recipe_steps:run_detectors", [str(path) for path in FINDING], folder, timeout=500)
    assert ended.code == 0, ended.err[-3000:]
    return ended.results


@pytest.mark.long
@pytest.mark.parametrize("recipe", [path.stem for path in FINDING])
def test_two_updates_of_what_finds_objects(recipe, detectors):
    check([result[recipe] for result in detectors])


# The larger SegFormers' recipes name another network, and else say what B0's do.
LABELLING = [path for path in test_recipes_build.LABELLING if not re.match(r"segformer_b[1-5]", path.stem)]


@pytest.fixture(scope="module")
def segmenters(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("segmenters"))
    ended = run_workers("support.recipe_steps:run_segmenters", [str(path) for path in LABELLING], folder, timeout=500)
    assert ended.code == 0, ended.err[-3000:]
    return ended.results


@pytest.mark.long
@pytest.mark.parametrize("recipe", [path.stem for path in LABELLING])
def test_two_updates_of_what_labels_pixels(recipe, segmenters):
    check([result[recipe] for result in segmenters])
    assert 0 <= segmenters[0][recipe]["evaluation"]["mIoU"] <= 1


def check(of_ranks):
    first = of_ranks[0]
    assert len(first["losses"]) == 2 and np.isfinite(first["losses"]).all()
    assert first["before"] != first["after"]
    assert {(result["before"], result["after"]) for result in of_ranks} == {(first["before"], first["after"])}
