"""A recipe of each kind for point clouds trains on two processes; every one at night."""

import pytest
from support.trainings.scene_recipes import BY_DAY, RECIPES, require_trained, train_each
from support.trainings.store_recipes import STORES


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipes")
    return folder, train_each(BY_DAY, folder)


@pytest.mark.parametrize("recipe", BY_DAY)
def test_two_updates_on_two_processes(recipe, trained):
    require_trained(recipe, *trained)


def test_each_recipe_has_a_store():
    """On which it trains at night, prepared by our commands."""
    assert {recipe for recipe, _, _ in STORES.values()} == set(RECIPES)
