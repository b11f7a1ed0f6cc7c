"""Each recipe for point clouds, also of large networks, trains on a store that our commands prepare."""

import pytest
from support.trainings.store_recipes import STORES, require_updates, train_on_stores


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_on_stores(tuple(STORES), tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("name", STORES)
def test_two_updates_and_an_evaluation(name, trained):
    require_updates(name, trained)
