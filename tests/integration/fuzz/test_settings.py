"""A few random settings of a recipe of each task; ``tests/nightly/fuzz`` has many, and says how to repeat a case."""

import pytest
from support.fuzz.settings import RECIPES, find_faults


@pytest.mark.parametrize("recipe", RECIPES)
def test_random_settings_are_merged_or_refused(recipe, tmp_path):
    faults = find_faults(recipe, seed=0, count=16, folder=tmp_path)
    assert not faults, "\n".join(faults[:5])
