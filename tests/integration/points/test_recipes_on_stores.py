"""Recipes for point clouds train on stores that our commands prepare; the large networks at night."""

import pytest
from support.trainings.scene_recipes import RECIPES
from support.trainings.store_recipes import BY_DAY, STORES, require_updates, train_on_stores


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_on_stores(BY_DAY, tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("name", BY_DAY)
def test_two_updates_and_an_evaluation(name, trained):
    require_updates(name, trained)


def test_each_recipe_has_a_store():
    assert {recipe for recipe, _, _ in STORES.values()} == set(RECIPES)
