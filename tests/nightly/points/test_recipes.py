"""Each recipe for point clouds trains on two processes."""

import pytest
from support.trainings.scene_recipes import RECIPES, require_trained, train_each


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    return folder, train_each(RECIPES, folder)


@pytest.mark.parametrize("recipe", RECIPES)
def test_two_updates_on_two_processes(recipe, trained):
    require_trained(recipe, *trained)
