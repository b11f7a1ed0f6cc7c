"""Every picture recipe trains: two updates on two processes at reduced size, one recipe after another."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.processes import run_workers
from support.runs import write_pictures

from paddlevit_dist.models import create_model

from .test_recipes_build import CONFIGS, FINDING

RECIPES = [path for path in CONFIGS if path.stem not in ("vit_digits", "vit_mnist")]  # those train whole in other tests


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    pictures = write_pictures(folder / "pictures")
    teacher = create_model("vit", num_classes=2, image_size=64, embed_dim=192, depth=12, num_heads=3)
    paddle.save(teacher.state_dict(), str(folder / "teacher.pdparams"))
    of_teacher = ["TRAIN.TEACHER_MODEL", "vit_tiny_patch16_224", "TRAIN.TEACHER_WEIGHTS", f"{folder}/teacher.pdparams"]
    arguments = [str(path) for path in RECIPES], str(pictures), str(folder), of_teacher
    ended = run_workers("images.recipe_steps:run_all", *arguments, timeout=400)
    assert ended.code == 0, ended.err[-3000:]
    return ended.results


@pytest.mark.parametrize("recipe", [path.stem for path in RECIPES])
def test_two_updates_on_two_processes(recipe, results):
    check(*(result[recipe] for result in results))


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("detectors"))
    ended = run_workers("images.recipe_steps:run_detectors", [str(path) for path in FINDING], folder, timeout=500)
    assert ended.code == 0, ended.err[-3000:]
    return ended.results


@pytest.mark.long
@pytest.mark.parametrize("recipe", [path.stem for path in FINDING])
def test_two_updates_of_what_finds_objects(recipe, detectors):
    check(*(result[recipe] for result in detectors))


def check(first, second):
    assert len(first["losses"]) == 2 and np.isfinite(first["losses"]).all()
    assert first["before"] == second["before"] and first["after"] == second["after"] != first["before"]
