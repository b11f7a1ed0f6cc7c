"""Each recipe for point clouds, also of large networks, trains on a store that our commands prepare."""

import pytest
from support.trainings.store_recipes import BY_DAY, STORES, require_updates, train_on_stores

BY_NIGHT = tuple(name for name in STORES if name not in BY_DAY)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_on_stores(BY_NIGHT, tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("name", BY_NIGHT)
def test_two_updates_and_an_evaluation(name, trained):
    require_updates(name, trained)
