"""Recipes train on two processes: one with a teacher, one of a frozen backbone, one that labels pixels; the others at
night."""

import pytest
from support.processes import ROOT, run_together
from support.trainings.recipe_steps import pictures_and_teacher, require_two_updates

CLASSIFYING = ["deit_tiny_distilled_patch16_224", "vit_base_patch16_224_linear_probe"]
LABELING = ["segformer_b0_ade20k"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By recipe, what became of it on each rank."""
    folder = tmp_path_factory.mktemp("recipes")
    images, of_teacher = pictures_and_teacher(folder)
    files = {name: str(ROOT / "configs" / f"{name}.yaml") for name in (*CLASSIFYING, *LABELING)}
    classifiers = [files[name] for name in CLASSIFYING], images, str(folder), of_teacher
    segmenters = [files[name] for name in LABELING], str(folder)
    found = run_together(
        {
            "classifiers": ("support.trainings.recipe_steps:run_all", classifiers),
            "segmenters": ("support.trainings.recipe_steps:run_segmenters", segmenters),
        }
    )
    return {name: [of_rank[name] for of_rank in ranks] for ranks in found.values() for name in ranks[0]}


@pytest.mark.parametrize("recipe", [*CLASSIFYING, *LABELING])
def test_two_updates(recipe, results):
    require_two_updates(results[recipe])
    assert len(results[recipe]) == 2
    if recipe in LABELING:
        assert 0 <= results[recipe][0]["evaluation"]["mIoU"] <= 1
